"""Candidates of a search as a table in a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kdnas.cli.tables.files import write_whole
from kdnas.records import Candidate, Episode

Rows = list[dict[str, Any]]

COLUMNS: Final[Mapping[str, Callable[[Candidate], Any]]] = {
    "search_id": lambda c: c.search_id,
    "episode": lambda c: c.episode,
    "position": lambda c: c.position,
    "index": lambda c: c.index,
    "architecture": lambda c: str(c.architecture),
    "layers": lambda c: c.architecture.layers,
    "heads": lambda c: c.architecture.heads,
    "hidden": lambda c: c.architecture.hidden,
    "intermediate": lambda c: c.architecture.intermediate,
    "activation": lambda c: c.architecture.activation,
    "source": lambda c: c.source,
    "status": lambda c: c.status,
    "predicted_reward": lambda c: c.predicted_reward,
    "reward": lambda c: c.reward,
    "training_loss": lambda c: c.losses and c.losses.training,
    "mean_loss": lambda c: c.losses and c.losses.mean,
    "relative_loss": lambda c: c.losses and c.losses.relative,
    "output_loss": lambda c: c.losses and c.losses.output,
    "loss_start": lambda c: c.loss_start,
    "latency_ms": lambda c: c.latency_ms,
    "latency_ratio": lambda c: c.latency_ratio,
    "params_millions": lambda c: c.params_millions,
    "reused": lambda c: c.reused,
    "num_attempts": lambda c: c.num_attempts,
    "num_steps": lambda c: c.num_steps,
    "readings": lambda c: [
        {"step": step, **{f"{name}_loss": value for name, value in asdict(found).items()}}
        for step, found in ((reading.step, reading.losses) for reading in c.readings)
    ],
    "error": lambda c: c.error,
    "note": lambda c: c.note,
}
"""What a row says of a candidate; a file without any has these columns all the same."""


def _write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(COLUMNS))
        writer.writeheader()
        writer.writerows({**row, "readings": json.dumps(row["readings"])} for row in rows)


def _write_json(rows: Rows, path: Path) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _write_parquet(rows: Rows, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: [row[name] for row in rows] for name in COLUMNS}), path)


WRITERS: dict[str, Callable[[Rows, Path], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}


def write_table(episodes: Sequence[Episode], path: Path, kind: str) -> int:
    """Write every candidate, a row each; the file appears whole or not at all.

    Args:
        episodes: all of a search.
        path: of the file.
        kind: ``csv``, ``json`` or ``parquet``.

    Returns:
        The number of rows.

    Raises:
        StoreError: it cannot be written.
    """
    found = [candidate for episode in episodes for candidate in episode.candidates]
    rows = [{name: value(candidate) for name, value in COLUMNS.items()} for candidate in found]
    write_whole(path, lambda draft: WRITERS[kind](rows, draft))
    return len(rows)
