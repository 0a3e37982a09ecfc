"""How stored distillations look: a line each, or one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.times import age
from kdnas.cli.tables.formats import as_text

if TYPE_CHECKING:
    from kdnas.db.records import DistillationOverview, DistillationRecord, HeldOutReading
    from kdnas.records import CurvePoint

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48
READINGS = 6
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
    lines = [f"{record.name}  (id {record.id})", f"status       {_status(seen)}"]
    if (doubt := learned_nothing(record)) is not None:
        lines.append(f"warning      {doubt}")
    lines += [f"{part:<12} {text}" for part, text in _spec_lines(record.spec).items()]
    lines.append(f"step         {_step(record)}")
    if curve:
        first, last = curve[0], curve[-1]
        lines.append(
            f"loss         {sparkline([point.loss for point in curve])}  {first.loss:.4f} at step "
            f"{first.step}, {last.loss:.4f} at step {last.step}"
        )
    if readings:
        lines += ["", "held-out losses", _readings(readings, record.metrics.get("step")), ""]
    if record.output_path:
        lines.append(f"student      {record.output_path}")
    elif record.spec.get("output"):
        lines.append(f"output       {record.spec['output']}")
    for name, moment in (
        ("created", record.created_at),
        ("started", record.started_at),
        ("ended", record.finished_at),
    ):
        if moment is not None:
            lines.append(f"{name:<12} {moment:%Y-%m-%d %H:%M} UTC")
    next_step = _next(seen)
    return "\n".join([*lines, f"next         {next_step}"] if next_step else lines)


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
    if record.status == "running":
        return f"kdnas distillations cancel {record.name}, to stop it for good"
    if record.status == "succeeded":
        return f"AutoModel.from_pretrained({record.output_path!r})"
    return None


def _spec_lines(spec: Any) -> dict[str, str]:
    """Write a spec's parts, a line each; options at their simplest."""
    from kdnas.specs.objective_base import UNTOLD

    objective, student, training = spec["objective"], spec["student"], spec["training"]
    options = [
        f"{key} {_plain(value)}"
        for key, value in objective.items()
        if key not in UNTOLD and value is not None
    ]
    start = student.get("init_from")
    steps = training.get("steps")
    length = f"{training['epochs']} epochs" if steps is None else f"{steps} steps"
    if steps == 0:
        length = "none, undistilled"
    work = [
        length,
        f"batch {training['batch_size']}",
        f"peak rate {training['learning_rate']:g}",
        str(training["dtype"]),
        str(training["device"]),
    ]
    if training.get("num_workers", 1) > 1:
        work.append(f"{training['num_workers']} workers")
    if training.get("accumulate", 1) > 1:
        work.append(f"in {training['accumulate']} parts")
    corpus = spec["corpus"]
    return {
        "architecture": spec["architecture"],
        "objective": ", ".join([objective["name"], *options]),
        "teacher": spec["teacher"]["ref"],
        "corpus": f"{', '.join(corpus['source'])}, {corpus['max_length']} tokens at most",
        "start": f"from {start['ref']}" if start else student["init"],
        "training": ", ".join(work),
    }


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
            f"{reading.losses.relative:.4f}",
            f"{reading.losses.output:.4f}",
            f"{reading.losses.mean:.4f}",
        )
        for reading in kept
    ]
    header = ("step ", "relative", "output", "mean")
    table = as_text(header, rows, right=header)
    note = (
        [f"  ({len(readings) - len(kept)} earlier ones: kdnas distillations losses)"]
        if len(kept) < len(readings)
        else []
    )
    mark = ["  * the student in the folder"] if best is not None else []
    return "\n".join([*(f"  {line}" for line in table.splitlines()), *mark, *note])


def _step(record: DistillationRecord) -> str:
    return f"{record.step}/{record.total_steps}" if record.total_steps else str(record.step)


def _short(teacher: str) -> str:
    """The name of a folder; anything else whole."""
    return Path(teacher).name if Path(teacher).is_absolute() else teacher
