"""Distillation for one task, put together.

``kdnas.evaluation`` reads the data and scores, ``kdnas.taskspecific`` trains; neither knows of the
other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import torch
from torch import Tensor

from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.numerics import derived_seed
from kdnas.evaluation.data.splitting import TUNING_SET, for_tuning
from kdnas.evaluation.finetuning.identity import data_fingerprint
from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.run import Scored, tidy_process
from kdnas.evaluation.finetuning.saving import save_task_model
from kdnas.evaluation.finetuning.text import TextEncoding, mean_number
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.results import Metrics, TaskResult, main_score
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample
from kdnas.models.teacher import TeacherHandle
from kdnas.records import TaskFacts, TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.store import Store
from kdnas.taskspecific.card import write_card
from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.grid import GRID_SEED, TRIED
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.pseudo_classifiers import PseudoClassifiers, warm_up
from kdnas.taskspecific.stages import Hyperparameters
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import (
    KeptTeacher,
    RunningTeacher,
    TeacherOutputs,
    run_over,
    running_teacher,
    states_bytes,
)
from kdnas.taskspecific.training import HeldOut, RunProgress, Training
from workers.task_request import CheckedTask, check_task, space_of
from workers.task_students import StudentPlan, network_of
from workers.task_teacher import settings_of, tuned_teacher

KEPT_MODEL = "model"
"""Folder of a run's student, in the run's own."""
MOST_KEPT_BYTES = 4 * 2**30
"""Of a teacher's states that ``cache: auto`` keeps."""
TEACHERS = "task-teachers"
"""Folder of teachers that are being fine-tuned, in the home."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far distillations for a task are.

    Attributes:
        phase: what is done, in words.
        done: steps, or examples.
        total: of them.
        loss: mean training loss, where something is trained.
    """

    phase: str
    done: int
    total: int
    loss: float | None = None


OnProgress = Callable[[TaskProgress], None]
ShouldStop = Callable[[], bool]


class _StoppedError(Exception):
    """What has no checkpoints is broken off, as it was asked to."""


@dataclass(frozen=True)
class FinishedTaskRun:
    """A run that has come to its end.

    Attributes:
        run: how it went.
        result: its scores, with what was said of each example.
    """

    run: TaskRun
    result: TaskResult


@dataclass(frozen=True)
class Part:
    """Some examples of the task, as tokens, with their labels.

    Attributes:
        examples: as read.
        tokens: the same, cut.
    """

    examples: Sequence[TextExample]
    tokens: Examples


def prepare_for_task(
    spec: TaskDistillationSpec,
    settings: Settings,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
) -> ReadyTask | None:
    """Check a request, and get its teacher ready: fine-tuned, with pseudo-classifiers.

    Args:
        spec: the request.
        settings: of this process.
        on_progress: is told what is done.
        should_stop: asked between steps.

    Returns:
        None if it was stopped.

    Raises:
        RequestError: it cannot be done; nothing was trained.
        WorkError: the teacher's training failed.
    """
    store = Store.from_settings(settings)
    return ready_task(
        check_task(spec, store, settings.reach), store, settings, on_progress, should_stop
    )


def ready_task(
    checked: CheckedTask,
    store: Store,
    settings: Settings,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
) -> ReadyTask | None:
    """Get the teacher of a checked request ready; arguments and errors as of the whole."""
    spec, data = checked.spec, checked.data
    model, tuned = checked.teacher, not checked.has_learned
    with tidy_process(spec.threads):
        if tuned:

            def tell(progress: FinetuneProgress) -> None:
                phase = f"fine-tuning the teacher: {progress.phase}"
                on_progress(TaskProgress(phase, progress.done, progress.total, progress.loss))

            found = tuned_teacher(
                model,
                data,
                settings_of(spec.teacher, data, checked.hyper.max_length, checked.dtype),
                spec.teacher.seed,
                store,
                settings.home / TEACHERS,
                device=checked.device,
                threads=spec.threads,
                on_progress=tell,
                should_stop=should_stop,
            )
            if found is None:
                return None
            model = found
        try:
            return _with_outputs(checked, model, on_progress, should_stop)
        except _StoppedError:
            return None


def _with_outputs(
    checked: CheckedTask, model: TeacherHandle, on_progress: OnProgress, should_stop: ShouldStop
) -> ReadyTask:
    """Run the teacher over all examples once, and train its pseudo-classifiers on that."""
    spec, data = checked.spec, checked.data
    loaded = load_task_model(model, data.task, data.labels, 0.0, spec.teacher.seed)
    encoding = TextEncoding(loaded, data.labels, checked.hyper.max_length)
    tuning = for_tuning(data)
    teacher = running_teacher(network_of(loaded), checked.device, checked.dtype)
    train = _part(tuning.train, encoding, data)
    held_out = _part(tuning.evaluations[TUNING_SET], encoding, data)
    scored = {name: _part(part, encoding, data) for name, part in data.evaluations.items()}

    def kept(part: Part, name: str) -> KeptTeacher:
        def tell(done: int, total: int) -> None:
            on_progress(TaskProgress(f"running the teacher over {name}", done, total))
            if should_stop():
                raise _StoppedError

        return run_over(teacher, part.tokens, Path(scratch), tell)

    with TemporaryDirectory(prefix="kdnas-teacher-") as scratch:
        learned = kept(train, "train")
        assert learned.states is not None
        on_progress(TaskProgress("pseudo-classifiers", 0, 1))
        space = space_of(data)
        classifiers = warm_up(
            learned.states,
            train.tokens,
            space,
            epochs=spec.teacher.warmup_epochs,
            learning_rate=spec.teacher.warmup_rate,
            seed=spec.teacher.seed,
        )
        learned = learned.with_layers(classifiers)
        seen = kept(held_out, "held-out examples").with_layers(classifiers)
        said = {
            name: kept(part, name).with_layers(classifiers).without_states()
            for name, part in scored.items()
        }
        keeps_states = any(method_named(name).needs_teacher_states for name in spec.methods)
        if not keeps_states or not _keeps_states(checked, len(train.tokens)):
            learned = learned.without_states()
        elif learned.states is not None:  # the file goes with its folder
            learned = replace(learned, states=learned.states.clone())
    judged = _Judge(data, encoding)
    facts = _facts(checked, model, judged, held_out, seen, scored, said, loaded)
    classifiers.to(checked.device)  # for a teacher that is run batch by batch
    return ReadyTask(
        checked, model, classifiers, teacher, learned, seen, train, held_out, judged, facts
    )


def _keeps_states(checked: CheckedTask, examples: int) -> bool:
    """Whether the states of the teacher's layers are kept over epochs, where they are needed.

    What its pseudo-classifiers say is small, and kept in any case but ``cache: never``.
    """
    if checked.spec.cache != "auto":
        return checked.spec.cache == "always"
    shape = checked.teacher_shape
    return states_bytes(examples, shape.layers, shape.width) <= MOST_KEPT_BYTES


def _part(examples: Sequence[Example], encoding: TextEncoding, data: TaskData) -> Part:
    texts = [example for example in examples if isinstance(example, TextExample)]
    encoded = encoding.token_ids(texts)
    ids = [np.array(row, np.int64) for row in encoded["input_ids"]]
    types = encoded.get("token_type_ids")
    if data.labels is None:
        labels = torch.tensor([float(cast(float, e.label)) for e in texts])
    else:
        numbers = {label: number for number, label in enumerate(data.labels)}
        labels = torch.tensor([numbers[str(e.label)] for e in texts])
    return Part(
        texts,
        Examples(
            ids,
            None if types is None else [np.array(row, np.int64) for row in types],
            labels,
            encoding.pad_id,
        ),
    )


@dataclass(frozen=True)
class _Judge:
    """Scores outputs of any network of the task."""

    data: TaskData
    encoding: TextEncoding

    def metrics(self, examples: Sequence[TextExample], logits: Tensor) -> dict[str, float]:
        """All metrics of logits (E, K) in the order of the examples."""
        said = [
            self.encoding.prediction(example, row)
            for example, row in zip(examples, logits, strict=True)
        ]
        return judge(self.data.task, said, examples)

    def main(self, examples: Sequence[TextExample], logits: Tensor) -> float:
        """The score that counts."""
        return main_score(self.data.task, {TUNING_SET: self.metrics(examples, logits)})


def _facts(
    checked: CheckedTask,
    model: TeacherHandle,
    judged: _Judge,
    held_out: Part,
    seen: KeptTeacher,
    scored: dict[str, Part],
    said: dict[str, KeptTeacher],
    loaded: TaskModel,
) -> TaskFacts:
    data, student = checked.data, checked.student
    metrics = {
        name: judged.metrics(part.examples, said[name].logits) for name, part in scored.items()
    }
    layers = []
    for layer in range(model.shape.layers):
        by_set: Metrics = {
            name: judged.metrics(part.examples, _layer(said[name], layer))
            for name, part in scored.items()
        }
        held = judged.main(held_out.examples, _layer(seen, layer))
        layers.append({"layer": layer + 1, "held_out": held, "main": main_score(data.task, by_set)})
    made = student.build(0.0, 0).model
    counts = [(p.numel(), p.requires_grad) for p in made.parameters()]
    fingerprint, settings = data_fingerprint(data, tuned=True), checked.hyper.to_json()
    if checked.spec.grid is not None:
        settings = {name: settings[name] for name in settings if name not in TRIED}
    return TaskFacts(
        task=data.task.name,
        kind=data.task.kind,
        metric=data.task.main_metric,
        labels=data.labels or (),
        examples={
            "train": len(for_tuning(data).train),
            "held-out": len(held_out.examples),
            **{name: len(part.examples) for name, part in scored.items()},
        },
        data=fingerprint,
        teacher={
            "ref": model.ref,
            "fingerprint": model.fingerprint,
            "layers": model.shape.layers,
            "hidden": model.shape.hidden,
            "parameters": sum(p.numel() for p in loaded.model.parameters()),
            "tuned": not checked.has_learned,
            "held_out": judged.main(held_out.examples, seen.logits),
            "main": main_score(data.task, metrics),
            "metrics": metrics,
        },
        layers=tuple(layers),
        student={
            "name": str(student.choice),
            "kind": student.kind,
            "start": student.start,
            "layers": student.shape.layers,
            "hidden": student.shape.width,
            "parameters": sum(count for count, _ in counts),
            "trainable": sum(count for count, trained in counts if trained),
        },
        settings={**settings, "device": checked.device, "dtype": checked.dtype},
        warnings=checked.warnings,
        grids=checked.grids(model.fingerprint, fingerprint),
    )


def _layer(kept: KeptTeacher, layer: int) -> Tensor:
    assert kept.layers is not None
    return kept.layers[:, layer]


@dataclass(frozen=True)
class ReadyTask:
    """A task whose teacher is ready: students can learn from it, one run at a time.

    Attributes:
        checked: the request and what it names.
        model: the teacher that has learned the task.
        classifiers: its pseudo-classifiers.
        teacher: the same, loaded.
        learned: what it says of the examples that are learned from.
        seen: what it says of the held-out ones.
        train: examples to learn from.
        held_out: examples to choose by.
        judged: gives scores.
        facts: what was found out.
    """

    checked: CheckedTask
    model: TeacherHandle
    classifiers: PseudoClassifiers
    teacher: RunningTeacher
    learned: KeptTeacher
    seen: KeptTeacher
    train: Part
    held_out: Part
    judged: _Judge
    facts: TaskFacts

    @property
    def spec(self) -> TaskDistillationSpec:
        """The request, its teacher pinned."""
        return self.checked.spec

    def run(
        self,
        method: str,
        seed: int,
        folder: Path,
        on_progress: OnProgress = lambda _: None,
        should_stop: ShouldStop = lambda: False,
        hyper: Hyperparameters | None = None,
    ) -> FinishedTaskRun | None:
        """Let a student learn by a method, and score it.

        The same inputs give the same student on the same machine, interrupted or not.

        Args:
            method: its name.
            seed: of what is fresh, of the order and of dropout.
            folder: of this run alone: checkpoints while it goes on, the student in ``model``.
            on_progress: is told how it goes.
            should_stop: asked between steps; True ends it after a checkpoint.
            hyper: other hyper-parameters than those of the request.

        Returns:
            None if it was stopped.

        Raises:
            TrainingError: training diverged.
            StoreError: the disk is full or not writable.
        """
        used = hyper or self.checked.hyper
        with tidy_process(self.spec.threads):
            learned = self._learned(method, seed, folder, on_progress, should_stop, used)
            if learned is None:
                return None
            student, run, seconds = learned
            finished = self._scored(student, run, method_named(method), seed, used, seconds)
            save_task_model(
                folder / KEPT_MODEL,
                student,
                self.checked.student.origin,
                self.checked.data,
                _as_finetuned(used),
                seed,
                lambda draft: write_card(draft, self.spec, self.facts, finished.run),
            )
        for part in ("assistant", "checkpoints"):
            shutil.rmtree(folder / part, ignore_errors=True)
        return finished

    def try_out(
        self,
        method: str,
        folder: Path,
        on_progress: OnProgress = lambda _: None,
        should_stop: ShouldStop = lambda: False,
        *,
        hyper: Hyperparameters,
    ) -> StudentRun | None:
        """Let a student learn by a method with the seed of grids, up to its best epoch.

        Nothing but the held-out examples is scored. What is left in the folder is all that
        :meth:`run` needs there to take this run for its own, without a further step.

        Args:
            method: its name.
            folder: of this run alone.
            on_progress: is told how it goes.
            should_stop: asked between steps; True ends it after a checkpoint.
            hyper: what is tried.

        Returns:
            How it went; None if it was stopped.

        Raises:
            TrainingError: training diverged.
            StoreError: the disk is full or not writable.
        """
        with tidy_process(self.spec.threads):
            learned = self._learned(
                method, GRID_SEED, folder, on_progress, should_stop, hyper, keeps_end=True
            )
        return None if learned is None else learned[1]

    def for_trials(self, method: str, threads: int) -> ReadyTask:
        """Return the same without what trials of a method can do without, to be carried to them.

        Args:
            method: its name.
            threads: of a trial on a CPU.
        """
        kind, checked = method_named(method), self.checked
        return replace(
            self,
            checked=replace(checked, spec=checked.spec.model_copy(update={"threads": threads})),
            learned=self.learned if kind.needs_teacher_states else self.learned.without_states(),
        )

    def _learned(
        self,
        method: str,
        seed: int,
        folder: Path,
        on_progress: OnProgress,
        should_stop: ShouldStop,
        hyper: Hyperparameters,
        *,
        keeps_end: bool = False,
    ) -> tuple[TaskModel, StudentRun, float] | None:
        """Train a student by a method to its best epoch, after its assistant where it has one."""
        kind = method_named(method)
        folder.mkdir(parents=True, exist_ok=True)
        teacher, seconds = self._teacher_of(kind), 0.0
        if kind.assisted and self.checked.assistant is not None:
            assistant = self._trained(
                self.checked.assistant,
                method_named("vanilla-kd"),
                seed,
                hyper,
                self._teacher_of(method_named("vanilla-kd")),
                folder / "assistant",
                on_progress,
                should_stop,
                "assistant",
                keeps_end=True,
            )
            if assistant is None:
                return None
            made, _, seconds = assistant
            teacher = self._assistant(made, folder)
        trained = self._trained(
            self.checked.student,
            kind,
            seed,
            hyper,
            teacher,
            folder / "checkpoints",
            on_progress,
            should_stop,
            method,
            keeps_end=keeps_end,
        )
        if trained is None:
            return None
        student, run, spent = trained
        return student, run, seconds + spent

    def _teacher_of(self, kind: type[Method]) -> TeacherOutputs:
        """The teacher as a method sees it: kept, or run on every batch."""
        kept = self.spec.cache != "never"
        if kept and (self.learned.states is not None or not kind.needs_teacher_states):
            return self.learned
        classifiers = self.classifiers if kind.needs_teacher_layers else None
        return replace(self.teacher, classifiers=classifiers)

    def _assistant(self, made: TaskModel, folder: Path) -> TeacherOutputs:
        """An assistant as a teacher, of whom nothing but the logits is asked."""
        network = network_of(made)
        network.model.eval().requires_grad_(False)
        running = replace(self.teacher, network=network, classifiers=None, reads_states=False)
        return (
            running if self.spec.cache == "never" else run_over(running, self.train.tokens, folder)
        )

    def _trained(
        self,
        plan: StudentPlan,
        kind: type[Method],
        seed: int,
        hyper: Hyperparameters,
        teacher: TeacherOutputs,
        folder: Path,
        on_progress: OnProgress,
        should_stop: ShouldStop,
        called: str,
        *,
        keeps_end: bool,
    ) -> tuple[TaskModel, StudentRun, float] | None:
        """Train a student to its best epoch; returns it, its run and the seconds it took."""
        checked = self.checked
        made = plan.build(hyper.dropout, derived_seed("student", seed) % 2**31)
        network = network_of(made)
        setting = replace(
            checked.setting(checked.teacher_shape, hyper.beta, derived_seed("method", seed)),
            student=network.shape,
        )
        method = kind(setting)
        student = TaskStudent(
            network,
            setting.space.size,
            classifies_layers=kind.needs_student_layers,
            reads_states=kind.needs_teacher_states,
            seed=derived_seed("student-layers", seed),
            centre=mean_number(checked.data),
        )
        run = StudentRun(student, method, teacher, hyper, seed, checked.device, checked.dtype)
        examples = self.held_out.examples
        training = Training(
            [run],
            self.train.tokens,
            HeldOut(
                self.held_out.tokens,
                [example.id for example in examples],
                lambda logits: self.judged.main(examples, logits),
                self.seen,
            ),
            seed,
            checked.device,
            Checkpoints(str(folder)),
            keeps_end=keeps_end,
        )

        def tell(progress: RunProgress) -> None:
            phase = f"{called} seed {seed}: stage {progress.stage}, epoch {progress.epoch}"
            on_progress(TaskProgress(phase, progress.done, progress.total, progress.loss))

        if not training.run(tell, should_stop):
            return None
        run.take_best()
        return made, run, training.seconds

    def _scored(
        self,
        student: TaskModel,
        run: StudentRun,
        kind: type[Method],
        seed: int,
        hyper: Hyperparameters,
        seconds: float,
    ) -> FinishedTaskRun:
        data, settings, best = self.checked.data, _as_finetuned(hyper), run.best
        assert best is not None
        scored = Scored(student, data, settings, self.checked.device, lambda _: None)
        predictions = scored.predictions()
        metrics = scored.metrics(predictions)
        steps = run.curve[-1]["step"] + max(
            (point["step"] for point in run.curve if point["stage"] == 1), default=0
        )
        main = main_score(data.task, metrics)
        result = TaskResult(
            task=data.task.name,
            suite=data.task.suite,
            seed=seed,
            settings=settings,
            metrics=metrics,
            main=main,
            seconds=seconds,
            steps=steps,
            train_examples=len(self.train.tokens),
            official_split=data.official_split,
            sources=data.sources,
            notes=data.notes,
            predictions=predictions,
        )
        chosen = {"stage": best.stage, "epoch": best.epoch}
        with_ = {name: getattr(hyper, name) for name in TRIED}
        return FinishedTaskRun(
            TaskRun(
                method=kind.name,
                seed=seed,
                main=main,
                metrics=metrics,
                held_out=best.score,
                chosen={**chosen, **with_},
                curve=tuple(run.curve),
                attention=tuple(run.attention),
                samples=tuple(run.samples),
                steps=steps,
                seconds=seconds,
            ),
            result,
        )


def _as_finetuned(hyper: Hyperparameters) -> FinetuneSettings:
    """The same in the words of a fine-tuning, for what reads scores."""
    return FinetuneSettings(
        learning_rate=hyper.learning_rate,
        epochs=hyper.epochs + hyper.finetune_epochs,
        batch_size=hyper.batch_size,
        max_length=hyper.max_length,
        max_steps=hyper.max_steps,
        warmup_fraction=hyper.warmup_fraction,
        weight_decay=hyper.weight_decay,
        dropout=hyper.dropout,
        max_grad_norm=hyper.max_grad_norm,
    )
