"""Full distillation on a cluster, by one worker or several at once, on Ray Train.

The workers share each batch and sum their gradients (``kdnas.distill.parallel``); they are made
and watched by Ray Train, one process group of torch's for all of them. When one dies the group
ends, and a new one goes on from the newest checkpoint.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import floor
from typing import Any, Self

import ray
import ray.train
from ray.exceptions import RayError
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import FullDistillation, FullProgress
from kdnas.distill.numerics import choose_device, choose_dtype, num_threads
from kdnas.distill.parallel import Parallel
from kdnas.errors import BackendError, KdnasError, NoRoomError, SpecError
from kdnas.latency.device_lock import training_turn
from kdnas.models.teacher import open_teacher
from kdnas.reach import ANYWHERE, Reach
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.store import Store
from workers.cluster import cluster, environment
from workers.line import LINE, POLL_SECONDS, WorkerEnd

MAX_DEATHS = 3
"""So often workers may die without a new checkpoint in between."""
PATIENCE_SECONDS = 24 * 3600
"""Longest wait of a worker for the others, who may wait for the first to read held-out losses.

Ray notices by itself, within seconds, when a worker dies.
"""
STEPS_A_TURN = 50
"""So often a measurement has its turn where nobody says how often checkpoints are written."""
GOODBYE_SECONDS = 20.0
_QUIET = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a worker that is gone is noticed anyway
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths keep their meaning
}


@dataclass(frozen=True, slots=True)
class _Work:
    """All that a worker needs, as plain values that travel to any node."""

    spec: DistillationSpec
    store_url: str
    checkpoints_url: str
    reach: Reach


def distil_in_parallel(
    spec: DistillationSpec,
    store_url: str,
    checkpoints_url: str,
    on_progress: Callable[[FullProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    reach: Reach = ANYWHERE,
    on_wait: Callable[[str], None] = lambda _: None,
) -> int:
    """Run a distillation on ``num_workers`` workers, from its newest checkpoint or the start.

    The caller must not hold the training lock: on each node one of the workers takes it.

    Args:
        spec: what to distil, with all fingerprints, threads, device and dtype written out.
        store_url: where workers fetch teacher and corpus.
        checkpoints_url: where the run keeps its checkpoints; all nodes have to reach it.
        on_progress: is told a few times a second, in the calling thread.
        should_stop: is asked as often; the workers then write a checkpoint and end.
        reach: how the place of the checkpoints is opened.
        on_wait: is told in a sentence for whom the workers of the first one's node wait, if they
            do; asked to stop meanwhile, they end without another checkpoint.

    Returns:
        Steps made so far.

    Raises:
        SpecError: the checkpoints are in the memory of this process.
        NoRoomError: the cluster has no room for the workers at present.
        BackendError: no cluster, or workers that died too often.
        KdnasError: whatever a worker says, such as a training that diverged.
    """
    checkpoints = Checkpoints(checkpoints_url, reach)
    if checkpoints.in_this_process:
        raise SpecError(
            f"checkpoints at {checkpoints_url!r} are out of reach of other processes; give "
            "training.checkpoints a folder, or num_workers 1"
        )
    work = _Work(spec, store_url, checkpoints_url, reach)
    with cluster(spec.training.address):
        deaths, newest = 0, _newest(checkpoints)
        while True:
            try:
                return _run_group(work, on_progress, should_stop, on_wait)
            except _GroupDiedError as died:
                if should_stop():
                    return _newest(checkpoints)
                before, newest = newest, _newest(checkpoints)
                deaths = deaths + 1 if newest == before else 1
                if deaths >= MAX_DEATHS:
                    raise BackendError(
                        f"workers died {deaths} times without getting beyond step {newest} (the "
                        f"last time: {died}); if memory ran out, give a smaller batch_size or a "
                        "larger accumulate, and resume"
                    ) from died.__cause__


class _GroupDiedError(Exception):
    """Workers are gone, or failed in a way that is not theirs to word."""


def _newest(checkpoints: Checkpoints) -> int:
    return max(checkpoints.steps(), default=0)


class _StoppedWaitingError(Exception):
    """A worker that waited for the machine was to stop."""


def _run_group(
    work: _Work,
    on_progress: Callable[[FullProgress], None],
    should_stop: Callable[[], bool],
    on_wait: Callable[[str], None],
) -> int:
    """Run one group of workers to its end, and pass on what it tells in the meantime."""
    line: Any = LINE.remote()
    found: list[int | BaseException] = []

    def fit() -> None:
        try:
            found.append(_fit(work, line))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            found.append(error)

    def pass_on() -> None:
        for told in map(pickle.loads, _answer(line.take.remote())):
            if isinstance(told, str):
                on_wait(told)
            else:
                on_progress(told)

    # Ray Train blocks, and takes over Ctrl-C if it runs in the main thread.
    thread = threading.Thread(target=fit, name="ray-train", daemon=True)
    try:
        thread.start()
        told_to_stop = False
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            if not told_to_stop and should_stop():
                told_to_stop = True
                _answer(line.stop.remote())
            pass_on()
        with suppress(_GroupDiedError):  # the result stands without the last word
            pass_on()  # what came while the one before was passed on
    finally:
        ray.kill(line)  # a group that is still there ends when it finds nobody on the line
        thread.join(GOODBYE_SECONDS)
    (result,) = found
    if isinstance(result, BaseException):
        raise _meaning(result, work.spec) from result
    return result


def _answer(reference: Any) -> Any:
    """Wait for the line.

    Raises:
        _GroupDiedError: it is gone, and so the first worker ends as well.
    """
    try:
        return ray.get(reference)
    except RayError as error:
        raise _GroupDiedError(_short(error)) from error


def _fit(work: _Work, line: Any) -> int:
    training = work.spec.training
    on_gpu = training.device == "cuda"
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kdnas-train-"))
        stack.enter_context(environment(_QUIET))
        trainer = TorchTrainer(
            _worker,
            train_loop_config={"work": work, "line": line},
            torch_config=TorchConfig(
                backend="cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout_s=PATIENCE_SECONDS
            ),
            scaling_config=ray.train.ScalingConfig(
                num_workers=training.num_workers,
                use_gpu=on_gpu,
                resources_per_worker=_resources(
                    nodes, training.num_workers, training.threads or 1, on_gpu
                ),
            ),
            run_config=ray.train.RunConfig(
                storage_path=folder,
                failure_config=ray.train.FailureConfig(max_failures=0, controller_failure_limit=0),
                logging_config=ray.train.LoggingConfig("ERROR"),
            ),
        )
        steps: int = trainer.fit().return_value
    return steps


def _resources(
    nodes: Sequence[Mapping[str, float]], num_workers: int, threads: int, on_gpu: bool
) -> dict[str, float]:
    """What each worker reserves: a GPU, or as many of its threads' cores as leave room for all.

    Raises:
        NoRoomError: there are fewer GPUs than workers, or no cores at all.
    """
    if on_gpu:
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        if gpus < num_workers:
            raise NoRoomError(
                f"num_workers {num_workers} need a GPU each, and the cluster has {gpus}; ask for "
                "fewer workers, or device cpu"
            )
        return {"CPU": 1, "GPU": 1}
    cores = [float(node.get("CPU", 0)) for node in nodes]
    shares = (floor(n / k * 1e4) / 1e4 for n in cores for k in range(1, num_workers + 1))
    for share in sorted({float(threads), *shares}, reverse=True):
        if 0 < share <= threads and sum(n // share for n in cores) >= num_workers:
            return {"CPU": share}
    raise NoRoomError(
        "no node of the Ray cluster offers cores; start one with `ray start --address=…`"
    )


def _meaning(error: BaseException, spec: DistillationSpec) -> BaseException:
    """What an error of Ray Train's comes down to."""
    if isinstance(error, WorkerGroupError):
        failures = list(error.worker_failures.values())
        ours = next((e for e in failures if isinstance(e, KdnasError)), None)
        return ours or _GroupDiedError(_short(failures[0] if failures else error))
    if isinstance(error, ControllerError):
        cause = error.controller_failure
        if type(cause).__name__ in {
            "WorkerGroupStartupTimeoutError",
            "InsufficientClusterResourcesError",
        }:
            training = spec.training
            return NoRoomError(
                f"the Ray cluster has no room for {training.num_workers} workers of "
                f"{training.threads} threads each; wait until other work on it ends, or ask for "
                "fewer workers or threads, and resume"
            )
        return _GroupDiedError(_short(cause))
    if isinstance(error, TrainingFailedError | RayError):
        return _GroupDiedError(_short(error))
    return error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _worker(config: dict[str, Any]) -> int:
    """What each worker does; Ray Train calls it in a process of its own."""
    work: _Work = config["work"]
    spec, training = work.spec, work.spec.training
    context = ray.train.get_context()
    parallel = Parallel(context.get_world_rank(), context.get_world_size())
    store = Store(work.store_url, Settings.from_environment().home / "cache")
    device = choose_device(training.device)
    origin = spec.student.init_from
    assert spec.teacher.fingerprint  # a stored spec has all of them written out
    assert spec.corpus.fingerprint
    with ExitStack() as stack:
        stack.enter_context(num_threads(training.threads or 1))
        end = stack.enter_context(WorkerEnd(config["line"])) if parallel.leads else None
        turns = stack.enter_context(_Turns(training.checkpoint_every or STEPS_A_TURN, end))
        if context.get_local_rank() == 0:
            turns.begin()

        def should_stop() -> bool:
            turns.step()
            return end is not None and end.should_stop()

        run = FullDistillation(
            spec,
            open_teacher(spec.teacher.fingerprint, store, spec.objective.stored_lm_head),
            TokenizedCorpus.open(store.fetch("corpus", spec.corpus.fingerprint)),
            store,
            Checkpoints(work.checkpoints_url, work.reach),
            device,
            choose_dtype(training.dtype, device),
            open_teacher(origin.fingerprint, store) if origin and origin.fingerprint else None,
            parallel,
        )
        return run.run(end.tell if end else lambda _: None, should_stop)


class _Turns:
    """The machine's training lock, held by one worker for all of its node.

    If two held it, a measurement that comes to wait between them would let the second one wait
    for the measurement, the first one for the second, and the measurement for the first.

    Args:
        steps: so often a measurement that waits may have its turn.
        end: of the line to the driver, which is told for whom this waits; None where there is none.
    """

    def __init__(self, steps: int, end: WorkerEnd | None) -> None:
        self._every, self._made, self._end = steps, 0, end
        self._lock: ExitStack | None = None

    def begin(self) -> None:
        """Take the lock; waits while latency is being measured.

        Raises:
            _StoppedWaitingError: the driver wants an end meanwhile.
        """
        self._lock, said = ExitStack(), ""
        for waits in training_turn(self._lock):
            if self._end is None:
                continue
            if self._end.should_stop():
                raise _StoppedWaitingError
            if waits != said:
                said = waits
                self._end.tell(waits)

    def step(self) -> None:
        """Count a step, and let go of the lock for a moment every so often."""
        self._made += 1
        if self._lock is not None and self._made % self._every == 0:
            self._lock.close()
            self.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
