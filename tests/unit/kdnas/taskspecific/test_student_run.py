"""One student in training: what it learns from, and what is noted on the way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kdnas.distill.schedule import linear_warmup_decay
from kdnas.errors import TrainingError
from kdnas.taskspecific.examples import TaskBatch
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.stages import Stage
from kdnas.taskspecific.student_run import StudentRun
from kdnas.testing.tiny_task_training import TinyTask, all_of, equal_to_the_bit

FIRST, SECOND = Stage(1, 10, 5), Stage(2, 5, 5)
LOGITS = torch.zeros(4, 2)


def batch_of(task: TinyTask, count: int = 8) -> TaskBatch:
    return task.train.batch(torch.arange(count).numpy())


def parameters(run: StudentRun) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in run.student.model.parameters()]


def test_the_first_stage_learns_from_the_teacher_and_the_second_from_labels_alone(
    classes: TinyTask,
) -> None:
    run = classes.run("universal-kd-il")
    assert run.asks_teacher(FIRST)
    assert not run.asks_teacher(SECOND)
    assert not classes.run("none").asks_teacher(FIRST)
    batch = batch_of(classes)
    beside = run.student.thrown_away()
    start = [parameter.detach().clone() for parameter in beside]
    run.begin(FIRST)
    run.step(0, batch, classes.teacher.of(batch))
    moved = [parameter.detach().clone() for parameter in beside]
    assert not any(map(torch.equal, start, moved))
    before = parameters(run)
    run.begin(SECOND)
    run.step(0, batch, None)
    assert all(map(torch.equal, moved, beside))
    assert not all(map(torch.equal, before, parameters(run)))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("bert", "universal-kd-il"),
        ("bert", "pkd"),
        ("bilstm", "universal-kd-ca"),
        ("gated-cnn", "universal-kd-ca"),
    ],
)
def test_nothing_beside_the_student_is_run_in_the_second_stage(
    kind: str, method: str, classes: TinyTask
) -> None:
    """And it comes to the same, to the bit, as if that were run."""
    runs = [classes.run(method, kind) for _ in range(2)]
    batch, called = batch_of(classes), [0, 0]
    whole = runs[1].student

    def count(number: int) -> None:
        called[number] += 1

    for number, run in enumerate(runs):
        for module in (*run.student.poolers, *run.student.classifiers):
            module.register_forward_hook(lambda *_, number=number: count(number))
    whole.forward = lambda inputs, **_: TaskStudent.forward(whole, inputs)  # type: ignore[method-assign]
    for run in runs:
        run.begin(FIRST)
        run.step(0, batch, classes.teacher.of(batch))
    beside = len(runs[0].student.poolers) + len(runs[0].student.classifiers)
    assert called == [beside, beside]
    for run in runs:
        run.begin(SECOND)
        for step in range(3):
            run.step(step, batch, None)
    assert called == [beside, 4 * beside]
    assert equal_to_the_bit(*map(all_of, runs))


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_the_loss_of_the_second_stage_is_that_of_the_labels(
    name: str, request: pytest.FixtureRequest
) -> None:
    task: TinyTask = request.getfixturevalue(name)
    run, batch = task.run("vanilla-kd"), batch_of(task)
    for module in run.student.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        said = run.student.eval()(batch.inputs)
        wanted = float(run.method.space.label_loss(said.logits, batch.labels).mean())
    run.begin(SECOND)
    run.step(0, batch, None)
    assert run.mean_loss() == pytest.approx(wanted, rel=1e-5)


def test_frozen_embeddings_stay(classes: TinyTask) -> None:
    run, batch = classes.run("universal-kd-ca", "bilstm"), batch_of(classes)
    table = run.student.model.embeddings.weight.detach().clone()
    run.begin(FIRST)
    run.step(0, batch, classes.teacher.of(batch))
    assert torch.equal(run.student.model.embeddings.weight, table)


def test_maps_of_a_method_are_learned_in_the_first_stage(classes: TinyTask) -> None:
    run, batch = classes.run("pkd"), batch_of(classes)
    before = [parameter.detach().clone() for parameter in run.method.parameters()]
    run.begin(FIRST)
    run.step(0, batch, classes.teacher.of(batch))
    learned = [parameter.detach().clone() for parameter in run.method.parameters()]
    assert before
    assert not any(map(torch.equal, before, learned))
    run.begin(SECOND)
    run.step(0, batch, None)
    assert all(map(torch.equal, learned, run.method.parameters()))


@pytest.mark.parametrize("step", [0, 3, 9])
def test_the_rate_rises_and_falls_in_either_stage(classes: TinyTask, step: int) -> None:
    run, batch = classes.run("none", warmup_fraction=0.3), batch_of(classes)
    for stage in (FIRST, SECOND):
        run.begin(stage)
        run.step(step, batch, None)
        wanted = run.hyper.learning_rate * linear_warmup_decay(step, stage.steps, 0.3)
        groups = run._optimizer.param_groups
        assert [group["lr"] for group in groups] == [pytest.approx(wanted)] * len(groups)
        assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.01]


def test_a_step_draws_its_own_randomness(classes: TinyTask) -> None:
    """Whatever the process has drawn before, and it goes on with that as if nothing had been."""
    batch, results = batch_of(classes), []
    for drawn in (0, 17):
        run = classes.run("none")
        run.begin(FIRST)
        torch.manual_seed(drawn)
        before = torch.get_rng_state()
        run.step(0, batch, None)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(parameters(run))
    assert all(map(torch.equal, *results))
    other = classes.run("none", seed=1)
    other.student.load_state_dict(classes.run("none").student.state_dict())
    other.begin(FIRST)
    other.step(0, batch, None)
    assert not all(map(torch.equal, results[0], parameters(other)))


def test_every_step_of_either_stage_drops_something_else(classes: TinyTask) -> None:
    batch, losses = batch_of(classes), set()
    for stage in (FIRST, SECOND):
        for step in (0, 1):
            run = classes.run("none")
            run.begin(stage)
            run.step(step, batch, None)
            losses.add(run.mean_loss())
    assert len(losses) == 4


def begun(task: TinyTask, method: str = "none", **hyper: float) -> StudentRun:
    run = task.run(method, **hyper)
    run.begin(FIRST)
    return run


def test_the_best_epoch_is_taken_and_of_equals_the_later_one(classes: TinyTask) -> None:
    run, batch = begun(classes), batch_of(classes)
    at_end: list[list[Tensor]] = []
    for epoch, score in enumerate((0.5, 0.9, 0.9, 0.7), 1):
        run.step(epoch - 1, batch, None)
        run.end_epoch(5 * epoch, LOGITS, lambda _, score=score: score)
        at_end.append(parameters(run))
    best = run.take_best()
    assert (best.score, best.stage, best.epoch) == (0.9, 1, 3)
    assert all(map(torch.equal, parameters(run), at_end[2]))
    assert [(entry["epoch"], entry["held_out"]) for entry in run.curve] == [
        (1, 0.5), (2, 0.9), (3, 0.9), (4, 0.7)
    ]  # fmt: skip


def test_losses_are_means_of_an_epoch(classes: TinyTask) -> None:
    run, batch = begun(classes), batch_of(classes)
    assert math.isnan(run.mean_loss())
    run.step(0, batch, None)
    first = run.mean_loss()
    run.end_epoch(5, LOGITS, lambda _: 0.0)
    run.step(1, batch, None)
    run.step(2, batch, None)
    run.end_epoch(10, LOGITS, lambda _: 0.0)
    assert run.curve[0] == {"stage": 1, "epoch": 1, "step": 5, "loss": first, "held_out": 0.0}
    assert run.curve[1]["loss"] != first


@pytest.mark.parametrize("broken", ["loss", "logits"])
def test_divergence_names_method_step_and_rate(classes: TinyTask, broken: str) -> None:
    """Before anything is scored: a metric of what is no number would be an error of its own."""
    run, batch = begun(classes, "annealing-kd", learning_rate=0.25), batch_of(classes)
    run.step(0, batch, classes.teacher.of(batch))
    logits = LOGITS.clone()
    if broken == "loss":
        run._losses.fill_(math.inf)
    else:
        logits[1, 0] = math.nan

    def score(_: Tensor) -> float:
        raise AssertionError("was scored")

    said = r"method annealing-kd diverged: .* in stage 1 by step 5; .* rate than 0.25"
    with pytest.raises(TrainingError, match=said):
        run.end_epoch(5, logits, score)


def test_what_has_not_begun_cannot_go_on(classes: TinyTask, tmp_path: Path) -> None:
    run = classes.run("none")
    with pytest.raises(ValueError, match="no stage has begun"):
        run.step(0, batch_of(classes), None)
    with pytest.raises(ValueError, match="no epoch is over yet"):
        run.take_best()
