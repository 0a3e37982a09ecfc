"""The search, episode after episode (Trivedi et al. 2023, §3 B).

Fetch the history, ask the strategy for candidates, write them down, look up what is known, have
the rest trained, store each result as it comes with its reward, tell the strategy, close the
episode. Only the loop writes, through the journal, and every step is written before the next is
taken: a search that was cut off anywhere goes on where it was, with the same proposals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from kdnas.architecture import Architecture
from kdnas.errors import (
    BackendError,
    ConflictError,
    DatabaseError,
    NotNowError,
    TrainingError,
    of_a_disk,
)
from kdnas.records import (
    CANDIDATE_ENDS,
    AttemptInterrupted,
    AttemptStarted,
    Candidate,
    CandidateFinished,
    Episode,
    KnownLosses,
    LatencyTable,
    Losses,
    MiniKDRequest,
    MiniKDResult,
    NewCandidate,
    Proposal,
    SearchStatus,
    StillWaiting,
)
from kdnas.search.at_work import StudentsAtWork
from kdnas.search.checks import check_event, check_proposals, checked_result, not_learned
from kdnas.search.history import extended, history_of
from kdnas.search.limits import allowed_states, state_facts
from kdnas.search.progress import (
    CandidateDone,
    EpisodeDone,
    EpisodeStarted,
    OnProgress,
    SearchDone,
    SearchStarted,
)
from kdnas.search.protocols import (
    Backend,
    History,
    Journal,
    Observation,
    SearchProblem,
    Strategy,
)
from kdnas.search.reward import RewardFunction, rank_key
from kdnas.search.rungs import (
    Line,
    foretold,
    lines,
    rungs_of,
    stopped_note,
    wanted_losses,
)
from kdnas.search_space import SearchSpace
from kdnas.specs.search import SearchSpec

HOURS_OVER: Final = "limits.max_hours"
"""How the reason of a search begins whose time is over."""
SECONDS_PER_HOUR: Final = 3600.0

StoppedStatus = Literal["paused", "running"]


@dataclass(frozen=True)
class SearchSetup:
    """All that a search knows before it begins.

    Attributes:
        search_id: of the stored search.
        spec: the validated request.
        space: its states, already limited to what the teacher can teach.
        latencies: latency of every state, and the teacher's.
        params_millions: parameters of a student, in millions.
        context: fingerprint of the mini-KD context, key of the loss look-up table.
        teacher: the teacher's own architecture; a candidate equal to it is marked.
        starts: index → the loss of the reward before the first step, of states that were read.
    """

    search_id: str
    spec: SearchSpec
    space: SearchSpace
    latencies: LatencyTable
    params_millions: Callable[[Architecture], float]
    context: str
    teacher: Architecture | None = None
    starts: Mapping[int, float] = field(default_factory=dict)


def run_search(
    setup: SearchSetup,
    strategy: Strategy,
    backend: Backend,
    journal: Journal,
    *,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    at_once: Callable[[], bool] = lambda: False,
    stopped_status: StoppedStatus = "paused",
    clock: Callable[[], float] = time.monotonic,
) -> SearchStatus:
    """Run a stored search, or go on with it, until it is finished or told to stop.

    Its status is ``running`` when this begins: whoever holds its lease has set it so. Any other
    status is somebody's wish that it rests, and nothing is done.

    Args:
        setup: what to search, where.
        strategy: a fresh one; its state is loaded from the journal.
        backend: trains the candidates; closed at the end.
        journal: where everything is written.
        on_progress: is told what happens, for the screen.
        should_stop: asked between results. True lets the students that are being trained come to
            their end, begins with no others, and ends the run; should it say False again before
            that, the search goes on.
        at_once: asked where ``should_stop`` says True; True ends the run whatever is being trained,
            which is lost.
        stopped_status: what the search is after such an end: ``paused``, or ``running`` still, for
            another process to take up at once.
        clock: seconds, for rates and for ``limits.max_hours``, which counts this run only; after
            it no training begins.

    Returns:
        The status that it has now: ``succeeded``, ``stopped_status``, or what another party wrote
        in the meantime, such as ``cancelled``.

    Raises:
        SpecError: the limits leave no state, or the strategy breaks its contract.
        BackendError: the workers gave up.
        TrainingError: not one candidate could be trained.
        StoreError: a disk is full.
        ConflictError: another process works on the same search; its status is left alone.
        DatabaseError: the journal is out of reach; the search keeps its status and can go on.
        NotNowError: the cluster is out of reach or full; likewise, and the caller decides what
            becomes of it.
    """
    try:
        loop = SearchLoop(
            setup,
            strategy,
            backend,
            journal,
            on_progress,
            should_stop,
            at_once,
            stopped_status,
            clock,
        )
        return loop.run()
    except (ConflictError, DatabaseError, NotNowError):
        raise
    except Exception as error:
        told = of_a_disk(error)
        reason = str(told or error) or type(error).__name__
        should_stop()  # complains where the search is another process's by now
        journal.set_status(setup.search_id, "failed", reason, among=("running",))
        if told is None:
            raise
        raise told from error
    finally:
        backend.close()


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why a run ends before the search does, and what the search is then."""

    reason: str
    status: SearchStatus


class _Judged(NamedTuple):
    """What losses come to: a reward with a note, or the error that makes a failure of them."""

    reward: float | None
    note: str | None
    error: str | None


class SearchLoop:
    """One run of a search; :func:`run_search` describes the arguments."""

    def __init__(
        self,
        setup: SearchSetup,
        strategy: Strategy,
        backend: Backend,
        journal: Journal,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
        at_once: Callable[[], bool],
        stopped_status: StoppedStatus,
        clock: Callable[[], float],
    ) -> None:
        self._setup = setup
        self._spec = setup.spec
        self._id = setup.search_id
        self._strategy = strategy
        self._backend = backend
        self._journal = journal
        self._tell_screen = on_progress
        self._should_stop, self._at_once = should_stop, at_once
        self._stopped_status: SearchStatus = stopped_status
        self._clock = clock
        self._started = clock()
        self._reward = RewardFunction.from_spec(setup.spec.judged_by)
        self._facts = state_facts(setup.space, setup.latencies, setup.params_millions)
        self._within_limits = allowed_states(self._facts, setup.spec.limits)
        self._problem = SearchProblem(
            setup.space, self._facts, setup.starts, self._reward.of_loss, self._spec.goal
        )
        self._history = History()
        self._known: dict[int, KnownLosses] = {}
        self._failed: dict[int, str] = {}
        self._stopped: set[int] = set()
        self._whole_steps: int | None = None  # of a training to the end, once there was one
        self._finished: list[Episode] = []  # kept with rungs alone, which look at all of them
        self._lines: dict[int, Line] = {}
        self._wanted: Callable[[int], float] = lambda _: math.inf
        self._best: Candidate | None = None
        self._num_finished = 0
        self._unfinished: Episode | None = None
        self._withheld = False  # whether the backend was last told to begin with nobody

    def run(self) -> SearchStatus:
        """Take up what is stored, work through the episodes, write the final status."""
        present = self._journal.get_search(self._id).status
        if present != "running":
            return present
        self._take_up()
        stop = self._work_through_episodes()
        if stop is None and self._best is None:
            raise TrainingError(
                f"none of the {len(self._failed)} candidates could be trained; the last one: "
                f"{list(self._failed.values())[-1]}"
            )
        return self._close(stop)

    def _take_up(self) -> None:
        self._strategy.begin(self._problem)
        episodes = self._journal.episodes(self._id)
        state = self._journal.controller_state(self._id)
        if state is not None:
            self._strategy.load(state)
        for episode in episodes:
            for candidate in episode.candidates:
                self._remember(candidate)
            if not episode.finished:
                self._unfinished = self._without_open_attempts(episode)
        finished = [episode for episode in episodes if episode.finished]
        self._num_finished = len(finished)
        self._tell_history(finished)
        self._tell_screen(
            SearchStarted(
                num_states=len(self._setup.space),
                num_allowed=len(self._within_limits),
                num_episodes=self._spec.controller.episodes,
                next_episode=self._num_finished + 1,
            )
        )

    def _work_through_episodes(self) -> _Stop | None:
        """Return why the search rests, or None when it is through."""
        for number in range(self._num_finished + 1, self._spec.controller.episodes + 1):
            if stop := self._stop():
                return stop
            episode = self._unfinished or self._propose(number)
            if episode is None:
                return None  # every allowed state is explored
            self._tell_screen(
                EpisodeStarted(
                    number, episode.epsilon, episode.candidates, self._unfinished is not None
                )
            )
            self._unfinished = None
            began = self._clock()
            candidates = {c.id: c for c in episode.candidates}
            self._look_up(candidates)
            waiting = [c for c in candidates.values() if not _is_done(c)]
            if stop := self._train(candidates, waiting):
                return stop
            done = replace(episode, finished=True, candidates=tuple(candidates.values()))
            self._learn(done, len(waiting), self._clock() - began)
        return None

    def _propose(self, number: int) -> Episode | None:
        """Ask for candidates and write them down; None if there are none left.

        A state that failed or was stopped is not offered again: in the same context it would come
        to the same.
        """
        done = {*self._failed, *self._stopped}
        allowed = [i for i in self._within_limits if i not in done]
        count = self._spec.controller.candidates
        proposals = self._strategy.ask(number, count, allowed, self._history)
        check_proposals(self._strategy.name, proposals, count, allowed)
        if not proposals:
            return None
        return self._journal.begin_episode(
            self._id,
            number,
            self._strategy.epsilon(number),
            _index(self._history.global_best(number)),
            _index(self._history.previous_best(number)),
            [self._new_candidate(proposal) for proposal in proposals],
        )

    def _look_up(self, candidates: dict[str, Candidate]) -> None:
        """Finish the candidates whose losses this search, or any other, already knows."""
        waiting = [c for c in candidates.values() if not _is_done(c)]
        known = {
            str(c.architecture): self._known[c.index] for c in waiting if c.index in self._known
        }
        asked = [c.architecture for c in waiting if c.index not in self._known]
        if self._spec.proxy.reuse and asked:
            known.update(self._journal.known_losses(self._setup.context, asked))
        for candidate in waiting:
            found = known.get(str(candidate.architecture))
            if found is not None:
                judged = self._judged(candidate, found.losses)
                self._done(candidates, self._journal.reuse_losses(candidate.id, found, *judged))

    def _train(
        self, candidates: dict[str, Candidate], waiting: Sequence[Candidate]
    ) -> _Stop | None:
        """Have candidates trained and store each result; return why training was broken off.

        A stop lets students come to their end that have made a step. Whoever still waits for a
        worker then is interrupted.

        Students that the backend gave up have failed, unless it gave up several and trained none:
        then it is the machine that failed, and they are tried again when the search goes on.

        Raises:
            BackendError: the workers ended too early, or died with whatever they had to do.
        """
        requests = {c.id: self._request(c) for c in waiting}
        pending, at_work = set(requests), StudentsAtWork()
        unsettled: dict[str, MiniKDResult] = {}  # as long as it is open whose fault that is
        has_trained = False

        def finish(*results: MiniKDResult) -> None:
            for result in results:
                name = result.candidate_id
                self._done(candidates, self._store(candidates[name], requests[name], result))

        while pending:
            self._withheld = False
            left = [request for name, request in requests.items() if name in pending]
            for event in self._backend.run(left, self._may_begin):
                check_event(event, pending)
                at_work.note(event)
                if isinstance(event, CandidateFinished):
                    result = event.result
                    pending.discard(result.candidate_id)
                    has_trained = has_trained or not result.gave_up
                    unsettled[result.candidate_id] = result
                    if has_trained:
                        finish(*unsettled.values())
                        unsettled.clear()
                    continue
                if isinstance(event, AttemptInterrupted):
                    self._journal.interrupt_attempts(event.candidate_ids, event.reason)
                elif stop := self._end_of(at_work):
                    self._journal.interrupt_attempts(
                        sorted({*at_work.begun, *unsettled}), stop.reason
                    )
                    return stop
                elif isinstance(event, AttemptStarted):
                    self._journal.start_attempt(event.candidate_ids, event.worker)
                if not isinstance(event, StillWaiting):
                    self._tell_screen(event)
            if pending and (stop := self._stop()):
                self._journal.interrupt_attempts(sorted(unsettled), stop.reason)
                return stop
            if pending and not self._withheld:
                raise BackendError(
                    f"the workers ended without a result for {len(pending)} of {len(waiting)} "
                    "candidates; look at their logs and resume the search"
                )
        if len(unsettled) > 1:
            reason = list(unsettled.values())[-1].error or ""
            self._journal.interrupt_attempts(sorted(unsettled), reason)
            raise BackendError(
                f"the workers died with every one of the {len(unsettled)} candidates that were to "
                f"be trained ({reason}); see to their machine and resume the search, or start one "
                "whose limits leave smaller students"
            )
        finish(*unsettled.values())
        return None

    def _may_begin(self) -> bool:
        """Whether a worker may be given students."""
        self._withheld = self._stop() is not None
        return not self._withheld

    def _end_of(self, at_work: StudentsAtWork) -> _Stop | None:
        """Return why to break off now; None while there is no reason, or students are let end."""
        stop = self._stop()
        return stop if stop and (self._at_once() or not at_work.num_training) else None

    def _request(self, candidate: Candidate) -> MiniKDRequest:
        """Have a candidate trained, and stopped where what is known by now says so."""
        rungs = rungs_of(self._lines, self._wanted(candidate.index), self._reward.loss)
        return MiniKDRequest(
            candidate.id, candidate.architecture, self._spec.proxy.rungs, rungs=rungs
        )

    def _store(
        self, candidate: Candidate, request: MiniKDRequest, result: MiniKDResult
    ) -> Candidate:
        result = checked_result(result, request)
        reward, note = None, None
        if result.losses is not None:
            reward, note, error = self._judged(candidate, result.losses)
            result = replace(result, error=error)
        elif result.stopped:
            last = result.readings[-1]
            note = stopped_note(
                last.step,
                self._whole_steps,
                last.losses.named(self._reward.loss),
                self._lines[last.step],
                self._wanted(candidate.index),
            )
        return self._journal.finish_candidate(
            candidate.id, self._setup.context, result, reward, note
        )

    def _tell_history(self, more: Sequence[Episode]) -> None:
        """Add finished episodes to the history, and tell anew what they foretell of others."""
        loss, rungs = self._reward.loss, self._spec.proxy.rungs
        if not rungs:
            for episode in more:
                self._history = extended(self._history, episode, loss)
            return
        self._finished += more
        known = [c for episode in self._finished for c in episode.candidates]
        self._lines = lines(known, rungs, loss)
        self._history = history_of(self._finished, loss, self._foretell)
        self._wanted = wanted_losses(self._problem, self._history.trained, self._spec.proxy.keep)

    def _foretell(self, candidate: Candidate) -> tuple[float, float]:
        final = foretold(candidate, self._lines, self._reward.loss)
        return final, self._reward.of_loss(final, self._ratio(candidate))

    def _learn(self, episode: Episode, num_trained: int, seconds: float) -> None:
        """Tell the strategy, and write its new state together with the end of the episode."""
        self._tell_history([episode])
        loss = self._strategy.tell(episode.number, self._history)
        self._journal.end_episode(self._id, episode.number, loss, self._strategy.dump())
        self._tell_screen(
            EpisodeDone(
                number=episode.number,
                best=self._best,
                num_trained=num_trained,
                students_per_hour=(
                    num_trained * SECONDS_PER_HOUR / seconds if num_trained and seconds else None
                ),
                predictions=tuple(
                    (c.predicted_reward, c.reward)
                    for c in episode.candidates
                    if c.predicted_reward is not None and c.reward is not None
                ),
                controller_loss=loss,
            )
        )

    def _close(self, stop: _Stop | None) -> SearchStatus:
        """Write the final status, unless another party has cancelled or paused the search."""
        status: SearchStatus = "succeeded" if stop is None else stop.status
        reason = None if stop is None else stop.reason
        if status == "running":
            status = self._journal.get_search(self._id).status
        else:
            status = self._journal.set_status(self._id, status, reason, among=("running",))
        self._tell_screen(SearchDone(status, reason, self._best))
        return status

    def _stop(self) -> _Stop | None:
        if self._should_stop():
            return _Stop("stopped on request; resume the search to go on", self._stopped_status)
        max_hours = self._spec.limits.max_hours
        hours = (self._clock() - self._started) / SECONDS_PER_HOUR
        if max_hours is not None and hours >= max_hours:
            return _Stop(
                f"{HOURS_OVER} ({max_hours:g}) is used up; resume the search for as long again",
                "paused",
            )
        return None

    def _without_open_attempts(self, episode: Episode) -> Episode:
        """Close the attempts that nobody works on any more."""
        running = [c.id for c in episode.candidates if c.status == "running"]
        if running:
            self._journal.interrupt_attempts(running, "the search was cut off")
        return episode

    def _new_candidate(self, proposal: Proposal) -> NewCandidate:
        facts = self._facts[proposal.index]
        return NewCandidate(
            proposal,
            self._setup.space[proposal.index],
            facts.latency_ms,
            facts.latency_ratio,
            facts.params_millions,
        )

    def _judged(self, candidate: Candidate, losses: Losses) -> _Judged:
        """Judge losses, just read or looked up: the reward, or why there is none."""
        error = not_learned(losses.output, self._spec.proxy.learning_rate)
        if error is not None:
            return _Judged(None, None, error)
        value, clipped = self._reward(losses, self._ratio(candidate))
        if candidate.architecture != self._setup.teacher:
            return _Judged(value, clipped, None)
        note = "; ".join(filter(None, ["the teacher's own architecture", clipped]))
        return _Judged(value, note, None)

    def _ratio(self, candidate: Candidate) -> float:
        """The latency that the candidate was stored with, as a share of the teacher's."""
        if candidate.latency_ratio is not None:
            return candidate.latency_ratio
        return self._facts[candidate.index].latency_ratio

    def _done(self, candidates: dict[str, Candidate], candidate: Candidate) -> None:
        candidates[candidate.id] = candidate
        self._remember(candidate)
        self._tell_screen(CandidateDone(candidate))

    def _remember(self, candidate: Candidate) -> None:
        if candidate.status == "stopped":
            self._stopped.add(candidate.index)
        elif candidate.status == "failed":
            self._failed[candidate.index] = candidate.error or "no reason given"
        elif candidate.status == "succeeded" and candidate.losses is not None:
            self._whole_steps = candidate.num_steps or self._whole_steps
            known = KnownLosses(candidate.losses, candidate.loss_start)
            self._known.setdefault(candidate.index, known)
            if self._best is None or rank_key(candidate) < rank_key(self._best):
                self._best = candidate


def _is_done(candidate: Candidate) -> bool:
    return candidate.status in CANDIDATE_ENDS


def _index(observation: Observation | None) -> int | None:
    return None if observation is None else observation.index
