"""A fine-tuning that waits for the machine: it says for whom, and stops when it is to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress
from kdnas.latency.device_lock import training_lock


class StoppedWaitingError(Exception):
    """It was to stop before the machine was free; nothing is wrong."""


@contextmanager
def training_when_free(on_progress: OnProgress, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Hold the machine for training as soon as no latency is measured on it.

    Args:
        on_progress: is told what is waited for, as a phase of which nothing is done.
        should_stop: asked while waiting.

    Raises:
        StoppedWaitingError: it was to stop meanwhile.
    """

    def check() -> None:
        if should_stop():
            raise StoppedWaitingError

    def tell(text: str) -> None:
        on_progress(FinetuneProgress(text, 0, 1, waits=True))

    with training_lock(on_wait=tell, check=check):
        yield
