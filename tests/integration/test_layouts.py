"""Files in the layouts that people have: understood by ``--show-data``, and learned from.

What is understood is counted a second time: rows of tables by the builders of ``datasets``, words
and tags by hand, when they are written.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from kdnas.cli.evaluate import evaluate
from kdnas.testing.tiny_tasks import WORDS
from kdnas.testing.tiny_teacher import make_tiny_teacher

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(evaluate)

PARTS = {"train": 24, "test": 10}
Sentence = list[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """Files in a layout.

    Attributes:
        options: of the command.
        examples: what there is of each part that is learned from or scored.
        labels: of each part how often each label, or span of each type, comes.
    """

    options: tuple[str, ...]
    examples: dict[str, int]
    labels: dict[str, dict[str, int]]


Make = Callable[[Path], Case]
NER = ("--suite", "ner")
OWN = ("--suite", "own")


def drawn(part: str, types: Sequence[str] = ("PER", "LOC")) -> list[Sentence]:
    """Sentences whose spans are in IOB2; each has one at least."""
    draw = random.Random(part)
    found = []
    for _ in range(PARTS[part]):
        sentence: Sentence = [(draw.choice(WORDS), "O") for _ in range(draw.randint(1, 4))]
        for _ in range(draw.randint(1, 2)):
            kind = draw.choice(types)
            sentence.append(("Anna", f"B-{kind}"))
            sentence += [("York", f"I-{kind}")] * draw.randint(0, 2)
            sentence.append((draw.choice(WORDS), "O"))
        found.append(sentence)
    return found


def spans(sentences: list[Sentence]) -> dict[str, int]:
    return dict(Counter(tag[2:] for s in sentences for _, tag in s if tag.startswith("B-")))


def written(
    folder: Path,
    name: str,
    line: Callable[[int, str, str], str],
    retag: Callable[[list[str]], list[str]] = lambda tags: tags,
    before: str = "",
    every: str = "",
    options: tuple[str, ...] = NER,
) -> Case:
    """Write sentences a word a line."""
    folder.mkdir()
    labels = {}
    for part in PARTS:
        sentences = drawn(part)
        labels[part] = spans(sentences)
        blocks = []
        for sentence in sentences:
            tags = retag([tag for _, tag in sentence])
            words = [word for word, _ in sentence]
            rows = [line(n, w, t) for n, (w, t) in enumerate(zip(words, tags, strict=True), 1)]
            blocks.append(every + "\n".join(rows) + "\n")
        (folder / name.format(part)).write_text(before + "\n".join(blocks), "utf-8")
    return Case((*options, "--data-dir", str(folder)), dict(PARTS), labels)


def ends(tags: list[str], begin: str, end: str, single: str) -> list[str]:
    """Mark ends of spans, and spans of one word."""
    found = []
    for place, tag in enumerate(tags):
        goes_on = tags[place + 1 : place + 2] and tags[place + 1].startswith("I-")
        mark, _, kind = tag.partition("-")
        if mark == "B":
            tag = f"{begin if goes_on else single}-{kind}"
        elif mark == "I" and not goes_on:
            tag = f"{end}-{kind}"
        found.append(tag)
    return found


def conll_2003(folder: Path) -> Case:
    head = "-DOCSTART- -X- -X- O\n\n"
    return written(folder, "{}.txt", lambda n, w, t: f"{w} NN B-NP {t}", before=head)


def germeval(folder: Path) -> Case:
    source = "#\thttp://de.wikipedia.org [2009-10-17]\n"
    return written(folder, "{}.tsv.conll", lambda n, w, t: f"{n}\t{w}\t{t}\tO", every=source)


def wikiann(folder: Path) -> Case:
    return written(folder, "{}.conll", lambda n, w, t: f"en:{w}\t{t}")


def bilou(folder: Path) -> Case:
    return written(
        folder, "{}.conll", lambda n, w, t: f"{w} {t}", lambda tags: ends(tags, "B", "L", "U")
    )


def iobes(folder: Path) -> Case:
    return written(
        folder, "{}.bio", lambda n, w, t: f"{w}\t{t}", lambda tags: ends(tags, "B", "E", "S")
    )


def io(folder: Path) -> Case:
    return written(
        folder, "{}.txt", lambda n, w, t: f"{w}\t{t}", lambda tags: [t[2:] or "O" for t in tags]
    )


def marks_behind(folder: Path) -> Case:
    behind = lambda tags: [f"{t[2:]}-{t[0]}" if t != "O" else t for t in tags]  # noqa: E731
    return written(folder, "{}.conll", lambda n, w, t: f"{w} {t}", behind)


def tag_first(folder: Path) -> Case:
    return written(folder, "{}.bio", lambda n, w, t: f"{t}\t{w}")


def header_and_comments(folder: Path) -> Case:
    return written(
        folder, "{}.conll", lambda n, w, t: f"{w}\t{t}\t# note {n}", before="Token\tTag\tNote\n"
    )


def named_columns(folder: Path) -> Case:
    """Two columns of tags, of which the second is wanted."""
    chosen = (*NER, "--word-column", "1", "--tag-column", "3")
    return written(folder, "{}.conll", lambda n, w, t: f"{w}\tB-X\t{t}\tB-Y", options=chosen)


def conll_u(folder: Path) -> Case:
    """Parts of speech, with comments, a word of two and one that is left out."""
    folder.mkdir()
    labels = {}
    for part, count in PARTS.items():
        text = ""
        for number in range(count):
            text += f"# sent_id = {number}\n1-2\tdont\t_\t_\n1\tdo\tdo\tVERB\n2\tnt\tnot\tPART\n"
            text += "2.1\tsee\tsee\tVERB\n3\tstone\tstone\tNOUN\n\n"
        (folder / f"{part}.conllu").write_text(text, "utf-8")
        labels[part] = {"VERB": count, "PART": count, "NOUN": count}
    options = (*OWN, "--kind", "tagging", "--metrics", "accuracy", "--word-column", "2")
    where = ("--tag-column", "4", "--data-dir", str(folder))
    return Case((*options, *where), dict(PARTS), labels)


def lists_of_words(folder: Path) -> Case:
    folder.mkdir()
    labels = {}
    for part in PARTS:
        sentences = drawn(part)
        rows = [{"tokens": [w for w, _ in s], "ner_tags": [t for _, t in s]} for s in sentences]
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        labels[part] = spans(sentences)
    where = ("--text", "tokens", "--label", "ner_tags", "--data-dir", str(folder))
    return Case((*OWN, "--kind", "tagging", *where), dict(PARTS), labels)


def rows(part: str) -> list[dict[str, Any]]:
    """Rows of a table with classes; texts have what tables are parted by."""
    draw = random.Random(part)
    made = []
    for number in range(PARTS[part]):
        words = " ".join(draw.choices(WORDS, k=draw.randint(2, 6)))
        made.append({"id": f"{part}-{number}", "review": words, "stars": draw.choice("abc")})
    return made


def counted(builder: str, files: dict[str, str], **options: Any) -> dict[str, Counter[str]]:
    """Labels of each part, as a builder of ``datasets`` reads them."""
    from datasets import load_dataset

    found = load_dataset(builder, data_files=files, cache_dir=f"{files['train']}-cache", **options)
    return {part: Counter(map(str, found[part]["stars"])) for part in found}


def table(
    folder: Path,
    ending: str,
    write: Callable[[Path, list[dict[str, Any]]], None],
    builder: str,
    **options: Any,
) -> Case:
    """Write a table of one's own, and have it counted."""
    folder.mkdir()
    files = {}
    for part in PARTS:
        files[part] = str(folder / f"{part}{ending}")
        write(Path(files[part]), rows(part))
    counts = counted(builder, files, **options)
    where = ("--text", "review", "--label", "stars", "--data-dir", str(folder))
    examples = {part: sum(labels.values()) for part, labels in counts.items()}
    return Case((*OWN, *where), examples, {p: dict(labels) for p, labels in counts.items()})


def as_csv(path: Path, made: list[dict[str, Any]], delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        out = csv.DictWriter(stream, made[0], delimiter=delimiter)
        out.writeheader()
        out.writerows(made)


def csv_with_quotes(folder: Path) -> Case:
    def write(path: Path, made: list[dict[str, Any]]) -> None:
        as_csv(path, [row | {"review": f'a "{row["review"]}",\nand more'} for row in made])

    return table(folder, ".csv", write, "csv")


def csv_with_semicolons(folder: Path) -> Case:
    return table(folder, ".csv", lambda p, made: as_csv(p, made, ";"), "csv", delimiter=";")


def csv_gzipped(folder: Path) -> Case:
    def write(path: Path, made: list[dict[str, Any]]) -> None:
        as_csv(path, made)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return table(folder, ".csv.gz", write, "csv")


def tsv_with_cr(folder: Path) -> Case:
    def write(path: Path, made: list[dict[str, Any]]) -> None:
        as_csv(path, made, "\t")
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\r"))

    return table(folder, ".tsv", write, "csv", delimiter="\t")


def json_array(folder: Path) -> Case:
    return table(folder, ".json", lambda p, made: _put(p, json.dumps(made)), "json")


def json_below_data(folder: Path) -> Case:
    def write(path: Path, made: list[dict[str, Any]]) -> None:
        _put(path, json.dumps({"version": 1, "data": made}))

    return table(folder, ".json", write, "json", field="data")


def json_lines(folder: Path) -> Case:
    def write(path: Path, made: list[dict[str, Any]]) -> None:
        _put(path, "\n".join(map(json.dumps, made)))

    return table(folder, ".jsonl", write, "json")


def parquet(folder: Path) -> Case:
    return table(folder, ".parquet", lambda p, m: pd.DataFrame(m).to_parquet(p), "parquet")


def words_in_csv(folder: Path) -> Case:
    """A sentence is named in its first row alone, and there are no blank rows."""
    folder.mkdir()
    labels = {}
    for part in PARTS:
        sentences = drawn(part)
        named = [
            (f"Sentence: {n}" * (place == 0), word, "NN", tag)
            for n, sentence in enumerate(sentences)
            for place, (word, tag) in enumerate(sentence)
        ]
        with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("Sentence #", "Word", "POS", "Tag"), *named])
        labels[part] = spans(sentences)
    return Case((*NER, "--data-dir", str(folder)), dict(PARTS), labels)


def clone_with_numbers_of_tags(folder: Path) -> Case:
    """As the hub keeps a data set: in ``data``, beside a card, with names in the metadata."""
    from datasets import ClassLabel, Dataset, Features, List, Value

    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    features = Features(tokens=List(Value("string")), ner_tags=List(ClassLabel(names=names)))
    (folder / "data").mkdir(parents=True)
    _put(folder / "README.md", "# A data set")
    labels = {}
    for part in PARTS:
        sentences = drawn(part)
        columns = {
            "tokens": [[word for word, _ in s] for s in sentences],
            "ner_tags": [[names.index(tag) for _, tag in s] for s in sentences],
        }
        where = folder / "data" / f"{part}-00000-of-00001.parquet"
        Dataset.from_dict(columns, features=features).to_parquet(where)
        labels[part] = spans(sentences)
    return Case((*NER, "--data-dir", str(folder)), dict(PARTS), labels)


def saved_to_disk(folder: Path) -> Case:
    """What ``datasets`` saves: Arrow in folders of parts, with numbers for classes."""
    from datasets import ClassLabel, Dataset, DatasetDict, load_from_disk

    made = {part: Dataset.from_list(rows(part)) for part in PARTS}
    for part, data in made.items():
        made[part] = data.cast_column("stars", ClassLabel(names=["a", "b", "c"]))
    DatasetDict(made).save_to_disk(folder, num_shards={"train": 3, "test": 1})
    found = load_from_disk(str(folder))
    names = found["train"].features["stars"].names
    labels = {p: dict(Counter(names[n] for n in found[p]["stars"])) for p in PARTS}
    where = ("--text", "review", "--label", "stars", "--data-dir", str(folder))
    return Case((*OWN, *where), dict(PARTS), labels)


def column_of_parts(folder: Path) -> Case:
    folder.mkdir()
    made = [row | {"split": part} for part in PARTS for row in rows(part)]
    random.Random(0).shuffle(made)
    as_csv(folder / "all.csv", made)
    frame = pd.read_csv(folder / "all.csv")
    labels = {p: dict(frame[frame["split"] == p]["stars"].value_counts()) for p in PARTS}
    where = ("--text", "review", "--label", "stars", "--data-dir", str(folder / "all.csv"))
    return Case((*OWN, *where), dict(PARTS), labels)


def _put(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def cola_without_header(folder: Path) -> Case:
    """CoLA's own four columns; its development part is in two files."""
    (folder / "CoLA").mkdir(parents=True)
    parts = {"train": 24, "in_domain_dev": 7, "out_of_domain_dev": 4}
    for part, count in parts.items():
        lines = [f"gj04\t{n % 2}\t{'' if n % 2 else '*'}\tThe stone {n}." for n in range(count)]
        _put(folder / "CoLA" / f"{part}.tsv", "\n".join(lines) + "\n")
    labels = {
        "train": {"acceptable": 12, "unacceptable": 12},
        "dev": {"unacceptable": 4 + 2, "acceptable": 3 + 2},
    }
    options = ("--suite", "glue", "--tasks", "CoLA", "--data-dir", str(folder))
    return Case(options, {"train": 24, "dev": 11}, labels)


def sts_benchmark(folder: Path) -> Case:
    """Seven columns with tabs, no header, and a name that ends in .csv."""
    (folder / "stsbenchmark").mkdir(parents=True)
    for part, count in (("train", 24), ("dev", 9)):
        lines = [
            f"main-news\tMSRpar\t2012\t{n}\t{n % 5}.5\tThe stone {n}\tA stone" for n in range(count)
        ]
        _put(folder / "stsbenchmark" / f"sts-{part}.csv", "\n".join(lines) + "\n")
    options = ("--suite", "glue", "--tasks", "STS-B", "--data-dir", str(folder))
    bounds = {"least": 0.5, "greatest": 4.5}
    return Case(options, {"train": 24, "dev": 9}, {"train": bounds, "dev": bounds})  # type: ignore[dict-item]


def xnli_of_three_languages(folder: Path) -> Case:
    (folder / "XNLI").mkdir(parents=True)
    names = ("entailment", "neutral", "contradiction")
    head = "language\tgold_label\tsentence1\tsentence2\n"
    for part, count in (("dev", 6), ("test", 12)):
        lines = [
            f"{lang}\t{names[n % 3]}\tThe stone {n}\tA stone"
            for lang in ("de", "en", "sw")
            for n in range(count)
        ]
        _put(folder / "XNLI" / f"xnli.{part}.tsv", head + "\n".join(lines) + "\n")
    trained = "".join(f"A stone {n}\tIt is\t{names[n % 3]}\n" for n in range(24))
    _put(folder / "XNLI" / "multinli.train.en.tsv", f"premise\thypo\tlabel\n{trained}")
    each = dict.fromkeys(names, 4)
    labels = {"train": dict.fromkeys(names, 8), "de": each, "en": each, "sw": each}
    options = ("--suite", "xnli", "--data-dir", str(folder))
    return Case(options, {"train": 24, "de": 12, "en": 12, "sw": 12}, labels)


def columns_of_labels(folder: Path) -> Case:
    folder.mkdir()
    labels = {}
    for part, count in PARTS.items():
        made = [
            {"text": f"stone {n}", "toxic": n % 2, "threat": int(n % 3 == 0)} for n in range(count)
        ]
        as_csv(folder / f"{part}.csv", made)
        toxic, threat = (sum(row[key] for row in made) for key in ("toxic", "threat"))  # type: ignore[misc]
        labels[part] = {"toxic": toxic, "threat": threat}
    where = ("--label", "toxic,threat", "--data-dir", str(folder))
    return Case((*OWN, "--kind", "multilabel", *where), dict(PARTS), labels)


def squad_with_blank_gold(folder: Path) -> Case:
    """Answers that are blank: the context does not answer, whatever ``is_impossible`` says."""
    (folder / "squad2").mkdir(parents=True)
    counts = {"train": 24, "dev": 9}
    for part, count in counts.items():
        asked = []
        for n in range(count):
            answer = (
                {"text": "stone", "answer_start": 4} if n % 3 else {"text": " ", "answer_start": 0}
            )
            asked.append({"id": f"q{n}", "question": "What lies?", "answers": [answer]})
        about = [{"context": "The stone lies still.", "qas": asked}]
        content = {"version": "v2.0", "data": [{"title": "x", "paragraphs": about}]}
        _put(folder / "squad2" / f"{part}-v2.0.json", json.dumps(content))
    labels = {p: {"answered": n - n // 3, "no answer": n // 3} for p, n in counts.items()}
    options = ("--suite", "squad2", "--data-dir", str(folder))
    return Case(options, counts, labels)


LAYOUTS: Sequence[Make] = (
    conll_2003,
    germeval,
    wikiann,
    bilou,
    iobes,
    io,
    marks_behind,
    tag_first,
    header_and_comments,
    named_columns,
    conll_u,
    lists_of_words,
    csv_with_quotes,
    csv_with_semicolons,
    csv_gzipped,
    tsv_with_cr,
    json_array,
    json_below_data,
    json_lines,
    parquet,
    words_in_csv,
    clone_with_numbers_of_tags,
    saved_to_disk,
    column_of_parts,
    cola_without_header,
    sts_benchmark,
    xnli_of_three_languages,
    columns_of_labels,
    squad_with_blank_gold,
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("teacher"), layers=1, words=WORDS)


def run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("make", LAYOUTS, ids=lambda make: make.__name__)
def test_a_layout_is_understood_and_learned_from(
    make: Make, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    case = make(tmp_path / "my data")
    ((told,),) = run(*case.options, "--show-data").values()
    assert {part["part"]: part["examples"] for part in told["parts"]} == case.examples
    assert {part["part"]: part["labels"] for part in told["parts"]} == case.labels
    short = (
        "--max-steps",
        "10",
        "--epochs",
        "9",
        "--seeds",
        "1",
        "--batch-size",
        "8",
        "--threads",
        "1",
    )
    report = run(str(teacher), *case.options, *short, "--device", "cpu", "--no-latency")
    (row,) = (row for row in report["rows"] if row["origin"] == "measured")
    assert row["scores"]
    (evaluated,) = report["evaluations"]
    assert evaluated["steps"] == 10
