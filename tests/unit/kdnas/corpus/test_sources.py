"""From specs to samples: every format, and every way in which text can be odd."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.corpus.reading import ReadingReport, Sample
from kdnas.corpus.sources import find_sources, iterate_samples
from kdnas.errors import CorpusError
from kdnas.specs.parts import CorpusSpec


def read(*source: str | Path, **fields: Any) -> tuple[list[Sample], ReadingReport]:
    spec = CorpusSpec.read({"source": [str(s) for s in source], **fields}, "corpus")
    report = ReadingReport()
    return list(iterate_samples(spec, find_sources(spec), report)), report


def texts(*source: str | Path, **fields: Any) -> list[str]:
    return [sample.text for sample in read(*source, **fields)[0]]


def file(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_paragraphs_with_any_line_end(tmp_path: Path, end: str) -> None:
    lines = ["", "a hard", "wrapped  line ", " \t", "", "next", "", ""]
    assert texts(file(tmp_path / "a.txt", end.join(lines))) == ["a hard wrapped line", "next"]


def test_mixed_line_ends(tmp_path: Path) -> None:
    assert texts(file(tmp_path / "a.txt", "one\r\ntwo\r\n\r\nthree\nfour\n\nfive")) == [
        "one two",
        "three four",
        "five",
    ]


def test_without_blank_lines_a_line_is_a_sample(tmp_path: Path) -> None:
    assert texts(file(tmp_path / "a.txt", "\n\none\ntwo\r\nthree\n\n\n")) == ["one", "two", "three"]


def test_byte_order_mark_and_unicode_spaces(tmp_path: Path) -> None:
    data = "\ufeffa\u00a0b\u2003c\n".encode()
    assert texts(file(tmp_path / "a.txt", data)) == ["a b c"]


@given(st.lists(st.text("ab \t", min_size=0, max_size=8), max_size=20))
def test_no_word_is_lost(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = file(tmp_path_factory.mktemp("words") / "a.txt", "\n".join(lines))
    assert " ".join(texts(path)).split() == " ".join(lines).split()


def test_folder_is_recursive_sorted_and_skips_the_rest(tmp_path: Path) -> None:
    file(tmp_path / "b.txt", "from b")
    file(tmp_path / "a" / "z.md", "from z")
    file(tmp_path / "a" / "c.jsonl", '{"text": "from c"}')
    file(tmp_path / "a" / ".hidden.txt", "hidden")
    file(tmp_path / ".git" / "x.txt", "hidden")
    file(tmp_path / "a" / "image.png", b"\x89PNG\x00\x01")
    file(tmp_path / "d.txt.gz", gzip.compress(b"from d"))
    assert texts(tmp_path) == ["from c", "from z", "from b", "from d"]


def test_globs_and_several_sources(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        file(tmp_path / name, name)
    assert texts(f"{tmp_path}/*.txt") == ["a.txt", "b.txt"]
    assert texts(f"{tmp_path}/**/*.txt", tmp_path / "a.txt") == [
        "a.txt",
        "b.txt",
        "sub/c.txt",
        "a.txt",
    ]


def test_nothing_found(tmp_path: Path) -> None:
    file(tmp_path / "folder" / "image.png", b"x")
    for source, message in {
        tmp_path / "missing": r"missing' is not there; give a file, a folder, a glob",
        tmp_path / "*.txt": r"no file matches the glob '.*\*\.txt'",
        tmp_path / "folder": r"no text found in .*folder: no file below it ends in \.jsonl, \.md",
    }.items():
        with pytest.raises(CorpusError, match=message):
            texts(source)


def test_undecodable_bytes_are_replaced_counted_and_named(tmp_path: Path) -> None:
    path = file(tmp_path / "latin.txt", "un caf\u00e9 au lait".encode("latin-1"))
    samples, report = read(path)
    assert samples[0].text == "un caf\ufffd au lait"
    assert report.undecodable_bytes == 1
    assert report.warnings == [f"{path}: 1 bytes are not UTF-8 and became U+FFFD"]


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 20, "текст".encode("cp1251") * 9, "text".encode("utf-16")]
)
def test_binary_files_are_refused_by_name(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorpusError, match=r"b\.txt is not UTF-8 text: \d+ of its first"):
        texts(file(tmp_path / "b.txt", data))


def test_damaged_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"some text " * 1000)
    damaged = whole[:10] + b"\xff" * 20 + whole[30:]
    for data in (b"no gzip at all", whole[: len(whole) // 2], damaged):
        with pytest.raises(CorpusError, match=r"cannot read .*a\.txt\.gz"):
            texts(file(tmp_path / "a.txt.gz", data))


def test_empty_files_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl"):
        file(tmp_path / name, "\n \n")
    file(tmp_path / "c.txt", "text")
    samples, report = read(tmp_path)
    assert [sample.text for sample in samples] == ["text"]
    assert (report.files, report.empty_files) == (3, 2)
    assert len(report.warnings) == 1
    assert "a.txt holds no text" in report.warnings[0]


def test_progress_ends_at_the_size_of_the_sources(tmp_path: Path) -> None:
    file(tmp_path / "a.txt", "ä b c\n\n" * 100)
    file(tmp_path / "b.jsonl", '"text"\n' * 100)
    pq.write_table(pa.table({"text": ["x"] * 100}), tmp_path / "c.parquet")
    _, report = read(tmp_path)
    assert report.bytes_read == report.bytes_total
    assert report.bytes_total == sum(p.stat().st_size for p in tmp_path.iterdir())


def test_jsonl(tmp_path: Path) -> None:
    rows = ['{"body": " one\\n two ", "lang": "en"}', "", '{"body": null, "lang": "de"}', '"three"']
    path = file(tmp_path / "a.jsonl", "\n".join([*rows, '{"body": "four", "lang": null}']))
    samples, _ = read(path, text_column="body", language_column="lang")
    assert samples == [("one two", "en"), ("three", "und"), ("four", "und")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"a\.jsonl, line 2 is not JSON"),
        ("[1]", r"a\.jsonl, line 2 holds a list"),
        ('{"body": "x", "id": 1}', r"line 2 has no column 'text'; it has: body, id"),
        ('{"text": 7}', r"line 2: column 'text' holds a int instead of text"),
    ],
)
def test_wrong_jsonl_names_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        texts(file(tmp_path / "a.jsonl", f'{{"text": "x"}}\n{line}\n'))


def test_lone_surrogates_in_json_become_replacement_characters(tmp_path: Path) -> None:
    path = file(tmp_path / "a.jsonl", json.dumps({"text": "a \ud800 b"}))
    assert texts(path) == ["a \ufffd b"]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {"text": ["one", None, "two\n\nthree"], "lang": ["en", "de", None], "n": [1] * 3}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    samples, _ = read(tmp_path / "a.parquet", language_column="lang")
    assert samples == [("one", "en"), ("two three", "und")]
    with pytest.raises(CorpusError, match=r"no column 'body'; it has: text, lang, n"):
        texts(tmp_path / "a.parquet", text_column="body")
    with pytest.raises(CorpusError, match=r"column 'n' holds int64 instead of text; choose an"):
        texts(tmp_path / "a.parquet", text_column="n")
    numbered, _ = read(tmp_path / "a.parquet", language_column="n")
    assert numbered == [("one", "1"), ("two three", "1")]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a" * (1 << 20)] * 400], pa.list_(pa.string())),
        pa.array([b"a" * (1 << 20)] * 400, pa.binary(1 << 20)),
        pa.array([b"a"]),
    ],
    ids=["lists", "fixed-size", "bytes"],
)
def test_columns_of_parquet_that_are_no_texts_are_refused_before_they_are_read(
    column: pa.Array, tmp_path: Path
) -> None:
    """Lists of the same text are a thousandth of what they unpack to, and no dictionary helps."""
    pq.write_table(pa.table({"text": column, "good": ["x"] * len(column)}), tmp_path / "a.parquet")
    before = pa.default_memory_pool().max_memory()
    for entry in ("text_column", "language_column"):
        named = {"text_column": "good", entry: "text"}
        with pytest.raises(CorpusError, match=rf"instead of text; choose another {entry}"):
            read(tmp_path / "a.parquet", **named)
    assert pa.default_memory_pool().max_memory() == before


def test_a_glob_that_matches_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.corpus.globs.MOST_MATCHES", 2)
    for name in ("a.txt", "b.txt"):
        file(tmp_path / name, name)
    assert texts(tmp_path / "*.txt") == ["a.txt", "b.txt"]
    file(tmp_path / "c.txt", "c")
    with pytest.raises(CorpusError, match=r"more than 2 files match the glob .* name their folder"):
        texts(tmp_path / "*.txt")


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"a\.parquet cannot be read as Parquet"):
        texts(file(tmp_path / "a.parquet", b"not parquet at all"))


def test_what_unpacks_to_far_more_than_text_does_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("reading", "readers"):
        monkeypatch.setattr(f"kdnas.corpus.{room}.MOST_UNPACKED", 1 << 16)
    sound = file(tmp_path / "sound.txt.gz", gzip.compress(b"ab cd\n" * 9000))
    assert len(texts(sound)) == 9000
    bomb = file(tmp_path / "bomb.txt.gz", gzip.compress(b"ab cd\n" * 90_000))
    with pytest.raises(CorpusError, match=r"bomb\.txt\.gz unpacks to .* over 100 times its size"):
        texts(bomb)
    long = "word " * 2000
    pq.write_table(pa.table({"text": [f"{long}{n}" for n in range(9)]}), tmp_path / "a.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("kdnas.corpus.readers.MOST_TIMES", 1)
        with pytest.raises(CorpusError, match=r"a\.parquet unpacks to .* times its size"):
            texts(tmp_path / "a.parquet")
    once = pa.array([long] * 900).dictionary_encode()  # kept a single time
    pq.write_table(pa.table({"text": once}), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match=r"b\.parquet unpacks to .* over 100 times its size"):
        texts(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a.txt", "short\n" + "word " * 300, "a.txt, line 2 has"),
        ("a.txt", "one\n\n" + "word and\n" * 200, "the paragraph that ends behind line 116 has"),
        ("a.jsonl", json.dumps({"text": "word " * 300}), "a.jsonl, line 1 has"),
    ],
)
def test_texts_without_an_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, where: str
) -> None:
    for room in ("reading", "readers"):
        monkeypatch.setattr(f"kdnas.corpus.{room}.MOST_OF_A_TEXT", 1 << 10)
    with pytest.raises(CorpusError, match=f"{where} more than .* characters without an end"):
        texts(file(tmp_path / name, content))


def test_blank_lines_without_an_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.corpus.reading.MOST_BLANK", 50)
    assert texts(file(tmp_path / "few.txt", "one" + "\n" * 51 + "two")) == ["one", "two"]
    with pytest.raises(CorpusError, match=r"many\.txt, line 52: more than 50 lines .* are blank"):
        texts(file(tmp_path / "many.txt", "one" + "\n" * 90 + "two"))


def test_a_cell_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdnas.corpus.readers.MOST_OF_A_TEXT", 1 << 10)
    pq.write_table(pa.table({"text": ["one", "word " * 300]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2 has more than"):
        texts(tmp_path / "a.parquet")


def test_language_per_file(tmp_path: Path) -> None:
    file(tmp_path / "de.txt", "eins")
    file(tmp_path / "sw.txt.gz", gzip.compress(b"moja"))
    samples, _ = read(tmp_path, language_per_file=True)
    assert samples == [("eins", "de"), ("moja", "sw")]


def test_hub_code_reads_a_local_data_set(tmp_path: Path) -> None:
    rows = {"body": ["one", "", "two"], "lang": ["en", "de", "sw"]}
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "set" / "train.parquet")
    source = f"hub:{tmp_path / 'set'}"
    samples, report = read(source, text_column="body", language_column="lang")
    assert samples == [("one", "en"), ("two", "sw")]
    assert report.bytes_total is None
    with pytest.raises(CorpusError, match=r"row 1 has no column 'text'; it has: body, lang"):
        texts(source)
    with pytest.raises(CorpusError, match=r"cannot load hub:.*split 'nope'"):
        texts(source, split="nope")


def test_a_way_to_a_folder_is_no_data_set_of_the_hub() -> None:
    with pytest.raises(CorpusError, match=r"'hub:\.\./\.\.' is no data set of the hub"):
        texts("hub:../..")


def test_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub\nlong story")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(CorpusError, match=r"cannot load hub:owner/name: Couldn't reach") as caught:
        texts("hub:owner/name")
    assert "\n" not in str(caught.value)


def test_state_changes_with_the_files_only(tmp_path: Path) -> None:
    path = file(tmp_path / "a.txt", "one")
    spec = CorpusSpec.read(str(tmp_path), "corpus")
    before = [source.state() for source in find_sources(spec)]
    assert [source.state() for source in find_sources(spec)] == before
    file(path, "other")
    assert [source.state() for source in find_sources(spec)] != before
