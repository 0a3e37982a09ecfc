"""Tasks of a few sentences, in the files of their benchmark."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

WORDS = ("good", "bad", "film", "the", "was", "plot", "dull", "fun")
"""All words that the sentences are made of."""


def write_sst2(folder: Path, train: int = 60, dev: int = 20) -> Path:
    """Write SST-2 into a folder as GLUE lays it out: what has ``good`` in it is positive.

    Args:
        folder: where the task's own folder goes.
        train: sentences to learn from.
        dev: sentences to be scored on.

    Returns:
        The folder.
    """
    draw = random.Random(0)
    place = folder / "SST-2"
    place.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("dev", dev)):
        sentences = [" ".join(draw.choice(WORDS) for _ in range(6)) for _ in range(count)]
        lines = "".join(f"{text}\t{int('good' in text)}\n" for text in sentences)
        (place / f"{part}.tsv").write_text(f"sentence\tlabel\n{lines}", "utf-8")
    return folder


_PAIRS: Final[Mapping[str, tuple[str, str, Sequence[str]]]] = {
    "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "{n}\t1\t2\t{a}\t{b}\t{y}", "01"),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        "{n}\t{a}\t{b}\t{y}",
        ("not_entailment", "entailment"),
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "{n}\t{a}\t{b}\t{y}",
        ("not_entailment", "entailment"),
    ),
    "MNLI": (
        "index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label",
        "{n}\tp{n}\t{a}\t{b}\tneutral\t{y}",
        ("contradiction", "neutral", "entailment"),
    ),
    "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{y}\t{n}\t{n}\t{a}\t{b}", "01"),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "{n}\tg\tf\ty\t0\tn\tn\t{a}\t{b}\t{y}",
        ("0.0", "1.0", "2.5", "5.0"),
    ),
}
"""Task of pairs → header and rows of its files, and its labels, by how many words are in both."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "MNLI": ("train", "dev_matched", "dev_mismatched"),
    "MRPC": ("msr_paraphrase_train", "msr_paraphrase_test"),
}


def write_glue(folder: Path, train: int = 60, dev: int = 20) -> Path:
    """Write the eight tasks of Wu et al. 2021 into a folder, each as GLUE lays it out.

    Of pairs the label tells how many words both texts have; CoLA is as :func:`write_sst2`.

    Args:
        folder: where the tasks' own folders go.
        train: examples to learn from, of each.
        dev: examples to be scored on, of each set.

    Returns:
        The folder.
    """
    write_sst2(folder, train, dev)
    draw = random.Random(1)

    def text() -> str:
        return " ".join(draw.sample(WORDS, 4))

    for part, count in (("train", train), ("dev", dev)):
        rows = [text() for _ in range(count)]
        lines = [f"s\t{int('good' in row)}\t\t{row}" for row in rows]
        _write(folder / "CoLA" / f"{part}.tsv", lines)
    for task, (header, row, labels) in _PAIRS.items():
        for part in _PARTS.get(task, ("train", "dev")):
            lines = [header]
            for n in range(train if "train" in part else dev):
                a, b = text(), text()
                shared = max(0, len({*a.split()} & {*b.split()}) - 1)
                lines.append(row.format(n=n, a=a, b=b, y=labels[min(shared, len(labels) - 1)]))
            suffix = "txt" if task == "MRPC" else "tsv"
            _write(folder / task / f"{part}.{suffix}", lines)
    return folder


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
