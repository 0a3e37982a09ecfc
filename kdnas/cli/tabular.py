"""``kdnas tabular``: benchmarks of searches that need no training."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.screens.console import bar
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdnas.architecture import Architecture
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
    timed_by: Annotated[
        str | None,
        typer.Option(
            metavar="SWEEP|FILE",
            help="Take the latencies of this source for all, where others were timed elsewhere.",
        ),
    ] = None,
    about: Annotated[
        str | None, typer.Option(help="What its readers should know of it, for its card.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Make one table of what sweeps have read, and of tables that are there.

    A source with the ending .parquet or .csv is a file, anything else a sweep.
    """
    from api.sweeps.table import sweep_table
    from kdnas.tabular.files import ENDINGS, read_table, write_table
    from kdnas.tabular.table import merged, timed_as

    wanted = [*sources, *([] if timed_by is None else [timed_by])]
    tables = {s: read_table(Path(s)) for s in wanted if Path(s).suffix in ENDINGS}
    named = [source for source in wanted if source not in tables]
    if named:
        with stored() as (database, _), database.read() as session:
            tables |= {name: sweep_table(session, name) for name in named}
    given = [tables[source] for source in sources]
    if timed_by is not None:
        given = [timed_as(one, tables[timed_by]) for one in given]
    table = merged(given)
    if about is not None:
        table = replace(table, card={**table.card, "about": about})
    write_table(table, output)
    answer({**_facts(table), "output": str(output)}, as_json, [*_lines(table), f"wrote {output}"])


@app.command()
def show(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE|NAME", help="A file, or one of ours.  [default: all of ours]"),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Say what is in a table, or which tables come with the program."""
    from kdnas.tabular.files import named_table, packaged_tables

    if file is None:
        ours = {name: _facts(named_table(name)) for name in packaged_tables()}
        answer(ours, as_json, (_line(name, facts) for name, facts in ours.items()))
        return
    table = named_table(file)
    answer(_facts(table), as_json, _lines(table))


@app.command()
def strategies(
    table: Annotated[
        str,
        typer.Option(
            help="File of a table; one of ours: minilm, minilm-relations, minilm-rungs, "
            "minilm-wikitext; or a formula: additive, rough."
        ),
    ],
    names: Annotated[
        str | None,
        typer.Option(
            "--strategies",
            metavar="NAME,NAME",
            help="Which ones; also variants, such as gp-thompson.  [default: all, and "
            "controller-paper]",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Searches of each strategy.")] = 20,
    budgets: Annotated[
        str, typer.Option(metavar="N,N", help="Trainings after which they are compared.")
    ] = "20,60,100,300",
    candidates: Annotated[int, typer.Option(help="Candidates of an episode.")] = 20,
    goal: Annotated[
        str,
        typer.Option(
            help="What is wanted: reward, limit (the lowest loss within the limits) or front (low "
            "losses at every latency)."
        ),
    ] = "front",
    latency_price: Annotated[
        float | None,
        typer.Option(help="Share of signal that a doubling of latency must buy."),
    ] = None,
    max_latency_ms: common.MaxLatencyMs = None,
    max_latency_ratio: common.MaxLatencyRatio = None,
    max_params: common.MaxParams = None,
    rungs: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="End trainings after these steps that promise too little."
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="With rungs: go on with what may be one of so many best."),
    ] = None,
    schedule: Annotated[
        int | None,
        typer.Option(help="Steps of the trainings that count.  [default: those of most states]"),
    ] = None,
    no_starts: Annotated[
        bool,
        typer.Option(
            "--no-starts", help="As if no sweep had read the losses with which states start."
        ),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Whom the others are tested against.  [default: gp where it is compared, else the "
            "first]"
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.  [default: a core each]")] = None,
    output: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file; what it has of this is not run again."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="PNG file: regret over trainings.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Compare strategies on a table, by the real search loop and without training.

    Regret is the share of the hypervolume that the recommended front lacks, and a search has solved
    its problem when that is 1 %. With goal reward it is how far the recommended student is from the
    best one, in reward, or with goal limit in loss; training one of the best half per cent solves
    it. All are medians over the seeds.
    """
    from api.tabular import compare_strategies
    from kdnas.cli.screens.plot import check_plot, plot_regrets
    from kdnas.cli.screens.tabular import standing_lines

    if plot is not None:
        check_plot(plot)
    with bar("strategies", None, "searches") as shown:
        found = compare_strategies(
            table,
            names=None if names is None else common.listed(names),
            seeds=seeds,
            budgets=common.listed(budgets),
            candidates=candidates,
            goal=goal,
            latency_price=latency_price,
            max_latency_ms=max_latency_ms,
            max_latency_ratio=max_latency_ratio,
            max_params_millions=max_params,
            rungs=[] if rungs is None else common.listed(rungs),
            keep=keep,
            schedule=schedule,
            starts=not no_starts,
            reference=reference,
            workers=workers,
            output=output,
            on_progress=lambda done, total, note: shown.at(done, total, note),
        )
    if plot is not None:
        plot_regrets(found, plot)
    answer(found, as_json, standing_lines(found))


def _facts(table: Table) -> dict[str, Any]:
    from kdnas.tabular.card import trainings_of

    readings: dict[tuple[int, int], dict[int, set[Architecture]]] = {}
    for row in table.rows:
        by_seed = readings.setdefault((row.key.schedule, row.key.step), {})
        by_seed.setdefault(row.key.seed, set()).add(row.key.architecture)
    return {
        "num_states": len(table.architectures),
        "num_states_of_space": len(table.space),
        "teacher_ms": table.teacher_ms,
        "seeds": sorted({row.key.seed for row in table.rows}),
        "readings": [
            {
                "schedule": schedule,
                "step": step,
                "states": len(set().union(*by_seed.values())),
                "seeds": sorted(by_seed),
                "states_by_seed": {str(seed): len(by_seed[seed]) for seed in sorted(by_seed)},
            }
            for (schedule, step), by_seed in sorted(readings.items())
        ],
        "trainings": [asdict(one) for one in trainings_of(table)],
        "card": dict(table.card),
    }


def _line(name: str, facts: dict[str, Any]) -> str:
    """A table that comes with the program, in a line."""
    steps: dict[int, list[int]] = {}
    for row in facts["readings"]:
        steps.setdefault(row["schedule"], []).append(row["step"])
    read = ", ".join(f"after step {_listed(own)} of {length}" for length, own in steps.items())
    states = f"{facts['num_states']} of {facts['num_states_of_space']} states"
    return f"{name:<14} {states}, read {read}; {_seeds(facts['seeds'])}"


def _lines(table: Table) -> Iterator[str]:
    from kdnas.tabular.card import trainings_of

    facts, width = _facts(table), get_terminal_size().columns
    yield f"{facts['num_states']} of the {facts['num_states_of_space']} states of the space"
    card = facts["card"]
    if card:
        yield f"teacher {card.get('teacher')}, corpus {', '.join(card.get('corpus', []))}"
    if "about" in card:
        yield from wrap(str(card["about"]), width)
    if facts["teacher_ms"] is not None:
        yield f"teacher_ms {facts['teacher_ms']:.4g}, the teacher's latency"
    yield _seeds(facts["seeds"])
    for row in facts["readings"]:
        states = f"{row['states']} state{'' if row['states'] == 1 else 's'}"
        told = f"after step {row['step']:>4} of {row['schedule']:>4}: {states}"
        yield f"{told}{_under(row, facts['seeds'])}"
    for trainings in trainings_of(table):
        yield from wrap(str(trainings), width)


def _under(row: dict[str, Any], seeds: list[int]) -> str:
    """Under which seeds a reading was made, unless it is of all its states under each."""
    counts = row["states_by_seed"]
    if len(counts) == 1 or set(counts.values()) == {row["states"]}:
        return "" if row["seeds"] == seeds else f", {_seeds(row['seeds'])}"
    return f" ({', '.join(f'seed {seed}: {count}' for seed, count in counts.items())})"


def _seeds(seeds: list[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {_listed(seeds)}"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
