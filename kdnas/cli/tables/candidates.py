"""Candidates of a search as a table in a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdnas.cli.tables.files import write_whole
from kdnas.records import Candidate, Episode, SearchRecord

Rows = list[dict[str, Any]]


def _write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows({**row, "readings": json.dumps(row["readings"])} for row in rows)


def _write_json(rows: Rows, path: Path) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _write_parquet(rows: Rows, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS: dict[str, Callable[[Rows, Path], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}


def write_table(search: SearchRecord, episodes: Sequence[Episode], path: Path, kind: str) -> int:
    """Write every candidate, a row each; the file appears whole or not at all.

    Args:
        search: as it is stored.
        episodes: all of its own.
        path: of the file.
        kind: ``csv``, ``json`` or ``parquet``.

    Returns:
        The number of rows.

    Raises:
        StoreError: it cannot be written.
    """
    rows = [_row(search, c) for episode in episodes for c in episode.candidates]
    write_whole(path, lambda draft: WRITERS[kind](rows, draft))
    return len(rows)


def _row(search: SearchRecord, candidate: Candidate) -> dict[str, Any]:
    losses, a = candidate.losses, candidate.architecture
    return {
        "search_id": search.id,
        "episode": candidate.episode,
        "position": candidate.position,
        "index": candidate.index,
        "architecture": str(a),
        "layers": a.layers,
        "heads": a.heads,
        "hidden": a.hidden,
        "intermediate": a.intermediate,
        "activation": a.activation,
        "source": candidate.source,
        "status": candidate.status,
        "predicted_reward": candidate.predicted_reward,
        "reward": candidate.reward,
        "training_loss": losses and losses.training,
        "mean_loss": losses and losses.mean,
        "relative_loss": losses and losses.relative,
        "output_loss": losses and losses.output,
        "loss_start": candidate.loss_start,
        "latency_ms": candidate.latency_ms,
        "latency_ratio": candidate.latency_ratio,
        "params_millions": candidate.params_millions,
        "reused": candidate.reused,
        "num_attempts": candidate.num_attempts,
        "num_steps": candidate.num_steps,
        "readings": [
            {"step": step, **{f"{name}_loss": value for name, value in asdict(found).items()}}
            for step, found in ((reading.step, reading.losses) for reading in candidate.readings)
        ],
        "error": candidate.error,
        "note": candidate.note,
    }
