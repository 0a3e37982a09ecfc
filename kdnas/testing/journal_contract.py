"""What every journal must do, as a suite of tests to inherit from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kdnas.architecture import Architecture
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import (
    CurvePoint,
    Episode,
    KnownLosses,
    Losses,
    MiniKDResult,
    NewCandidate,
    Proposal,
    Reading,
)
from kdnas.search.protocols import Journal

CONTEXT = "0123456789abcdef"
SMALL, LARGE = Architecture(3, 2, 288, 384), Architecture(12, 12, 768, 3072, "silu")
LOSSES = Losses(training=0.1 + 0.2, mean=1e-17, relative=1 / 3, output=12345.678901234567)
KNOWN = KnownLosses(LOSSES, loss_start=2 / 3)


def new_candidates(
    architectures: Sequence[Architecture] = (SMALL, LARGE),
) -> list[NewCandidate]:
    """Proposals with made-up sizes and latencies."""
    return [
        NewCandidate(
            proposal=Proposal(index=7 * i, source="controller", predicted_reward=0.5 + i),
            architecture=architecture,
            latency_ms=1.5 + i,
            latency_ratio=0.25,
            params_millions=11.7,
        )
        for i, architecture in enumerate(architectures)
    ]


def result_of(
    candidate_id: str, architecture: Architecture, losses: Losses | None = LOSSES
) -> MiniKDResult:
    """A worker's result; without losses it is that of a student that diverged."""
    return MiniKDResult(
        candidate_id=candidate_id,
        architecture=architecture,
        losses=losses,
        error=None if losses else "the loss is not finite at step 3",
        steps=20,
        train_seconds=1.25,
        curve=(CurvePoint(10, 0.9, 8e-4), CurvePoint(20, 0.4, 1e-5)),
        loss_start=KNOWN.loss_start,
    )


class JournalContract:
    """Inherit in a test class and give the fixtures ``journal`` and ``search_id``.

    ``search_id`` is that of a fresh, queued search in the journal.
    """

    @pytest.fixture
    def episode(self, journal: Journal, search_id: str) -> Episode:
        """The first episode, of two candidates."""
        return journal.begin_episode(search_id, 1, 0.9, None, None, new_candidates())

    def test_a_fresh_search_is_empty(self, journal: Journal, search_id: str) -> None:
        """Nothing but a queued search."""
        search = journal.get_search(search_id)
        assert (search.id, search.status, search.started_at) == (search_id, "queued", None)
        assert search.created_at.utcoffset() is not None
        assert journal.episodes(search_id) == []
        assert journal.controller_state(search_id) is None

    def test_unknown_ids_are_not_found(self, journal: Journal) -> None:
        """Every call that takes an id says so when there is no such thing."""
        for call in (
            lambda: journal.get_search("nothing"),
            lambda: journal.set_status("nothing", "running"),
            lambda: journal.episodes("nothing"),
            lambda: journal.controller_state("nothing"),
            lambda: journal.begin_episode("nothing", 1, None, None, None, []),
            lambda: journal.end_episode("nothing", 1, None, b""),
            lambda: journal.start_attempt(["nothing"], "worker"),
            lambda: journal.interrupt_attempts(["nothing"], "lost"),
            lambda: journal.finish_candidate(
                "nothing", CONTEXT, result_of("nothing", SMALL), 0.0, None
            ),
            lambda: journal.reuse_losses("nothing", KNOWN, 0.0, None),
        ):
            with pytest.raises(NotFoundError, match="nothing"):
                call()

    def test_status_keeps_times_and_error(self, journal: Journal, search_id: str) -> None:
        """The first start is kept, the end belongs to final statuses only."""
        journal.set_status(search_id, "running")
        started = journal.get_search(search_id)
        assert started.started_at is not None
        assert started.finished_at is None
        assert journal.set_status(search_id, "failed", "no space left") == "failed"
        failed = journal.get_search(search_id)
        assert (failed.status, failed.error) == ("failed", "no space left")
        assert failed.finished_at is not None
        assert failed.finished_at >= started.started_at
        journal.set_status(search_id, "running")
        again = journal.get_search(search_id)
        assert (again.started_at, again.finished_at) == (started.started_at, None)
        assert again.error is None

    def test_a_status_is_changed_only_from_those_that_are_named(
        self, journal: Journal, search_id: str
    ) -> None:
        """What others have paused or cancelled stays so."""
        journal.set_status(search_id, "cancelled")
        assert journal.set_status(search_id, "succeeded", among=("running",)) == "cancelled"
        assert journal.get_search(search_id).status == "cancelled"
        journal.set_status(search_id, "running")
        assert journal.set_status(search_id, "paused", "later", among=("running",)) == "paused"
        assert journal.get_search(search_id).error == "later"

    def test_an_episode_is_read_as_it_was_begun(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """All that is known before training comes back, in order."""
        assert journal.episodes(search_id) == [episode]
        assert (episode.number, episode.epsilon, episode.finished) == (1, 0.9, False)
        assert episode.started_at is not None
        assert [c.position for c in episode.candidates] == [0, 1]
        for candidate, new in zip(episode.candidates, new_candidates(), strict=True):
            assert candidate.search_id == search_id
            assert candidate.episode == 1
            assert candidate.status == "proposed"
            assert candidate.index == new.proposal.index
            assert candidate.source == new.proposal.source
            assert candidate.predicted_reward == new.proposal.predicted_reward
            assert candidate.architecture == new.architecture
            assert candidate.latency_ms == new.latency_ms
            assert candidate.latency_ratio == new.latency_ratio
            assert candidate.params_millions == new.params_millions
            assert (candidate.losses, candidate.reward, candidate.reused) == (None, None, False)

    def test_episodes_begin_one_after_the_other(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """No number twice, none left out, none before the last is finished."""
        for number in (1, 2, 3):
            with pytest.raises(ConflictError):
                journal.begin_episode(search_id, number, None, None, None, new_candidates())
        journal.end_episode(search_id, 1, None, b"")
        with pytest.raises(ConflictError):
            journal.begin_episode(search_id, 3, None, None, None, new_candidates())
        second = journal.begin_episode(search_id, 2, None, 7, 0, new_candidates())
        assert (second.epsilon, second.global_best, second.previous_best) == (None, 7, 0)
        assert [e.number for e in journal.episodes(search_id)] == [1, 2]
        assert len({c.id for e in journal.episodes(search_id) for c in e.candidates}) == 4

    def test_a_result_is_stored_to_the_bit(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """Losses and reward come back equal, in the candidate and in the look-up table."""
        first, second = episode.candidates
        journal.start_attempt([first.id, second.id], "worker-1")
        running = journal.episodes(search_id)[0].candidates
        assert [(c.status, c.num_attempts) for c in running] == [("running", 1)] * 2
        done = journal.finish_candidate(
            first.id, CONTEXT, result_of(first.id, SMALL), 0.1 + 0.7, "held-out loss above 1"
        )
        assert done == replace(
            first,
            status="succeeded",
            losses=LOSSES,
            loss_start=KNOWN.loss_start,
            reward=0.1 + 0.7,
            note="held-out loss above 1",
            num_attempts=1,
            num_steps=20,
        )
        assert journal.episodes(search_id)[0].candidates == (done, running[1])
        assert journal.known_losses(CONTEXT, [SMALL, LARGE]) == {str(SMALL): KNOWN}
        assert journal.known_losses("another-context", [SMALL]) == {}
        assert journal.known_losses(CONTEXT, []) == {}

    def test_a_failure_stays_with_the_candidate(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """Nothing enters the look-up table, so the state may be tried again later."""
        first = episode.candidates[0]
        journal.start_attempt([first.id], "worker-1")
        failed = journal.finish_candidate(
            first.id, CONTEXT, result_of(first.id, SMALL, None), None, None
        )
        assert (failed.status, failed.losses, failed.reward) == ("failed", None, None)
        assert failed.loss_start == KNOWN.loss_start
        assert failed.error == "the loss is not finite at step 3"
        assert journal.known_losses(CONTEXT, [SMALL]) == {}
        assert journal.episodes(search_id)[0].candidates[0] == failed

    def test_losses_of_a_failure_are_kept(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """One that was trained and has not learned has failed; its losses are looked up."""
        first, second = episode.candidates
        journal.start_attempt([first.id], "worker-1")
        result = replace(result_of(first.id, SMALL), error="has not learned")
        failed = journal.finish_candidate(first.id, CONTEXT, result, None, None)
        assert failed == replace(
            first,
            status="failed",
            losses=LOSSES,
            loss_start=KNOWN.loss_start,
            error="has not learned",
            num_attempts=1,
            num_steps=20,
        )
        assert journal.known_losses(CONTEXT, [SMALL]) == {str(SMALL): KNOWN}
        again = journal.reuse_losses(second.id, KNOWN, None, None, "has not learned")
        assert again == replace(
            second,
            status="failed",
            losses=LOSSES,
            loss_start=KNOWN.loss_start,
            error="has not learned",
            reused=True,
        )
        assert journal.episodes(search_id)[0].candidates == (failed, again)

    def test_what_was_stopped_has_readings_and_nothing_else(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """Its readings come back to the bit, and nobody finds its losses in the look-up table."""
        first, second = episode.candidates
        readings = tuple(
            Reading(step, replace(LOSSES, relative=loss)) for step, loss in ((5, 0.7), (9, 1 / 7))
        )
        result = replace(result_of(first.id, SMALL), losses=None, steps=9, readings=readings)
        journal.start_attempt([first.id, second.id], "worker-1")
        done = journal.finish_candidate(first.id, CONTEXT, result, None, "stopped after 9 steps")
        assert done == replace(
            first,
            status="stopped",
            loss_start=KNOWN.loss_start,
            note="stopped after 9 steps",
            num_attempts=1,
            readings=readings,
            num_steps=9,
        )
        whole = replace(result_of(second.id, LARGE), readings=readings[:1])
        other = journal.finish_candidate(second.id, CONTEXT, whole, 0.5, None)
        assert (other.status, other.readings) == ("succeeded", readings[:1])
        assert journal.episodes(search_id)[0].candidates == (done, other)
        assert journal.known_losses(CONTEXT, [SMALL, LARGE]) == {str(LARGE): KNOWN}
        journal.interrupt_attempts([first.id], "the search was cut off")
        assert journal.episodes(search_id)[0].candidates == (done, other)
        with pytest.raises(ConflictError, match=first.id):
            journal.start_attempt([first.id], "worker-1")

    def test_a_start_may_be_unknown(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """It stays so, in the candidate and in the look-up table."""
        first, second = episode.candidates
        result = replace(result_of(first.id, SMALL), loss_start=None)
        done = journal.finish_candidate(first.id, CONTEXT, result, 0.5, None)
        assert (done.losses, done.loss_start) == (LOSSES, None)
        assert journal.known_losses(CONTEXT, [SMALL]) == {str(SMALL): KnownLosses(LOSSES)}
        assert journal.reuse_losses(second.id, KnownLosses(LOSSES), 0.5, None).loss_start is None

    def test_a_candidate_finishes_once(self, journal: Journal, episode: Episode) -> None:
        """A late second result changes nothing."""
        first = episode.candidates[0]
        journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.5, None)
        with pytest.raises(ConflictError, match=first.id):
            journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.7, None)
        with pytest.raises(ConflictError, match=first.id):
            journal.reuse_losses(first.id, KNOWN, 0.7, None)
        with pytest.raises(ConflictError, match=first.id):
            journal.start_attempt([first.id], "worker-1")

    def test_known_losses_are_those_of_the_first_repeat(
        self, journal: Journal, search_id: str
    ) -> None:
        """A state trained again adds a repeat and leaves the first as it was."""
        twice = journal.begin_episode(
            search_id, 1, None, None, None, new_candidates([SMALL, SMALL])
        ).candidates
        other = Losses(0.5, 0.5, 0.5, 0.5)
        journal.finish_candidate(twice[0].id, CONTEXT, result_of(twice[0].id, SMALL), 0.1, None)
        journal.finish_candidate(
            twice[1].id, CONTEXT, result_of(twice[1].id, SMALL, other), 0.2, None
        )
        assert journal.known_losses(CONTEXT, [SMALL]) == {str(SMALL): KNOWN}
        assert [c.losses for c in journal.episodes(search_id)[0].candidates] == [LOSSES, other]

    def test_reused_losses_cost_no_attempt(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """A reused candidate is marked so and does not enter the look-up table again."""
        first = episode.candidates[0]
        done = journal.reuse_losses(first.id, KNOWN, 0.75, "known")
        assert done == replace(
            first,
            status="succeeded",
            losses=LOSSES,
            loss_start=KNOWN.loss_start,
            reward=0.75,
            reused=True,
            note="known",
        )
        assert journal.episodes(search_id)[0].candidates[0] == done
        assert journal.known_losses(CONTEXT, [SMALL]) == {}

    def test_interrupted_candidates_are_proposed_again(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """Each new attempt counts; finished candidates are left alone."""
        first, second = episode.candidates
        journal.start_attempt([first.id, second.id], "worker-1")
        journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.5, None)
        journal.interrupt_attempts([first.id, second.id], "worker-1 died")
        journal.interrupt_attempts([second.id], "said twice")
        states = journal.episodes(search_id)[0].candidates
        assert [(c.status, c.num_attempts) for c in states] == [("succeeded", 1), ("proposed", 1)]
        journal.start_attempt([second.id], "worker-2")
        journal.start_attempt([second.id], "worker-3")
        assert journal.episodes(search_id)[0].candidates[1].num_attempts == 3

    def test_a_group_starts_whole_or_not_at_all(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """One wrong id in the group, and no candidate of it has started."""
        with pytest.raises(NotFoundError):
            journal.start_attempt([episode.candidates[0].id, "nothing"], "worker-1")
        assert journal.episodes(search_id) == [episode]

    def test_an_episode_ends_with_the_controllers_state(
        self, journal: Journal, search_id: str, episode: Episode
    ) -> None:
        """State and end are one; the state of the last episode wins."""
        ended = journal.end_episode(search_id, 1, 0.125, b"\x00one\xff")
        assert (ended.finished, ended.controller_loss) == (True, 0.125)
        assert ended.finished_at is not None
        assert ended.candidates == episode.candidates
        assert journal.episodes(search_id) == [ended]
        assert journal.controller_state(search_id) == b"\x00one\xff"
        with pytest.raises(ConflictError):
            journal.end_episode(search_id, 1, 0.5, b"again")
        with pytest.raises(NotFoundError):
            journal.end_episode(search_id, 2, 0.5, b"again")
        assert journal.controller_state(search_id) == b"\x00one\xff"
        journal.begin_episode(search_id, 2, 0.8, 0, 0, new_candidates())
        journal.end_episode(search_id, 2, None, b"two")
        assert journal.controller_state(search_id) == b"two"
