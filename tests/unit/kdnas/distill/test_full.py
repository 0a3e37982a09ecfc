"""Full distillation: resumed at any step it gives what an undisturbed run gives, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch

from kdnas.distill import full
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.errors import StoreError, TrainingError
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.registry import Stage
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "2,4,36,96,gelu"


@dataclass
class Run:
    """A run that can be made in pieces: a new process would start with just these."""

    lab: TinyLab
    spec: DistillationSpec
    checkpoints: Checkpoints
    dtype: str = "float32"

    @classmethod
    def of(cls, lab: TinyLab, place: Path | str, dtype: str = "float32", **training: Any) -> Run:
        spec = lab.distillation(STUDENT, **{"checkpoint_every": 5, "dropout": 0.1, **training})
        return cls(lab, spec, Checkpoints(str(place)), dtype)

    def worker(self) -> FullDistillation:
        return FullDistillation(
            self.spec,
            self.lab.teacher,
            self.lab.corpus,
            self.lab.store,
            self.checkpoints,
            "cpu",
            self.dtype,
        )

    def go_on(self, stop_after: int | None = None) -> Distilled:
        """Run to the end, or for so many steps, and read where it stands."""
        asked = count(1)
        self.worker().run(should_stop=lambda: next(asked) == stop_after)
        return self.standing()

    def standing(self) -> Distilled:
        found = load_distilled(self.spec, self.lab.teacher, self.checkpoints)
        assert found is not None
        return found

    def newest(self) -> dict[str, torch.Tensor]:
        """The student as it is now, not the best one."""
        state = self.checkpoints.load()
        assert state is not None
        student: dict[str, torch.Tensor] = state["trainer"]["student"]
        return student


def weights(distilled: Distilled) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in distilled.student.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def assert_same(run: Run, other: Run) -> None:
    """Weights, best weights, curve and held-out losses, to the bit."""
    one, two = run.standing(), other.standing()
    assert one.finished
    assert two.finished
    assert equal(run.newest(), other.newest())
    assert equal(weights(one), weights(two))
    assert one.curve == two.curve
    assert one.held_out == two.held_out
    assert one.best == two.best


@pytest.fixture(scope="module")
def undisturbed(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.of(lab, tmp_path_factory.mktemp("whole") / "run")
    assert run.go_on().steps == 12
    return run


@pytest.mark.parametrize("stop", [1, 4, 5, 7, 11])
def test_stopping_and_resuming_changes_no_bit(
    lab: TinyLab, tmp_path: Path, undisturbed: Run, stop: int
) -> None:
    run = Run.of(lab, tmp_path)
    first = run.go_on(stop)
    assert (first.steps, first.finished) == (stop, False)
    torch.manual_seed(77)  # nobody's random state matters
    run.go_on()
    assert_same(run, undisturbed)


def test_weight_decay_is_resumed_to_the_bit_too(
    lab: TinyLab, tmp_path: Path, undisturbed: Run
) -> None:
    whole, stopped = (Run.of(lab, tmp_path / name, weight_decay=0.3) for name in ("a", "b"))
    whole.go_on()
    assert not equal(whole.newest(), undisturbed.newest())
    stopped.go_on(7)
    stopped.go_on()
    assert_same(stopped, whole)


def test_a_run_whose_checkpoints_are_in_memory(lab: TinyLab, undisturbed: Run) -> None:
    run = Run.of(lab, "memory://unit/full/run")
    run.go_on(7)
    run.go_on()
    assert_same(run, undisturbed)
    run.checkpoints.remove()
    assert load_distilled(run.spec, lab.teacher, run.checkpoints) is None


def test_it_may_be_stopped_at_every_step(lab: TinyLab, tmp_path: Path) -> None:
    """In bfloat16, with parts, and with a curve of which each point is a mean of three steps."""
    settings = {"steps": 6, "accumulate": 2, "checkpoint_every": 4}
    whole = Run.of(lab, tmp_path / "whole", "bfloat16", **settings)
    whole.go_on()
    pieces = Run.of(lab, tmp_path / "pieces", "bfloat16", **settings)
    for step in range(1, 7):
        assert pieces.go_on(1).steps == step
    assert_same(pieces, whole)


def test_points_of_the_curve_are_means_over_a_stop(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.distill.stages.CURVE_POINTS", 3)
    whole, pieces = Run.of(lab, tmp_path / "whole"), Run.of(lab, tmp_path / "pieces")
    whole.go_on()
    assert [point.step for point in whole.standing().curve] == [4, 8, 12]
    pieces.go_on(6)
    pieces.go_on()
    assert_same(pieces, whole)


def two_stages(spec: object) -> tuple[Stage, ...]:
    return Stage(HiddenState("uniform"), 0.5), Stage(HiddenState("last"), 0.5, rate=0.5)


@pytest.mark.parametrize("stop", [3, 5, 6, 7, 10])
def test_two_stages_are_resumed_too(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Before, at and after the border between them, which is at step 6."""
    monkeypatch.setattr(full, "build_stages", two_stages)
    whole, pieces = Run.of(lab, tmp_path / "whole"), Run.of(lab, tmp_path / "pieces")
    whole.go_on()
    readings = [point.step for point in whole.standing().held_out]
    assert readings == [0, 5, 6, 10, 12]
    # Losses of two stages are not compared, nor is the start of the first with the second's.
    assert whole.standing().best.step in {10, 12}
    assert pieces.go_on(stop).steps == stop
    pieces.go_on()
    assert_same(pieces, whole)


def start_of(worker: FullDistillation, spec: DistillationSpec) -> torch.nn.Module:
    """The student that a run begins with."""
    return worker._setup.student(spec.arch, worker._stages[0], spec.training)


def test_a_stage_begins_with_the_weights_of_the_one_before(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "build_stages", two_stages)
    run = Run.of(lab, tmp_path, steps=8, checkpoint_every=1, learning_rate=1e-12)
    before = {k: v.clone() for k, v in start_of(run.worker(), run.spec).state_dict().items()}
    run.go_on()
    after = run.newest()
    assert all(torch.allclose(before[k], after[k], atol=1e-9) for k in before)


def test_a_stop_in_the_last_step_is_the_end(lab: TinyLab, tmp_path: Path, undisturbed: Run) -> None:
    run = Run.of(lab, tmp_path)
    assert run.go_on(12).finished
    assert_same(run, undisturbed)


def test_a_finished_run_gives_its_result_again(
    lab: TinyLab, tmp_path: Path, undisturbed: Run
) -> None:
    run = Run.of(lab, tmp_path)
    run.go_on()
    told: list[FullProgress] = []
    assert run.worker().run(told.append) == 12
    assert told == []
    assert_same(run, undisturbed)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_parts_of_a_batch_add_up_to_the_batch(lab: TinyLab, tmp_path: Path, dropout: float) -> None:
    """Sums of float32 in another order: 2e-5 after twelve steps. Dropout draws other masks."""
    curves = []
    for accumulate in (1, 4, 3):
        run = Run.of(lab, tmp_path / str(accumulate), dropout=dropout, accumulate=accumulate)
        curves.append([point.loss for point in run.go_on().curve])
    assert len(curves[0]) == 12
    for curve in curves[1:]:
        if dropout:
            assert curve != pytest.approx(curves[0], rel=2e-5)
        else:
            assert curve == pytest.approx(curves[0], rel=2e-5)


def test_a_short_last_batch_has_fewer_parts(lab: TinyLab, tmp_path: Path) -> None:
    """270 sequences in batches of 67 leave two, which make two of four parts."""
    run = Run.of(lab, tmp_path, batch_size=67, steps=5, accumulate=4)
    assert len(lab.corpus.train_indices) % 67 == 2
    assert run.go_on().finished


def test_the_best_student_is_the_one_that_is_returned(lab: TinyLab, tmp_path: Path) -> None:
    """A rate that grows too large makes the held-out loss rise; the best weights come back."""
    run = Run.of(lab, tmp_path, checkpoint_every=1, learning_rate=0.1, warmup_fraction=0.9)
    poor = run.spec.student.model_copy(update={"init": "random"})  # one that steps make better
    run.spec = run.spec.model_copy(update={"student": poor})
    seen: dict[int, dict[str, torch.Tensor]] = {}
    for step in range(1, 13):  # resumed after each step: the best weights have to survive that
        run.go_on(1)
        seen[step] = run.newest()
    result = run.standing()
    losses = {point.step: point.losses.relative for point in result.held_out}
    assert list(losses) == list(range(13))
    assert result.best.losses.relative == min(losses.values())
    assert 0 < result.best.step == min(losses, key=lambda step: losses[step]) < 12
    assert equal(weights(result), seen[result.best.step])


@pytest.mark.parametrize("student", [STUDENT, "4,4,48,96,gelu"])
def test_a_start_that_training_only_worsens_is_the_best(
    lab: TinyLab, tmp_path: Path, student: str
) -> None:
    """Of any architecture at a rate that ruins it, and of the teacher's own at any."""
    rate = 0.3 if student == STUDENT else 2e-3
    run = Run(lab, lab.distillation(student, learning_rate=rate), Checkpoints(str(tmp_path)))
    result = run.go_on()
    start = result.held_out[0]
    assert (result.best, start.step) == (start, 0)
    assert start.losses.relative < min(p.losses.relative for p in result.held_out[1:])
    worker = FullDistillation(
        run.spec,
        lab.teacher,
        lab.corpus,
        lab.store,
        Checkpoints(str(tmp_path / "other")),
        "cpu",
        "float32",
    )
    assert equal(weights(result), start_of(worker, run.spec).state_dict())


def test_progress_tells_of_steps_points_and_readings(lab: TinyLab, tmp_path: Path) -> None:
    told: list[FullProgress] = []
    run = Run.of(lab, tmp_path)
    run.worker().run(told.append)
    result = run.standing()
    assert [p.step for p in told if p.held_out] == [0, 5, 10, 12]
    assert tuple(p.held_out for p in told if p.held_out) == result.held_out
    assert all(p.total_steps == 12 and isfinite(p.loss) for p in told)
    assert [p.step for p in told if p.tokens_per_second == 0] == [0]
    assert sum((p.points for p in told), ()) == result.curve


@pytest.mark.parametrize("steps", [2, 12])
def test_a_run_that_diverges_says_so(lab: TinyLab, tmp_path: Path, steps: int) -> None:
    run = Run.of(lab, tmp_path, learning_rate=1e30, steps=steps)
    with pytest.raises(TrainingError, match=r"diverged: the .* loss was \w+ by step \d+ of"):
        run.go_on()


def test_a_last_step_that_ruins_the_weights_is_noticed(lab: TinyLab, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="held-out loss was nan"):
        Run.of(lab, tmp_path, learning_rate=1e30, steps=1).go_on()
    assert Checkpoints(str(tmp_path)).steps() == []


def test_a_kill_in_mid_write_costs_the_steps_since_the_last_checkpoint(
    lab: TinyLab, tmp_path: Path, undisturbed: Run
) -> None:
    run = Run.of(lab, tmp_path)
    run.go_on(6)
    half = tmp_path / "step-000000009"
    half.mkdir()
    data = (tmp_path / "step-000000006" / "state.pt").read_bytes()
    (half / "state.pt").write_bytes(data[: len(data) // 2])
    run.go_on()
    assert_same(run, undisturbed)
    assert not half.exists()


def test_a_checkpoint_that_cannot_be_written_ends_the_run_in_words(
    lab: TinyLab, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"checkpoint of step 5 could not be written to .*/file"):
        Run.of(lab, tmp_path / "file" / "run").go_on()


def test_asked_to_stop_before_the_first_step_it_makes_one(lab: TinyLab, tmp_path: Path) -> None:
    always: Callable[[], bool] = lambda: True  # noqa: E731
    assert Run.of(lab, tmp_path).worker().run(should_stop=always) == 1


@pytest.mark.parametrize("objective", ["hs", "minilmv2"])
def test_no_steps_give_the_student_as_it_starts(
    lab: TinyLab, tmp_path: Path, objective: str
) -> None:
    """The very weights from which a run with steps goes on, and no more work when run again."""
    spec = lab.distillation("2,4,48,96,gelu", objective, steps=0, accumulate=3)
    run = Run(lab, spec, Checkpoints(str(tmp_path)))
    told: list[FullProgress] = []
    assert run.worker().run(told.append, should_stop=lambda: True) == 0
    result = run.standing()
    assert result.finished
    assert result.undistilled
    assert (result.steps, result.total_steps, result.curve) == (0, 0, ())
    whole = lab.distillation("2,4,48,96,gelu", objective, steps=12)
    worker = FullDistillation(
        whole,
        lab.teacher,
        lab.corpus,
        lab.store,
        Checkpoints(str(tmp_path / "whole")),
        "cpu",
        "float32",
    )
    assert equal(weights(result), start_of(worker, whole).state_dict())
    (point,) = result.held_out
    assert (point, point.step) == (result.best, 0)
    assert all(isfinite(value) and value > 0 for value in astuple(point.losses))
    assert [(p.step, p.total_steps, p.held_out, p.points) for p in told] == [(0, 0, point, ())]
    before = run.newest()
    assert run.worker().run(told.append) == 0
    assert len(told) == 1
    assert equal(run.newest(), before)


def test_the_training_loss_of_no_steps_is_that_of_the_first_batch(
    lab: TinyLab, tmp_path: Path
) -> None:
    none = Run.of(lab, tmp_path / "none", steps=0, dropout=0.0, accumulate=2).go_on()
    one = Run.of(lab, tmp_path / "one", steps=1, dropout=0.0).go_on()
    assert none.best.losses.training == pytest.approx(one.curve[0].loss, rel=1e-5)
    assert none.best.losses.relative == one.held_out[0].losses.relative
    assert none.best.losses.relative != one.held_out[1].losses.relative
