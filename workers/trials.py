"""Trials on a cluster, by Ray Tune: Optuna names the points, ASHA ends the hopeless if asked to.

What Ray Tune writes down is thrown away: whoever calls keeps each trial that has ended, and gives
those that are known when he comes again. Where trials are compared with each other on the way,
these are told to Ray Tune anew, first of all; nothing of them is trained twice.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import optuna
from optuna.distributions import CategoricalDistribution
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler
from ray.tune.search.optuna import OptunaSearch

from kdnas.errors import BackendError, KdnasError, TrainingError
from kdnas.latency.device_lock import measured_by, training_lock
from workers.cluster import environment, largest_node_cores

SCORE, MARK, POINT, DIVERGED, MORE = "score", "mark", "point", "diverged", "more"
SEED = 0
"""Of the order in which points are named."""
WORST = -1.0
"""Score of a trial that diverged; no metric is lower."""
REDUCTION = 2
"""At each mark that is looked at, about one trial in so many goes on."""
POLL_SECONDS = 0.2
GOODBYE_SECONDS = 20.0
_QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",  # which prints tables whatever it is told
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths keep their meaning
}


Point = TypeVar("Point", bound=Hashable)


class Report(Protocol):
    """Takes a score on the way, or the last one."""

    def __call__(self, mark: int, score: float, more: Mapping[str, Any] | None = None, /) -> None:
        """Take the score at a mark, and whatever is to be known beside; may end the trial."""


@dataclass(frozen=True)
class TrialWork(ABC, Generic[Point]):
    """What all trials of a grid have in common; it travels to the workers.

    Class attributes:
        marks: at which a trial is scored; at the last it has ended.
        prunes: whether trials end that are worse than others at the same mark.
        if_memory_ran_out: what to do then, in words.

    Attributes:
        points: that are tried.
        device: ``cpu`` or ``cuda``.
        threads: of a trial on a CPU.
        at_once: trials that may run beside each other.
    """

    marks: ClassVar[tuple[int, ...]]
    prunes: ClassVar[bool]
    if_memory_ran_out: ClassVar[str]

    points: tuple[Point, ...]
    device: str
    threads: int
    at_once: int

    @abstractmethod
    def try_point(self, point: Point, report: Report) -> None:
        """Try a point, in a process of Ray Tune's.

        Raises:
            TrainingError: training diverged, which is an answer.
        """


@dataclass(frozen=True, slots=True)
class EndedTrial(Generic[Point]):
    """A trial that has ended.

    Attributes:
        point: that was tried.
        ending: ``pruned`` where others were better at the same mark.
        scores: at each of the marks that it came to.
        more: what was told with the last of them.
    """

    point: Point
    ending: Literal["finished", "pruned", "diverged"]
    scores: tuple[float, ...]
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading(Generic[Point]):
    """A trial that is on its way: its point, the mark that it has come to, and its score."""

    point: Point
    mark: int
    score: float


def run_trials(
    work: TrialWork[Point],
    known: Sequence[EndedTrial[Point]],
    folder: Path,
    on_trial: Callable[[EndedTrial[Point]], None],
    on_reading: Callable[[Reading[Point]], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_wait: Callable[[str], None] = lambda _: None,
) -> bool:
    """Try the points that are not known yet; the process is connected to Ray.

    Args:
        work: what is tried.
        known: trials that have ended before, of some of the points.
        folder: for Ray Tune's files; it is emptied before and removed afterwards.
        on_trial: is told each trial that ends, in the calling thread; what it raises ends the run.
        on_reading: is told each score on the way, likewise.
        should_stop: asked a few times a second; trials that have not ended then are lost.
        on_wait: is told in a sentence for whom trials on this machine wait, if they do; again when
            that changes, and nothing when it is over.

    Returns:
        Whether all points are known now; False if it was stopped.

    Raises:
        BackendError: a trial failed in a way that is no answer.
        KdnasError: whatever a trial says, such as that there are too few examples.
    """
    watch, stop = _Watch(work), threading.Event()
    failed: list[BaseException] = []

    def fit() -> None:
        try:
            failed.extend(_fit(work, known, folder, watch, _Stop(stop)))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failed.append(error)

    # Ray Tune blocks, and takes over Ctrl-C if it runs in the main thread.
    thread = threading.Thread(target=fit, name="ray-tune", daemon=True)
    seen = {trial.point for trial in known}
    waits: str | None = None
    try:
        thread.start()
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            if should_stop():
                stop.set()
            _pass_on(watch.told, seen, on_trial, on_reading)
            before, waits = waits, measured_by()
            if waits != before:
                on_wait(waits or "")
    finally:
        stop.set()
        thread.join(GOODBYE_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
    _pass_on(watch.told, seen, on_trial, on_reading)
    if failed and not should_stop():
        raise _meaning(failed[0], len(failed), work.if_memory_ran_out) from failed[0]
    return seen >= set(work.points)


def _pass_on(
    told: queue.SimpleQueue[EndedTrial[Point] | Reading[Point]],
    seen: set[Point],
    on_trial: Callable[[EndedTrial[Point]], None],
    on_reading: Callable[[Reading[Point]], None],
) -> None:
    """Hand over what was told, except what was known before."""
    while not told.empty():
        item = told.get()
        if isinstance(item, Reading):
            if item.point not in seen:
                on_reading(item)
        elif item.point not in seen:
            seen.add(item.point)
            on_trial(item)


def _fit(
    work: TrialWork[Point],
    known: Sequence[EndedTrial[Point]],
    folder: Path,
    watch: _Watch[Point],
    stop: _Stop,
) -> Iterable[BaseException]:
    """Run Ray Tune to its end; returns the errors of trials."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    numbers = {point: number for number, point in enumerate(work.points)}
    ended = {numbers[trial.point]: trial for trial in known if trial.point in numbers}
    open_ones = [number for number in numbers.values() if number not in ended]
    told_again = list(ended) if work.prunes else []
    trainable = tune.with_resources(
        tune.with_parameters(_trial, work=work, ended=ended),
        {"cpu": 1, "gpu": 1}
        if work.device == "cuda"
        else {"cpu": min(work.threads, largest_node_cores())},
    )
    scheduler = (
        ASHAScheduler(
            time_attr=MARK,
            max_t=work.marks[-1],
            grace_period=work.marks[0],
            reduction_factor=REDUCTION,
        )
        if work.prunes
        else FIFOScheduler()
    )
    with environment(_QUIET), _silence():
        results = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                metric=SCORE,
                mode="max",
                num_samples=len(told_again) + len(open_ones),
                max_concurrent_trials=work.at_once,
                search_alg=OptunaSearch(
                    {POINT: CategoricalDistribution(tuple(numbers.values()))},
                    metric=SCORE,
                    mode="max",
                    points_to_evaluate=[{POINT: number} for number in told_again],
                    sampler=_GridSampler({POINT: open_ones}, seed=SEED),
                ),
                scheduler=scheduler,
                reuse_actors=True,  # a process takes seconds to load what a trial needs
            ),
            run_config=tune.RunConfig(
                storage_path=str(folder), name="run", callbacks=[watch], stop=stop, verbose=0
            ),
        ).fit()
    return list(results.errors)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Ray Tune's advice off the screen: it misses files that nobody wants."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _trial(
    config: dict[str, Any], work: TrialWork[Any], ended: Mapping[int, EndedTrial[Any]]
) -> None:
    """Try a point, or tell again what is known of it; in a process of Ray Tune's."""
    number = config[POINT]
    if number in ended:
        trial = ended[number]
        for mark, score in zip(work.marks, trial.scores, strict=False):
            tune.report({SCORE: score, MARK: mark, POINT: number})
        return

    def report(mark: int, score: float, more: Mapping[str, Any] | None = None, /) -> None:
        tune.report({SCORE: score, MARK: mark, POINT: number, MORE: dict(more or {})})

    try:
        with training_lock():
            work.try_point(work.points[number], report)
    except TrainingError:
        tune.report({SCORE: WORST, MARK: work.marks[-1], POINT: number, DIVERGED: True})


class _GridSampler(optuna.samplers.GridSampler):
    """Optuna's, for a study that is asked and told: there is no loop to stop at the end."""

    def after_trial(self, *_: Any) -> None:
        """Do nothing; whoever asks knows how many points there are."""


class _Watch(tune.Callback, Generic[Point]):  # type: ignore[misc]
    """Tells what trials say, from the thread of Ray Tune.

    Args:
        work: what is tried.
    """

    def __init__(self, work: TrialWork[Point]) -> None:
        self.told: queue.SimpleQueue[EndedTrial[Point] | Reading[Point]] = queue.SimpleQueue()
        self._points, self._last = work.points, work.marks[-1]
        self._scores: dict[str, list[float]] = {}

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        """Note a score on the way."""
        self._scores.setdefault(trial.trial_id, []).append(result[SCORE])
        self.told.put(Reading(self._points[result[POINT]], result[MARK], result[SCORE]))

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Tell a trial that has come to its end, or was ended by the others."""
        last = trial.last_result
        if MARK not in last:
            return  # stopped before its first score
        whole = last[MARK] == self._last
        self.told.put(
            EndedTrial(
                self._points[last[POINT]],
                "diverged" if last.get(DIVERGED) else "finished" if whole else "pruned",
                tuple(self._scores[trial.trial_id]),
                last.get(MORE, {}),
            )
        )

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray Tune writes down all that it is given, which is never read."""
        return {}


class _Stop(tune.Stopper):  # type: ignore[misc]
    """Ends everything on request."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Say whether to stop."""
        return self._asked.is_set()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: see :class:`_Watch`."""
        return {}


def _meaning(error: BaseException, count: int, if_memory_ran_out: str) -> BaseException:
    """What an error of a trial comes down to."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, KdnasError):
        return cause
    reason = " ".join(str(cause).split())[-160:]
    return BackendError(
        f"{count} trials of the grid failed, the first with: {reason}; those that have ended are "
        f"kept: run the same again, {if_memory_ran_out} if memory ran out"
    )
