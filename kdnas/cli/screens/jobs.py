"""How jobs look: a line each, or one in full with its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdnas.cli.screens.times import age, moment, span
from kdnas.cli.tables.answers import fact_lines
from kdnas.cli.tables.formats import as_text

if TYPE_CHECKING:
    from kdnas.db.engine import Session
    from kdnas.db.models import Job

Row = Mapping[str, Any]
Cells = Mapping[str, str]
"""Name of a column → what a job has in it."""

MOST_PARTS: Final = 8
"""So many parts of a kind are shown one by one."""
INDENT: Final = 2
GAP: Final = 2
FOLDED: Final = ("name", "status", "labels")
"""Columns that take several lines on a narrow screen; the others are to be copied."""
NARROWEST: Final = 40
"""What those need together; where there is less, `created` is left to `show`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A job that another one asked for, with its own parts."""

    row: Row
    called: str
    parts: Sequence[Part]


def short_name(job: Job) -> str:
    """What a part is called under its parent: its name, or what it does to which model."""
    if job.name is not None and job.name in job.called:
        return job.name
    does = job.called.removeprefix("the ").removeprefix(f"{job.noun} on ")
    model = str(job.about.get("model", "")).rpartition("/")[2]
    return f"{model}: {does}" if model else does


def parts_of(session: Session, job_id: str) -> list[Part]:
    """Read the parts of a job in the order in which they were asked for."""
    from kdnas.db.lists import job_pages
    from kdnas.db.repository import jobs

    found = {job.id: job for job in jobs.children(session, job_id)}
    return [
        Part(
            row,
            short_name(found[row["id"]]),
            parts_of(session, row["id"]) if row["num_children"] else (),
        )
        for row in job_pages.read_jobs(session, list(found))
    ]


def listed(rows: Sequence[Row]) -> str:
    """Lay jobs out in columns that fit the screen; where stdout is none, a line each."""
    now = datetime.now(UTC)
    found = [_cells(row, now) for row in rows]
    columns = [name for name in found[0] if any(cells[name] for cells in found)]
    text = as_text(columns, [[cells[name] for name in columns] for cells in found])
    console = Console(highlight=False)
    if not console.is_terminal or max(map(len, text.splitlines())) <= console.width:
        return text
    return _folded(found, columns, console)


def _folded(found: Sequence[Cells], columns: Sequence[str], console: Console) -> str:
    """Lay columns out on a screen that is too narrow for a line each."""
    widths = {name: max(len(name), *(len(cells[name]) for cells in found)) for name in columns}
    fixed = sum(width + GAP for name, width in widths.items() if name not in FOLDED)
    if console.width - fixed < NARROWEST:
        del widths["created"]
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="")
    for name, width in widths.items():
        least = None if name in FOLDED else width
        grid.add_column(name, no_wrap=least is not None, min_width=least, overflow="fold")
    for cells in found:
        grid.add_row(*(Text(cells[name]) for name in widths))  # as it is: brackets mean nothing
    with console.capture() as capture:
        console.print(grid)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def shown(row: Row, job: Job, parts: Sequence[Part], parent: Job | None) -> str:
    """Write one job out: what it does, how to go on, its parts, what was asked for."""
    now = datetime.now(UTC)
    lines = [f"{job.called}  (id {row['id']})", does_now(row, now), ""]
    lines += fact_lines(_facts(row, job, parent))
    if parts:
        lines += ["", *_parts(parts, str(row["name"] or row["id"]), now)]
    lines += ["", "requested", *_yaml(row["requested"])]
    if row["resolved"] is not None:
        decided = _differing(row["requested"], row["resolved"])
        lines += ["", "decided beside that", *(_yaml(decided) if decided else ["  nothing"])]
    return "\n".join(lines)


def does_now(row: Row, now: datetime) -> str:
    """Say what a job does or waits for, since when, and about how long yet."""
    since = row["phase_since"] or row["created_at"]
    passed = age(now - since)
    if row["finished_at"] is not None:
        return f"{row['status']} {passed} ago, {moment(since)} UTC"
    does = _stands(row)
    if _is_left(row):
        return does  # since when nobody knows
    left = row["remaining_seconds"]
    yet = "" if left is None else f"; about {span(left)} yet"
    return f"{does}, since {moment(since)} UTC ({passed}){yet}"


def how_to_go_on(row: Row, job: Job) -> str | None:
    """Say what goes on with a job that rests, or is left by its process.

    Args:
        row: of the job, with whether a coordinator looks after the queue as ``attended``.
        job: the same.
    """
    rests = row["status"] in {"paused", "failed"} or (
        row["status"] == "succeeded" and row["num_failed"] > 0
    )
    left = row["worker"] is None and row["status"] in {"queued", "running"}
    if job.owner_kind == "cli":
        return job.resumed_by.format(name=job.name) if rests or left else None
    if rests:
        return f"kdnas jobs resume {job.name or job.id}"
    waits = row["status"] == "queued" or _is_left(row)
    return "kdnas serve, whose coordinator takes it up" if waits and not row["attended"] else None


def _cells(row: Row, now: datetime) -> Cells:
    failed = f", {row['num_failed']} failed" if row["num_failed"] else ""
    return {
        "name": row["name"] or "",
        "kind": row["kind"],
        "status": _status(row, now),
        "done": _share(row["done"], row["total"]) + failed,
        "labels": ", ".join(row["labels"]),
        "owner": row["owner"] or "",
        "created": f"{age(now - row['created_at'])} ago",
        "id": row["id"],
    }


def _status(row: Row, now: datetime) -> str:
    """Its status, what it does or waits for in it, since when, and how many of its parts ended."""
    passed = age(now - (row["phase_since"] or row["created_at"]))
    said = _stands(row) + ("" if _is_left(row) else f", {passed}")
    if row["standing"] == row["status"]:  # there is nothing to say but for how long
        ended = row["finished_at"] is not None
        said = f"{row['status']} {passed} ago" if ended else f"{row['status']} for {passed}"
    if row["num_children"] and not _waits_for_parts(row):
        said += f"; {row['num_children_ended']} of {row['num_children']} parts ended"
    return said


def _stands(row: Row) -> str:
    """Its status with what it does or waits for; what lets trainings end is not paused yet."""
    if row["standing"] == row["status"]:
        return str(row["status"])
    return _does(row) if row["status"] == "paused" else f"{row['status']}: {_does(row)}"


def _does(row: Row) -> str:
    """What it does or waits for; the way on, which may stand behind a semicolon, has a line."""
    return str(row["standing"]).partition("; ")[0]


def _is_left(row: Row) -> bool:
    """Whether the process that worked on it is gone, and it waits for nothing else."""
    waits = _waits_for_parts(row) or row["standing"] == row["phase"]
    return _is_idle(row) and not waits


def _waits_for_parts(row: Row) -> bool:
    return _is_idle(row) and row["num_children"] > 0


def _is_idle(row: Row) -> bool:
    """Whether it is under way, and no process works on it."""
    return row["status"] == "running" and row["worker"] is None


def _share(done: int | None, total: int | None) -> str:
    """How much is done, rounded down: a count of one kind says nothing beside another's."""
    return f"{100 * (done or 0) // total} %" if total else ""


def _facts(row: Row, job: Job, parent: Job | None) -> dict[str, str | None]:
    moments = {word: row[f"{word}_at"] for word in ("created", "started", "finished")}
    facts = {
        "next": how_to_go_on(row, job),
        "error": row["error"],
        "result": job.result,
        "page": f"{row['href']}  in the dashboard of kdnas serve",
        "done": _share(row["done"], row["total"]),
        "failed": f"{row['num_failed']} of {row['done']}; resumed, it tries them again"
        if row["num_failed"]
        else None,
        "worked on": row["worker"] and f"by {row['worker']}",
        "part of": parent and f"{parent.called}  (id {parent.id})",
        "started by": _started_by(row),
        "labels": ", ".join(row["labels"]),
        "note": row["note"],
        **{word: at and f"{moment(at)} UTC" for word, at in moments.items()},
        "worked": span(row["worked_seconds"]) if row["worked_seconds"] >= 1 else None,
    }
    return {word: text or None for word, text in facts.items()}


def _started_by(row: Row) -> str:
    way = "the command line" if row["owner_kind"] == "cli" else "the service"
    return f"{row['owner']}, through {way}" if row["owner"] else way


def _parts(parts: Sequence[Part], parent: str, now: datetime, depth: int = 0) -> Iterator[str]:
    """Fold parts by their kind: how many are how far, and those that are not done first."""
    pad = " " * INDENT * depth
    for kind in dict.fromkeys(part.row["kind"] for part in parts):
        same = [part for part in parts if part.row["kind"] == kind]
        counts = Counter(part.row["status"] for part in same)
        told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        yield f"{pad}{_plural(len(same), kind.replace('_', ' '))}: {told}"
        order = sorted(same, key=lambda part: part.row["status"] == "succeeded")
        kept = same if len(same) <= MOST_PARTS else order[:MOST_PARTS]
        shown_parts = [(part.called, _cells(part.row, now)) for part in kept]
        cells = [[called, of["status"], of["done"], of["id"]] for called, of in shown_parts]
        lines = as_text(("",) * len(cells[0]), cells).splitlines()[1:]
        for part, line in zip(kept, lines, strict=True):
            yield f"{pad}{' ' * INDENT}{line}"
            if part.row["error"]:
                yield f"{pad}{' ' * 2 * INDENT}{part.row['error']}"
            yield from _parts(part.parts, part.row["id"], now, depth + 2)
        if len(same) > len(kept):
            yield (
                f"{pad}{' ' * INDENT}… {len(same) - len(kept)} more: "
                f"kdnas jobs list --parent {parent} --kind {kind} --limit {len(same)}"
            )


def _plural(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"


def _yaml(value: Mapping[str, Any]) -> list[str]:
    """Write what is not null, each part of a request on a line or two."""
    width = max(40, Console().width - 2 * INDENT)
    text = yaml.safe_dump(
        _without_nulls(value),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=width,
    )
    return [f"{' ' * INDENT}{line}" for line in text.splitlines()]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_nulls(part) for k, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _differing(asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What a resolution has that was not asked for, at its places."""
    found = {}
    for key, value in resolved.items():
        before = asked.get(key)
        if key in asked and before == value:
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = _differing(before, value)
        found[key] = value
    return found
