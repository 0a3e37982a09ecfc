"""Runs side by side, stopped anywhere and gone on with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kdnas.distill.checkpoint import Checkpoints
from kdnas.errors import TrainingError
from kdnas.specs.task_distillation import METHODS
from kdnas.taskspecific import training as module
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.training import NUM_SAMPLES, HeldOut, RunProgress, Training, outputs_of
from kdnas.testing.tiny_task_training import (
    Counted,
    TinyTask,
    all_of,
    equal_to_the_bit,
    tiny_examples,
)

FIRST_STEPS, TOTAL = 10, 15
STOPS = (3, 5, FIRST_STEPS, 12, TOTAL - 1)
"""In the first stage, at an epoch's end, at the border, in the second stage, before its end."""
CHOSEN = [("bert", "pkd"), ("bert", "universal-kd-il"), ("bilstm", "universal-kd-ca")]
CHOSEN += [("gated-cnn", "alp-kd")]


def at_step(number: int) -> Iterator[bool]:
    """What a training that asks after every step is told: to stop after so many."""
    for step in range(1, TOTAL + 1):
        yield step == number


@pytest.fixture(scope="module")
def undisturbed(classes: TinyTask) -> dict[tuple[str, str], dict[str, Any]]:
    """What runs come to that nobody stops."""
    found = {}
    for kind, method in CHOSEN:
        run = classes.run(method, kind)
        assert classes.training([run]).run()
        found[kind, method] = all_of(run)
    return found


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(("kind", "method"), CHOSEN)
def test_stopped_anywhere_it_comes_to_the_same_to_the_bit(
    kind: str,
    method: str,
    stop: int,
    classes: TinyTask,
    undisturbed: dict[tuple[str, str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    """In a new object: weights, optimiser, what is learned beside, curve, attention, the best."""
    checkpoints, asked = Checkpoints(str(tmp_path)), at_step(stop)
    stopped = classes.training([classes.run(method, kind)], checkpoints)
    assert not stopped.run(should_stop=lambda: next(asked))
    assert checkpoints.steps() == [stop]
    run = classes.run(method, kind)
    told: list[RunProgress] = []
    resumed = classes.training([run], Checkpoints(str(tmp_path)))
    assert resumed.run(told.append)
    assert [progress.done for progress in told] == list(range(stop + 1, TOTAL + 1))
    assert resumed.seconds >= stopped.seconds > 0
    found = all_of(run)
    for part, wanted in undisturbed[kind, method].items():
        assert equal_to_the_bit(found[part], wanted), part


@pytest.mark.parametrize("killed_after", [4, FIRST_STEPS, 13])
def test_a_kill_loses_nothing_but_time(
    killed_after: int,
    classes: TinyTask,
    undisturbed: dict[tuple[str, str], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Going on from what was saved by the clock, a step earlier."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)

    class KilledError(Exception):
        pass

    def tell(progress: RunProgress) -> None:
        if progress.done == killed_after:
            raise KilledError

    checkpoints = Checkpoints(str(tmp_path))
    with pytest.raises(KilledError):
        classes.training([classes.run("pkd")], checkpoints).run(tell)
    assert checkpoints.steps() == [killed_after - 1]
    run = classes.run("pkd")
    assert classes.training([run], checkpoints).run()
    assert equal_to_the_bit(all_of(run), undisturbed["bert", "pkd"])


@pytest.mark.parametrize("kind", ["bert", "gated-cnn"])
def test_a_run_alone_and_beside_others_is_the_same_to_the_bit(kind: str, classes: TinyTask) -> None:
    names = ["none", "vanilla-kd", "pkd", "dih", "annealing-kd", "alp-kd"]
    names += ["universal-kd-il" if kind == "bert" else "universal-kd-ca"]
    together = [classes.run(name, kind, seed) for seed in (0, 1) for name in names]
    assert classes.training(together).run()
    for number, name in ((0, "none"), (2, "pkd"), (6, names[6]), (8, "vanilla-kd")):
        alone = classes.run(name, kind, number // len(names))
        assert classes.training([alone]).run()
        assert equal_to_the_bit(all_of(alone), all_of(together[number])), name


def test_runs_stopped_together_go_on_together(classes: TinyTask, tmp_path: Path) -> None:
    names, asked = ("universal-kd-cg", "mhkd"), at_step(7)
    undisturbed = [classes.run(name) for name in names]
    assert classes.training(undisturbed).run()
    checkpoints = Checkpoints(str(tmp_path))
    runs = [classes.run(name) for name in names]
    assert not classes.training(runs, checkpoints).run(should_stop=lambda: next(asked))
    again = [classes.run(name) for name in names]
    assert classes.training(again, checkpoints).run()
    assert equal_to_the_bit([all_of(run) for run in again], [all_of(run) for run in undisturbed])


def test_the_teacher_runs_once_a_batch_for_all_who_ask(classes: TinyTask) -> None:
    counted = Counted(classes.teacher)
    task = replace(classes, teacher=counted)
    runs = [task.run(name) for name in ("none", "vanilla-kd", "universal-kd-il", "dih")]
    assert task.training(runs).run()
    assert counted.asked == FIRST_STEPS
    counted.asked = 0
    assert task.training([task.run("none")]).run()
    assert counted.asked == 0


def test_runs_that_need_other_batches_are_refused(classes: TinyTask) -> None:
    runs = [classes.run("none"), classes.run("dih", batch_size=4)]
    with pytest.raises(ValueError, match="same batch size, epochs"):
        classes.training(runs)


@pytest.mark.parametrize("name", ["classes", "numbers"])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "universal-kd-ca"])
def test_every_method_learns_something(
    method: str, name: str, request: pytest.FixtureRequest
) -> None:
    task: TinyTask = request.getfixturevalue(name)
    run = task.run(method, epochs=3, finetune_epochs=2)
    assert task.training([run]).run()
    losses = [entry["loss"] for entry in run.curve if entry["stage"] == 1]
    assert len(losses) == 3
    if method == "annealing-kd":  # of targets that climb from a third
        losses[0] *= 3**2
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "method"), [("bert", "pkd"), ("bert", "universal-kd-il"), ("bilstm", "alp-kd")]
)
def test_forward_passes_may_be_rounded(
    kind: str, method: str, dtype: str, classes: TinyTask
) -> None:
    """Through maps between widths and pseudo-classifiers, too."""
    run = classes.run(method, kind, dtype=dtype, max_steps=2)
    assert classes.training([run]).run()
    assert all(p.dtype == torch.float32 for p in run.student.parameters())


def test_the_best_epoch_of_both_stages_is_taken(classes: TinyTask) -> None:
    """By the held-out score, whichever stage it lies in."""
    for scores, best in (((0.2, 0.9, 0.4), (1, 2)), ((0.2, 0.3, 0.4), (2, 1))):
        ahead = iter(scores)
        run = classes.run("none")
        assert classes.training([run], score=lambda _, ahead=ahead: next(ahead)).run()
        assert [entry["held_out"] for entry in run.curve] == list(scores)
        assert [entry["step"] for entry in run.curve] == [5, 10, 5]
        chosen = run.take_best()
        assert (chosen.stage, chosen.epoch) == best


def test_scores_are_of_the_held_out_examples_in_their_order(classes: TinyTask) -> None:
    run = classes.run("none")
    heard: list[Tensor] = []

    def score(logits: Tensor) -> float:
        heard.append(logits)
        return 0.0

    assert classes.training([run], score=score).run()
    run.student.eval()
    one_by_one = []
    for number in range(len(classes.held_out)):
        with torch.no_grad():
            batch = classes.held_out.batch(torch.tensor([number]).numpy())
            one_by_one.append(run.student(batch.inputs).logits[0])
    torch.testing.assert_close(heard[-1], torch.stack(one_by_one), rtol=1e-4, atol=1e-5)


def test_progress_is_told_in_numbers(classes: TinyTask) -> None:
    """Also at the end of an epoch, where a new mean begins."""
    told: list[RunProgress] = []
    assert classes.training([classes.run("none")]).run(told.append)
    assert [progress.done for progress in told] == list(range(1, TOTAL + 1))
    assert {progress.total for progress in told} == {TOTAL}
    assert [progress.stage for progress in told] == [1] * FIRST_STEPS + [2] * 5
    assert [progress.epoch for progress in told] == [1] * 5 + [2] * 5 + [1] * 5
    assert all(math.isfinite(progress.loss) for progress in told)


@pytest.mark.parametrize("method", ["none", "annealing-kd"])
@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_divergence_is_said(name: str, method: str, request: pytest.FixtureRequest) -> None:
    task: TinyTask = request.getfixturevalue(name)
    run = task.run(method, learning_rate=1e30, max_grad_norm=0.0)

    def score(logits: Tensor) -> float:
        assert logits.isfinite().all()
        return 0.0

    told: list[RunProgress] = []
    assert task.training([run], score=score).run(told.append)
    assert len(told) == 4  # and nothing is trained when it is known
    said = rf"method {method} diverged: .* in stage 1 by step 5; .* than 1e\+30"
    assert isinstance(run.error, TrainingError)
    assert re.match(said, str(run.error))


@pytest.mark.parametrize(
    ("method", "stop"),
    [("vanilla-kd", None), ("vanilla-kd", 7), ("vanilla-kd", 12), ("universal-kd-il", 12)],
)
def test_who_diverges_is_left_behind(
    method: str, stop: int | None, classes: TinyTask, tmp_path: Path
) -> None:
    """Also over an interruption of either stage; the others come to what they come to alone."""
    alone = classes.run("pkd")
    assert classes.training([alone]).run()

    def both() -> list[StudentRun]:
        return [
            classes.run(method, learning_rate=1e30, max_grad_norm=0.0),
            classes.run("pkd"),
        ]

    runs, checkpoints = both(), Checkpoints(str(tmp_path))
    if stop is not None:
        asked = at_step(stop)
        assert not classes.training(runs, checkpoints).run(should_stop=lambda: next(asked))
        runs = both()
    assert classes.training(runs, checkpoints).run()
    diverged, other = runs
    assert f"{method} diverged" in str(diverged.error)
    assert "in stage 1" in str(diverged.error)
    assert other.error is None
    assert equal_to_the_bit(all_of(other), all_of(alone))


@pytest.mark.parametrize(
    ("kind", "method", "attending"),
    [
        ("bert", "universal-kd-il", 1),
        ("bert", "universal-kd-cg", 1),
        ("bilstm", "universal-kd-ca", 2),
        ("bilstm", "alp-kd", 2),
    ],
)
def test_attention_is_kept_epoch_by_epoch_and_of_some_samples(
    kind: str, method: str, attending: int, classes: TinyTask
) -> None:
    run = classes.run(method, kind)
    assert classes.training([run]).run()
    assert [entry["epoch"] for entry in run.attention] == [1, 2]
    for entry in run.attention:
        weights = torch.tensor(entry["weights"])
        assert weights.shape == (attending, 4)
        torch.testing.assert_close(weights.sum(1), torch.ones(attending), rtol=0, atol=5e-4)
    assert len(run.samples) == NUM_SAMPLES
    assert len({sample["id"] for sample in run.samples}) == NUM_SAMPLES
    layers = classes.seen.layers
    assert layers is not None
    for sample in run.samples:
        row = int(sample["id"].split()[-1])
        distances = run.method.space.label_distance(
            run.method.space.answers(layers), classes.held_out.labels
        )[row]
        torch.testing.assert_close(torch.tensor(sample["distances"]), distances, rtol=0, atol=1e-4)
        assert sum(sample["weights"]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("method", ["none", "vanilla-kd", "pkd", "dih"])
def test_methods_without_attention_keep_none(method: str, classes: TinyTask) -> None:
    run = classes.run(method)
    assert classes.training([run]).run()
    assert (run.attention, run.samples) == ([], [])


def test_the_end_is_kept_where_somebody_goes_on_from_it(classes: TinyTask, tmp_path: Path) -> None:
    """An assistant has learned; its student was stopped."""
    checkpoints = Checkpoints(str(tmp_path))
    run = classes.run("vanilla-kd")
    training = classes.training([run], checkpoints, keeps_end=True)
    assert training.run()
    told: list[RunProgress] = []
    again = classes.run("vanilla-kd")
    resumed = classes.training([again], checkpoints, keeps_end=True)
    assert resumed.run(told.append)
    assert told == []
    assert resumed.seconds == pytest.approx(training.seconds, abs=1.0)
    assert resumed.seconds > 0
    assert equal_to_the_bit(all_of(again), all_of(run))


def test_asked_to_stop_after_the_last_step_it_is_over(classes: TinyTask, tmp_path: Path) -> None:
    asked = at_step(TOTAL)
    checkpoints = Checkpoints(str(tmp_path))
    training = classes.training([classes.run("none")], checkpoints)
    assert training.run(should_stop=lambda: next(asked))
    assert checkpoints.steps() == []


def test_outputs_are_in_order_and_the_student_is_left_as_it_was(classes: TinyTask) -> None:
    run = classes.run("universal-kd-il")
    examples = tiny_examples(70, seed=5)  # two batches
    run.student.train()
    said = outputs_of(run.student, examples, "cpu")
    assert run.student.training
    run.student.eval()
    with torch.no_grad():
        whole: NetworkOutputs = run.student(examples.batch(torch.arange(70).numpy()).inputs)
    for found, wanted in ((said.logits, whole.logits), (said.layers, whole.layers)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert said.states is None
    with pytest.raises(ValueError, match="there are no examples"):
        outputs_of(run.student, replace(examples, input_ids=[]), "cpu")


def test_held_out_examples_need_no_teacher(classes: TinyTask) -> None:
    run = classes.run("universal-kd-il")
    held_out = HeldOut(classes.held_out, [], lambda _: 0.0)
    assert Training([run], classes.train, held_out, 0, "cpu").run()
    assert run.attention == []
