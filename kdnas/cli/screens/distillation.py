"""How stored distillations look: a line each, or one in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.times import age, moment
from kdnas.cli.tables.answers import fact_lines
from kdnas.cli.tables.formats import as_text

if TYPE_CHECKING:
    from kdnas.db.lists.job_pages import Row
    from kdnas.db.records import HeldOutReading
    from kdnas.records import CurvePoint

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48
READINGS = 6
LOSSES = ("relative", "output", "mean")
HEADER = ("name", "status", "architecture", "objective", "teacher", "step", "relative", "age")


def listed(found: Sequence[Row]) -> str:
    """Lay distillations out, a line each, as they are read for the service's list."""
    now = datetime.now(UTC)
    rows = [
        (
            row["name"],
            row["status"] + ("*" if is_abandoned(row) else ""),
            row["architecture"],
            row["objective"],
            _short(row["teacher"]),
            _step(row),
            "" if row["losses"] is None else f"{row['losses']['relative']:.4f}",
            age(now - row["created_at"]),
        )
        for row in found
    ]
    table = as_text(HEADER, rows, right=("step", "relative", "age"))
    if any(map(is_abandoned, found)):
        table += "\n* its process died; go on with: kdnas distillations resume NAME"
    return table


def shown(
    row: Row,
    curve: Sequence[CurvePoint],
    readings: Sequence[HeldOutReading],
    doubt: str | None,
) -> str:
    """Write one distillation out, as it is read for the service's answer; ``doubt`` is of it."""
    before = {
        "status": _status(row),
        "warning": doubt,
        **_spec_lines(row["spec"]),
        "step": _step(row),
        "loss": _loss(curve) if curve else None,
    }
    moments = {"created": "created_at", "started": "started_at", "ended": "finished_at"}
    after = {
        "student": row["output"],
        "output": None if row["output"] else row["spec"].get("output"),
        **{word: row[at] and f"{moment(row[at])} UTC" for word, at in moments.items()},
        "next": _next(row),
    }
    head = f"{row['name']}  (id {row['id']})"
    best = row["losses"]["step"] if row["status"] == "succeeded" and row["losses"] else None
    losses = ["", "held-out losses", _readings(readings, best), ""] if readings else []
    return "\n".join([head, *fact_lines(before), *losses, *fact_lines(after)])


def _loss(curve: Sequence[CurvePoint]) -> str:
    first, last = curve[0], curve[-1]
    return (
        f"{sparkline([point.loss for point in curve])}  {first.loss:.4f} at step {first.step}, "
        f"{last.loss:.4f} at step {last.step}"
    )


def sparkline(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """Draw values as a line of bars, low to high; means of neighbours where there are many."""
    count = min(len(values), width)
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)


def is_abandoned(row: Row) -> bool:
    """Whether its process died: its status says that it runs, and nobody works on it."""
    return row["status"] == "running" and row["worker"] is None


def _status(row: Row) -> str:
    if is_abandoned(row):
        return "running, but its process died"
    if row["worker"] is not None:
        return f"{row['status']}, on {row['worker']}"
    return f"{row['status']}: {row['error']}" if row["error"] else str(row["status"])


def _next(row: Row) -> str | None:
    """Say how to go on, as a command."""
    if row["status"] in {"queued", "paused", "failed"} or is_abandoned(row):
        return f"kdnas distillations resume {row['name']}"
    ways = {
        "running": f"kdnas distillations cancel {row['name']}, to stop it for good",
        "succeeded": f"AutoModel.from_pretrained({row['output']!r})",
    }
    return ways.get(row["status"])


def _spec_lines(spec: Any) -> dict[str, str]:
    """Write a spec's parts, a line each; options at their simplest."""
    from kdnas.specs.objective_base import UNTOLD

    objective, student, training = spec["objective"], spec["student"], spec["training"]
    options = [
        f"{key} {_plain(value)}"
        for key, value in objective.items()
        if key not in UNTOLD and value is not None
    ]
    start, corpus = student.get("init_from"), spec["corpus"]
    workers, parts = training.get("num_workers", 1), training.get("accumulate", 1)
    work = [
        _length(training),
        f"batch {training['batch_size']}",
        f"peak rate {training['learning_rate']:g}",
        str(training["dtype"]),
        str(training["device"]),
        *([f"{workers} workers"] if workers > 1 else []),
        *([f"in {parts} parts"] if parts > 1 else []),
    ]
    return {
        "architecture": spec["architecture"],
        "objective": ", ".join([objective["name"], *options]),
        "teacher": spec["teacher"]["ref"],
        "corpus": f"{', '.join(corpus['source'])}, {corpus['max_length']} tokens at most",
        "start": f"from {start['ref']}" if start else student["init"],
        "training": ", ".join(work),
    }


def _length(training: Mapping[str, Any]) -> str:
    steps = training.get("steps")
    if steps == 0:
        return "none, undistilled"
    return f"{training['epochs']} epochs" if steps is None else f"{steps} steps"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}:{_plain(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "+".join(map(_plain, value))
    return str(value)


def _readings(readings: Sequence[HeldOutReading], best: int | None) -> str:
    earlier, newest = readings[:-READINGS], readings[-READINGS:]
    kept = [*(r for r in earlier if r.step in (0, best)), *newest]
    rows = [
        (
            str(reading.step) + ("*" if reading.step == best else " "),
            *(f"{getattr(reading.losses, name):.4f}" for name in LOSSES),
        )
        for reading in kept
    ]
    header = ("step ", *LOSSES)
    lines = as_text(header, rows, right=header).splitlines()
    lines += ["* the student in the folder"] if best is not None else []
    left_out = len(readings) - len(kept)
    lines += [f"({left_out} earlier ones: kdnas distillations losses)"] if left_out else []
    return "\n".join(f"  {line}" for line in lines)


def _step(row: Row) -> str:
    done = row["done"] or 0
    return f"{done}/{row['total']}" if row["total"] else str(done)


def _short(teacher: str) -> str:
    """The name of a folder; anything else whole."""
    return Path(teacher).name if Path(teacher).is_absolute() else teacher
