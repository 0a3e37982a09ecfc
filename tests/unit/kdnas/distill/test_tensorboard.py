from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from kdnas.distill.full import Distilled, FullProgress, HeldOutPoint
from kdnas.distill.tensorboard import Figure, RunEvents, read_events, write_student_events
from kdnas.errors import StoreError
from kdnas.records import CurvePoint, Losses
from kdnas.testing.small_disk import small_disk

LOSSES = Losses(0.5, 0.25, 0.125, 0.0625)


def report(step: int, *points: int, held_out: bool = False) -> FullProgress:
    return FullProgress(
        step=step,
        total_steps=12,
        loss=1.0,
        tokens_per_second=1000.0 + step,
        objective="hs",
        points=tuple(CurvePoint(p, 1 / p, 2.0**-p) for p in points),
        held_out=HeldOutPoint(step, LOSSES) if held_out else None,
    )


def curves(figures: list[Figure]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for figure in figures:
        found.setdefault(figure.tag, []).append((figure.step, figure.value))
    return found


def test_a_run_can_be_read_while_it_goes_on(tmp_path: Path) -> None:
    with RunEvents(tmp_path / "events") as events:
        events.add(report(2, 1, 2))
        read = curves(read_events(tmp_path / "events"))
        assert read["training/loss"] == [(1, 1.0), (2, 0.5)]
        assert read["training/learning_rate"] == [(1, 0.5), (2, 0.25)]
        assert read["training/tokens_per_second"] == [(2, 1002.0)]
        assert "held_out/relative" not in read
        events.add(report(4, 4, held_out=True))
    read = curves(read_events(tmp_path / "events"))
    assert read["training/loss"] == [(1, 1.0), (2, 0.5), (4, 0.25)]
    assert read["held_out/relative"] == [(4, 0.125)]
    assert read["held_out/output"] == [(4, 0.0625)]
    assert read["held_out/mean"] == [(4, 0.25)]
    events.close()
    with pytest.raises(ValueError, match="closed"):
        events.add(report(5))


def test_a_resumed_run_repeats_no_step(tmp_path: Path) -> None:
    """The first process got to step 6 and hung; its checkpoint was of step 4."""
    first = RunEvents(tmp_path)
    first.add(report(2, 2))
    first.add(report(4, 4, held_out=True))
    first.add(report(6, 6))
    with RunEvents(tmp_path, resumed_at=4) as second:
        # A resumed run tells its whole curve again, and step 3 that nobody was told of.
        second.add(report(5, 2, 3, 4, 5))
        second.add(report(6, 6, held_out=True))
    read = curves(read_events(tmp_path))
    assert sorted(read["training/loss"]) == [(n, pytest.approx(1 / n)) for n in (2, 3, 4, 5, 6)]
    assert [step for step, _ in read["training/tokens_per_second"]] == [2, 4, 5, 6]
    assert [step for step, _ in read["held_out/relative"]] == [4, 6]
    with RunEvents(tmp_path, resumed_at=6) as third:
        third.add(report(6, 2, 3, 4, 5, 6, held_out=True))
    assert curves(read_events(tmp_path)) == read
    assert len(list(tmp_path.iterdir())) == 3
    first.close()


def test_a_record_that_was_cut_off_hides_nothing_else(tmp_path: Path) -> None:
    with RunEvents(tmp_path) as events:
        events.add(report(2, 1, 2))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])  # the speed, which came last
    with RunEvents(tmp_path, resumed_at=2) as events:
        events.add(report(2, 1, 2))
    read = curves(read_events(tmp_path))
    assert [step for step, _ in read["training/loss"]] == [1, 2]
    assert read["training/tokens_per_second"] == [(2, 1002.0)]


def test_the_file_is_one_that_tensorboard_accepts(tmp_path: Path) -> None:
    """Checksums of every record, and the version in front."""
    with RunEvents(tmp_path) as events:
        events.add(report(2, 1, 2))
    (file,) = tmp_path.iterdir()
    assert "tfevents" in file.name
    data, records = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        assert int.from_bytes(data[8:12], "little") == masked_crc32c(data[:8])
        records.append(data[12 : 12 + length])
        checksum = data[12 + length : 16 + length]
        assert int.from_bytes(checksum, "little") == masked_crc32c(records[-1])
        data = data[16 + length :]
    assert Event.FromString(records[0]).file_version == "brain.Event:2"
    assert len(records) == 2 + 5


def test_a_student_gets_one_tidy_file(tmp_path: Path) -> None:
    with RunEvents(tmp_path / "run") as events:
        events.add(report(4, 2, 4, held_out=True))
        events.add(report(9, 6))  # beyond the checkpoint
    with RunEvents(tmp_path / "run", resumed_at=4) as events:
        events.add(report(6, 2, 4, 6))
    times = {f.step: f.wall_time for f in read_events(tmp_path / "run")}
    readings = tuple(HeldOutPoint(step, LOSSES) for step in (4, 6))
    points = tuple(CurvePoint(n, 1 / n, 0.5) for n in (2, 4, 6))
    student = Distilled(torch.nn.Linear(1, 1), None, readings[1], readings, points, 6, 6)
    write_student_events(student, tmp_path / "run", tmp_path / "student")
    (file,) = (tmp_path / "student").iterdir()
    assert file.name == "events.out.tfevents.student"
    figures = read_events(tmp_path / "student")
    assert [f.step for f in figures] == sorted(f.step for f in figures)
    read = curves(figures)
    assert [step for step, _ in read["training/loss"]] == [2, 4, 6]
    assert [step for step, _ in read["held_out/relative"]] == [4, 6]  # 6 was never told
    assert [step for step, _ in read["training/tokens_per_second"]] == [4, 6]
    assert all(f.wall_time == times[f.step] for f in figures)
    write_student_events(student, None, tmp_path / "without")
    alone = curves(read_events(tmp_path / "without"))
    assert alone == {tag: values for tag, values in read.items() if "second" not in tag}


def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    events = RunEvents(tmp_path)
    sentence = r"TensorBoard events could not .*free space"
    with small_disk(200), pytest.raises(StoreError, match=sentence):
        events.add(report(20, *range(1, 20)))
    events.close()
