"""A run's figures for TensorBoard: events that grow with the run, and tidy ones with the student.

An event file is a sequence of records: 8 bytes of length, 4 of checksum, a protocol buffer, 4 of
checksum. TensorBoard reads all files of a folder in the order of their names; a session that
starts at step n takes back what earlier files say of steps from n on.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from kdnas.distill.full import Distilled, FullProgress, HeldOutPoint
from kdnas.errors import StoreError
from kdnas.records import CurvePoint

TRAINING_LOSS, LEARNING_RATE = "training/loss", "training/learning_rate"
SPEED = "training/tokens_per_second"
HELD_OUT = {name: f"held_out/{name}" for name in ("relative", "output", "mean")}


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of one curve, and when it was written (seconds since 1970)."""

    tag: str
    step: int
    value: float
    wall_time: float


class RunEvents:
    """Writes the events of a run into a folder while it goes on.

    A resumed run writes a file of its own, which takes back what an earlier process said of steps
    beyond the checkpoint; a figure that is already there is not written again. Every report is on
    disk when :meth:`add` returns.

    Args:
        folder: of the run's events; made if missing.
        resumed_at: step of the checkpoint from which the run goes on; 0 for a new run.

    Raises:
        StoreError: the folder is full or not writable.
    """

    def __init__(self, folder: Path, resumed_at: int = 0) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            kept = [figure for figure in read_events(folder) if figure.step <= resumed_at]
            self._written = {(figure.tag, figure.step) for figure in kept}
            self._writer: EventsWriter | None = _new_writer(folder)
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(
                Event(wall_time=time.time(), step=resumed_at + 1, session_log=start)
            )
            self._writer.flush()
        except OSError as error:
            raise self._cannot_write(error) from None

    def add(self, progress: FullProgress) -> None:
        """Write what a report says, and put it on disk.

        Raises:
            StoreError: the folder is full or not writable.
        """
        if self._writer is None:
            raise ValueError("these events are closed")
        now = time.time()
        figures = [figure for point in progress.points for figure in _of_curve(point, now)]
        if progress.step:  # a student as it starts has no speed
            figures.append(Figure(SPEED, progress.step, progress.tokens_per_second, now))
        if progress.held_out is not None:
            figures += _of_held_out(progress.held_out, now)
        try:
            for figure in figures:
                if (figure.tag, figure.step) not in self._written:
                    self._writer.write_event(_event(figure))
                    self._written.add((figure.tag, figure.step))
            self._writer.flush()
        except OSError as error:
            raise self._cannot_write(error) from None

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as error:
                raise self._cannot_write(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _cannot_write(self, error: OSError) -> StoreError:
        return StoreError(
            f"TensorBoard events could not be written to {self._folder} "
            f"({error.strerror or error}); free space there or make it writable, and resume"
        )


def write_student_events(distilled: Distilled, run: Path | None, folder: Path) -> None:
    """Write one event file with all figures of a finished run, in the order of steps.

    Curve and readings are the distillation's own; speed and times come from the run's events.

    Args:
        distilled: the finished run.
        run: folder of its :class:`RunEvents`, if there were any.
        folder: where to write; made if missing.
    """
    seen = {(f.tag, f.step): f for f in read_events(run)} if run is not None else {}
    now = time.time()
    own = [figure for point in distilled.curve for figure in _of_curve(point, now)]
    own += [figure for point in distilled.held_out for figure in _of_held_out(point, now)]
    times = {figure.step: figure.wall_time for figure in seen.values()}
    figures = [Figure(f.tag, f.step, f.value, times.get(f.step, f.wall_time)) for f in own]
    figures += [f for f in seen.values() if f.tag == SPEED and f.step <= distilled.steps]
    folder.mkdir(parents=True, exist_ok=True)
    writer = _new_writer(folder)
    for figure in sorted(figures, key=lambda f: (f.step, f.tag)):
        writer.write_event(_event(figure))
    writer.close()
    (file,) = folder.iterdir()
    file.rename(folder / "events.out.tfevents.student")  # without the name of this machine


def read_events(folder: Path) -> list[Figure]:
    """Read a folder's figures as TensorBoard does, in the order in which they were written.

    A record that was cut off by a kill ends its file.
    """
    figures: list[Figure] = []
    for file in sorted(folder.glob("*tfevents*")):
        for record in _records(file.read_bytes()):
            event = Event.FromString(record)
            if event.HasField("session_log"):
                figures = [f for f in figures if f.step < event.step]
            figures += [
                Figure(value.tag, event.step, value.simple_value, event.wall_time)
                for value in event.summary.value
            ]
    return figures


def _records(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        end = place + 12 + length
        if end + 4 > len(data):
            return
        yield data[place + 12 : end]
        place = end + 4


def _new_writer(folder: Path) -> EventsWriter:
    # Names begin with the time; a second session of the same second must still come after.
    number = len(list(folder.glob("*tfevents*")))
    return EventsWriter(str(folder / f"events.{number:04d}"), f".{os.getpid()}")


def _event(figure: Figure) -> Any:
    value = Summary.Value(tag=figure.tag, simple_value=figure.value)
    return Event(wall_time=figure.wall_time, step=figure.step, summary=Summary(value=[value]))


def _of_curve(point: CurvePoint, wall_time: float) -> Iterable[Figure]:
    yield Figure(TRAINING_LOSS, point.step, point.loss, wall_time)
    yield Figure(LEARNING_RATE, point.step, point.learning_rate, wall_time)


def _of_held_out(point: HeldOutPoint, wall_time: float) -> Iterable[Figure]:
    for name, tag in HELD_OUT.items():
        value = getattr(point.losses, name)
        if math.isfinite(value):
            yield Figure(tag, point.step, value, wall_time)
