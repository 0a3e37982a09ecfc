"""Tasks of a few sentences, in the files of their benchmark."""

from __future__ import annotations

import random
from pathlib import Path

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
