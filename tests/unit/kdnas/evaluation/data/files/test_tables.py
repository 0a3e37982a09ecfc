from __future__ import annotations

import gzip
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.opening import read_text
from kdnas.evaluation.data.files.tables import Row, read_table
from kdnas.evaluation.tasks.registry import TASKS, own_task

OWN = own_task("mine", "classification", text="body", pair="title", label="class").layout


def packed(content: bytes) -> bytes:
    """As gzip writes it, the same at any time: tests are named after it."""
    return gzip.compress(content, mtime=0)


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def cells(rows: object) -> list[tuple[object, object, object]]:
    assert isinstance(rows, list)
    return [(row.text, row.pair, row.label) for row in rows if isinstance(row, Row)]


def test_a_header_is_found_whatever_its_case_mark_and_line_ends(tmp_path: Path) -> None:
    text = '\ufeffQuality\t#1 ID\t#2 ID\t#1 STRING\t#2 String\r\n1\t7\t8\tHe said "no\tShe\r\n'
    table = read_table(written(tmp_path / "dev.tsv", text), TASKS["mrpc"].layout)
    assert cells(table.rows) == [('He said "no', "She", "1")]
    assert table.labelled
    assert table.rows[0].where.endswith("dev.tsv, line 2")


def test_a_second_text_that_is_null_is_empty(tmp_path: Path) -> None:
    """None would say that there are no second texts at all, and those of other rows were lost."""
    lines = (
        '{"body": "a", "title": "b", "class": "x"}\n{"body": "c", "title": null, "class": "y"}\n'
        '{"body": "d", "class": "x"}\n'
    )
    table = read_table(written(tmp_path / "a.jsonl", lines), OWN)
    assert cells(table.rows) == [("a", "b", "x"), ("c", "", "y"), ("d", "", "x")]
    alone = own_task("mine", "classification", text="body", pair=None, label="class").layout
    table = read_table(written(tmp_path / "b.jsonl", lines), alone)
    assert [row.pair for row in table.rows] == [None] * 3


def test_quotes_of_a_tsv_are_text(tmp_path: Path) -> None:
    text = 'sentence\tlabel\n"quoted\t1\nnot " closed\t0\n\n"both"\t1\n'
    table = read_table(written(tmp_path / "train.tsv", text), TASKS["sst-2"].layout)
    assert [row.text for row in table.rows] == ['"quoted', 'not " closed', '"both"']


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0\ufeff"), min_size=1),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_text_without_tab_and_line_end_is_read_as_it_is(texts: list[str], end: str) -> None:
    with TemporaryDirectory() as folder:
        lines = ["sentence\tlabel", *(f"{text}\t1" for text in texts)]
        path = written(Path(folder) / "dev.tsv", end.join(lines))
        table = read_table(path, TASKS["sst-2"].layout)
    assert [(row.text, row.label) for row in table.rows] == [(text, "1") for text in texts]


def test_a_table_without_header_is_read_by_position(tmp_path: Path) -> None:
    text = "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tThe sailors rides.\n"
    table = read_table(written(tmp_path / "train.tsv", text), TASKS["cola"].layout)
    assert cells(table.rows) == [
        ("The sailors rode.", None, "1"),
        ("The sailors rides.", None, "0"),
    ]


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("cola", "index\tsentence\n0\tBill whistled.\n"),
        ("qnli", "index\tquestion\tsentence\n0\twhy?\tso.\n"),
        ("xnli", "premise one\thypothesis one\n"),
    ],
)
def test_a_test_part_has_no_labels(tmp_path: Path, task: str, text: str) -> None:
    table = read_table(written(tmp_path / "test.tsv", text), TASKS[task].layout)
    assert not table.labelled
    assert len(table.rows) == 1
    assert table.rows[0].label is None


def test_languages_may_stand_in_a_column(tmp_path: Path) -> None:
    text = (
        "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\n"
        "de\tneutral\t( x )\teins\tzwei\nsw\tentailment\t( y )\tmoja\tmbili\n"
    )
    table = read_table(written(tmp_path / "xnli.dev.tsv", text), TASKS["xnli"].layout)
    assert [(row.language, row.text, row.label) for row in table.rows] == [
        ("de", "eins", "neutral"),
        ("sw", "moja", "entailment"),
    ]


def test_a_few_torn_lines_are_left_out_and_told(tmp_path: Path) -> None:
    lines = ["id\tquestion1\tquestion2\tis_duplicate"]
    lines += [f"{n}\tone {n}\ttwo\t1" for n in range(200)]
    lines[7] = "7\ttorn"
    table = read_table(written(tmp_path / "train.tsv", "\n".join(lines)), TASKS["qqp"].layout)
    assert len(table.rows) == 199
    assert table.notes == ("1 torn line of train.tsv left out",)


def test_many_torn_lines_are_another_layout(tmp_path: Path) -> None:
    path = written(tmp_path / "train.tsv", "sentence\tlabel\na\t1\nb\nc\n")
    with pytest.raises(TaskDataError, match=r"has only 1 column in line 3, 2 are needed"):
        read_table(path, TASKS["sst-2"].layout)


def test_an_unknown_header_is_refused_with_what_is_wanted(tmp_path: Path) -> None:
    path = written(tmp_path / "dev.tsv", "text\tclass\na\t1\n")
    with pytest.raises(
        TaskDataError, match=r"has the columns text, class; it needs sentence and label$"
    ):
        read_table(path, TASKS["sst-2"].layout)


def test_csv_has_real_quotes_and_any_usual_delimiter(tmp_path: Path) -> None:
    text = 'id,Body,title,class\n1,"one, ""two""\nthree",t,0\n'
    table = read_table(written(tmp_path / "a.csv", text), OWN)
    assert cells(table.rows) == [('one, "two"\nthree', "t", "0")]
    table = read_table(written(tmp_path / "b.csv", "body;title;class\nx, y;t;c\n"), OWN)
    assert cells(table.rows) == [("x, y", "t", "c")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", packed(b"body,title,class\na,t,1\nb,u,2\n")),
        ("a.tsv.gz", packed(b"body\ttitle\tclass\na\tt\t1\nb\tu\t2\n")),
        ("a.tsv", "body\ttitle\tclass\ra\tt\t1\rb\tu\t2\r"),
        ("a.csv", "body,title,class\ra,t,1\rb,u,2"),
        (
            "a.json",
            '[{"body": "a", "title": "t", "class": "1"},\n'
            '{"body": "b", "title": "u", "class": "2"}]',
        ),
        (
            "a.json",
            '{"version": 1, "data": [{"body": "a", "title": "t", "class": "1"}, '
            '{"body": "b", "title": "u", "class": "2"}]}',
        ),
        (
            "a.json",
            '{"body": "a", "title": "t", "class": "1"}\n'
            '{"body": "b", "title": "u", "class": "2"}\n',
        ),
        (
            "a.jsonl.gz",
            packed(
                b'{"body": "a", "title": "t", "class": "1"}\n'
                b'{"body": "b", "title": "u", "class": "2"}\n'
            ),
        ),
    ],
)
def test_tables_come_in_many_ways(tmp_path: Path, name: str, content: str | bytes) -> None:
    table = read_table(written(tmp_path / name, content), OWN)
    assert cells(table.rows) == [("a", "t", "1"), ("b", "u", "2")]
    assert table.about == "text in 'body', second text in 'title', label in 'class'"


def test_a_line_is_where_its_row_begins(tmp_path: Path) -> None:
    text = 'body,title,class\n"a\n\nb",t,1\nc,u,2\n'
    table = read_table(written(tmp_path / "a.csv", text), OWN)
    assert [row.number for row in table.rows] == [2, 5]
    inches = read_table(written(tmp_path / "b.csv", 'body,title,class\n5" pipe,t,1\n'), OWN)
    assert inches.rows[0].text == '5" pipe'


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    lines = '{"body": "a", "title": "t", "class": true}\n\n{"body": "b", "title": "u"}\n'
    table = read_table(written(tmp_path / "a.jsonl", lines), OWN)
    assert cells(table.rows) == [("a", "t", True), ("b", "u", None)]
    pq.write_table(pa.table({"body": ["a"], "title": ["t"], "class": [3]}), tmp_path / "a.parquet")
    assert cells(read_table(tmp_path / "a.parquet", OWN).rows) == [("a", "t", 3)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty"),
        ("a.tsv", "\n\n", r"a\.tsv is empty"),
        ("a.jsonl", "", r"a\.jsonl is empty"),
        ("a.csv", "text,class\na,1\n", r"has the columns text, class; it needs body and title"),
        ("a.jsonl", "{", r"a\.jsonl, line 1 is not JSON"),
        ("a.jsonl", "[1]", r"line 1 holds a list; write one object a line"),
        ("a.jsonl", '{"text": 1}', r"has the columns text; it needs body and title and class"),
        ("a.parquet", "no", r"a\.parquet cannot be read as Parquet"),
        ("a.json", "[1]", r"a\.json, entry 1 is a int; write a list of objects"),
        ("a.json", '[{"body": 1},', r"a\.json is not JSON: "),
        ("a.json", "3", r"a\.json holds a int; write a list of objects"),
        ("a.csv.gz", "no", r"a\.csv\.gz is not gzip, or cut off: "),
        ("a.csv.gz", packed(b"body,title,class")[:-9], r"is not gzip, or cut off: "),
        ("a.csv", "body,title,class,Body\n", r"has 2 columns called 'body', 1 and 4; give the one"),
        (
            "a.tsv",
            "It was good\tThe film was quite good\t1\n",
            r"no header line, its first line is a row: It was good | The film was quite good | 1; "
            r"add 'body\\ttitle\\tclass' above it, with the names in the order of your columns",
        ),
        (
            "a.csv",
            "good,film,5.0\n",
            r"put one above it, .* \{ printf 'body,title,class\\n'; cat .*a\.csv; \} > NEW",
        ),
        (
            "a.csv",
            'body,title,class\na,b,c\nd,e,"f\ng,h,i\n',
            r"a\.csv, line 3 has a quote that is not closed; close it, or double quotes",
        ),
        (
            "a.csv",
            'body,title,class\nd,"e,f\ng,h,i\nj,"k, and l",m\nn,o,p\n',
            r"a\.csv, lines 2 to 4: text stands behind a closing quote; put the whole cell",
        ),
        ("a.tsv", b"caf\xe9\tx", r"a\.tsv is not UTF-8 in line 1 \(byte 3\); convert it from what"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(TaskDataError, match=message) as caught:
        read_table(written(tmp_path / name, content), OWN)
    assert "\n" not in str(caught.value)


def test_what_is_far_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdnas.evaluation.data.files.opening.MOST_UNPACKED", 1 << 16)
    with pytest.raises(TaskDataError, match=r"a\.csv\.gz unpacks to over 30 times its size"):
        read_text(written(tmp_path / "a.csv.gz", packed(b"a,b\n" * (1 << 20))))
    with (tmp_path / "holes.csv").open("wb") as file:
        file.truncate(5 << 30)
    pq.write_table(pa.table({"text": ["word " * 100] * 5000}), tmp_path / "a.parquet")
    monkeypatch.setattr("kdnas.evaluation.data.files.records.MOST_UNPACKED", 1 << 16)
    with pytest.raises(TaskDataError, match=r"a\.parquet unpacks to over 30 times its size"):
        read_table(tmp_path / "a.parquet", OWN)
    pq.write_table(pa.table({"text": ["word " * (4 << 20)]}), tmp_path / "b.parquet")
    with pytest.raises(TaskDataError, match=r"b\.parquet has a text of more than 16 MiB"):
        read_table(tmp_path / "b.parquet", OWN)
    written(tmp_path / "c.csv", "body,title,class\n" + "a" * (17 << 20))
    with pytest.raises(TaskDataError, match=r"c\.csv, line 2 has more than 16 MiB without an end"):
        read_text(tmp_path / "c.csv")
    with pytest.raises(TaskDataError, match=r"holes\.csv is larger than 4 GiB; take a part of it"):
        read_text(tmp_path / "holes.csv")


@pytest.mark.parametrize(
    ("name", "begins", "message"),
    [
        ("a.csv", b"text,label\na,b\n", r"line 3 has a null character"),
        ("a.json", b'[{"text": "', r"line 1 has a null character"),
        ("a.csv", b"text,label\n" + b"a" * (17 << 20), r"line 2 has more than 16 MiB without"),
    ],
)
def test_of_a_file_with_a_hole_only_the_beginning_is_read(
    name: str, begins: bytes, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / name, begins)
    with path.open("r+b") as file:
        file.truncate(3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TaskDataError, match=message):
        read_text(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < (1 << 20)  # KiB


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.json"])
def test_a_file_of_many_parts_is_read_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.evaluation.data.files.opening._PART", 7)
    content = b"text,label\n" + b"some text,1\r\n" * 100
    path = written(tmp_path / name, packed(content) if name.endswith(".gz") else content)
    assert read_text(path) == content.decode().replace("\r\n", "\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"cannot read .*gone\.tsv: No such file"):
        read_text(tmp_path / "gone.tsv")


def test_rows_of_csv_that_are_longer_than_the_header_are_not_guessed_at(tmp_path: Path) -> None:
    layout = own_task("mine", "classification").layout
    path = written(tmp_path / "a.csv", "text,label\nHello, world,pos\nbye,neg\n")
    with pytest.raises(TaskDataError, match=r"3 columns in line 2, but 2 in its header; put texts"):
        read_table(path, layout)
    rows = "".join(f"text {n},pos\n" for n in range(200))
    table = read_table(written(path, f"text,label\n{rows}Hello, world,pos\n"), layout)
    assert len(table.rows) == 200
    assert table.notes == ("1 torn line of a.csv left out",)


def test_the_sts_benchmark_as_it_is_published(tmp_path: Path) -> None:
    text = (
        'main-captions\tMSRvid\t2012test\t0001\t5.000\tA plane, "big".\tAn air plane.\n'
        "main-news\theadlines\t2013\t0002\t1.25\ta\tb\tsource one\tsource two\n"
    )
    table = read_table(written(tmp_path / "sts-train.csv", text), TASKS["sts-b"].layout)
    assert cells(table.rows) == [('A plane, "big".', "An air plane.", "5.000"), ("a", "b", "1.25")]
    assert table.labelled


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.csv", "sentence1,sentence2,score\na,b,2\n"),
        ("train.tsv", "index\tgenre\tx\ty\tscore\tsentence1\tsentence2\n0\tg\t-\t-\t2\ta\tb\n"),
    ],
)
def test_files_with_its_header_are_read_by_that(tmp_path: Path, name: str, text: str) -> None:
    table = read_table(written(tmp_path / name, text), TASKS["sts-b"].layout)
    assert cells(table.rows) == [("a", "b", "2")]


def test_fewer_columns_without_a_header_are_not_taken_for_it(tmp_path: Path) -> None:
    path = written(tmp_path / "train.tsv", "a\tb\t2.0\nc\td\t3.5\n")
    with pytest.raises(TaskDataError, match=r"has no header line, its first line is a row: a \| b"):
        read_table(path, TASKS["sts-b"].layout)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\xff", "is an Excel workbook or another zip archive; save the sheet as CSV"),
        (b"\x1f\x8b\x08\xff", "is gzipped; call it .gz"),
        (b"PAR1\xff", "is Parquet; call it .parquet"),
        ("text,label".encode("utf-16"), "is UTF-16; convert it by `iconv -f UTF-16 -t UTF-8`"),
    ],
)
def test_files_of_other_kinds_are_told_for_what_they_are(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(TaskDataError) as caught:
        read_table(tmp_path / "a.csv", own_task("mine", "classification").layout)
    assert message in str(caught.value)


def test_excels_own_line_blanks_before_quotes_and_long_cells(tmp_path: Path) -> None:
    layout = own_task("mine", "classification").layout
    long = "word " * 60_000
    (tmp_path / "a.csv").write_text(f'sep=;\ntext; label\n"{long}"; "good"\nx;bad\n')
    rows = read_table(tmp_path / "a.csv", layout).rows
    assert [(row.number, row.text, row.label) for row in rows] == [
        (3, long, "good"),
        (4, "x", "bad"),
    ]


def test_quotes_around_all_texts_of_a_tsv_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tlabel\n"a, b"\tgood\n"c ""d"""\tbad\n')
    table = read_table(tmp_path / "a.tsv", own_task("mine", "classification").layout)
    assert "all texts of a.tsv are in quotes" in table.notes[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            '{"train": [{"text": "a"}], "test": [{"text": "b"}]}',
            "under train, test; write",
        ),
        ("a.json", '{"text": {"0": "a"}, "label": {"0": "b"}}', 'by to_json(orient="records")'),
        ("a.csv", "text|label\na|b\n", "has the only column text|label; part columns by commas"),
    ],
)
def test_layouts_that_are_not_read_are_told_what_to_write(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskDataError) as caught:
        read_table(tmp_path / name, own_task("mine", "classification").layout)
    assert message in str(caught.value)
