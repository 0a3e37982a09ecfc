"""Files of words and tags as people have them; the columns are found by what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.columns import ReadColumns, read_columns
from kdnas.evaluation.tasks.task import ColumnChoice, Columns
from kdnas.testing.task_files import file


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def read(path: Path, text: str, **choice: int) -> ReadColumns:
    found = read_columns(written(path / "train.conll", text), choice=ColumnChoice(**choice))
    assert found is not None
    return found


def said(found: ReadColumns) -> list[list[tuple[str, str]]]:
    return [list(zip(one.tokens, one.tags, strict=True)) for one in found.examples]


HOUSE = [[("Anna", "B-PER"), ("saw", "O"), ("New", "B-LOC"), ("York", "I-LOC"), (".", "O")]]
"""What each of these files says."""
LAYOUTS = {
    "CoNLL-2003": (
        "-DOCSTART- -X- -X- O\n\nAnna NNP B-NP I-PER\nsaw VBD B-VP O\nNew NNP B-NP I-LOC\n"
        "York NNP I-NP I-LOC\n. . O O\n"
    ),
    "CoNLL-2003 in German": (
        "Anna Anna NE B-NC I-PER\nsaw sehen VVFIN B-VC O\nNew New NE B-NC I-LOC\n"
        "York York NE I-NC I-LOC\n. . $. O O\n"
    ),
    "GermEval": (
        "#\thttp://news [2011-01-01]\n1\tAnna\tB-PER\tO\n2\tsaw\tO\tO\n3\tNew\tB-LOC\tB-LOC\n"
        "4\tYork\tI-LOC\tO\n5\t.\tO\tO\n"
    ),
    "numbers of CoNLL-U with a range": (
        "# sent_id = 1\n# text = Anna\n1\tAnna\tB-PER\t_\tann1\n2-3\tsawn\t_\t_\tann1\n"
        "2\tsaw\tO\t_\tann1\n3\tNew\tB-LOC\t_\tann1\n3.1\tx\t_\t_\t_\n4\tYork\tI-LOC\t_\tann1\n"
        "5\t.\tO\t_\tann1\n"
    ),
    "trailing comments": "Anna B-PER\nsaw O  # sic\nNew B-LOC\nYork I-LOC\n. O\n",
    "numbers of the whole file": "0 Anna B-PER\n1 saw O\n2 New B-LOC\n3 York I-LOC\n4 . O\n",
    "tags first": "B-PER\tAnna\nO\tsaw\nB-LOC\tNew\nI-LOC\tYork\nO\t.\n",
    "IO": "Anna PER\nsaw O\nNew LOC\nYork LOC\n. O\n",
    "BILOU": "Anna\tU-PER\nsaw\tO\nNew\tB-LOC\nYork\tL-LOC\n.\tO\n",
    "BIOES": "Anna\tS-PER\nsaw\tO\nNew\tB-LOC\nYork\tE-LOC\n.\tO\n",
    "marks behind": "Anna\tPER-B\nsaw\tO\nNew\tLOC-B\nYork\tLOC-I\n.\tO\n",
    "WikiANN": "en:Anna\tB-PER\nen:saw\tO\nen:New\tB-LOC\nen:York\tI-LOC\nen:.\tO\n",
    "a header": "Token\tTag\nAnna\tB-PER\nsaw\tO\nNew\tB-LOC\nYork\tI-LOC\n.\tO\n",
    "documents without blank lines": (
        "-DOCSTART- O\nAnna B-PER\nsaw O\nNew B-LOC\nYork I-LOC\n. O\n-DOCSTART- O\n"
    ),
    "CR LF": "Anna B-PER\r\nsaw O\r\nNew B-LOC\r\nYork I-LOC\r\n. O\r\n\r\n",
    "a last cell of nothing": "Anna\tB-PER\t\nsaw\tO\t\nNew\tB-LOC\t\nYork\tI-LOC\t\n.\tO\t\n",
    "a comment before": "# made by hand\nAnna\tB-PER\nsaw\tO\nNew\tB-LOC\nYork\tI-LOC\n.\tO\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_people_have_is_read_for_what_it_is(tmp_path: Path, layout: str) -> None:
    assert said(read(tmp_path, LAYOUTS[layout])) == HOUSE


def test_spans_may_have_no_type(tmp_path: Path) -> None:
    found = read(tmp_path, "Selegiline\tB\n-\tI\ninduced\tO\n\nNausea\tB\n")
    assert said(found) == [
        [("Selegiline", "B-SPAN"), ("-", "I-SPAN"), ("induced", "O")],
        [("Nausea", "B-SPAN")],
    ]


def test_documents_part_sentences(tmp_path: Path) -> None:
    found = read(tmp_path, "a O\n-DOCSTART- O\nb B-X\n")
    assert said(found) == [[("a", "O")], [("b", "B-X")]]


def test_how_it_was_understood_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, LAYOUTS["GermEval"])
    assert (found.word, found.tag) == (2, 3)
    assert found.about == "words in column 2, tags in column 3 (IOB) of 4, parted by tabs"
    assert found.notes == (
        "columns 3 and 4 of train.conll hold tags, the latter within spans of the first; column 3 "
        "is taken (`columns.tag` takes another)",
    )
    assert "line 1 of train.conll is a header, and left out" in (
        read(tmp_path, LAYOUTS["a header"]).notes
    )
    assert read(tmp_path, LAYOUTS["IO"]).about == (
        "words in column 1, tags in column 2 (IO) of 2, parted by blanks"
    )


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    inner = read(tmp_path, LAYOUTS["GermEval"], tag=4)
    assert said(inner) == [
        [("Anna", "O"), ("saw", "O"), ("New", "B-LOC"), ("York", "O"), (".", "O")]
    ]
    lemmas = read(tmp_path, LAYOUTS["CoNLL-2003 in German"], word=2)
    assert lemmas.examples[0].tokens == ("Anna", "sehen", "New", "York", ".")
    speech = read(tmp_path, LAYOUTS["CoNLL-2003"], tag=2)
    assert speech.examples[0].tags == ("NNP", "VBD", "NNP", "NNP", ".")
    assert "(a tag a word)" in speech.about


def test_words_may_hold_blanks_and_begin_with_a_hash(tmp_path: Path) -> None:
    text = "#NFL\tO\nNew York\tB-location\n\t\n# id 7 domain=en\n#\tO\n"
    first, second = read(tmp_path, text).examples
    assert first.tokens == ("#NFL", "New York")
    assert second.tokens == ("#",)


def test_blanks_of_other_kinds_are_no_borders(tmp_path: Path) -> None:
    found = read(tmp_path, "10\u00a0000 O\n\u3000 O\nParis B-LOC\n")
    assert found.examples[0].tokens == ("10\u00a0000", "\u3000", "Paris")


def test_another_language_than_the_files_is_no_prefix(tmp_path: Path) -> None:
    path = written(tmp_path / "dev", "sw:Khartoum\tB-LOC\nsw::\tO\n")
    known, other = read_columns(path, "sw"), read_columns(path, "de")
    assert known is not None
    assert other is not None
    assert known.examples[0].tokens == ("Khartoum", ":")
    assert other.examples[0].tokens == ("sw:Khartoum", "sw::")


def test_a_file_of_words_alone_has_no_labels(tmp_path: Path) -> None:
    assert read_columns(written(tmp_path / "test", "EU\nrejects\n\nPeter\n")) is None
    assert read_columns(written(tmp_path / "test", "1\tEU\n2\trejects\n\n1\tPeter\n")) is None


def test_a_part_in_which_nothing_is_a_span_is_read(tmp_path: Path) -> None:
    assert said(read(tmp_path, "EU NNP O\nrejects VBZ O\n")) == [[("EU", "O"), ("rejects", "O")]]


CONLLU = (
    "# sent_id = 1\n"
    "1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n"
    "2\tcat\tcat\tNOUN\tNN\t_\t0\troot\t_\tSpaceAfter=No\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sentence; write a word and its tag a line"),
        ("-DOCSTART- O\n\n", "holds no sentence"),
        ("Token\tTag\n", "holds no sentence below its header"),
        ("EU\tB-ORG\nrejects\n", "line 2 has no tag"),
        ("EU\tNNP\tB-ORG\nrejects\tVBZ\n", "no column holds tags of spans"),
        (
            "EU B-ORG\nrejects O\nNew York B-LOC\na O\nb O\nc O\n",
            "line 3 has 3 columns, and others 2; part them by tabs",
        ),
        ("a O\nb B-PER\nc O\nd O\ne 0\nf O\n", "line 5 has '0' in column 2, where tags such as O"),
        (CONLLU, "its columns are 2 (The, cat, …), 3 (the, cat, …), 4 (DET, NOUN, …)"),
        (CONLLU, "name one as `columns.tag`"),
        (
            "EU B-ORG O\nsaw O B-ACT\nit O O\n",
            "columns 2 and 3 may hold the tags, such as B-PER, I-PER and O",
        ),
        ("a O PER\nb LOC O\n", "columns 2 and 3 may hold the tags"),
        ("a O\n" * 2001, "holds one sentence of 2001 words; part sentences by blank lines"),
    ],
)
def test_what_is_not_clear_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskDataError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "train.conll" in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"tag": 5}, "has 4 columns, not 5; give another `columns.tag`"),
        ({"word": 9}, "has 4 columns, not 9; give another `columns.word`"),
        ({"word": 3, "tag": 3}, "words and tags cannot both be in column 3"),
    ],
)
def test_columns_that_are_not_there_are_refused(
    tmp_path: Path, choice: dict[str, int], message: str
) -> None:
    with pytest.raises(TaskDataError) as caught:
        read(tmp_path, LAYOUTS["GermEval"], **choice)
    assert message in str(caught.value)


WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=6)
TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
SENTENCES = st.lists(
    st.lists(st.tuples(WORDS, TAGS), min_size=1, max_size=5), min_size=1, max_size=5
)


@given(SENTENCES, st.sampled_from(["{w}\t{t}", "{n}\t{w}\t{t}", "{w}\tX\t{t}\tann", "{n} {w} {t}"]))
def test_every_sentence_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: list[list[tuple[str, str]]],
    line: str,
) -> None:
    sentences = [[("Anna", "B-PER"), ("is", "O")], *sentences]
    text = "\n\n".join(
        "\n".join(line.format(n=n, w=w, t=t) for n, (w, t) in enumerate(sentence, 1))
        for sentence in sentences
    )
    found = read(tmp_path_factory.mktemp("columns"), text)
    assert [list(one.tokens) for one in found.examples] == [[w for w, _ in s] for s in sentences]
    for one, sentence in zip(found.examples, sentences, strict=True):
        assert [tag[2:] for tag in one.tags] == [tag[2:] for _, tag in sentence]


IDS = "".join(f"s{n}\tAnna\tB-PER\ns{n}\tcame\tO\n" for n in range(3))
KAGGLE = "Sentence #\tWord\tPOS\tTag\n" + "".join(
    f"Sentence: {n}\tAnna\tNNP\tB-PER\n\tcame\tVB\tO\n" for n in range(3)
)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (IDS, "parted where column 1 changes"),
        ("s0\tAnna\tB-PER\ns0\tcame\tO\n\ns1\tAnna\tB-PER\ns1\tcame\tO\n", ""),
        (KAGGLE, "parted where column 1 changes"),
        ("sentence_id\tword\tlabel\n" + IDS, "parted where column 1 changes"),
        ("1\tAnna\tB-PER\n2\tcame\tO\n" * 3, "parted where the numbers of words begin anew"),
        ("0\t4\tAnna\tB-PER\n5\t9\tcame\tO\n\n" * 3, ""),
        ("Anna\tB-PER\ncame\tO\n\u00a0\n" * 3, ""),
        ("id\tlemma\ttoken\ttag\n" + "a\tann\tAnna\tB-PER\nb\tcome\tcame\tO\n\n" * 3, ""),
    ],
)
def test_names_of_sentences_and_places_are_no_words(tmp_path: Path, text: str, note: str) -> None:
    found = read_columns(written(tmp_path / "train.conll", text))
    assert found is not None
    sentences = [example.tokens for example in found.examples]
    assert sentences == [("Anna", "came")] * (2 if text.count("Anna") == 2 else 3)
    assert note in " ".join(found.notes)


def test_a_number_without_end_numbers_no_word(tmp_path: Path) -> None:
    text = f"{'1' * 5000}\tAnna\tB-PER\n2\tcame\tO\n\n" * 3
    found = read_columns(written(tmp_path / "train.conll", text))
    assert found is not None
    assert [example.tokens for example in found.examples] == [("Anna", "came")] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 anna Anna NNP B-PER\n2 came Came VB O\n", "not clear which column holds the words"),
        ("s\tdoc\tAnna\tx\tB-PER\ns\tdoc\tcame\ty\tO\n\n" * 2, "columns are 1 (s, …), 2 (doc,"),
        ("a b (GPE*\nc d *)\n" * 2, "column 3 holds brackets, as of CoNLL-2012, and no column"),
        ("\tB-PER\ncame\tO\n", "line 1 has a tag and no word in column 1"),
        ("Anna\tB-PER|B-ORG\ncame\tO\n", "line 1 has 'B-PER|B-ORG', several tags, in column 2"),
        (
            "".join(f"w{n} O\n" for n in range(209)) + "Anna B-PER\n",
            "one sentence of 210 words; part",
        ),
    ],
)
def test_words_that_are_not_certain_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskDataError) as caught:
        read_columns(written(tmp_path / "train.conll", text))
    assert message in str(caught.value)


WORDS = "".join(f"w{n} O\n" for n in range(50))


def test_a_long_only_sentence_is_told(tmp_path: Path) -> None:
    found = read_columns(written(tmp_path / "train.conll", WORDS + "Anna B-PER\n"))
    assert found is not None
    assert "holds one sentence of 51 words; if it is several" in found.notes[0]


def test_csv_with_a_word_a_line(tmp_path: Path) -> None:
    """As the annotated corpus that many tutorials take: the sentence is named once."""
    lines = (
        "Sentence #,Word,POS,Tag",
        "Sentence: 1,Anna,NNP,B-PER",
        ',"1,000",CD,O',
        "Sentence: 2,Rome,NNP,B-LOC",
        ',"""",.,O',
    )
    found = read_columns(file(tmp_path / "ner.csv", *lines))
    assert found is not None
    assert [one.tokens for one in found.examples] == [("Anna", "1,000"), ("Rome", '"')]
    assert [one.tags for one in found.examples] == [("B-PER", "O"), ("B-LOC", "O")]
    assert found.about.endswith("of 4, parted by delimiters of CSV")


def test_csv_with_semicolons_and_blank_rows(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", "Token;Tag", "Anna;B-PER", ";", "Rom;B-LOC", "liegt;O")
    found = read_columns(path)
    assert found is not None
    assert [one.tokens for one in found.examples] == [("Anna",), ("Rom", "liegt")]


def test_csv_with_lists_in_cells_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", "tokens,ner_tags", '''"['a', 'b']","['O', 'B-X']"''')
    with pytest.raises(TaskDataError, match="line 2 has a list in a cell; write a word and its"):
        read_columns(path)


def test_columns_that_a_user_names(tmp_path: Path) -> None:
    path = file(tmp_path / "a.tsv", "Wort\tWortart\tMarke", "Anna\tNN\tB-PER", "kam\tV\tO")
    found = read_columns(path, names=[Columns("wort", None, "marke")])
    assert found is not None
    assert (found.word, found.tag) == (1, 3)
    assert [one.tokens for one in found.examples] == [("Anna", "kam")]
