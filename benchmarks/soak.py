"""Two hours of a service at work: what grows, and what does not.

    python benchmarks/soak.py run --database sqlite --results docs/results/soak_runs.jsonl
    python benchmarks/soak.py page --results docs/results/soak_runs.jsonl --output docs/results/soak

`kdnas serve` in a process of its own, asked for jobs of every kind in miniature, one after the
other; meanwhile 10 clients read a page a second each, 10 listen to the events and come again every
minute, one sends what has to be refused, and a webhook is told of all that ends. Every 15 seconds
the process of the coordinator is measured (memory of its own, handles, threads), and with it the
processes below it, the rows of the database, its bytes and those of all logs.

Memory, handles and threads are *flat* if the slope over the means of five minutes, after the first
quarter, has zero in its interval of 95 %, or is below one per cent of the mean an hour. `--hours
0.05 --every 1` tries the program.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import numpy as np
import psutil
from chaos import ground_on
from scipy import stats
from service_load import served
from study_files import JsonLines, publish

from kdnas import ENGINE_VERSION
from kdnas.db.base import Base
from kdnas.db.engine import Database
from kdnas.testing.chaos import Ground, Work
from kdnas.testing.hook_server import HookServer, hook_server

READERS = LISTENERS = 10
LISTENING_SECONDS = 60.0
SAMPLE_SECONDS = 15.0
BLOCK_SECONDS = 300.0
FIRST_QUARTER = 0.25
LAST_HALF = 0.5
SHORT_SECONDS = 3600.0
"""Of less the last half has too few blocks for a slope of its own."""
FLAT_PER_HOUR = 0.01
WIDEST = 0.05
"""Of the mean: to either side of a slope, if its interval is to show that there is none."""
MOST_UNFINISHED = 3
LISTS = (
    *("jobs", "searches", "sweeps", "distillations", "task-distillations", "evaluations"),
    *("pipelines", "webhook-deliveries", "latency-tables"),
)
ROWS_OF_A_LIST = 10
"""So many rows there are soon of every kind; an answer that grows with its list is no leak."""
PAGES = (
    *(f"{name}?limit={ROWS_OF_A_LIST}" for name in LISTS),
    *("jobs/{id}", "schemas/search"),
)
REFUSED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "searches", {"teacher": {"ref": "no/such/teacher"}, "nothing": 1}),
    ("POST", "distillations", {"architecture": "not one"}),
    ("POST", "sweeps", [1, 2, 3]),
    ("GET", "jobs/nobody", None),
    ("PATCH", "jobs/nobody", {"priority": 1000}),
    ("DELETE", "jobs/nobody", None),
)
MEASURED = {
    "uss_mib": "memory of its own, MiB",
    "rss_mib": "resident memory, MiB",
    "handles": "handles (file descriptors)",
    "threads": "threads",
}


@dataclass
class Traffic:
    """What was asked of the service, and what it answered."""

    asked: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    events: int = 0
    failures: list[str] = field(default_factory=list)


def main() -> None:
    """Run, or make the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("--database", choices=("sqlite", "postgresql"), required=True)
    running.add_argument("--hours", type=float, default=2.0)
    running.add_argument("--every", type=float, default=15.0, help="seconds from job to job")
    paging = actions.add_parser("page")
    paging.add_argument("--output", type=Path)
    paging.add_argument("--note", default="", help="what else to know, such as of earlier runs")
    for one in (running, paging):
        one.add_argument("--results", type=Path, required=True)
    asked = parser.parse_args()
    results = JsonLines(asked.results)
    if asked.action == "run" and results.having(database=asked.database):
        parser.error(
            f"{asked.results} has a run on {asked.database}: two are not one; name another"
        )
    if asked.action == "run":
        run(results, asked.database, asked.hours, asked.every)
    else:
        publish(page(results.rows, asked.note), {"rows": results.rows}, asked.output)


def run(results: JsonLines, database: str, hours: float, every: float) -> None:
    """Serve, ask and measure; a sample is kept as soon as it is taken."""
    with ExitStack() as stack:
        ground = stack.enter_context(ground_on(database, seed=0))
        hook = stack.enter_context(hook_server())
        address = stack.enter_context(
            served(
                ground.environment["KDNAS_DATABASE_URL"],
                ground.settings.home,
                KDNAS_WEBHOOK_URL=hook.url,
                KDNAS_WEBHOOK_SECRET="a secret of this benchmark alone",
                KDNAS_WEBHOOK_ALLOW_PRIVATE="1",
                **(ground.program.environment | ground.environment),
            )
        )
        (coordinator,) = (one for one in psutil.Process().children() if "serve" in one.cmdline())
        about = {
            "database": database,
            "hours": hours,
            "engine_version": ENGINE_VERSION,
            "machine": platform.machine(),
        }
        asyncio.run(_soak(results, ground, address, coordinator, hook, about, every))


async def _soak(
    results: JsonLines,
    ground: Ground,
    address: str,
    coordinator: psutil.Process,
    hook: HookServer,
    about: dict[str, Any],
    every: float,
) -> None:
    traffic, began = Traffic(), time.monotonic()
    until = began + 3600 * about["hours"]
    pages = itertools.cycle(PAGES)
    async with (
        httpx.AsyncClient(base_url=f"{address}/api/v1/", timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(_ask(client, ground, traffic, every)),
            group.create_task(_be_refused(client, traffic)),
            *(group.create_task(_read(client, pages, traffic)) for _ in range(READERS)),
            *(group.create_task(_listen(address, traffic)) for _ in range(LISTENERS)),
        ]
        while time.monotonic() < until:
            sample = await asyncio.to_thread(_sample, coordinator, ground)
            sample |= {"asked": len(traffic.asked), "events_heard": traffic.events}
            sample |= {"answers": dict(traffic.answers), "told": len(hook.heard)}
            sample |= {"failures": list(traffic.failures)}
            results.add({**about, "seconds": round(time.monotonic() - began, 1), **sample})
            traffic.failures.clear()
            print(results.rows[-1], flush=True)
            await asyncio.sleep(SAMPLE_SECONDS)
        for task in tasks:
            task.cancel()


async def _ask(client: httpx.AsyncClient, ground: Ground, traffic: Traffic, every: float) -> None:
    """Ask for works in turn, unless too many wait."""
    for number, work in enumerate(itertools.cycle(ground.works)):
        while await _unfinished(client, traffic) >= MOST_UNFINISHED:
            await asyncio.sleep(1)
        request = _request(ground, work, number)
        with _heard(traffic, work.path):
            answer = await client.post(work.path, json=request)
            traffic.answers[str(answer.status_code)] += 1
            if answer.status_code == 202:
                traffic.asked.append(f"{work.label} {number}")
            else:
                traffic.failures.append(f"{work.path}: {answer.text[:300]}")
        await asyncio.sleep(every)


def _request(ground: Ground, work: Work, number: int) -> dict[str, Any]:
    """A request that was not made before: an evaluation of a new seed, a job of a new name."""
    request = ground.request(work, f"{work.kind.replace('_', '-')}-{number}")
    return request | ({"seeds": [number]} if work.kind == "evaluation" else {})


async def _unfinished(client: httpx.AsyncClient, traffic: Traffic) -> int:
    number = 0
    for status in ("queued", "running"):
        with _heard(traffic, "jobs"):
            number += len(
                (await client.get("jobs", params={"status": status})).json().get("items", [])
            )
    return number


async def _be_refused(client: httpx.AsyncClient, traffic: Traffic) -> None:
    for method, path, body in itertools.cycle(REFUSED):
        with _heard(traffic, path):
            answer = await client.request(method, path, json=body)
            traffic.answers[str(answer.status_code)] += 1
            if not 400 <= answer.status_code < 500:
                traffic.failures.append(f"{method} {path}: {answer.status_code}")
        await asyncio.sleep(1)


async def _read(client: httpx.AsyncClient, pages: Iterator[str], traffic: Traffic) -> None:
    newest = "nobody"
    for page in pages:
        with _heard(traffic, page):
            answer = await client.get(page.format(id=newest))
            traffic.answers[str(answer.status_code)] += 1
            if page.startswith("jobs?") and (items := answer.json().get("items", [])):
                newest = items[0]["id"]
            if answer.status_code >= 500:
                traffic.failures.append(f"{page}: {answer.text[:300]}")
        await asyncio.sleep(1)


async def _listen(address: str, traffic: Traffic) -> None:
    """Listen, go away without a word, and come again."""
    parts = urlsplit(address)
    while True:
        with _heard(traffic, "events"):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LISTENING_SECONDS):
                        while line := await reader.readline():
                            traffic.events += line.startswith(b"data:")
            finally:
                writer.close()
        await asyncio.sleep(0.5)


@contextmanager
def _heard(traffic: Traffic, what: str) -> Iterator[None]:
    """Keep what goes wrong on the way as a failure, and go on."""
    try:
        yield
    except (httpx.TransportError, OSError) as error:
        traffic.failures.append(f"{what}: {error!r}")


def _sample(coordinator: psutil.Process, ground: Ground) -> dict[str, Any]:
    memory, home = coordinator.memory_full_info(), ground.settings.home
    jobs = _jobs(ground.database)
    return {
        "uss_mib": memory.uss / 2**20,
        "rss_mib": memory.rss / 2**20,
        "handles": coordinator.num_fds(),
        "threads": coordinator.num_threads(),
        "processes_below": len(coordinator.children(recursive=True)),
        "jobs": jobs,
        "rows": _rows(ground.database),
        "database_bytes": sum(map(_bytes, home.glob("kdnas.db*"))),
        "log_bytes": _bytes(home / "serve.log") + sum(map(_bytes, _logs(home))),
    }


def _jobs(database: Database) -> dict[str, int]:
    """Jobs by status."""
    table = Base.metadata.tables["jobs"]
    with database.read() as session:
        return dict(Counter(row.status for row in session.query(table.c.status)))


def _rows(database: Database) -> dict[str, int]:
    """Rows by table."""
    with database.read() as session:
        return {name: session.query(table).count() for name, table in Base.metadata.tables.items()}


def _logs(home: Path) -> Iterator[Path]:
    """Files of folders of logs and of jobs, some of which go away meanwhile."""
    for folder, _, names in os.walk(home):
        if {"logs", "jobs"} & set(Path(folder).relative_to(home).parts):
            yield from (Path(folder, name) for name in names)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a log that has just been moved to the store
        return 0


@dataclass(frozen=True)
class Slope:
    """How a figure changes an hour, with its interval of 95 %, and its mean."""

    mean: float
    per_hour: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.per_hour:+.2f} ± {self.half_width:.2f}"

    @property
    def is_flat(self) -> bool:
        """Whether the change is below one per cent of the mean, or zero is in the interval.

        Where that is wider than a twentieth of the mean, it says too little.
        """
        within_noise = abs(self.per_hour) <= self.half_width <= WIDEST * self.mean
        return within_noise or abs(self.per_hour) <= FLAT_PER_HOUR * self.mean


def slope(seconds: Sequence[float], values: Sequence[float], after: float = FIRST_QUARTER) -> Slope:
    """The slope of a figure over the means of blocks, after a share of the time.

    Means of five minutes are taken since samples that follow each other are not independent; as far
    as these means follow each other too, the interval is too narrow.

    Raises:
        ValueError: there are fewer than three blocks.
    """
    at, of = np.asarray(seconds), np.asarray(values, dtype=float)
    late = at >= after * at.max()
    blocks = ((at - at[late].min()) // BLOCK_SECONDS)[late]
    means = [
        (at[late][blocks == block].mean() / 3600, of[late][blocks == block].mean())
        for block in np.unique(blocks)
    ]
    if len(means) < 3:
        raise ValueError(f"{len(means)} blocks of {BLOCK_SECONDS:g} seconds are too few")
    fitted = stats.linregress(*zip(*means, strict=True))
    error = float(np.nan_to_num(fitted.stderr))  # which is no number where all means are the same
    spread = float(stats.t.ppf(0.975, len(means) - 2)) * error
    return Slope(float(of[late].mean()), float(fitted.slope), spread)


def page(rows: list[dict[str, Any]], note: str = "") -> str:
    """Say what grew, in Markdown.

    Args:
        rows: samples in the order in which they were taken.
        note: what else to know.
    """
    lines = [
        "# What grows while a service works",
        "",
        "`kdnas serve` asked for jobs of every kind in miniature, while clients read, listen, and",
        "send what is refused. Slopes are an hour's, with intervals of 95 %, over means of five",
        "minutes after the first quarter of the time. One is *flat* that is below "
        f"{FLAT_PER_HOUR:.0%} of the mean",
        f"an hour, or has 0 in its interval, if that is at most {WIDEST:.0%} of the mean to either",
        "side. The last half says whether what grows comes to an end. `benchmarks/soak.py` made",
        "this.",
        "",
        *([note, ""] if note else []),
    ]
    for database in sorted({row["database"] for row in rows}):
        lines += _about([row for row in rows if row["database"] == database])
    return "\n".join(lines) + "\n"


def _about(rows: list[dict[str, Any]]) -> list[str]:
    last, seconds = rows[-1], [row["seconds"] for row in rows]
    done = sum(last["jobs"].values())
    if not done:
        raise SystemExit(f"no job came to anything on {last['database']}; run it again")
    failures = [text for row in rows for text in row["failures"]]
    lines = [
        f"## {'SQLite' if last['database'] == 'sqlite' else 'PostgreSQL'}",
        "",
        f"{seconds[-1] / 3600:.2f} hours, {last['asked']} jobs asked for, one every "
        f"{seconds[-1] / max(1, last['asked']):.1f} s; at the end "
        f"{', '.join(f'{number} {status}' for status, number in sorted(last['jobs'].items()))} "
        f"(parts of pipelines are jobs too). {sum(last['answers'].values())} answers "
        f"({', '.join(f'{code}: {n}' for code, n in sorted(last['answers'].items()))}), "
        f"{last['events_heard']} events heard, {last['told']} messages to the webhook, "
        f"{len(failures)} failures.",
        "",
        "| coordinator | at first | after a quarter | at the end | most | slope an hour | flat "
        "| slope of the last half |",
        "|---|---|---|---|---|---|---|---|",
    ]
    quarter = next(row for row in rows if row["seconds"] >= FIRST_QUARTER * seconds[-1])
    for key, words in MEASURED.items():
        values = [row[key] for row in rows]
        found = slope(seconds, values)
        late = "" if seconds[-1] < SHORT_SECONDS else slope(seconds, values, after=LAST_HALF)
        figures = (rows[0][key], quarter[key], last[key], max(row[key] for row in rows))
        lines.append(
            f"| {words} | {' | '.join(f'{one:.1f}' for one in figures)} | "
            f"{found} | {'yes' if found.is_flat else 'no'} | {late} |"
        )
    kept = ({"database": "database (SQLite)"} if last["database_bytes"] else {}) | {"log": "logs"}
    kib = ", ".join(
        f"{(last[f'{name}_bytes'] - rows[0][f'{name}_bytes']) / done / 1024:.1f} KiB of {words}"
        for name, words in kept.items()
    )
    grown = {
        name: number - rows[0]["rows"].get(name, 0)
        for name, number in last["rows"].items()
        if number > rows[0]["rows"].get(name, 0)
    }
    lines += [
        "",
        f"Grown with the jobs, each of {done}: {kib}, and rows: "
        + ", ".join(f"{name} {number / done:.1f}" for name, number in sorted(grown.items()))
        + ".",
        "",
        *(f"- {text}" for text, _ in Counter(failures).most_common(20)),
    ]
    return lines


if __name__ == "__main__":
    main()
