"""How many workers, how many threads each, how many students on one teacher pass."""

from __future__ import annotations

from kdnas.models.cost import (
    KEPT_BYTES,
    EmbeddingShape,
    flops_per_token,
    teacher_architecture,
    training_bytes,
)
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace
from kdnas.specs.search import BackendSpec, ProxySpec
from workers.backend import BackendPlan
from workers.machine import Machine

MIN_GROUP = 2
"""Students that should share a teacher pass before another worker takes up the rest.

One thread a worker is worth more than two threads on one worker (0.135 s a student and step on one
thread, 0.09 s on two, of MiniLM's students), and does not wait at barriers where the machine has
other work; but each worker runs the teacher anew.
"""
MEMORY_SHARE = 0.5
"""Share of the free memory that groups may fill; the estimate leaves out allocator waste."""
MAX_GROUP = 16
"""Beyond this the teacher's share of the time is small (performance §1)."""


def resolve_backend(
    spec: BackendSpec, candidates: int, student_bytes: int, teacher_bytes: int, machine: Machine
) -> BackendSpec:
    """Fill in what a spec leaves open, for the machine or the cluster that it goes to.

    Args:
        spec: the request.
        candidates: students of an episode.
        student_bytes: memory of the largest student in training.
        teacher_bytes: memory of the teacher.
        machine: what work can have there.

    Raises:
        SpecError: a GPU was asked for and there is none.
    """
    device = machine.choose_device(spec.device)

    def threads_for(num_workers: int) -> int:
        return spec.threads or machine.threads_each(num_workers)

    def group_for(num_workers: int) -> int:
        sharers = (
            round(1 / spec.gpu_fraction)
            if device == "cuda"
            else machine.workers_on_a_node(num_workers, threads_for(num_workers))
        )
        free = machine.memory(device) * MEMORY_SHARE / sharers - teacher_bytes
        return max(1, min(MAX_GROUP, -(-candidates // num_workers), int(free // student_bytes)))

    if spec.name == "local":
        num_workers = 1
    elif spec.num_workers:
        num_workers = spec.num_workers
    elif device == "cuda":
        num_workers = round(machine.gpus / spec.gpu_fraction)
    else:
        counts = range(min(machine.total_cores, candidates // MIN_GROUP), 1, -1)
        num_workers = next((n for n in counts if group_for(n) >= MIN_GROUP), 1)
    group_size = spec.group_size or group_for(num_workers)
    return spec.model_copy(
        update={
            "device": device,
            "num_workers": num_workers,
            "threads": threads_for(num_workers),
            "group_size": group_size,
        }
    )


def backend_plan(spec: BackendSpec, store_url: str) -> BackendPlan:
    """Turn a resolved spec into the plan of a backend."""
    if spec.num_workers is None or spec.threads is None or spec.group_size is None:
        raise ValueError("the backend spec is not resolved")
    return BackendPlan(
        num_workers=spec.num_workers,
        threads=spec.threads,
        group_size=spec.group_size,
        device=spec.device,
        gpu_fraction=spec.gpu_fraction,
        store_url=store_url,
    )


def largest_student_bytes(
    space: SearchSpace, teacher: TeacherShape, proxy: ProxySpec, max_length: int
) -> int:
    """Estimate the memory of the space's largest student in training."""
    largest = max(space.states, key=lambda a: (a.layers * a.hidden, a.intermediate, a.hidden))
    mapped = 2 * largest.layers * teacher.hidden  # two teacher layers each (Trivedi Eq. 2)
    tokens = proxy.batch_size * max_length
    return training_bytes(largest, EmbeddingShape.of(teacher), tokens, mapped)


def teacher_bytes(teacher: TeacherShape) -> int:
    """Estimate the memory of the teacher.

    Its weights in float32, as much again at work, and what is kept of the held-out text.
    """
    own = teacher_architecture(teacher)
    if own is None:
        return 2**30 + KEPT_BYTES
    layers = flops_per_token(own, gated=EmbeddingShape.of(teacher).gated) // 2
    return 8 * (layers + teacher.vocab_size * teacher.hidden) + KEPT_BYTES
