"""Names that stored jobs mention, of every kind and in every state."""

from __future__ import annotations

from sqlalchemy import inspect, select

from kdnas.db.engine import Database
from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import jobs, references
from kdnas.testing import every_row
from kdnas.testing.job_rows import KINDS, make_job


def test_words_of_every_kind_are_found(database: Database) -> None:
    with database.write() as session:
        every_row.fill(session)
    with database.read() as session:
        words = references.words_of_jobs(session)
        kinds = set(session.scalars(select(Job.kind)))
        ids = set(session.scalars(select(Job.id)))
        assert references.statuses(session).keys() == ids
    assert kinds >= set(KINDS)
    assert ids <= words
    # Of a sweep's facts and of a request; of a table of its own, beside that of its job.
    assert {"teacher-artefact", "corpus-artefact", "teacher-fingerprint"} <= words
    assert every_row.SWEPT.latency_profile in words


def test_names_are_found_wherever_they_stand(database: Database) -> None:
    for kind in KINDS:
        job_id = make_job(database, kind, "failed")
        path = f"/data/students/{kind}-id/model.safetensors"
        spec = {"a": [{"b": f"{kind}-fingerprint"}], f"{kind}-key": 7, "path": path}
        with database.write() as session:
            jobs.resolve(session, job_id, spec)
            jobs.set_note(session, job_id, f"as {kind}-noted, of old")
    with database.read() as session:
        words = references.words_of_jobs(session)
    ends = ("fingerprint", "key", "id", "noted")
    assert words >= {f"{kind}-{end}" for kind in KINDS for end in ends}
    assert {"model.safetensors", "model"} <= words
    assert "fingerprint" not in words


def test_jobs_that_somebody_works_on(database: Database) -> None:
    held, let_go = make_job(database), make_job(database)
    owner = LeaseOwner.of_this_process("service")
    with database.write() as session:
        for job_id in (held, let_go):
            leases.acquire(session, Job, job_id, owner, 600)
        leases.release(session, Job, let_go, owner)
    with database.read() as session:
        assert references.held_jobs(session) == {held}


def test_a_table_of_a_package_that_was_never_made_here_mentions_nothing(
    database: Database,
) -> None:
    from kdnas.testing import counting  # a kind of an installed package

    job_id = make_job(database, "search", name="mine")
    with database.read() as session:
        assert (
            counting.KIND.table.__tablename__ not in inspect(session.connection()).get_table_names()
        )
        assert job_id in references.words_of_jobs(session)
