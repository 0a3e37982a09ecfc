"""Files that a stranger has brought: each is refused, or what is odd is told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.tasks.registry import TASKS, own_task
from kdnas.evaluation.tasks.task import Task
from kdnas.testing.wild_files import CONLL, CSV, TSV, lines, load, rows, squad

NER = TASKS["ner"]
PLAIN = own_task("mine", "classification")
SEVERAL = own_task("mine", "multilabel")
NUMBERS = own_task("mine", "regression", label="score")
TAGS = own_task("mine", "tagging", text="tokens", label="ner_tags")
FOUND = own_task("mine", "retrieval", text="question", pair="answer")
FOUND_FOLDER = own_task("mine", "retrieval")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
POS = own_task("mine", "tagging", metrics=("accuracy",))
CHUNKS = "".join(f"He{n}\tPRP\tB-NP\nsees\tVBZ\tB-VP\nit\tPRP\tB-NP\n\n" for n in range(9))


def turned(line: str, sentences: int = 40) -> str:
    """Sentences of two words in columns of one's own order."""
    made = []
    for n in range(sentences):
        person = {"word": f"Ann{n % 35}", "pos": "NNP", "tag": "B-PER", "mark": "B", "type": "PER"}
        other = {"word": f"ran{n % 35}", "pos": "VBD", "tag": "O", "mark": "O", "type": "_"}
        named = [{**word, "id": f"{2 * n + k:05x}"} for k, word in enumerate((person, other))]
        made.append("\n".join(line.format(**word) for word in named))
    return "\n\n".join(made) + "\n"


@pytest.mark.parametrize(
    ("task", "files", "said"),
    [
        (
            PLAIN,
            {"a.jsonl": '{"text": "bad \\ud83d", "label": "x"}\n'},
            r"line 1 is .* half of a ch",
        ),
        (
            NER,
            {"train.txt": CONLL, "test.jsonl": '{"tokens": ["\\udc00"], "ner_tags": ["O"]}'},
            "half",
        ),
        (
            NUMBERS,
            {"a.tsv": "score\ttext\n1\t0.5\tsome text\n2\t1.5\tother\n"},
            "3 columns in line 2",
        ),
        (PLAIN, {"a.tsv": "text\tlabel\nhello\tworld\tgood\n"}, "take tabs out of texts"),
        (
            PLAIN,
            {"a.csv": 'text,label\n"Great film,good\nb,bad\n"Bad film,bad\n'},
            "lines 2 to 4: text",
        ),
        (PLAIN, {"a.csv": 'text,label\n"Great" film,good\n'}, "line 2: text stands behind a clos"),
        (NER, {"a.csv": 'word,tag\nAnna,B-PER\n",O\nhi,O\n",O\n'}, "line 3 has a word of several"),
        (NER, {"train.jsonl": lines({"tokens": ["a"], "ner": ["B-X"]})}, "columns tokens, ner; it"),
        (TASKS["sst-2"], {"train.tsv": "sentence\tpolarity\na\t1\n"}, "columns sentence, polarity"),
        (
            PLAIN,
            {"train.csv": "text,label\na,\nb,\n", "test.csv": CSV},
            "no example of .*train.csv has a label",
        ),
        (NER, {"train.txt": "Anna\ncame\n", "test.txt": CONLL}, "train.txt has words without tags"),
        (
            NER,
            {"a.conll": "Anna\tBPER\nMay\tIPER\ncame\tO\n\nBo\tBPER\n"},
            "no column holds tags of spans|mark no",
        ),
        (
            NER,
            {"a.conll": "Anna\tO\ncame\tO\n\nBo\tO\n\nhe\tO\n\nit\tO\n"},
            "no word of the . sentences",
        ),
        (
            NER,
            {"a.tsv": "#FORMAT=WebAnno TSV 3.2\n\n1-1\t0-4\tAnna\tPER\n"},
            "export it from there as",
        ),
        (
            SEVERAL,
            {"a.jsonl": lines({"text": "a", "label": [{"name": "a"}]})},
            "where the name of a l",
        ),
        (
            SEVERAL,
            {"a.csv": "text,label\na,0\nb,1\nc,1\n"},
            "have 0 or 1 for their labels; name the",
        ),
        (PLAIN, {"a.csv": "text,label\na,[0]\nb,[1]\n"}, r"holds '\[0\]' where a label belongs"),
        (PLAIN, {"a.tsv": 'text\tlabel\na\t{"label": "x"}\n'}, "where a label belongs"),
        (
            TAGS,
            {"a.jsonl": lines({"tokens": [{"text": "A"}], "ner_tags": ["O"]})},
            "where a word bel",
        ),
        (
            TAGS,
            {"a.jsonl": lines({"tokens": ["A", "b"], "ner_tags": ["O", None]})},
            "where a tag bel",
        ),
        (
            FOUND,
            {"a.csv": "question,answer\na?,yes\nb?,yes\n"},
            "1 passage of mine, so that whatever finds",
        ),
        (
            PLAIN,
            {"train/rows0.csv": CSV, "train/rows1.csv": CSV},
            "2 files of its train part",
        ),
        (
            PLAIN,
            {"train.csv": CSV, "dev1.csv": CSV, "dev2.csv": CSV},
            "2 files of its dev part that differ in a number alone, dev1",
        ),
        (PLAIN, {"a.csv": '"1","Title, one","Text one"\n"2","Title","Text"\n'}, "no header line"),
        (NER, {"a.txt": turned("{pos} {word} {tag}")}, "not clear which column holds the words"),
        (NER, {"a.txt": turned("{tag} {pos} {word}")}, "not clear which column holds the words"),
        (NER, {"a.tsv": turned("{id}\t{word}\t{tag}")}, "not clear which column holds the words"),
        (NER, {"a.txt": turned("{word} {mark} {type}")}, "marks in column 2 and types in column 3"),
        (POS, {"a.txt": turned("{pos} {word}")}, "column 1 has 2 different cells, column 2"),
        (
            PLAIN,
            {"a.tsv": TSV + "label\ttext\n" + rows(8, "{label}\tu {n}")},
            "line 14 has another",
        ),
        (
            FOUND,
            {"a.csv": 'question,answer\na?,"[""x"", ""y""]"\nb?,"[""z""]"\n'},
            "lists for pass",
        ),
        (
            PLAIN,
            {
                f"train_r{n}-00000-of-00001.jsonl": lines({"text": "a", "label": "b"})
                for n in (1, 2)
            },
            "several files that are all of its train part",
        ),
        (
            PLAIN,
            {"a.txt": lines({"text": "a", "label": "b"})},
            "is JSON, and no table; call it .jsonl",
        ),
        (PLAIN, {"a.csv": '"text,label"\n"a,b"\n'}, "no quotes around whole lines"),
        (PLAIN, {"a.parquet": POINTER}, "pointer of Git LFS .* run `git lfs pull`"),
        (PLAIN, {"a.csv": POINTER}, "pointer of Git LFS"),
        (NER, {"a.conll": POINTER}, "pointer of Git LFS"),
        (PLAIN, {"a.csv": CSV.encode("utf-16-le")}, "line 1 has a null character, as UTF-16 has"),
        (
            PLAIN,
            {"a.csv": CSV.replace("text 3", "it’s").encode("cp1252")},
            r"not UTF-8 in line 5 \(byte",
        ),
        (PLAIN, {"a.csv": b"BZh91AY&SY\xff"}, "is packed by bzip2; unpack it"),
        (PLAIN, {"a.tsv": "__label__pos good film\n__label__neg bad film\n"}, "layout of fastText"),
        (
            PLAIN,
            {"a.tsv": '"text"\t"label"\n"a"\t"b"\n'},
            "cells in quotes, as CSV has; call it .csv",
        ),
        (PLAIN, {"x/train.csv.zip": b"PK", "y/z": b""}, r"no data of mine|unpack"),
        (PLAIN, {"notes.md": "a", "train.csv.zip": b"PK"}, r"found .*; unpack train.csv.zip"),
        (PLAIN, {"notes.md": "a", "more.md": "b"}, "check the folder, or give a file of it"),
        (
            TASKS["squad 1.1"],
            {"train-v1.1.json": "[]", "b": ""},
            "something else stands in its place",
        ),
        (
            NER,
            {"a.tsv": CONLL.replace("\tO", "\tOTHER")},
            r"the only tag of NER, such as 'OTHER' \(.*a\.tsv, line \d+, …\), .* write O for words",
        ),
        (NER, {"a.tsv": CONLL.replace("\tO", "\t")}, r"line \d+ has no tag in column 2; write O"),
        (
            NER,
            {"a.tsv": "".join(f"Ann{n} ran\tB-PER O\n" for n in range(9))},
            "line 1 has 'B-PER O', the tags of several words, in column 2",
        ),
        (
            NER,
            {"a.txt": "".join(f"New York{n} B-LOC\nis O\n\n" for n in range(9))},
            "line 1 has 3 columns, and others 2; part them by tabs, so that a word may have blanks",
        ),
        (
            NER,
            {"a.tsv": re.sub(r"(\S+)\t(\S+)", r'"\1"\t"\2"', CONLL)},
            "are in quotes, as CSV has them; call the file .csv",
        ),
        (
            NER,
            {"a.tsv": CONLL.replace("B-", "Begin-").replace("I-", "Inside-")},
            "mark no spans with B- and I-",
        ),
        (
            NER,
            {"a.conllu": re.sub(r"\t(\S+)", r"\tNOUN\t_\tSpaceAfter=No|name=\1", CONLL)},
            "column 4 holds tags within other values",
        ),
        (
            PLAIN,
            {"a.json": json.dumps({"text": ["one", "two"], "label": ["a", "b"]})},
            "holds a list for each of text, label; write a list of objects",
        ),
        (PLAIN, {"a.csv": b"SQLite format 3\0"}, "is a database of SQLite; write the table"),
        (
            PLAIN,
            {"a.csv": ("text,label\n" + rows(9, "caf\xe9 {n},{label}")).encode("utf-16-le")},
            "is UTF-16 without a mark; convert it by `iconv -f UTF-16LE",
        ),
        (
            PLAIN,
            {"a.csv": "Sales of 2025\n" + CSV},
            "line 1 is no header: line 2 has 2 columns; take out what stands above the header",
        ),
        (PLAIN, {"a.csv": "'text','label'\n'one','a'\n"}, "in single quotes; write double ones"),
        (
            PLAIN,
            {"a.csv": CSV + '"{""ImportId"":""Q1""}","{""ImportId"":""Q2""}"\n'},
            "is a header of Qualtrics; take out the two lines",
        ),
        (NUMBERS, {"a.jsonl": lines({"text": "a", "score": True})}, "line 1 has the score True"),
        (NUMBERS, {"a.jsonl": lines({"text": "a", "score": 10**400})}, "line 1 has the score 1000"),
        (
            PLAIN,
            {"a.csv": 'text,label\n"1","one","a"\n"2","two","b"\n'},
            "or write a name before the others, if the first column names rows, as R has it",
        ),
        (
            PLAIN,
            {"a.tsv": TSV + "lone\n"},
            "mend the line, or call the file .csv if texts in quotes have line ends",
        ),
        (
            own_task("mine", "classification", text="what did you like about it"),
            {"a.csv": "What did you like about\u00a0it all?,label\n" + rows(9, "t {n},{label}")},
            "has the columns What did you like",
        ),
        (
            NER,
            {"a.tsv": CONLL + "York\tB\n"},
            r"the tags of NER, such as 'B' \(.*\), stand where others such as O and B-\w+ do; mend",
        ),
    ],
)
def test_it_is_refused(
    task: Task, files: Mapping[str, str | bytes], said: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskDataError, match=said) as refused:
        load(task, tmp_path, files)
    assert str(tmp_path) in str(refused.value)  # it names the file


GOLD = {"answers": [{"text": "stone", "answer_start": 2}]}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"id": "b"}, "says of 1 of 2 questions, such as 'b', neither an answer nor"),
        (
            {"id": "b", "is_impossible": "false", **GOLD},
            "of question 'b' is neither true nor false",
        ),
        ({"id": "b", "is_impossible": True, **GOLD}, "question 'b' is impossible, and has answers"),
    ],
)
def test_questions_are_answered_or_are_said_to_be_none(
    odd: Mapping[str, object], said: str, tmp_path: Path
) -> None:
    file = squad({"id": "a", **GOLD}, odd)
    with pytest.raises(TaskDataError, match=said) as refused:
        load(TASKS["squad 2.0"], tmp_path, {"train-v2.0.json": file, "dev-v2.0.json": file})
    assert str(tmp_path / "train-v2.0.json") in str(refused.value)


@pytest.mark.parametrize(
    ("task", "files", "note"),
    [
        (
            PLAIN,
            {"train.csv": CSV, "test.csv": "text,gold\na,b\n"},
            "test.csv is not used: .* text, gold",
        ),
        (PLAIN, {"train.csv": CSV, "test.csv": "text,label\na,?\nb,?\n"}, "test.csv is not used"),
        (NER, {"train.txt": CONLL, "test.txt": "Anna\ncame\n"}, "not used: .* words without tags"),
        (
            PLAIN,
            {"a.csv": "text,label,split\n" + rows(9, "t {n},{label},tr")},
            "'split' .* 'tr', and not",
        ),
        (
            PLAIN,
            {"train.csv": "text,label,split\n" + rows(9, "t {n},{label},dev"), "b.md": ""},
            "'split' .* not used, which says 'dev', since the file is called train",
        ),
        (
            PLAIN,
            {
                "a.csv": "text,label\n"
                + rows(4, "t {n},N/A")
                + rows(4, "t {n},-")
                + rows(4, "t {n},x")
            },
            "8 examples have the class '-' or 'N/A', which looks as if they had none",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(9, "t {n},good\u200b") + rows(9, "t {n},good")},
            r"'good' and 'good\\u200b' are hardly different",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(9, "t {n},non-fiction") + rows(9, "t {n},non fiction")},
            "'non fiction' and 'non-fiction' are hardly different",
        ),
        (
            PLAIN,
            {"a.tsv": TSV + '"He said ""no"" twice"\tgood\n'},
            "1 texts of a.tsv are in quotes with doubled ones in them, as CSV has them",
        ),
        (
            PLAIN,
            {"a.csv": CSV + '"Never,good\nfine,bad\nlast",good\n'},
            r"a\.csv, line 14 has a cell with lines that are rows themselves: a quote",
        ),
        (PLAIN, {"a.csv": CSV + rows(4, "u {n},-1")}, "4 examples have the class '-1'"),
        (
            PLAIN,
            {"a.csv": 'text,label,note\nold,bad,x\nfine,good,"b\nnice,good,c\nodd,bad,d"\n'},
            r"a\.csv, line 3 has a cell with lines that are rows themselves",
        ),
        (
            PLAIN,
            {"a.csv": CSV + rows(4, "u {n},good;bad")},
            r"the class 'good;bad' \(.*\) is several others; take `own.kind: multilabel`",
        ),
        (
            NER,
            {"a.tsv": turned("{word}\t{tag}") + "\nCy\tB-PRE\n"},
            r"1 type of span has a single example \('PRE'\)",
        ),
        (
            NER,
            {"a.tsv": "palabra\tetiqueta\n" + CONLL},
            "line 1 of a.tsv is taken for a header, and left out: palabra, etiqueta",
        ),
        (
            NER,
            {
                "a.jsonl": lines(
                    *(
                        {"tokens": ["Ann", " ", f"w{n}"], "ner_tags": ["B-PER", "O", "O"]}
                        for n in range(6)
                    )
                )
            },
            "6 blank words of a.jsonl are left out",
        ),
        (
            FOUND_FOLDER,
            {
                "corpus.tsv": "d1\tone\nd2\ttwo\n",
                "queries.tsv": "q\twhat?\n",
                "qrels/test.tsv": "q\t0\td1\t1\n",
                "qrels/test2.tsv": "q\t0\td2\t1\n",
            },
            "judgements of the test part are those of test.tsv and test2.tsv together",
        ),
        (
            TASKS["squad 1.1"],
            {
                "dev-v1.1.json": squad(
                    {"id": "q", "question": " ", "answers": [{"text": "a", "answer_start": 0}]},
                    {"id": "r", "answers": [{"text": "a", "answer_start": 0}]},
                ),
                "train-v1.1.json": squad(
                    {"id": "t", "answers": [{"text": "a", "answer_start": 0}]}
                ),
            },
            "1 questions of dev-v1.1.json are blank, such as 'q'",
        ),
        (
            PLAIN,
            {"a.csv": CSV + "text 1,good\n"},
            r"1 text comes with different classes \(.*a\.csv, line 14, …\)",
        ),
        (
            PLAIN,
            {"a.csv": CSV + "cafÃ©,good\n"},
            r"1 of 13 examples \(.*a\.csv, line 14, …\) hold what is left of letters",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(9, "t {n},semi-good") + rows(9, "t {n},semi–good")},
            "are hardly different",
        ),
        (
            PLAIN,
            {
                "a.jsonl": lines(
                    *(
                        {"text": f"t{n}", "label": "ab"[n % 2], "answer": "accept"}
                        for n in range(9)
                    ),
                    {"text": "odd", "label": "a", "answer": "reject"},
                )
            },
            "1 of 10 rows of a.jsonl are taken though their answer is not accept",
        ),
        (
            TASKS["squad 1.1"],
            {
                "dev-v1.1.json": squad(
                    {"id": "q", "answers": [{"text": "stone", "answer_start": 5}]},
                    {"id": "r", "answers": [{"text": "stone", "answer_start": 2}]},
                    {"id": "s", "answers": [{"text": "a", "answer_start": 0}]},
                ),
                "train-v1.1.json": squad(
                    {"id": "t", "answers": [{"text": "a", "answer_start": 0}]}
                ),
            },
            "1 of 3 answers of dev-v1.1.json begin elsewhere than it says, .* question 'q'",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(9, "t {n},علي") + rows(9, "t {n},علی")},
            "are hardly different",
        ),
        (
            PLAIN,
            {"a.tsv": TSV + "one line\\nand the next\tgood\n"},
            r"1 of \d+ examples \(.*a\.tsv, line \d+, …\) have \\n, \\r or \\t as two characters",
        ),
        (
            NER,
            {"a.txt": CHUNKS},
            "column 3 of a.txt holds chunks of sentences, such as NP, VP, and no names",
        ),
        (
            NER,
            {"train.txt": CONLL, "test.txt": CONLL.replace("B-PER", "B-Per") + "\nCy\tB-PER\n"},
            "types of spans 'PER' and 'Per' are hardly different",
        ),
        (PLAIN, {"a.csv": CSV + CSV}, "1 line of a.csv with the header once more left out"),
        (PLAIN, {"a.tsv": TSV + TSV}, "1 line of a.tsv with the header once more left out"),
        (
            NER,
            {"a.tsv": "Token\tTag\n" + CONLL + "\nToken\tTag\n" + CONLL},
            "left out, as 1 more like it",
        ),
        (NER, {"train.txt": CONLL, "test.txt": "he\tO\nran\tO\n"}, "no scored word is in a span"),
        (FOUND, {"a.csv": "question,answer\na?,yes\nb?,no\n"}, None),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(60, "t {n},{label}") + "Total,60\n"},
            r"1 class has a single example \('60'\), as a line that is no example has",
        ),
        (
            PLAIN,
            {"a.csv": CSV + CSV.replace("text,label", "Text , LABEL")},
            "header once more left",
        ),
        (
            PLAIN,
            {"a.csv": "id,text,label\n" + rows(9, "{n},t,{label}") + "ID,text,label\n7,u,bad\n"},
            "1 line of a.csv with the header once more left out",
        ),
        (PLAIN, {"train.csv": CSV, "evaluation.txt": TSV}, "evaluation.txt is not read"),
        (
            SEVERAL,
            {"a.csv": "text,label\n" + rows(9, "t {n},joy & {label}")},
            "no text has several labels",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(4, "t {n},\\N") + rows(8, "t {n},{label}")},
            r"4 examples have the class '\\\\N'",
        ),
        (
            PLAIN,
            {"a.csv": "text,label\n" + rows(9, "t {n},don't know") + rows(9, "t {n},don’t know")},
            "are hardly different",
        ),
        (
            NER,
            {"a.tsv": re.sub(r"ran\d*[02468]\t", "\t", turned("{word}\t{tag}"))},
            "blank words of a.tsv are left out",
        ),
        (
            PLAIN,
            {"train.csv": CSV, "data/train.csv": CSV, "test.csv": CSV},
            "train.csv is taken as the train part, and not .*data/train.csv",
        ),
        (
            FOUND,
            {
                "corpus.jsonl": lines({"_id": "d", "text": "x"}, {"_id": "e", "text": ""}),
                "queries.jsonl": lines({"_id": "q", "text": "x?"}),
                "qrels.tsv": "q\td\t1\n",
            },
            "1 of 2 passages are blank",
        ),
        (
            FOUND,
            {
                "corpus.jsonl": lines({"_id": "d", "text": "x"}, {"_id": "e", "text": "y"}),
                "queries.jsonl": lines({"_id": "q", "text": "x?"}),
                "qrels.tsv": "q\td\t1\nq\td\t0\n",
            },
            "1 judgements of qrels.tsv say something else than an earlier one",
        ),
    ],
)
def test_it_is_told(
    task: Task, files: Mapping[str, str | bytes], note: str | None, tmp_path: Path
) -> None:
    notes = load(task, tmp_path, files).notes
    if note is None:
        assert notes == ()
    else:
        assert any(re.search(note, one) for one in notes), notes
