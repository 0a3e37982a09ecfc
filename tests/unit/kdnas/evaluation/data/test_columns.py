from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOBES, Entities

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.columns import is_span_scheme, read_columns, to_iob2

TYPES = st.sampled_from(["PER", "LOC"])


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_columns_with_document_marks_and_extra_columns(tmp_path: Path) -> None:
    text = (
        "-DOCSTART- -X- -X- O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\n"
        "Peter NNP I-NP I-PER\r\nBlackburn NNP I-NP I-PER\r\n"
    )
    first, second = read_columns(written(tmp_path / "eng.train", text)) or []
    assert (first.tokens, first.tags) == (("EU", "rejects"), ("B-ORG", "O"))
    assert (second.tokens, second.tags) == (("Peter", "Blackburn"), ("B-PER", "I-PER"))


def test_words_may_hold_blanks_and_begin_with_a_hash(tmp_path: Path) -> None:
    text = "#NFL\tO\nNew York\tB-location\n\t\n# id 7 domain=en\n# _ _ O\n"
    path = written(tmp_path / "a.conll", text.replace("# _ _ O\n", "#\tO\n"))
    first, second = read_columns(path) or []
    assert first.tokens == ("#NFL", "New York")
    assert second.tokens == ("#",)


def test_a_prefix_of_the_language_is_taken_off(tmp_path: Path) -> None:
    path = written(tmp_path / "dev", "sw:Khartoum\tB-LOC\nsw::\tO\n")
    [sentence] = read_columns(path, "sw") or []
    assert sentence.tokens == ("Khartoum", ":")
    [untouched] = read_columns(path, "de") or []
    assert untouched.tokens == ("sw:Khartoum", "sw::")


def test_a_file_without_tags_has_no_labels(tmp_path: Path) -> None:
    assert read_columns(written(tmp_path / "test", "EU\nrejects\n\nPeter\n")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sentence"),
        ("-DOCSTART- O\n\n", "holds no sentence"),
        ("EU\tB-ORG\nrejects\n", "line 2 has no tag"),
    ],
)
def test_what_is_no_file_of_columns_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskDataError, match=message):
        read_columns(written(tmp_path / "dev.txt", text))


@pytest.mark.parametrize(
    ("tags", "iob2"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),  # IOB1
        ("I-PER B-PER I-LOC", "B-PER B-PER B-LOC"),  # IOB1, neighbours
        ("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC"),  # IOB2
        ("S-PER B-LOC E-LOC O", "B-PER B-LOC I-LOC O"),  # IOBES
        ("U-PER U-PER B-LOC I-LOC L-LOC", "B-PER B-PER B-LOC I-LOC I-LOC"),  # BILOU
        ("B-creative-work I-creative-work", "B-creative-work I-creative-work"),
        ("NN VB", "NN VB"),
    ],
)
def test_schemes_become_iob2(tags: str, iob2: str) -> None:
    assert to_iob2(tags.split()) == tuple(iob2.split())


@given(st.lists(st.one_of(st.just("O"), st.builds("{}-{}".format, st.sampled_from("BI"), TYPES))))
def test_iob_keeps_its_spans(tags: list[str]) -> None:
    converted = list(to_iob2(tags))
    assert get_entities(converted) == get_entities(tags)
    assert to_iob2(converted) == tuple(converted)
    for before, tag in zip(["O", *converted], converted, strict=False):
        assert not tag.startswith("I-") or before[2:] == tag[2:]


@given(st.lists(st.tuples(st.integers(0, 3), TYPES), max_size=8), st.booleans())
def test_iobes_and_bilou_keep_their_spans(pieces: list[tuple[int, str]], bilou: bool) -> None:
    single, end = ("U", "L") if bilou else ("S", "E")
    tags: list[str] = []
    for length, kind in pieces:
        if length == 0:
            tags.append("O")
        elif length == 1:
            tags.append(f"{single}-{kind}")
        else:
            tags += [f"B-{kind}", *([f"I-{kind}"] * (length - 2)), f"{end}-{kind}"]
    spans = Entities([tags], BILOU if bilou else IOBES).entities[0] if tags else []
    wanted = [(e.tag, e.start, e.end - 1) for e in spans]
    assert get_entities(list(to_iob2(tags))) == wanted


def test_tags_of_words_are_no_scheme_of_spans() -> None:
    assert is_span_scheme(["O", "B-PER", "I-PER", "S-LOC"])
    assert not is_span_scheme(["NN", "O"])
