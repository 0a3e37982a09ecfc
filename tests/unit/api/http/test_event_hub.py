"""Every listener gets every event once and in order, whenever it comes and however slow it is."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from api.http import event_hub
from api.http.event_hub import HELLO, KEEP_ALIVE, EventHub
from kdnas.db.engine import Database
from kdnas.db.repository import jobs, searches
from kdnas.db.repository.events import append_event, last_event_id

PATIENCE = 20.0


def write(database: Database, number: int = 1, search_id: str | None = None) -> int:
    """Append events, a transaction each; returns the number of the last."""
    last = 0
    for i in range(number):
        with database.write() as session:
            last = append_event(session, "noted", {"i": i}, job_id=search_id)
    return last


def new_search(database: Database) -> str:
    with database.write() as session:
        return searches.create_search(session, {}).id


def newest(database: Database) -> int:
    with database.read() as session:
        return last_event_id(session)


def ids(lines: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"^id: (\d+)$", lines, re.MULTILINE)]


async def collect(stream: AsyncIterator[bytes], until: int) -> list[int]:
    """Numbers of the events until one is reached."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE), aclosing(stream):  # type: ignore[type-var]
        async for lines in stream:
            found += ids(lines)
            if found and found[-1] >= until:
                break
    return found


def test_an_event_on_the_wire(database: Database) -> None:
    search_id = new_search(database)

    async def run() -> bytes:
        hub = EventHub(database)
        async with aclosing(hub.listen(search_id, 0)) as stream:  # type: ignore[type-var]
            assert await anext(stream) == HELLO
            return await anext(stream)

    number, kind, data, *rest = asyncio.run(run()).decode().split("\n")
    assert rest == ["", ""]
    assert (number, kind) == (f"id: {newest(database)}", "event: search_created")
    event: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert event["id"] == newest(database)
    assert (event["type"], event["kind"]) == ("search_created", "search")
    assert (event["job_id"], event["root_job_id"]) == (search_id, search_id)
    assert event["created_at"].endswith("Z")
    assert set(event["payload"]) == {"name", "by"}


def test_the_past_and_what_comes_meet_without_gap_or_repeat(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "PAGE", 7)
    monkeypatch.setattr(event_hub, "WINDOW", 5)
    monkeypatch.setattr(event_hub, "POLL_SECONDS", 0.01)
    first = write(database, 40) - 39
    writer = threading.Thread(target=write, args=(database, 40))

    async def run() -> list[list[int]]:
        hub = EventHub(database)
        writer.start()
        return await asyncio.gather(
            *(collect(hub.listen(None, since), first + 79) for since in (0, first + 9, first + 38))
        )

    from_start, from_tenth, late = asyncio.run(run())
    writer.join()
    assert from_start == list(range(first, first + 80))
    assert from_tenth == list(range(first + 10, first + 80))
    assert late == list(range(first + 39, first + 80))


def test_a_slow_listener_loses_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_hub, "WINDOW", 3)
    monkeypatch.setattr(event_hub, "POLL_SECONDS", 0.01)
    start = write(database)

    async def run() -> list[int]:
        hub = EventHub(database)
        slow, quick = hub.listen(None, start), hub.listen(None, start)
        await anext(slow)
        hearing = asyncio.create_task(collect(quick, start + 30))
        await has_begun(hub, start)
        last = await asyncio.to_thread(write, database, 30)
        assert await hearing == list(range(start + 1, start + 31))
        assert len(hub._window) == 3
        return await collect(slow, last)

    assert asyncio.run(run()) == list(range(start + 1, start + 31))


async def has_begun(hub: EventHub, newest: int) -> None:
    """Wait until the hub reads on behind the newest event, which is not 0."""
    async with asyncio.timeout(PATIENCE):
        while hub._last != newest:
            await asyncio.sleep(0.01)


async def everybody_gone(hub: EventHub) -> None:
    async with asyncio.timeout(PATIENCE):
        while hub._poller is not None and not hub._poller.done():
            await asyncio.sleep(0.01)


def test_listeners_who_come_back_together_lose_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is asked where reading begins anew, the window has what it had."""
    ask = EventHub._newest

    def ask_slowly(hub: EventHub) -> int:
        time.sleep(0.3)
        return ask(hub)

    monkeypatch.setattr(EventHub, "_newest", ask_slowly)

    async def run() -> tuple[list[list[int]], int]:
        hub = EventHub(database)
        known = await asyncio.to_thread(newest, database)
        leaving = asyncio.create_task(collect(hub.listen(None, known), known + 5))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(write, database, 5)
        assert len(await leaving) == 5
        await everybody_gone(hub)
        last = await asyncio.to_thread(write, database)

        async def come_back(after_seconds: float) -> list[int]:
            await asyncio.sleep(after_seconds)
            return await collect(hub.listen(None, known + 2), last)

        return await asyncio.gather(*map(come_back, (0.0, 0.1, 0.2))), known

    heard, known = asyncio.run(run())
    assert heard == [list(range(known + 3, known + 7))] * 3


def test_listeners_come_and_go(database: Database) -> None:
    """Nobody reads while nobody listens, and the next one begins where it asks to."""

    async def run() -> tuple[list[int], list[int], int]:
        hub = EventHub(database)
        one = await asyncio.to_thread(write, database)
        first = await collect(hub.listen(None, one - 1), one)
        await everybody_gone(hub)
        assert hub.num_listeners == 0
        two = await asyncio.to_thread(write, database, 3)
        second = await collect(hub.listen(None, one), two)
        return first, second, one

    first, second, one = asyncio.run(run())
    assert (first, second) == ([one], [one + 1, one + 2, one + 3])


def test_one_search_is_heard_alone(database: Database) -> None:
    mine, other = new_search(database), new_search(database)
    start = newest(database)
    write(database, 2, mine)
    write(database, 2, other)

    async def run() -> list[int]:
        hub = EventHub(database)
        listening = asyncio.create_task(collect(hub.listen(mine, start), start + 6))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(write, database, 1, other)
        await asyncio.to_thread(write, database, 1, mine)
        return await listening

    assert asyncio.run(run()) == [start + 1, start + 2, start + 6]


def test_who_follows_a_job_is_told_that_it_is_deleted(database: Database) -> None:
    mine, other = new_search(database), new_search(database)
    start = newest(database)

    async def run() -> list[int]:
        hub = EventHub(database)
        listening = asyncio.create_task(collect(hub.listen(mine, start), start + 2))
        await has_begun(hub, start)

        def delete() -> None:
            for search_id in (other, mine):
                with database.write() as session:
                    jobs.delete_job(session, search_id)

        await asyncio.to_thread(delete)
        return await listening

    assert asyncio.run(run()) == [start + 2]


def test_a_silent_line_is_kept_open(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while others get events."""
    monkeypatch.setattr(event_hub, "KEEP_ALIVE_SECONDS", 0.3)
    search_id = new_search(database)
    start = newest(database)

    async def run() -> bytes:
        hub = EventHub(database)
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(hub.listen(search_id, start)) as stream,  # type: ignore[type-var]
        ):
            await anext(stream)
            busy = asyncio.create_task(asyncio.to_thread(write, database, 20))
            lines = await anext(stream)
            await busy
            return lines

    assert asyncio.run(run()) == KEEP_ALIVE


def test_closing_ends_every_stream(database: Database) -> None:
    async def run() -> None:
        hub = EventHub(database)
        listening = [asyncio.create_task(collect(hub.listen(None, 0), 99)) for _ in range(3)]
        await asyncio.sleep(0.3)
        async with asyncio.timeout(PATIENCE):
            await hub.wait_closed()
            assert await asyncio.gather(*listening) == [[], [], []]
        assert hub.num_listeners == 0

    asyncio.run(run())


def test_the_reader_outlives_a_database_that_is_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "RETRY_SECONDS", 0.05)
    away = Database(database.url.set(database="/nowhere/kdnas.db"))
    start = newest(database)

    async def run() -> list[int]:
        hub = EventHub(away)
        listening = asyncio.create_task(collect(hub.listen(None, start), start + 1))
        await asyncio.sleep(0.3)
        assert not listening.done()
        hub._database = database
        await asyncio.sleep(0.5)
        await asyncio.to_thread(write, database)
        return await listening

    assert asyncio.run(run()) == [start + 1]


@pytest.mark.databases("sqlite")
def test_two_hundred_listeners_share_what_is_read(database: Database) -> None:
    start = write(database)

    async def run() -> int:
        hub, num_read = EventHub(database), itertools.count()
        read = hub._read

        def counted(*given: Any) -> Any:
            next(num_read)
            return read(*given)

        hub._read = counted  # type: ignore[method-assign]
        listening = [
            asyncio.create_task(collect(hub.listen(None, start), start + 20)) for _ in range(200)
        ]
        await has_begun(hub, start)
        await asyncio.to_thread(write, database, 20)
        for numbers in await asyncio.gather(*listening):
            assert numbers == list(range(start + 1, start + 21))
        return next(num_read)

    assert asyncio.run(run()) < 100
