"""``kdnas gc``: remove what nothing needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.tables.answers import print_json
from kdnas.cli.tables.formats import as_text
from kdnas.errors import SpecError, StoreError
from kdnas.settings import Settings

if TYPE_CHECKING:
    from api.cleaning.unneeded import Unneeded

_UNITS = ("bytes", "KiB", "MiB", "GiB")


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    older_than: Annotated[
        int,
        typer.Option(
            min=1, metavar="HOURS", help="Leave alone what was used or changed within so many."
        ),
    ] = 24,
    keep_events: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="DAYS",
            help="Remove older events of jobs that are over; unless told, KDNAS_KEEP_EVENTS_DAYS.",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Another database whose jobs use this KDNAS_HOME or KDNAS_STORE; may be repeated.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: common.Json = False,
) -> None:
    """Remove what no job needs any more, after showing it and asking; a service may run.

    Artefacts of the store, checkpoints, results and logs of jobs that were deleted, what killed
    processes left, answers kept for clients, and old events. What a stored job refers to stays.
    """
    from api.cleaning.run import find_unneeded, remove

    if as_json and not (dry_run or yes):
        raise SpecError("--json asks nothing; add --dry-run, or --yes to remove unasked")
    settings = Settings.from_environment()
    days = settings.keep_events_days if keep_events is None else keep_events
    found = removable = find_unneeded(settings, older_than, also or (), days)
    if not as_json:
        _print_table(found)
        if "://" in settings.store_url.removeprefix("file://"):
            typer.echo(
                f"artefacts in {settings.store_url} are not looked at: see docs/operations.md"
            )
        if found and not (dry_run or yes):
            typer.confirm("Remove this for good?", abort=True)
            # The answer may have taken long: what somebody refers to since then is kept.
            shown = {(one.category, one.name) for one in found}
            again = find_unneeded(settings, older_than, also or (), days)
            removable = [one for one in again if (one.category, one.name) in shown]
    done = None if dry_run or not found else remove(removable)
    problems = [] if done is None else list(done.problems)
    if as_json:
        gone = None if done is None else {"count": done.count, "bytes": done.num_bytes}
        print_json({**_as_json(found), "dry_run": dry_run, "removed": gone, "problems": problems})
    elif done is not None:
        typer.echo(f"removed {done.count:,}, {_size(done.num_bytes)}")
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise StoreError(f"{problems[0]}{more}")


def _print_table(found: Sequence[Unneeded]) -> None:
    if not found:
        typer.echo("nothing to remove")
        return
    rows = [(c["category"], f"{c['count']:,}", _size(c["bytes"])) for c in _categories(found)]
    total = sum(one.count for one in found), sum(one.num_bytes for one in found)
    header = ("what", "count", "size")
    rows.append(("together", f"{total[0]:,}", _size(total[1])))
    typer.echo(as_text(header, rows, right=header[1:]))


def _categories(found: Sequence[Unneeded]) -> list[dict[str, Any]]:
    return [
        {
            "category": category,
            "count": sum(one.count for one in found if one.category == category),
            "bytes": sum(one.num_bytes for one in found if one.category == category),
        }
        for category in dict.fromkeys(one.category for one in found)
    ]


def _as_json(found: Sequence[Unneeded]) -> dict[str, Any]:
    return {
        "categories": _categories(found),
        "items": [
            {"category": o.category, "name": o.name, "count": o.count, "bytes": o.num_bytes}
            for o in found
        ],
    }


def _size(num_bytes: float) -> str:
    if num_bytes == 0:
        return "-"
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes, unit = num_bytes / 1024, unit + 1
    return f"{num_bytes:,.{1 if unit else 0}f} {_UNITS[unit]}"
