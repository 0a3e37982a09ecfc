"""Readings for a table from many processes at once, as on a GPU that is there for minutes.

    python benchmarks/table_pool.py plan --like SWEEP --steps 0,60 --without TABLE --output PLAN
    python benchmarks/table_pool.py run --plan PLAN --results ROWS --workers 16 --device cuda
    python benchmarks/table_pool.py make --like SWEEP --results ROWS --output TABLE.parquet
    python benchmarks/table_pool.py compare --table TABLE --results ROWS

``plan`` words the trainings of a stored sweep's kind, ``make`` puts what came of them into a table
with the sweep's card and latencies, for ``kdnas tabular make``. ``run`` needs the store alone
(teacher and text by their fingerprints), neither a database nor a cluster; what is done when its
time is over is kept, and the same command again does the rest. ``compare`` says how far the rows
are from readings that a table has already, of another device or machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from study_files import JsonLines

from kdnas.architecture import Architecture
from kdnas.child_process import end_with_parent
from kdnas.records import MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.settings import Settings
from kdnas.store import Store
from kdnas.tabular.table import Key, Table, TableRow


@dataclass(frozen=True)
class Group:
    """Students that share a teacher pass.

    Attributes:
        context: what decides their losses, as plain JSON.
        read_after: steps.
        architectures: of the students.
    """

    context: dict[str, Any]
    read_after: tuple[int, ...]
    architectures: tuple[str, ...]


def planned(
    card: Mapping[str, Any],
    steps: Sequence[int],
    seed: int,
    architectures: Sequence[Architecture],
    size: int,
) -> Iterator[Group]:
    """Trainings of the kind that a card tells, in groups."""
    told = card["context"]
    proxy = {**told["proxy"], "seed": seed, "steps": steps[-1]}
    context = {**told, "proxy": proxy}
    names = [str(architecture) for architecture in architectures]
    for first in range(0, len(names), size):
        yield Group(context, tuple(steps), tuple(names[first : first + size]))


def train(
    device: str,
    todo: multiprocessing.Queue[Group | None],
    done: multiprocessing.Queue[dict[str, Any]],
) -> None:
    """What one process does until there is no group left."""
    import torch

    from kdnas.corpus.tokenized import TokenizedCorpus
    from kdnas.distill.group import MiniKD
    from kdnas.distill.numerics import choose_device
    from kdnas.models.teacher import open_teacher

    torch.set_num_threads(1)
    store = Store.from_settings(Settings.from_environment())
    end_with_parent()
    engine, of = None, None
    for group in iter(todo.get, None):
        if group.context != of:
            context = MiniKDContext(**group.context)
            teacher = open_teacher(context.teacher, store, context.objective.get("lm_head"))
            corpus = TokenizedCorpus.open(store.fetch("corpus", context.corpus))
            engine = MiniKD(context, teacher, corpus, store, choose_device(device))
            of = group.context
        assert engine is not None  # the first group is of another context than none
        requests = [
            MiniKDRequest(name, Architecture.parse(name), group.read_after)
            for name in group.architectures
        ]
        for item in engine.train(requests):
            if isinstance(item, MiniKDResult):
                done.put(_row(group, item, torch.__version__))


def _row(group: Group, result: MiniKDResult, torch_version: str) -> dict[str, Any]:
    readings = [
        [one.step, one.losses.relative, one.losses.output, one.losses.mean]
        for one in result.readings
    ]
    return {
        "context": group.context,
        "read_after": group.read_after,
        "architecture": result.candidate_id,
        "readings": readings,
        "error": result.error,
        "seconds": round(result.train_seconds, 2),
        "torch": torch_version,
    }


def run(
    groups: Sequence[Group], rows: JsonLines, workers: int, device: str, seconds: float
) -> None:
    """Train groups in their order until all are done or the time is over.

    Raises:
        SystemExit: a process died before its time, and with it the group that it was at.
    """
    began = time.monotonic()
    missing = list(_missing(groups, rows.rows))
    spawning = multiprocessing.get_context("spawn")
    todo, done = spawning.Queue(), spawning.Queue()
    for task in [*missing, *[None] * workers]:
        todo.put(task)
    pool = [
        spawning.Process(target=train, args=(device, todo, done), daemon=True)
        for _ in range(workers)
    ]
    for process in pool:
        process.start()
    total, trained, steps = sum(len(group.architectures) for group in missing), 0, 0
    while trained < total and (rest := began + seconds - time.monotonic()) > 0:
        try:
            row = done.get(timeout=min(rest, 1))
        except queue.Empty:
            if any(process.exitcode for process in pool):
                raise SystemExit("a process has died; what is done is kept") from None
            continue
        rows.add(row)
        trained, steps = trained + 1, steps + row["read_after"][-1]
        if trained % 50 == 0:
            spent = time.monotonic() - began
            print(f"{spent:.0f} s: {trained} trained, {steps / spent:.0f} steps/s", flush=True)
    for process in pool:
        process.terminate()
    spent = time.monotonic() - began
    print(f"{trained} trained, {total - trained} left, {steps} steps in {spent:.0f} s")


def _missing(groups: Sequence[Group], rows: Sequence[Mapping[str, Any]]) -> Iterator[Group]:
    """What of some groups has no row yet."""
    known = {_mark(row["context"], row["read_after"], row["architecture"]) for row in rows}
    for group in groups:
        left = tuple(
            name
            for name in group.architectures
            if _mark(group.context, group.read_after, name) not in known
        )
        if left:
            yield Group(group.context, group.read_after, left)


def _mark(context: Mapping[str, Any], read_after: Sequence[int], name: str) -> tuple[str, ...]:
    return json.dumps(context, sort_keys=True), json.dumps(list(read_after)), name


def table_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[TableRow]:
    """Readings of students that were trained to their end."""
    for row in rows:
        if row["error"] is not None:
            continue
        proxy = row["context"]["proxy"]
        for step, relative, output, mean in row["readings"]:
            architecture = Architecture.parse(row["architecture"])
            yield TableRow(
                Key(architecture, proxy["seed"], proxy["steps"], step), relative, output, mean
            )


def made(like: Table, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The table of these rows that are of the kind of another one, with its latencies."""
    from kdnas.tabular.card import context_of_all

    told = like.card["context"]
    own = [row for row in rows if context_of_all(row["context"]) == told]
    found = tuple(table_rows(own))
    states = {row.key.architecture for row in found}
    kept = {state: like.states[state] for state in states}
    return Table(found, kept, like.teacher_ms, like.card)


def differences(table: Table, rows: Sequence[Mapping[str, Any]]) -> str:
    """How far rows are from the same readings of a table, by step."""
    known = {row.key: row.loss for row in table.rows}
    apart: dict[int, list[float]] = {}
    for row in table_rows(rows):
        if row.key in known:
            apart.setdefault(row.key.step, []).append(abs(row.loss / known[row.key] - 1))
    return "\n".join(
        f"after step {step}: {len(own)} readings, relative difference median {median(own):.1e}, "
        f"mean {fmean(own):.1e}, largest {max(own):.1e}"
        for step, own in sorted(apart.items())
    )


def main() -> None:
    """Plan, train, make a table, or compare."""
    from kdnas.tabular.files import named_table, write_table
    from kdnas.tabular.table import read_whole

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["plan", "run", "make", "compare"])
    parser.add_argument("--like", help="a stored sweep of the kind")
    parser.add_argument("--steps", default="0,60", help="to read after, the last one ends each")
    parser.add_argument("--states", type=int, help="to draw; all if not given")
    parser.add_argument("--seed", type=int, default=0, help="of the trainings")
    parser.add_argument("--without", action="append", default=[], help="tables: leave out theirs")
    parser.add_argument("--group", type=int, default=8, help="students on one teacher pass")
    parser.add_argument("--plan", type=Path, action="append", default=[], help="done in order")
    parser.add_argument("--results", type=Path, help="file of rows")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e9, help="that it may take")
    parser.add_argument("--table", help="to compare with")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    match asked.what:
        case "plan":
            like = _like(asked.like)
            steps = [int(step) for step in asked.steps.split(",")]
            wanted = [(asked.seed, steps[-1], step) for step in steps]
            had = {
                state for name in asked.without for state in read_whole(named_table(name), wanted)
            }
            drawn = [state for state in _drawn(like, asked.states) if state not in had]
            groups = [asdict(g) for g in planned(like.card, steps, asked.seed, drawn, asked.group)]
            asked.output.write_text(json.dumps(groups), "utf-8")
            print(f"{len(drawn)} trainings of {steps[-1]} steps in {len(groups)} groups")
        case "run":
            told = [group for path in asked.plan for group in json.loads(path.read_text("utf-8"))]
            plan = [
                Group(g["context"], tuple(g["read_after"]), tuple(g["architectures"])) for g in told
            ]
            run(plan, JsonLines(asked.results), asked.workers, asked.device, asked.seconds)
        case "make":
            write_table(made(_like(asked.like), JsonLines(asked.results).rows), asked.output)
        case "compare":
            print(differences(named_table(asked.table), JsonLines(asked.results).rows))


def _like(sweep: str) -> Table:
    """The table of a stored sweep so far, which knows every state's latency."""
    from api.sweeps.table import sweep_table
    from kdnas.cli.stored import stored

    with stored() as (database, _), database.read() as session:
        return sweep_table(session, sweep)


def _drawn(like: Table, states: int | None) -> list[Architecture]:
    from api.sweeps.run import drawn_states
    from kdnas.specs.sweep import SweepSpec

    return [like.space[index] for index in drawn_states(SweepSpec(states=states), like.space)]


if __name__ == "__main__":
    main()
