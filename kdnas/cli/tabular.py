"""``kdnas tabular``: benchmarks of searches that need no training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdnas.tabular.table import Table

app = typer.Typer(help="Benchmarks of searches that need no training.", no_args_is_help=True)


@app.command()
def make(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SWEEP|FILE...", help="Sweeps by id or name, and files of tables."),
    ],
    output: Annotated[
        Path, typer.Option(dir_okay=False, help="The file to write: .parquet or .csv.")
    ],
    as_json: common.Json = False,
) -> None:
    """Make one table of what sweeps have read, and of tables that are there.

    A source with the ending .parquet or .csv is a file, anything else a sweep.
    """
    from api.sweeps.table import sweep_table
    from kdnas.tabular.files import ENDINGS, read_table, write_table
    from kdnas.tabular.table import merged

    tables = [read_table(Path(source)) for source in sources if Path(source).suffix in ENDINGS]
    named = [source for source in sources if Path(source).suffix not in ENDINGS]
    if named:
        with stored() as (database, _), database.read() as session:
            tables += [sweep_table(session, name) for name in named]
    table = merged(tables)
    write_table(table, output)
    answer({**_facts(table), "output": str(output)}, as_json, [*_lines(table), f"wrote {output}"])


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="File of a table.", dir_okay=False)],
    as_json: common.Json = False,
) -> None:
    """Say what is in a table."""
    from kdnas.tabular.files import read_table

    table = read_table(file)
    answer(_facts(table), as_json, _lines(table))


def _facts(table: Table) -> dict[str, Any]:
    readings: dict[tuple[int, int], set[Any]] = {}
    for row in table.rows:
        readings.setdefault((row.key.schedule, row.key.step), set()).add(row.key.architecture)
    return {
        "num_states": len(table.architectures),
        "num_states_of_space": len(table.space),
        "teacher_ms": table.teacher_ms,
        "seeds": sorted({row.key.seed for row in table.rows}),
        "readings": [
            {"schedule": schedule, "step": step, "states": len(states)}
            for (schedule, step), states in sorted(readings.items())
        ],
        "card": dict(table.card),
    }


def _lines(table: Table) -> Iterator[str]:
    facts = _facts(table)
    yield f"{facts['num_states']} of the {facts['num_states_of_space']} states of the space"
    yield f"seeds {', '.join(map(str, facts['seeds']))}"
    for row in facts["readings"]:
        yield f"after step {row['step']:>4} of {row['schedule']:>4}: {row['states']} states"
