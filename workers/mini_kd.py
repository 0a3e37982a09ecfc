"""The mini-KD worker: holds teacher and corpus once, trains one group after another."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.group import MiniKD
from kdnas.distill.numerics import choose_device, num_threads
from kdnas.latency.device_lock import training_lock, training_turn
from kdnas.models.teacher import TeacherHandle, open_teacher
from kdnas.records import GroupProgress, MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.settings import Settings
from kdnas.store import Store

PROGRESS_SECONDS = 0.5
TIMED_STEPS = 8


class MiniKDWorker:
    """Trains groups of students in one context on one device.

    Args:
        context: teacher and corpus by fingerprint, and how to train.
        store_url: where their artefacts are.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: intra-op threads on a CPU.
        name: how the worker is called in events and in the table of attempts.
    """

    def __init__(
        self, context: MiniKDContext, store_url: str, device: str, threads: int, name: str
    ) -> None:
        cache: Path = Settings.from_environment().home / "cache"
        store = Store(store_url, cache)
        self.name = f"{name}@{os.uname().nodename}:{os.getpid()}"
        self._threads = threads
        with num_threads(threads):
            self._mini_kd = MiniKD(
                context,
                open_teacher(context.teacher, store, context.objective.get("lm_head")),
                TokenizedCorpus.open(store.fetch("corpus", context.corpus)),
                store,
                choose_device(device),
            )

    def train(self, requests: Sequence[MiniKDRequest]) -> Generator[GroupProgress | MiniKDResult]:
        """Train a group; progress a few times a second, then one result a student.

        Waits while latency is being measured on this machine, and tells for whom. Step 0 is told
        when that is over: making the students' starts takes seconds each.
        """
        ids = tuple(request.candidate_id for request in requests)
        shown = -PROGRESS_SECONDS
        steps = self._mini_kd.steps
        total = max(steps if r.last_step is None else min(r.last_step, steps) for r in requests)
        with ExitStack() as machine:
            for waits in training_turn(machine):
                yield GroupProgress(ids, self.name, 0, total, waits)
            machine.enter_context(num_threads(self._threads))
            yield GroupProgress(ids, self.name, 0, total)
            for item in self._mini_kd.train(requests):
                if isinstance(item, MiniKDResult):
                    yield item
                elif time.monotonic() - shown >= PROGRESS_SECONDS:
                    shown = time.monotonic()
                    yield GroupProgress(ids, self.name, item, total)


@dataclass(frozen=True, slots=True)
class StudentTiming:
    """Time of training, extrapolated from a few steps.

    Attributes:
        steps: of a whole mini-KD.
        seconds_per_student: of a whole mini-KD, start and the teacher's share included.
    """

    steps: int
    seconds_per_student: float


def time_students(
    context: MiniKDContext,
    teacher: TeacherHandle,
    corpus: TokenizedCorpus,
    store: Store,
    architectures: Sequence[Architecture],
    device: str,
    threads: int,
) -> StudentTiming:
    """Train a group for a few steps in this process and extrapolate to the whole."""
    with training_lock(), num_threads(threads):
        mini_kd = MiniKD(context, teacher, corpus, store, choose_device(device))
        mini_kd.prepare()
        requests = [MiniKDRequest(str(i), a) for i, a in enumerate(architectures)]
        began = time.monotonic()
        steps = mini_kd.train(requests)
        marks = [time.monotonic() for _ in islice(steps, TIMED_STEPS)]
        steps.close()
    seconds = statistics.median(b - a for a, b in pairwise(marks)) if len(marks) > 1 else 0.0
    start = max(0.0, marks[0] - began - seconds)
    return StudentTiming(mini_kd.steps, (start + mini_kd.steps * seconds) / len(architectures))
