"""Searches, distillations and latency tables as they are stored and found."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite

from kdnas.architecture import Architecture
from kdnas.db import models
from kdnas.db.base import UtcDateTime, new_id
from kdnas.db.engine import Database
from kdnas.db.lists.distillation_pages import LISTING
from kdnas.db.lists.job_pages import list_jobs, read_jobs
from kdnas.db.models import Search
from kdnas.db.queue import leases
from kdnas.db.records import DistillationRecord, HeldOutReading
from kdnas.db.repository import distillations, events, jobs, latencies, searches
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import CurvePoint, LatencyEntry, LatencyProfile, LatencyTable, Losses

SMALL, LARGE = Architecture(3, 2, 288, 384), Architecture(12, 12, 768, 3072, "silu")
PROFILE = LatencyProfile("cpu:Test", "pytorch-eager", 1, "float32", 32, node="here")


def table(**changes: object) -> LatencyTable:
    values: dict[str, object] = {
        "profile": PROFILE,
        "family": "bert-512",
        "teacher_fingerprint": "t1",
        "teacher_ms": 12.5,
        "entries": {
            str(a): LatencyEntry(a, 1.5 + i, 0.01, measured=bool(i))
            for i, a in enumerate((SMALL, LARGE))
        },
        "quality": {"median_error": 0.01, "num_checked": 30},
        "seconds": 61.5,
    }
    return LatencyTable(**{**values, **changes})  # type: ignore[arg-type]


def test_ids_sort_by_time_and_suit_a_url() -> None:
    ids = [new_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(re.fullmatch(r"[0-9a-z]{16}", one) for one in ids)
    assert ids == sorted(ids)


@given(st.datetimes(min_value=datetime(1970, 1, 2)), st.integers(-720, 720))
def test_times_come_back_as_the_same_moment(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes)))
    column = UtcDateTime()
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        back = column.process_result_value(column.process_bind_param(aware, dialect), dialect)
        assert back == aware
        assert back is not None
        assert back.tzinfo == UTC


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        UtcDateTime().process_bind_param(datetime(2024, 1, 1), sqlite.dialect())


def test_a_search_is_found_by_id_and_name(database: Database) -> None:
    with database.write() as session:
        named = searches.create_search(session, {"z": 1, "a": [None, 0.1]}, name="mine")
        unnamed = searches.create_search(session, {}, owner_kind="service")
    with database.read() as session:
        assert searches.get_search(session, named.id) == named
        assert searches.get_search(session, "mine") == named
        assert list(named.spec) == ["z", "a"]
        with pytest.raises(NotFoundError, match=r"no search 'yours'$") as unknown:
            searches.get_search(session, "yours")
        assert unknown.value.listed_in == "searches"
    assert re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{4}", unnamed.name)
    assert named.created_at.tzinfo == UTC


def test_a_name_is_taken_once(database: Database) -> None:
    with database.write() as session:
        searches.create_search(session, {}, name="mine")
        with pytest.raises(ConflictError, match=r"named 'mine' \(queued\); choose another name"):
            searches.create_search(session, {}, name="mine")
        dead = searches.create_search(session, {}, name="dead")
        jobs.set_status(session, dead.id, "running")
        with pytest.raises(ConflictError, match=r"\(running\); choose another name"):
            searches.create_search(session, {}, name="dead")
        jobs.set_status(session, dead.id, "failed")
        with pytest.raises(ConflictError, match=r"\(failed\); resume it by that name, or"):
            searches.create_search(session, {}, name="dead")
        searches.create_search(session, {}, name="other")
    with database.read() as session:
        assert {s.name for s in jobs.newest_jobs(session, Search)} == {"mine", "dead", "other"}


def test_searches_are_listed_newest_first(database: Database) -> None:
    with database.write() as session:
        made = [searches.create_search(session, {}, name=f"n{i}") for i in range(5)]
    newest = sorted((s.id for s in made), reverse=True)
    with database.read() as session:
        assert [s.id for s in jobs.newest_jobs(session, Search)] == newest
        assert [s.id for s in jobs.newest_jobs(session, Search, limit=2)] == newest[:2]


def test_what_is_running_is_not_deleted(database: Database) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, name="mine")
        jobs.set_status(session, search.id, "running")
        with pytest.raises(ConflictError, match="cancel it"):
            jobs.delete_job(session, search.id)


def test_a_distillation_and_its_curve(database: Database) -> None:
    points = [CurvePoint(step, 1 / step, 8e-4) for step in (10, 20, 30)]
    with database.write() as session:
        made = distillations.create_distillation(session, {"seed": 0}, SMALL, name="small")
        jobs.set_status(session, made.id, "running")
        distillations.set_distillation_progress(session, made.id, 30, 100, points)
    with database.write() as session:  # resumed from the checkpoint at step 10
        again = [CurvePoint(20, 0.25, 1e-4)]
        distillations.set_distillation_progress(session, made.id, 20, 100, again)
        distillations.set_distillation_result(
            session, made.id, metrics={"relative": 0.1}, artefact="sha", output_path="/out"
        )
        jobs.set_status(session, made.id, "succeeded")
    with database.read() as session:
        assert distillations.distillation_curve(session, made.id) == [points[0], *again]
        done = distillations.get_distillation(session, "small")
        types = [e.type for e in events.events_since(session, job_id=made.id)]
        with pytest.raises(NotFoundError, match="nothing"):
            distillations.distillation_curve(session, "nothing")
    assert (done.step, done.total_steps, done.metrics) == (20, 100, {"relative": 0.1})
    assert (done.artefact, done.output_path, done.architecture) == ("sha", "/out", SMALL)
    assert done.finished_at is not None
    assert types == [
        "distillation_created",
        "distillation_status",
        "distillation_progress",
        "distillation_progress",
        "distillation_status",
    ]


def test_a_latency_table_comes_back_equal(database: Database) -> None:
    with database.write() as session:
        latencies.save_latency_table(session, table())
        latencies.save_latency_table(session, table(teacher_ms=13.0))
    with database.read() as session:
        assert latencies.load_latency_table(
            session, PROFILE.fingerprint, "bert-512", "t1"
        ) == table(teacher_ms=13.0)
        for missing in (("x", "bert-512", "t1"), (PROFILE.fingerprint, "x", "t1")):
            assert latencies.load_latency_table(session, *missing) is None
        stored = latencies.find_profile(session, PROFILE.fingerprint, "bert-512", "t1")
        assert stored is not None
        assert (stored.completed_at is not None, stored.profile) == (True, PROFILE)


def test_an_unfinished_table_can_be_resumed_but_not_used(database: Database) -> None:
    key = (PROFILE.fingerprint, "bert-512", "t1")
    many = [
        LatencyEntry(Architecture(1, 1, hidden, 384), float(hidden), 0.0, measured=True)
        for hidden in range(1, 1202)
    ]
    with database.write() as session:
        latencies.save_latency_entries(session, PROFILE, "bert-512", "t1", many[:1])
        latencies.save_latency_entries(session, PROFILE, "bert-512", "t1", many)
    with database.read() as session:
        assert latencies.load_latency_table(session, *key) is None
        stored = latencies.load_latency_entries(session, *key)
        assert stored == {str(entry.architecture): entry for entry in many}
        assert latencies.load_latency_entries(session, "x", "y", "z") == {}
        (kept,) = session.scalars(select(models.LatencyProfile))
        assert kept.completed_at is None
    with database.write() as session:
        latencies.save_latency_table(session, table(entries=stored))
    with database.read() as session:
        assert latencies.load_latency_table(session, *key) == table(entries=stored)


def test_two_builds_do_not_mix_in_one_table(database: Database) -> None:
    """Another state's ratio to the teacher is that of its own build, also after a third one."""
    key = (PROFILE.fingerprint, "bert-512", "t1")
    first = table()
    (some, other) = first.entries
    half = {some: replace(first.entries[some], latency_ms=99.0)}
    with database.write() as session:
        latencies.save_latency_table(session, first)
        latencies.save_latency_entries(session, PROFILE, "bert-512", "t1", half.values())
        assert latencies.load_latency_table(session, *key) == first
        latencies.save_latency_table(session, table(teacher_ms=2 * first.teacher_ms, entries=half))
        found = latencies.load_latency_table(session, *key)
        assert found is not None
        assert latencies.load_latency_entries(session, *key) == {}
        assert session.scalar(select(func.count()).select_from(models.LatencyProfile)) == 1
        assert session.scalar(select(func.count()).select_from(models.Latency)) == 2
    assert found.entries[some].latency_ms == 99.0
    before = first.entries[other].latency_ms / first.teacher_ms
    assert found.entries[other].latency_ms / found.teacher_ms == pytest.approx(before)


def test_an_event_holds_no_number_that_json_has_not(database: Database) -> None:
    """As of a training that diverges: PostgreSQL takes none, and no browser reads one."""
    told = {"loss": math.nan, "losses": [1.5, math.inf], "by_seed": {"0": -math.inf}, "done": 3}
    with database.write() as session:
        job_id = searches.create_search(session, {}).id
        events.append_event(session, "tick", told, job_id=job_id)
    with database.read() as session:
        (payload,) = events.payloads_of(session, "tick", job_id)
    assert payload == {"loss": None, "losses": [1.5, None], "by_seed": {"0": None}, "done": 3}


def test_events_become_visible_in_the_order_of_their_ids(database: Database) -> None:
    """A follower that remembers the last id it saw misses nothing, however writers race."""
    num_writers, num_events = 3, 12
    with database.write() as session:
        search_id = searches.create_search(session, {}).id

    def write() -> None:
        for i in range(num_events):
            with database.write() as session:
                events.append_event(session, "tick", {"i": i}, job_id=search_id)

    threads = [threading.Thread(target=write) for _ in range(num_writers)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads) or not seen:
        with database.read() as session:
            last = seen[-1] if seen else 0
            seen += [event.id for event in events.events_since(session, last)]
    with database.read() as session:
        seen += [event.id for event in events.events_since(session, seen[-1])]
        assert seen == [event.id for event in events.events_since(session)]
    assert len(seen) == 1 + num_writers * num_events


def test_the_databases_clock_is_close_to_ours(database: Database) -> None:
    with database.read() as session:
        moment = leases.database_time(session)
    assert abs((moment - datetime.now(UTC)).total_seconds()) < 60


def reading(step: int, relative: float) -> HeldOutReading:
    return HeldOutReading(step, Losses(1.0, 0.5, relative, 0.25))


def losses_in_list(step: int, relative: float) -> dict[str, float]:
    return {"step": step, "training": 1.0, "mean": 0.5, "relative": relative, "output": 0.25}


def test_held_out_readings_are_replaced_where_steps_are_repeated(database: Database) -> None:
    with database.write() as session:
        made = distillations.create_distillation(session, {}, SMALL, name="small")
        other = distillations.create_distillation(session, {}, LARGE, name="large")
        for step, relative in ((10, 0.9), (20, 0.7), (30, 0.6)):
            distillations.set_distillation_progress(
                session, made.id, step, 100, held_out=[reading(step, relative)]
            )
    with database.write() as session:  # resumed from the checkpoint at step 10
        again = [reading(20, 0.8)]
        distillations.set_distillation_progress(session, made.id, 20, 100, held_out=again)
    with database.read() as session:
        found = distillations.distillation_readings(session, made.id)
        assert found == [reading(10, 0.9), reading(20, 0.8)]
        assert distillations.distillation_readings(session, other.id) == []
        with pytest.raises(NotFoundError, match="nothing"):
            distillations.distillation_readings(session, "nothing")
        payload = events.events_since(session, job_id=made.id)[-1].payload
        seen = read_jobs(session, [made.id, other.id], LISTING)
    assert payload == {"step": 20, "total_steps": 100, "loss": None, "relative": 0.8}
    assert [(row["name"], row["losses"], row["worker"]) for row in seen] == [
        ("small", losses_in_list(20, 0.8), None),
        ("large", None, None),
    ]


def test_a_reading_before_the_first_step_is_kept_and_gives_way_to_later_ones(
    database: Database,
) -> None:
    with database.write() as session:
        made = distillations.create_distillation(session, {}, SMALL, name="small")
        for step, relative in ((0, 0.9), (10, 0.7)):
            if step:
                (seen,) = read_jobs(session, [made.id], LISTING)
                assert seen["losses"] == losses_in_list(0, 0.9)
            distillations.set_distillation_progress(
                session, made.id, step, 100, held_out=[reading(step, relative)]
            )
        (seen,) = read_jobs(session, [made.id], LISTING)
        assert seen["losses"] == losses_in_list(10, 0.7)
        found = distillations.distillation_readings(session, made.id)
        payloads = events.payloads_of(session, "distillation_progress", made.id)
    assert found == [reading(0, 0.9), reading(10, 0.7)]
    assert [(told["step"], told["relative"]) for told in payloads] == [(0, 0.9), (10, 0.7)]


def test_a_folder_is_for_one_distillation_at_a_time(database: Database) -> None:
    """A killed one has written nothing into it yet, so the folder does not tell."""

    def create(output: str | None, name: str) -> DistillationRecord:
        return distillations.create_distillation(session, {"output": output}, SMALL, name=name)

    with database.write() as session:
        first = create("/students/a", "first")
        create("/students/b", "beside")
        create(None, "unnamed")
        create(None, "unnamed-too")
        for status in ("queued", "running", "paused"):
            jobs.set_status(session, first.id, status)
            with pytest.raises(ConflictError, match=r"'first'.*/students/a.*--resume first"):
                create("/students/a", "second")
        jobs.set_status(session, first.id, "failed")
        assert create("/students/a", "second").status == "queued"


def test_distillations_are_listed_by_objective(database: Database) -> None:
    with database.write() as session:
        for name in ("hs", "minilmv2", "hs+od", "hs"):
            spec = {"objective": {"name": name}}
            distillations.create_distillation(session, spec, SMALL)
    with database.read() as session:
        for name, count in (("hs", 2), ("hs+od", 1), ("od", 0)):
            found = list_jobs(session, {"objective": name}, LISTING).items
            assert [row["objective"] for row in found] == [name] * count
