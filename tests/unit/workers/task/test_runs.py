"""Distillation for one task, whole: a teacher that learns it, and students by every method."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, matthews_corrcoef

import kdnas
from kdnas.errors import TrainingError
from kdnas.evaluation.tasks.examples import TextExample
from kdnas.models.sequence.config import SequenceConfig
from kdnas.specs.task_distillation import METHODS
from kdnas.taskspecific import card, teacher_outputs
from kdnas.taskspecific.methods.registry import METHODS as METHOD_CLASSES
from kdnas.testing.saving_often import narrow
from kdnas.testing.tiny_task_lab import LABELS, TinyTaskLab, texts_of, transformers_says
from kdnas.testing.tiny_tasks import write_glue
from workers.task import ready as ready_module
from workers.task.ready import ReadyTask, RunningTeacher, TaskProgress, prepare_for_task
from workers.task.runs import KEPT_MODEL, do_run, do_runs, groups_of, let_go
from workers.task.scoring import FinishedTaskRun

SCORES = {"accuracy": accuracy_score, "matthews": matthews_corrcoef}
OF_TRANSFORMERS = [name for name in METHODS if name != "universal-kd-ca"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyTaskLab:
    return TinyTaskLab.make(tmp_path_factory.mktemp("lab"), layers=4)


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Bi-LSTMs and gated CNNs of few numbers in place of 768, and cards without pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequenceConfig, "for_teacher", classmethod(narrow))
        for name in ("draw_stages", "draw_attention"):
            patch.setattr(card, name, lambda *_: None)
        yield


def prepared(lab: TinyTaskLab, spec: Any, home: Path | None = None, **how: Any) -> ReadyTask:
    ready = prepare_for_task(spec, lab.settings(home), **how)
    assert ready is not None
    return ready


@pytest.fixture(scope="module")
def classes(lab: TinyTaskLab) -> ReadyTask:
    return prepared(lab, lab.classification(methods=OF_TRANSFORMERS, max_steps=2))


@pytest.fixture(scope="module")
def numbers(lab: TinyTaskLab) -> ReadyTask:
    return prepared(lab, lab.regression(methods=OF_TRANSFORMERS, max_steps=2))


@pytest.fixture(scope="module")
def sequences(lab: TinyTaskLab) -> dict[str, ReadyTask]:
    """A student of either kind, on classes and on numbers."""
    methods = ["none", "vanilla-kd", "universal-kd-ca", "alp-kd"]
    asked = {"methods": methods, "max_steps": 2}
    return {
        "bilstm": prepared(lab, lab.classification(student="bilstm", **asked)),
        "gated-cnn": prepared(lab, lab.regression(student="gated-cnn", **asked)),
    }


def done(ready: ReadyTask, method: str, folder: Path, seed: int = 0) -> FinishedTaskRun:
    finished = do_run(ready, method, seed, folder)
    assert finished is not None
    let_go(folder)
    return finished


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / KEPT_MODEL / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


def check_scores(finished: FinishedTaskRun, said: list[Any], examples: list[TextExample]) -> None:
    """What others read off the saved folder is what was reported, example by example."""
    (reported,) = finished.run.metrics.values()
    (predictions,) = finished.result.predictions.values()
    assert [p.id for p in predictions] == [e.id for e in examples]
    if isinstance(said[0], str):
        assert [p.prediction for p in predictions] == said
        right = [one == example.label for one, example in zip(said, examples, strict=True)]
        assert reported["accuracy"] == pytest.approx(sum(right) / len(right))
    else:
        assert [p.prediction for p in predictions] == pytest.approx(said, abs=1e-4)
        wanted = pearsonr(said, [float(e.label or 0) for e in examples]).statistic
        assert reported["pearson"] == pytest.approx(wanted, abs=1e-4)
    assert finished.result.metrics == finished.run.metrics
    assert finished.result.main == finished.run.main


@pytest.mark.parametrize("name", ["classes", "numbers"])
@pytest.mark.parametrize("method", OF_TRANSFORMERS)
def test_every_method_comes_to_a_student_that_transformers_opens(
    method: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ready: ReadyTask = request.getfixturevalue(name)
    finished = done(ready, method, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [KEPT_MODEL]
    examples = texts_of(ready.checked.data)
    check_scores(finished, transformers_says(tmp_path / KEPT_MODEL, examples), examples)
    run = finished.run
    assert (run.method, run.seed, run.steps, run.error) == (method, 0, 4, None)
    assert [point["stage"] for point in run.curve] == [1, 2]
    assert run.held_out == max(point["held_out"] for point in run.curve)
    assert run.chosen["batch_size"] == 8
    assert (run.chosen["beta"] is not None) == METHOD_CLASSES[method].uses_beta
    assert run.seconds > 0
    attends = method.startswith("universal-kd") or method == "alp-kd"
    assert bool(run.attention) == bool(run.samples) == attends


@pytest.fixture(scope="module")
def all_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.mark.parametrize(
    ("task", "metric", "sets"),
    [
        ("CoLA", "matthews", ["dev"]),
        ("SST-2", "accuracy", ["dev"]),
        ("MRPC", "accuracy", ["test"]),
        ("STS-B", "pearson", ["dev"]),
        ("QQP", "accuracy", ["dev"]),
        ("MNLI", "accuracy", ["matched", "mismatched"]),
        ("QNLI", "accuracy", ["dev"]),
        ("RTE", "accuracy", ["dev"]),
    ],
)
def test_the_tasks_of_the_paper_are_scored_as_published(
    task: str, metric: str, sets: list[str], lab: TinyTaskLab, all_tasks: Path, tmp_path: Path
) -> None:
    """Pairs are read as pairs, and what is told is the metric of Table 1 (Wu et al. 2021, §5.2)."""
    asked = {"methods": ["universal-kd-il"], "max_steps": 2, "max_length": 24}
    ready = prepared(lab, lab.classification(task=task, data_dir=str(all_tasks), **asked))
    finished = done(ready, "universal-kd-il", tmp_path)
    evaluations = ready.checked.data.evaluations
    assert (ready.facts.metric, list(evaluations)) == (metric, sets)
    found = []
    for name, examples in evaluations.items():
        said = transformers_says(tmp_path / KEPT_MODEL, examples, length=24)
        assert all((example.pair is None) == (task in {"CoLA", "SST-2"}) for example in examples)
        told = [p.prediction for p in finished.result.predictions[name]]
        truth = [example.label for example in examples]
        if metric == "pearson":
            assert told == pytest.approx(said, abs=1e-4)
            found.append(pearsonr(said, truth).statistic)
        else:
            assert told == said
            found.append(SCORES[metric](truth, said))
        assert finished.run.metrics[name][metric] == pytest.approx(found[-1], abs=1e-4)
    assert finished.run.main == pytest.approx(found[0], abs=1e-4)  # of MNLI the matched set's
    assert ready.facts.teacher["main"] is not None


@pytest.mark.parametrize("kind", ["bilstm", "gated-cnn"])
@pytest.mark.parametrize("method", ["none", "vanilla-kd", "universal-kd-ca", "alp-kd"])
def test_students_that_are_no_transformers_are_opened_by_kdnas(
    method: str, kind: str, sequences: dict[str, ReadyTask], tmp_path: Path
) -> None:
    ready = sequences[kind]
    finished = done(ready, method, tmp_path)
    model, examples = kdnas.load(tmp_path / KEPT_MODEL, device="cpu"), texts_of(ready.checked.data)
    said = [answer.value for answer in model([example.text for example in examples])]
    check_scores(finished, said, examples)
    assert ready.facts.student["kind"] == kind
    assert ready.facts.student["trainable"] < ready.facts.student["parameters"]


def test_the_same_again_is_the_same_to_the_bit_and_another_seed_is_not(
    classes: ReadyTask, tmp_path: Path
) -> None:
    one = done(classes, "universal-kd-il", tmp_path / "one").run
    two = done(classes, "universal-kd-il", tmp_path / "two").run
    done(classes, "universal-kd-il", tmp_path / "other", seed=1)
    assert same(tmp_path / "one", tmp_path / "two")
    assert not same(tmp_path / "one", tmp_path / "other")
    assert (one.curve, one.attention, one.samples) == (two.curve, two.attention, two.samples)


@pytest.mark.parametrize(
    ("name", "method", "stops"),
    [
        ("classes", "pkd", (1, 3)),
        ("classes", "takd", (3, 5)),
        ("bilstm", "universal-kd-ca", (2, 3)),
    ],
)
def test_stopped_and_prepared_anew_it_comes_to_the_same_to_the_bit(
    name: str,
    method: str,
    stops: tuple[int, ...],
    lab: TinyTaskLab,
    classes: ReadyTask,
    sequences: dict[str, ReadyTask],
    tmp_path: Path,
) -> None:
    """In either stage; of ``takd`` while the assistant learns, and while its student does."""
    ready = classes if name == "classes" else sequences[name]
    undisturbed = done(ready, method, tmp_path / "undisturbed").run
    for stop in stops:
        folder, steps = tmp_path / f"stopped-{stop}", iter(range(1, 100))
        stopped = do_run(
            ready, method, 0, folder, should_stop=lambda steps=steps, stop=stop: next(steps) == stop
        )
        assert stopped is None
        assert not (folder / KEPT_MODEL).exists()
        anew = prepared(lab, ready.spec)
        resumed = done(anew, method, folder).run
        assert same(folder, tmp_path / "undisturbed")
        assert (resumed.curve, resumed.attention) == (undisturbed.curve, undisturbed.attention)
        assert resumed.held_out == undisturbed.held_out
        assert not (folder / "assistant").exists()


@pytest.mark.parametrize("method", ["pkd", "universal-kd-il", "takd"])
def test_kept_outputs_lead_to_nearly_the_student_of_outputs_said_anew(
    method: str, lab: TinyTaskLab, tmp_path: Path
) -> None:
    """Not to the bit: how long a batch is padded rounds the teacher's outputs otherwise.

    Those differ by about 1e-6 of their size. AdamW divides a gradient by its own size, so that
    where it is next to nothing a step may turn round: by at most twice the rate of each step. Here
    that is a few weights of thousands, and the scores are the same.
    """
    asked = {"methods": [method], "epochs": 1, "dropout": 0.0}
    found = {}
    for cache in ("always", "never"):
        ready = prepared(lab, lab.classification(cache=cache, **asked))
        found[cache] = done(ready, method, tmp_path / cache).run
    one, other = weights(tmp_path / "always"), weights(tmp_path / "never")
    moved = torch.cat([(one[name] - other[name]).abs().flatten() for name in one])
    assert float((moved < 1e-4).float().mean()) > 0.99
    assert float(moved.max()) < 0.02
    losses = [[point["loss"] for point in found[cache].curve] for cache in ("always", "never")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert found["always"].metrics == found["never"].metrics


def test_states_are_kept_only_where_they_fit(
    lab: TinyTaskLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Methods that need none look at what is kept all the same."""
    asked: list[int] = []
    usual = RunningTeacher.of

    def counted(self: Any, batch: Any) -> Any:
        asked.append(len(batch.indices))
        return usual(self, batch)

    monkeypatch.setattr(ready_module, "MOST_KEPT_BYTES", 0)
    spec = lab.classification(methods=["vanilla-kd", "pkd"], max_steps=2)
    ready = prepared(lab, spec)
    monkeypatch.setattr(RunningTeacher, "of", counted)
    done(ready, "vanilla-kd", tmp_path / "vanilla-kd")
    assert asked == []
    done(ready, "pkd", tmp_path / "pkd")
    assert len(asked) == 2


def test_states_that_are_always_kept_stay_on_the_disk(
    lab: TinyTaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are too many for memory; they are the same there."""
    found = {}
    for most in (None, 0):
        if most is not None:
            monkeypatch.setattr(ready_module, "MOST_KEPT_BYTES", most)
            monkeypatch.setattr(teacher_outputs, "IN_MEMORY_BYTES", most)
        states = prepared(lab, lab.classification(methods=["pkd"], cache="always")).learned.states
        assert states is not None
        assert states.untyped_storage().is_shared() == (most == 0)
        found[most] = states.clone()
    assert torch.equal(found[None], found[0])


OPEN = dict.fromkeys(("batch_size", "learning_rate", "beta"))
TOGETHER = ("none", "vanilla-kd", "pkd", "takd", "universal-kd-il", "alp-kd", "universal-kd-cg")


@pytest.fixture(scope="module")
def said_anew(lab: TinyTaskLab) -> ReadyTask:
    """A task whose teacher is run batch by batch."""
    return prepared(lab, lab.classification(methods=TOGETHER, max_steps=2, cache="never"))


def test_who_needs_the_teacher_run_learns_beside_others(
    lab: TinyTaskLab, said_anew: ReadyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups_of(said_anew) == [
        ("none",),
        ("vanilla-kd", "pkd", "universal-kd-il", "alp-kd"),
        ("takd",),
        ("universal-kd-cg",),
    ]
    alone = [(method,) for method in TOGETHER]
    grid = {"batch_sizes": [8], "learning_rates": [2e-3], "betas": [0.3]}
    kept = lab.classification(methods=TOGETHER, max_steps=2)
    chosen = lab.classification(methods=TOGETHER, cache="never", grid=grid, **OPEN)
    for spec in (kept, chosen):
        assert groups_of(prepared(lab, spec)) == alone
    monkeypatch.setattr(ready_module, "MOST_KEPT_BYTES", 0)
    assert groups_of(prepared(lab, kept)) == [
        *[("none",), ("vanilla-kd",), ("pkd", "alp-kd")],
        *[("takd",), ("universal-kd-il",), ("universal-kd-cg",)],
    ]


@pytest.mark.parametrize("stop", [None, 1, 3])
def test_beside_each_other_they_come_to_the_same_to_the_bit(
    stop: int | None, said_anew: ReadyTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over an interruption in either stage, and the teacher runs once a batch for all."""
    methods, asked = ("vanilla-kd", "pkd", "universal-kd-il"), 0
    usual = RunningTeacher.of

    def counted(self: Any, batch: Any) -> Any:
        nonlocal asked
        asked += 1
        return usual(self, batch)

    folders = {method: tmp_path / method for method in methods}
    monkeypatch.setattr(RunningTeacher, "of", counted)
    if stop is not None:
        steps = iter(range(1, 100))
        assert do_runs(said_anew, folders, 0, should_stop=lambda: next(steps) == stop) is None
        assert not any((folder / KEPT_MODEL).exists() for folder in folders.values())
    outcomes = do_runs(said_anew, folders, 0)
    assert asked == 2
    assert outcomes is not None
    assert list(outcomes) == list(methods)
    for method, outcome in outcomes.items():
        assert isinstance(outcome, FinishedTaskRun)
        alone = done(said_anew, method, tmp_path / f"{method} alone").run
        assert same(folders[method], tmp_path / f"{method} alone")
        assert replace(outcome.run, seconds=0) == replace(alone, seconds=0)
        let_go(folders[method])
        assert [path.name for path in folders[method].iterdir()] == [KEPT_MODEL]
    seconds = [outcome.run.seconds for outcome in outcomes.values()]  # type: ignore[union-attr]
    assert seconds == [seconds[0]] * 3


@pytest.mark.parametrize("methods", [("takd",), ("vanilla-kd", "pkd", "universal-kd-il")])
def test_what_is_not_kept_elsewhere_yet_is_come_to_again_without_a_step(
    methods: tuple[str, ...], said_anew: ReadyTask, classes: ReadyTask, tmp_path: Path
) -> None:
    """Between the end of a training and the storing of its result a process may be killed."""
    ready = said_anew if len(methods) > 1 else classes
    folders = {method: tmp_path / method for method in methods}
    first = do_runs(ready, folders, 0)
    told: list[TaskProgress] = []
    again = do_runs(ready, folders, 0, told.append)
    assert not [progress for progress in told if "stage" in progress.phase]
    assert first is not None
    assert again is not None
    for method in methods:
        one, other = first[method], again[method]
        assert isinstance(one, FinishedTaskRun)
        assert isinstance(other, FinishedTaskRun)
        assert replace(one.run, seconds=0) == replace(other.run, seconds=0)
        assert one.result == other.result


def test_one_that_diverges_leaves_the_others_alone(
    said_anew: ReadyTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = METHOD_CLASSES["pkd"].forward

    def endless(self: Any, *outputs: Any) -> torch.Tensor:
        return usual(self, *outputs) * math.inf

    monkeypatch.setattr(METHOD_CLASSES["pkd"], "forward", endless)
    folders = {method: tmp_path / method for method in ("pkd", "vanilla-kd")}
    outcomes = do_runs(said_anew, folders, 0)
    assert outcomes is not None
    assert isinstance(outcomes["pkd"], TrainingError)
    assert isinstance(outcomes["vanilla-kd"], FinishedTaskRun)
    for folder in folders.values():
        let_go(folder)
    assert [path.name for path in tmp_path.glob("*/*")] == [KEPT_MODEL]


def test_labels_in_another_order_are_put_in_the_teachers(
    lab: TinyTaskLab, classes: ReadyTask, tmp_path: Path
) -> None:
    """A teacher whose outputs stand the other way round scores the same, and its students learn."""
    turned = lab.reversed(classes.model.folder, "turned")
    there = prepared(lab, lab.classification(teacher=classes.model.folder, max_steps=2))
    here = prepared(lab, lab.classification(teacher=turned, max_steps=2))
    assert here.facts.labels == LABELS[::-1]
    assert here.facts.teacher["metrics"] == there.facts.teacher["metrics"]
    assert here.facts.teacher["held_out"] == there.facts.teacher["held_out"]
    assert there.facts.teacher["metrics"] == classes.facts.teacher["metrics"]
    assert [row["main"] for row in here.facts.layers] != []
    finished = done(here, "universal-kd-il", tmp_path)
    examples = texts_of(here.checked.data)
    check_scores(finished, transformers_says(tmp_path / KEPT_MODEL, examples), examples)


@pytest.mark.parametrize("assistant", ["first-layers:3", "bilstm"])
@pytest.mark.parametrize("cache", ["always", "never"])
def test_any_student_can_be_the_assistant(
    assistant: str, cache: str, lab: TinyTaskLab, tmp_path: Path
) -> None:
    spec = lab.classification(methods=["takd"], assistant=assistant, cache=cache, max_steps=2)
    told: list[TaskProgress] = []
    ready = prepared(lab, spec)
    finished = do_run(ready, "takd", 0, tmp_path, told.append)
    assert finished is not None
    phases = list(dict.fromkeys(progress.phase for progress in told))
    assert phases[0].startswith("assistant seed 0: stage 1")
    assert phases[-1].startswith("takd seed 0: stage 2")


def test_an_assistant_that_diverges_is_named(lab: TinyTaskLab, tmp_path: Path) -> None:
    ready = prepared(lab, lab.classification(methods=["takd"], max_steps=2, max_grad_norm=0.0))
    hyper = replace(ready.checked.hyper, learning_rate=1e30)
    for _ in range(2):  # and when it is looked at again
        with pytest.raises(
            TrainingError, match=r"^the assistant of takd failed: method vanilla-kd"
        ):
            do_run(ready, "takd", 0, tmp_path, hyper=hyper)


def test_an_assistant_that_is_heard_can_be_stopped(lab: TinyTaskLab, tmp_path: Path) -> None:
    ready = prepared(lab, lab.classification(methods=["takd"], cache="always", max_steps=2))
    told: list[str] = []

    def is_heard() -> bool:
        return told[-1].startswith("running the assistant of takd seed 0")

    stopped = do_run(ready, "takd", 0, tmp_path / "a", lambda p: told.append(p.phase), is_heard)
    assert stopped is None
    assert is_heard()
    for folder in ("a", "b"):
        done(ready, "takd", tmp_path / folder)
    assert same(tmp_path / "a", tmp_path / "b")


def test_progress_is_told_from_the_teacher_on(lab: TinyTaskLab, tmp_path: Path) -> None:
    told: list[TaskProgress] = []
    ready = prepared(lab, lab.classification(max_steps=2), tmp_path, on_progress=told.append)
    do_run(ready, "universal-kd-il", 0, tmp_path / "run", told.append)
    phases = list(dict.fromkeys(progress.phase for progress in told))
    assert phases[0].startswith("fine-tuning the teacher: ")
    for phase in ("running the teacher over train", "pseudo-classifiers"):
        assert phase in phases
    assert all(0 <= progress.done <= progress.total for progress in told)
    assert all(progress.loss is None or math.isfinite(progress.loss) for progress in told)


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_divergence_is_said_in_one_sentence(name: str, lab: TinyTaskLab, tmp_path: Path) -> None:
    make = lab.classification if name == "classes" else lab.regression
    ready = prepared(lab, make(methods=["none"], max_steps=2, max_grad_norm=0.0))
    hyper = replace(ready.checked.hyper, learning_rate=1e30)
    said = r"method none diverged: .* in stage 1 by step 2; take a smaller .* than 1e\+30"
    with pytest.raises(TrainingError, match=said):
        do_run(ready, "none", 0, tmp_path, hyper=hyper)


def test_forward_passes_may_be_rounded(lab: TinyTaskLab, tmp_path: Path) -> None:
    """Through maps between widths, where states are compared."""
    asked = {"dtype": "bfloat16", "max_steps": 2, "student": "bilstm"}
    ready = prepared(lab, lab.classification(methods=["alp-kd", "pkd"], **asked))
    for method in ("alp-kd", "pkd"):
        finished = done(ready, method, tmp_path / method)
        assert math.isfinite(finished.run.curve[0]["loss"])
