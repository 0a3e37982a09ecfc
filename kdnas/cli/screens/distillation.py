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
    from kdnas.db.records import DistillationOverview, DistillationRecord, HeldOutReading
    from kdnas.records import CurvePoint

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48
READINGS = 6
LOSSES = ("relative", "output", "mean")
HEADER = ("name", "status", "architecture", "objective", "teacher", "step", "relative", "age")


def listed(found: Sequence[DistillationOverview]) -> str:
    """Lay distillations out, a line each."""
    now = datetime.now(UTC)
    rows = [
        (
            seen.record.name,
            seen.record.status + ("*" if seen.abandoned else ""),
            str(seen.record.architecture),
            str(seen.record.spec["objective"]["name"]),
            _short(str(seen.record.spec["teacher"]["ref"])),
            _step(seen.record),
            "" if seen.relative is None else f"{seen.relative:.4f}",
            age(now - seen.record.created_at),
        )
        for seen in found
    ]
    table = as_text(HEADER, rows, right=("step", "relative", "age"))
    if any(seen.abandoned for seen in found):
        table += "\n* its process died; go on with: kdnas distillations resume NAME"
    return table


def shown(
    seen: DistillationOverview, curve: Sequence[CurvePoint], readings: Sequence[HeldOutReading]
) -> str:
    """Write one distillation out."""
    from api.inputs.results import learned_nothing

    record = seen.record
    before = {
        "status": _status(seen),
        "warning": learned_nothing(record),
        **_spec_lines(record.spec),
        "step": _step(record),
        "loss": _loss(curve) if curve else None,
    }
    moments = {
        "created": record.created_at,
        "started": record.started_at,
        "ended": record.finished_at,
    }
    after = {
        "student": record.output_path,
        "output": None if record.output_path else record.spec.get("output"),
        **{word: at and f"{moment(at)} UTC" for word, at in moments.items()},
        "next": _next(seen),
    }
    head = f"{record.name}  (id {record.id})"
    best = record.metrics.get("step")
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


def _status(seen: DistillationOverview) -> str:
    record, holder = seen.record, seen.holder
    if seen.abandoned:
        return "running, but its process died"
    if holder is not None:
        return f"{record.status}, by process {holder.pid} on {holder.host}"
    return f"{record.status}: {record.error}" if record.error else record.status


def _next(seen: DistillationOverview) -> str | None:
    """Say how to go on, as a command."""
    record = seen.record
    if record.status in {"queued", "paused", "failed"} or seen.abandoned:
        return f"kdnas distillations resume {record.name}"
    ways = {
        "running": f"kdnas distillations cancel {record.name}, to stop it for good",
        "succeeded": f"AutoModel.from_pretrained({record.output_path!r})",
    }
    return ways.get(record.status)


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


def _step(record: DistillationRecord) -> str:
    return f"{record.step}/{record.total_steps}" if record.total_steps else str(record.step)


def _short(teacher: str) -> str:
    """The name of a folder; anything else whole."""
    return Path(teacher).name if Path(teacher).is_absolute() else teacher
