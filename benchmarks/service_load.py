"""The service under load: many readers, many listeners, one search at work.

A database with a search of 100 000 candidates; `kdnas serve` on it, in a process of its own; a
search of MiniLM students on one thread, started by REST, which runs all the while. Then, for a
minute: 50 clients, each of which reads once a second (the pages of a dashboard in turn), and 200
that listen to all events. SQLite and PostgreSQL one after the other.

    python benchmarks/service_load.py --output docs/results/service_load

Latencies are what a client sees, connection kept open, answer read to its end; the clients share
the machine's cores with the service, in a process of their own. An event is late by the time from
its `created_at` to its line at the client, both on the clock of this machine; a listener that gets
an event twice, or misses one that another got, is counted. `--seconds 5 --candidates 2000` tries
the program.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
from named_corpus import corpus_facts, corpus_words
from study_files import publish

from kdnas.corpus.tokenized import KIND, TokenizedCorpus
from kdnas.db.migrate import open_database, upgrade
from kdnas.settings import Settings
from kdnas.store import Store
from kdnas.testing.many_candidates import add_many_candidates
from kdnas.testing.postgres import fresh_database, running_server

BAR_READ_MS, BAR_EVENT_SECONDS = 50.0, 1.0
SEARCH = {
    "teacher": "minilm",
    "corpus": {"source": "pydocs", "max_length": 64, "max_samples": 4000},
    "proxy": {"steps": 40, "batch_size": 16, "held_out": 64},
    "controller": {"episodes": 1000, "candidates": 4},
    "latency": {"budget_seconds": 20},
    "backend": {"name": "local", "threads": 1, "num_workers": 1, "group_size": 2},
}
PAGES = (
    "searches",
    "searches/{id}",
    "searches/{id}/episodes?limit=100",
    "searches/{id}/candidates?sort=-reward",
    "searches/{id}/candidates?sort=latency_ms&max_loss_relative=0.5&activation=gelu",
    "searches/{id}/pareto",
    "searches/{id}/ranking?alpha=-0.3&limit=50",
    "searches/{id}/points?limit=1000",
    "searches/{id}/coverage",
    "distillations",
)


@dataclass
class Reads:
    """What the readers saw, by page."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@dataclass
class Listening:
    """What one listener got: event ids in order, and how late each came."""

    ids: list[int] = field(default_factory=list)
    seconds_late: list[float] = field(default_factory=list)


@contextmanager
def served(database_url: str, home: Path, **more: str) -> Iterator[str]:
    """Run `kdnas serve` on a free port, with more of an environment; give its address."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("KDNAS_")},
        "KDNAS_HOME": str(home),
        "KDNAS_DATABASE_URL": database_url,
        "KDNAS_LOCKS": str(home / "locks"),
        **more,
    }
    log = (home / "serve.log").open("w+")
    process = subprocess.Popen(
        [Path(sys.executable).with_name("kdnas"), "serve", "--port", "0"],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield _address(process, Path(log.name))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text())
        if found:
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise SystemExit(f"kdnas serve did not start:\n{log.read_text()}")


def start_search(address: str) -> str:
    """Start a search and wait until it trains."""
    with httpx.Client(base_url=f"{address}/api/v1/", timeout=30) as client:
        answer = client.post("searches", json=SEARCH)
        if answer.status_code != 202:
            raise SystemExit(f"the search was refused: {answer.text}")
        reference: str = answer.json()["id"]
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            search = client.get(f"searches/{reference}").json()
            if search["status"] in {"failed", "cancelled"}:
                raise SystemExit(f"the search is {search['status']}: {search['error']}")
            if search["num_candidates_finished"]:
                return reference
            time.sleep(0.5)
    raise SystemExit("the search did not begin to train within ten minutes")


async def read(
    client: httpx.AsyncClient, pages: Iterator[str], until: float, offset: float, reads: Reads
) -> None:
    """One client: a page once a second."""
    await asyncio.sleep(offset)
    while time.monotonic() < until:
        began = time.monotonic()
        page = next(pages)
        try:
            answer = await client.get(page)
        except httpx.TransportError as error:
            reads.failures.append(f"{page}: {error!r}")
            await asyncio.sleep(1)
            continue
        took = time.monotonic() - began
        if answer.status_code == 200:
            reads.milliseconds.setdefault(page, []).append(took * 1000)
        else:
            reads.failures.append(f"{page}: {answer.status_code} {answer.text[:200]}")
        await asyncio.sleep(max(0.0, 1 - took))


async def listen(address: str, heard: Listening, ready: asyncio.Event) -> None:
    """One listener, on a plain socket: two hundred must cost the machine next to nothing."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    await writer.drain()
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"the events were refused: {status!r}")
    ready.set()
    try:
        while line := await reader.readline():
            if line.startswith(b"data:"):
                now = time.time()
                event = json.loads(line[5:])
                created = datetime.fromisoformat(event["created_at"]).timestamp()
                heard.ids.append(int(event["id"]))
                heard.seconds_late.append(now - created)
    finally:
        writer.close()


async def load(
    address: str, reference: str, num_readers: int, num_listeners: int, seconds: float
) -> tuple[Reads, list[Listening]]:
    """Let all clients work for a while."""
    heard = [Listening() for _ in range(num_listeners)]
    ready = [asyncio.Event() for _ in heard]
    listeners = [
        asyncio.create_task(listen(address, one, there))
        for one, there in zip(heard, ready, strict=True)
    ]
    await asyncio.wait_for(asyncio.gather(*(there.wait() for there in ready)), 60)
    reads, until = Reads(), time.monotonic() + seconds
    pages = [page.format(id=reference) for page in PAGES]
    async with httpx.AsyncClient(base_url=f"{address}/api/v1/", timeout=30) as client:
        await asyncio.gather(
            *(
                read(
                    client,
                    itertools.cycle(pages[n % len(pages) :] + pages[: n % len(pages)]),
                    until,
                    n / num_readers,
                    reads,
                )
                for n in range(num_readers)
            )
        )
    await asyncio.sleep(BAR_EVENT_SECONDS + 1)  # the last events on their way
    for listener in listeners:
        listener.cancel()
    for end in await asyncio.gather(*listeners, return_exceptions=True):
        if not isinstance(end, asyncio.CancelledError):
            raise SystemExit(f"a listener ended before its time: {end!r}")
    return reads, heard


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(reads: Reads, heard: list[Listening], reference: str) -> dict[str, Any]:
    """Sum up what all clients saw."""
    whole = [ms for values in reads.milliseconds.values() for ms in values]
    late = [seconds for one in heard for seconds in one.seconds_late]
    # What everybody must have: all that anybody got after the last one to join, and before the end.
    first = max((one.ids[0] for one in heard if one.ids), default=0)
    everything = {number for one in heard for number in one.ids if number >= first}
    return {
        "reads": len(whole),
        "failures": reads.failures[:10],
        "num_failures": len(reads.failures),
        "read_ms": {f"p{int(q * 100)}": quantile(whole, q) for q in (0.5, 0.95, 0.99)},
        "pages": {
            page.replace(reference, "{id}"): {
                "reads": len(values),
                "median_ms": statistics.median(values),
                "p95_ms": quantile(values, 0.95),
            }
            for page, values in sorted(reads.milliseconds.items())
        },
        "events": len(everything),
        "missed": sum(len(everything - set(one.ids)) for one in heard),
        "repeated": sum(len(one.ids) - len(set(one.ids)) for one in heard),
        "out_of_order": sum(
            after <= before for one in heard for before, after in itertools.pairwise(one.ids)
        ),
        "event_seconds": {
            "median": statistics.median(late) if late else None,
            "p99": quantile(late, 0.99) if late else None,
            "worst": max(late, default=None),
        },
    }


def measure(
    kind: str, database_url: str, home: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure one kind of database."""
    home.mkdir(parents=True)
    upgrade(database_url)
    environment = {"KDNAS_HOME": str(home), "KDNAS_DATABASE_URL": database_url}
    settings = Settings.from_environment(environment)
    with open_database(settings) as database:
        many = add_many_candidates(database, options.candidates)
    with served(database_url, home) as address:
        running = start_search(address)
        reads, heard = asyncio.run(
            load(address, many, options.readers, options.listeners, options.seconds)
        )
        with httpx.Client(base_url=f"{address}/api/v1/", timeout=30) as client:
            search = client.get(f"searches/{running}").json()
            client.patch(f"searches/{running}", json={"action": "cancel"})
    folder = Store.from_settings(settings).fetch(KIND, search["spec"]["corpus"]["fingerprint"])
    found = {**corpus_facts(TokenizedCorpus.open(folder)), **summary(reads, heard, many)}
    trained = search["num_candidates_finished"]
    print(
        f"{kind}: p95 {found['read_ms']['p95']:.0f} ms of {found['reads']} reads, "
        f"{found['events']} events, worst {found['event_seconds']['worst'] or 0:.2f} s late, "
        f"{found['missed']} missed, {trained} students trained meanwhile",
        flush=True,
    )
    return {"database": kind, "students": trained, **found}


def report(result: dict[str, Any]) -> str:
    """Write the page."""
    rows = [
        f"| {found['database']} | {found['reads']} | {found['num_failures']} "
        f"| {found['read_ms']['p50']:.0f} | **{found['read_ms']['p95']:.0f}** "
        f"| {found['read_ms']['p99']:.0f} | {found['events']} | {found['missed']} "
        f"| {found['repeated'] + found['out_of_order']} "
        f"| {found['event_seconds']['median'] or 0:.2f} "
        f"| **{found['event_seconds']['worst'] or 0:.2f}** |"
        for found in result["databases"]
    ]
    pages = list(result["databases"][0]["pages"])
    by_page = [
        f"| `{page}` | "
        + " | ".join(
            f"{found['pages'][page]['median_ms']:.0f} / {found['pages'][page]['p95_ms']:.0f}"
            for found in result["databases"]
        )
        + " |"
        for page in pages
    ]
    kinds = " | ".join(found["database"] for found in result["databases"])
    return f"""# The service under load

{result["candidates"]} candidates in one search, {result["readers"]} clients that read once a
second, {result["listeners"]} that listen to all events, one search that trains on one thread and
on {corpus_words(result["databases"][0])}; for
{result["seconds"]:.0f} seconds each, service, search and clients together on
{result["machine"]}. The bars are 50 ms for 95 % of the reads, and 1 s for every
event at every listener: how late they came is in the last two columns.

| | reads | failed | p50 ms | p95 ms | p99 ms | events | missed | repeated | median s | worst s |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Median and 95 % quantile of each page in milliseconds:

| page | {kinds} |
|---|{"---|" * len(result["databases"])}
{chr(10).join(by_page)}

Load of the machine (1 minute) before the start: {result["load_before"]:.1f}.
Made with `python benchmarks/service_load.py --output docs/results/service_load`.
"""


def machine() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.processor())}, {os.cpu_count()} cores"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--listeners", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path, help="write OUTPUT.json and OUTPUT.md")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    databases = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdnas-load-")))
        databases.append(
            measure("SQLite", f"sqlite:///{folder}/sqlite/kdnas.db", folder / "sqlite", options)
        )
        server = stack.enter_context(running_server())
        url = stack.enter_context(fresh_database(server))
        databases.append(measure("PostgreSQL", url, folder / "postgresql", options))
    result = {
        **{k: v for k, v in vars(options).items() if k != "output"},
        "machine": machine(),
        "load_before": before,
        "databases": databases,
    }
    publish(report(result), result, options.output)


if __name__ == "__main__":
    main()
