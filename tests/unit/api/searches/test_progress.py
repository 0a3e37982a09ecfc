"""What a search tells its job of the work that is done, inside candidates, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from api.jobs.context import JobContext
from api.searches.progress import SearchProgress
from kdnas.records import AttemptInterrupted, AttemptStarted, Candidate, GroupProgress
from kdnas.search.at_work import StudentsAtWork
from kdnas.search.progress import CandidateDone, EpisodeDone, EpisodeStarted

GROUP = ("a", "b")


@dataclass
class Job:
    """What is written down of a job, in order."""

    told: list[tuple[str, int, int]] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    is_to_stop: bool = False

    def should_stop(self) -> bool:
        return self.is_to_stop

    def trains(self, at_work: StudentsAtWork, done: Callable[[], int], total: int) -> None:
        self.trained = at_work, done, total

    def ending(self, at_work: StudentsAtWork, done: int, total: int) -> None:
        self.told.append((f"pausing: {at_work}", done, total))

    def working(self, text: str, done: int, total: int) -> None:
        self.told.append((text, done, total))

    def progress(self, done: int, total: int) -> None:
        self.written.append((done, total))


def done(candidate_id: str) -> CandidateDone:
    facts: dict[str, Any] = dict.fromkeys(Candidate.__dataclass_fields__)
    return CandidateDone(Candidate(**{**facts, "id": candidate_id}))


def episode_done(number: int) -> EpisodeDone:
    return EpisodeDone(number, None, 2, None, (), None)


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def progress(job: Job) -> SearchProgress:
    made = SearchProgress(cast(JobContext, job), episodes=2, candidates=4, finished=4)
    made(EpisodeStarted(2, None, (), False))
    return made


def test_what_was_finished_before_counts(job: Job, progress: SearchProgress) -> None:
    assert job.written == [(400, 800)]


def test_steps_inside_a_group_are_told(job: Job, progress: SearchProgress) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 0, 60))
    progress(AttemptStarted(("c",), "worker-2"))  # others are at work
    progress(GroupProgress(GROUP, "worker-1", 15, 60))
    progress(GroupProgress(GROUP, "worker-1", 45, 60))
    assert job.told == [
        ("waiting for workers: they start, or there is no room yet", 400, 800),
        ("training in episode 2 of 2: 2 students at step 0 of 60", 400, 800),
        ("training in episode 2 of 2: 2 students at step 15 of 60", 450, 800),
        ("training in episode 2 of 2: 2 students at step 45 of 60", 550, 800),
    ]


def test_a_wait_for_the_machine_is_told(job: Job, progress: SearchProgress) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 0, 60, "waiting for a measurement: kdnas latency"))
    assert job.told[-1] == ("waiting for a measurement: kdnas latency", 400, 800)


def test_groups_beside_each_other_add_up(job: Job, progress: SearchProgress) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 30, 60))
    progress(AttemptStarted(("c",), "worker-2"))
    progress(GroupProgress(("c",), "worker-2", 6, 60))
    assert [text.partition(":")[0] for text, *_ in job.told] == [
        "waiting for workers",
        "training in episode 2 of 2",
        "training in episode 2 of 2",
    ]
    assert job.told[-1] == ("training in episode 2 of 2: 1 student at step 6 of 60", 510, 800)


def test_a_finished_candidate_counts_once(job: Job, progress: SearchProgress) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 60, 60))
    progress(done("a"))
    progress(GroupProgress(GROUP, "worker-1", 60, 60))  # of the one that is left
    progress(done("b"))
    progress(done("known"))
    progress(done("failed"))
    progress(episode_done(2))
    assert job.told[-1] == ("training in episode 2 of 2: 1 student at step 60 of 60", 600, 800)
    assert job.written[-1] == (800, 800)


def test_steps_of_a_group_whose_worker_died_are_lost(job: Job, progress: SearchProgress) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 30, 60))
    progress(AttemptInterrupted(GROUP, "worker-1", "the worker died"))
    progress(AttemptStarted(("a",), "worker-2"))
    assert job.told[-1] == (
        "waiting for workers: they start, or there is no room yet",
        400,
        800,
    )


def test_students_that_are_let_come_to_their_end_are_told(
    job: Job, progress: SearchProgress
) -> None:
    progress(AttemptStarted(GROUP, "worker-1"))
    progress(GroupProgress(GROUP, "worker-1", 15, 60))
    job.is_to_stop = True
    progress(GroupProgress(GROUP, "worker-1", 30, 60))
    said, done_by_then, total = job.told[-1]
    assert said.startswith("pausing: 2 students at step 30 of 60")
    assert (done_by_then, total) == (500, 800)
