"""A hundred processes killed at random moments, on either database, and what came of their work.

    python benchmarks/chaos.py run --database sqlite --results docs/results/chaos_runs.jsonl
    python benchmarks/chaos.py run --database postgresql --results docs/results/chaos_runs.jsonl
    python benchmarks/chaos.py page --results docs/results/chaos_runs.jsonl --output FILE

Every kind of process is killed as often as its share of what is asked for: the commands of each
kind of job, the service, its runners, Ray's workers and raylets, and PostgreSQL where it is the
database. A fifth of the hits stop a process for some seconds instead, and in a fifth of the attacks
all that was prepared before is removed first. What each job comes to is compared with the same job
undisturbed, number by number and weight by weight (:mod:`kdnas.testing.chaos`).

Run again with the same results it goes on where it stood, with other moments.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from study_files import JsonLines, publish

from kdnas import ENGINE_VERSION
from kdnas.db.migrate import upgrade
from kdnas.testing.chaos import TARGETS, Ground, Target, Work
from kdnas.testing.postgres import own_server

HITS = 3
"""Of one job at most."""


def main() -> None:
    """Run, or make the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("--database", choices=("sqlite", "postgresql"), required=True)
    running.add_argument("--kills", type=int, default=100)
    running.add_argument("--minutes", type=float, default=1e9)
    running.add_argument("--seed", type=int, default=0)
    paging = actions.add_parser("page")
    paging.add_argument("--output", type=Path)
    for one in (running, paging):
        one.add_argument("--results", type=Path, required=True)
    asked = parser.parse_args()
    results = JsonLines(asked.results)
    if asked.action == "run":
        run(results, asked.database, asked.kills, asked.minutes, asked.seed)
    else:
        publish(page(results.rows), {"rows": results.rows}, asked.output)


def run(results: JsonLines, database: str, kills: int, minutes: float, seed: int) -> None:
    """Attack until every kind of process was killed often enough."""
    until = time.monotonic() + 60 * minutes
    with ground_on(database, seed + len(results.rows)) as ground:
        kinds = victims(ground)
        while time.monotonic() < until:
            so_far = Counter()
            for row in (r for r in results.having(database=database) if "mended" not in r):
                so_far[row["process"]] += row["kills"]
            kind = min(kinds, key=lambda name: so_far[name])
            if so_far[kind] * len(kinds) >= kills and so_far.total() >= kills:
                return
            target, works = kinds[kind]
            struck = ground.attack(ground.draw.choice(works), target, ground.draw.randint(1, HITS))
            row = {
                "database": database,
                "process": kind,
                **asdict(struck),
                "engine_version": ENGINE_VERSION,
                "machine": platform.machine(),
            }
            results.add(row)
            print(f"{so_far.total() + struck.kills:4} {kind:28} {row}", flush=True)


def victims(ground: Ground) -> dict[str, tuple[Target, list[Work]]]:
    """Each kind of process, how it is found, and the works in which there is one."""
    alone = [work for work in ground.works if not work.on_ray]
    on_ray = [work for work in ground.works if work.on_ray]
    found: dict[str, tuple[Target, list[Work]]] = {
        f"command of a {work.kind.replace('_', ' ')}": ("command", [work]) for work in alone
    }
    for target in TARGETS:
        if target == "postgres" and ground.server is None:
            continue
        if target != "command":
            found[target] = (target, on_ray if target in {"ray worker", "raylet"} else alone)
    return found


@contextmanager
def ground_on(database: str, seed: int) -> Iterator[Ground]:
    """A ground on a database of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdnas-chaos-")))
        server = None
        if database == "sqlite":
            (folder / "home").mkdir()
            url = f"sqlite:///{folder / 'home' / 'kdnas.db'}"
        else:
            server = stack.enter_context(own_server(syncs=True))
            url = server.url
        upgrade(url)
        yield stack.enter_context(Ground(folder, url, seed, server))


def page(rows: list[dict[str, Any]]) -> str:
    """Say what came of all that was killed, in Markdown."""
    lines = [
        "# What is lost when processes die",
        "",
        "Jobs in miniature whose processes are killed (`kill -9`) or stopped for some seconds at",
        "random moments, and then gone on with as a user would: a command is run again with",
        "`--resume`, a service or a PostgreSQL server is started again, for a runner, a worker of",
        "Ray or a raylet nothing is done, but that a job that has failed since its process died",
        "three times at one place is resumed, as its error says. *Lost* are jobs that did not end,",
        "or ended with other numbers or weights than undisturbed; *twice* are candidates that were",
        "trained to the end again; *left* are processes that outlived their job. What was found",
        "and mended stands by itself below. `benchmarks/chaos.py` made this.",
        "",
    ]
    mended = [row for row in rows if "mended" in row]  # what was done about it since
    rows = [row for row in rows if "mended" not in row]
    for database in sorted({row["database"] for row in rows}):
        of_it = [row for row in rows if row["database"] == database]
        lines += [
            f"## {'SQLite' if database == 'sqlite' else 'PostgreSQL'}",
            "",
            "| process | jobs | kills | stops | lost | twice | left |",
            "|---|---|---|---|---|---|---|",
            *(
                line(process, [row for row in of_it if row["process"] == process])
                for process in sorted({row["process"] for row in of_it})
            ),
            line("**all**", of_it),
            "",
        ]
    amiss = [(row, sentence) for row in rows for sentence in row["amiss"]]
    lines += ["What was amiss:", ""] if amiss else ["Nothing was amiss.", ""]
    lines += [
        f"- {row['database']}, {row['process']}, {row['work']}: {text}" for row, text in amiss
    ]
    if mended:
        gap = [""] if amiss else []
        lines += [*gap, "Found on the way, mended, and tried again since:", ""]
    lines += [
        f"- {row['database']}, {row['process']}, {row['work']}: {'; '.join(row['amiss'])}. "
        f"{row['mended']}"
        for row in mended
    ]
    return "\n".join(lines) + "\n"


def line(name: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    texts = [sentence for row in rows for sentence in row["amiss"]]
    twice = sum("trained twice" in text for text in texts)
    left = sum("left behind" in text for text in texts)
    kills, stops = (sum(row[key] for row in rows) for key in ("kills", "stops"))
    figures = (len(rows), kills, stops, len(texts) - twice - left, twice, left)
    return f"| {name} | {' | '.join(map(str, figures))} |"


if __name__ == "__main__":
    main()
