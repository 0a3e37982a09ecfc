"""Fine-tunings on a cluster, several beside each other, each in a process of its own."""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from kdnas.errors import BackendError, KdnasError
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.finetuning.waiting import StoppedWaitingError, training_when_free
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.models.teacher import TeacherHandle
from workers.carried import Carried, put_into_store, this_node
from workers.cluster import largest_node_cores
from workers.line import LINE, POLL_SECONDS, WorkerEnd
from workers.machine import Machine, machine_at

log = logging.getLogger(__name__)

PROCESS_BYTES = 2**30
"""What a process takes with torch in it."""
COPIES = 8
"""A model's weights in training: themselves, gradients, two moments, and as much for a batch."""
MEMORY_SHARE = 0.7
"""Share of the free memory that fine-tunings may fill."""


def room_for(address: str | None, model: TeacherHandle, device: str, threads: int) -> int:
    """Say how many fine-tunings of a model have room beside each other.

    Args:
        address: of a running cluster; None means this machine.
        model: that is fine-tuned.
        device: ``cpu`` or ``cuda``.
        threads: of each.
    """
    weights = sum(file.stat().st_size for file in model.folder.glob("*.safetensors"))
    return finetunings_at_once(machine_at(address, device), device, threads, weights)


def finetunings_at_once(
    machine: Machine, device: str, threads: int, weights_bytes: int, other_bytes: int = 0
) -> int:
    """Say how many fine-tunings a machine, or a cluster, has cores and memory for.

    Args:
        machine: its means.
        device: ``cpu`` or ``cuda``, of which each takes a whole one.
        threads: of each.
        weights_bytes: size of the weights.
        other_bytes: what each holds in memory beside.
    """
    if device == "cuda":
        return max(1, machine.gpus)
    nodes = -(-machine.total_cores // machine.cores)
    each = PROCESS_BYTES + COPIES * weights_bytes + other_bytes
    by_memory = int(machine.free_bytes * MEMORY_SHARE // each)
    return max(1, min(machine.total_cores // threads, nodes * by_memory))


def carried_to(
    address: str | None, model: TeacherHandle, data: TaskData, store_url: str
) -> Carried:
    """Pack model and data for the workers of the cluster that this process is connected to.

    Args:
        address: of the cluster, whose other nodes have no way to the model but the store; None
            means one of this machine.
        model: on this machine.
        data: of the task.
        store_url: of the store.
    """
    if address is not None:
        put_into_store(model, store_url)
    return Carried.from_here(model, data, store_url)


def handed_over(address: str | None, model: TeacherHandle, data: TaskData, store_url: str) -> Any:
    """Put model and data where all workers get them; arguments as those of :func:`carried_to`."""
    return ray.put(carried_to(address, model, data, store_url))


def threads_each(address: str | None, device: str, jobs: int) -> int:
    """Share the cores among fine-tunings beside each other.

    On this machine none gets more threads than one alone would have, by ``OMP_NUM_THREADS``.
    """
    share = machine_at(address, device).threads_each(jobs)
    return share if address else min(share, torch.get_num_threads())


def finetune_on_cluster(
    carried: Any,
    settings: FinetuneSettings,
    seed: int,
    checkpoints: Path,
    *,
    device: str,
    threads: int,
    on_progress: Callable[[FinetuneProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> TaskResult | None:
    """Fine-tune in a process of the cluster that this one is connected to, and wait for it.

    The caller must not hold the training lock: the worker takes it on its own node. May be called
    from several threads at once.

    Args:
        carried: Ray's reference to model and data (``ray.put``).
        settings: hyper-parameters.
        seed: of the fine-tuning.
        checkpoints: folder of this fine-tuning. On another node it begins anew when it is taken up
            again, since checkpoints stay where they were written.
        device: ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU.
        on_progress: is told a few times a second, in the calling thread.
        should_stop: is asked as often; the worker then writes a checkpoint and ends.
        options: other arguments of ``kdnas.evaluation.finetuning.run.finetune``.

    Returns:
        The result, or None if it was stopped.

    Raises:
        BackendError: the worker died.
        KdnasError: whatever the fine-tuning says.
    """
    line: Any = LINE.remote()
    resources = (
        {"num_cpus": 1, "num_gpus": 1}
        if device == "cuda"
        else {"num_cpus": min(threads, largest_node_cores())}
    )
    options = {**options, "device": device, "threads": threads}
    work = _FINETUNE.options(**resources).remote(
        carried, settings, seed, str(checkpoints), options, line
    )
    began = told_to_stop = False
    try:
        while True:
            ready, _ = ray.wait([work], timeout=POLL_SECONDS)
            for told in ray.get(line.take.remote()):
                began = True
                on_progress(pickle.loads(told))
            if ready:
                result: TaskResult | None = ray.get(work)
                return result
            if not told_to_stop and should_stop():
                told_to_stop = True
                line.stop.remote()
                if not began:  # it may be waiting for a core, and has nothing to lose
                    return None
    except RayTaskError as error:
        log.info("the worker of a fine-tuning failed: %s", error)  # where, in its own code
        cause = error.cause
        if isinstance(cause, KdnasError):
            raise cause from None
        raise BackendError(_failed(cause or error)) from error
    except RayError as error:
        raise BackendError(_failed(error)) from error
    finally:
        with suppress(RayError):
            ray.cancel(work, force=True)  # nothing, if it has ended
        ray.kill(line)


def _failed(error: BaseException) -> str:
    reason = " ".join(str(error).split())[-160:]
    return (
        f"the worker of a fine-tuning failed ({reason}); if memory ran out, give a smaller "
        "`batch_size`, or let fewer run at once, and run the same again"
    )


def _finetune(
    carried: Carried,
    settings: FinetuneSettings,
    seed: int,
    checkpoints: str,
    options: dict[str, Any],
    line: Any,
) -> TaskResult | None:
    """What the worker does."""
    with ExitStack() as stack:
        end = stack.enter_context(WorkerEnd(line))
        place = Path(checkpoints)
        if this_node() != carried.node:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdnas-tune-")))
        try:
            stack.enter_context(training_when_free(end.tell, end.should_stop))
        except StoppedWaitingError:
            return None
        return finetune(
            carried.model_here(),
            carried.data,
            settings,
            seed,
            place,
            on_progress=end.tell,
            should_stop=end.should_stop,
            **options,
        )


_FINETUNE: Any = ray.remote(max_retries=0)(_finetune)
