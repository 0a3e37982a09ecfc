"""A task made ready for distillation: its teacher has learned it, and has said all it has to say.

``kdnas.evaluation`` reads the data and scores, ``kdnas.taskspecific`` trains; neither knows of the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kdnas.errors import TrainingError
from kdnas.evaluation.data.splitting import TUNING_SET
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.finetuning.run import tidy_process
from kdnas.evaluation.finetuning.text import TextEncoding
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.models.teacher import TeacherHandle
from kdnas.reach import Reach
from kdnas.records import TaskFacts
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.store import Store
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.pseudo_classifiers import PseudoClassifiers, warm_up
from kdnas.taskspecific.teacher_outputs import (
    KeptTeacher,
    RunningTeacher,
    TeacherOutputs,
    run_over,
    running_teacher,
    states_bytes,
)
from workers.task.facts import Heard, task_facts
from workers.task.parts import Judge, Part, part_of
from workers.task.request import CheckedTask, check_task
from workers.task.students import network_of
from workers.task.teacher import settings_of, tuned_teacher

MOST_KEPT_BYTES = 4 * 2**30
"""Of a teacher's states that ``cache: auto`` keeps."""


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


class TaskStoppedError(Exception):
    """What has no checkpoints is broken off, as it was asked to."""


@dataclass(frozen=True)
class ReadyTask:
    """A task whose teacher is ready: students can learn from it.

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
    judged: Judge
    facts: TaskFacts

    @property
    def spec(self) -> TaskDistillationSpec:
        """The request, its teacher and number format pinned."""
        return self.checked.spec

    def is_kept_for(self, kind: type[Method]) -> bool:
        """Whether all that a method asks of the teacher is known, so that it is not run again."""
        if not kind.needs_teacher:
            return True
        has_states = self.learned.states is not None or not kind.needs_teacher_states
        return self.spec.cache != "never" and has_states

    def teacher_of(self, kinds: Iterable[type[Method]]) -> TeacherOutputs:
        """The teacher as methods see it that learn beside each other: kept, or run on each batch.

        Args:
            kinds: whose teacher is kept for all of them, or for none.
        """
        asking = list(kinds)
        if all(self.is_kept_for(kind) for kind in asking):
            return self.learned
        needs_layers = any(kind.needs_teacher_layers for kind in asking)
        return replace(self.teacher, classifiers=self.classifiers if needs_layers else None)

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


def prepare_for_task(
    spec: TaskDistillationSpec,
    settings: Settings,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
    reach: Reach | None = None,
) -> ReadyTask | None:
    """Check a request, and get its teacher ready: fine-tuned, with pseudo-classifiers.

    Args:
        spec: the request.
        settings: of this process.
        on_progress: is told what is done.
        should_stop: asked between steps.
        reach: how models and data are opened; None goes by the settings.

    Returns:
        None if it was stopped.

    Raises:
        RequestError: it cannot be done; nothing was trained.
        WorkError: the teacher's training failed.
    """
    store = Store.from_settings(settings)
    checked = check_task(spec, store, reach or settings.reach)
    return ready_task(checked, store, settings, on_progress, should_stop)


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

            try:
                found = tuned_teacher(
                    model,
                    data,
                    settings_of(spec.teacher, data, checked.hyper.max_length, checked.dtype),
                    spec.teacher.seed,
                    store,
                    settings.task_teachers,
                    device=checked.device,
                    threads=spec.threads,
                    on_progress=tell,
                    should_stop=should_stop,
                )
            except TrainingError as error:  # of the settings of a fine-tuning, not a student's
                said = str(error).replace("`learning_rate`", "`teacher.learning_rate`")
                raise TrainingError(f"teacher {model.ref!r}: {said}") from None
            if found is None:
                return None
            model = found
        try:
            return _with_outputs(checked, model, settings.task_teachers, on_progress, should_stop)
        except TaskStoppedError:
            return None


def _with_outputs(
    checked: CheckedTask,
    model: TeacherHandle,
    work: Path,
    on_progress: OnProgress,
    should_stop: ShouldStop,
) -> ReadyTask:
    """Run the teacher over all examples once, and train its pseudo-classifiers on that.

    States that are too many for memory lie in ``work`` meanwhile.
    """
    spec, data, tuning = checked.spec, checked.data, checked.tuning
    loaded = load_task_model(model, data.task, data.labels, 0.0, spec.teacher.seed, needs_head=True)
    encoding = TextEncoding(loaded, data.labels, checked.hyper.max_length)
    parameters = sum(p.numel() for p in loaded.model.parameters())
    teacher = running_teacher(network_of(loaded), checked.device, checked.dtype)
    train = part_of(tuning.train, encoding, data)
    held_out = part_of(tuning.evaluations[TUNING_SET], encoding, data)
    scored = {name: part_of(part, encoding, data) for name, part in data.evaluations.items()}

    def telling(phase: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            on_progress(TaskProgress(phase, done, total))
            if should_stop():
                raise TaskStoppedError

        return tell

    def kept(part: Part, name: str) -> KeptTeacher:
        tell = telling(f"running the teacher over {name}")
        return run_over(teacher, part.tokens, Path(scratch), tell)

    work.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="states-", dir=work) as scratch:
        learned = kept(train, "train")
        assert learned.states is not None
        classifiers = warm_up(
            learned.states,
            train.tokens,
            checked.space,
            epochs=spec.teacher.warmup_epochs,
            learning_rate=spec.teacher.warmup_rate,
            seed=spec.teacher.seed,
            standardised=spec.teacher.warmup_states == "standardised",
            on_step=telling("pseudo-classifiers"),
        )
        learned = learned.with_layers(classifiers)
        seen = kept(held_out, "held-out examples").with_layers(classifiers)
        reported = {
            name: Heard(part, kept(part, name).with_layers(classifiers).without_states())
            for name, part in scored.items()
        }
        if not any(method_named(name).needs_teacher_states for name in spec.methods):
            learned, seen = learned.without_states(), seen.without_states()
        elif not _keeps_states(checked, len(train.tokens)):
            learned = learned.without_states()
        elif learned.states is not None and _fits_memory(checked, len(train.tokens)):
            # So that no file is as large as long as this.
            learned = replace(learned, states=learned.states.clone())
    judged = Judge(data, encoding)
    heard = (Heard(train, learned), Heard(held_out, seen))
    facts = task_facts(checked, model, parameters, judged, *heard, reported)
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
    return _fits_memory(checked, examples)


def _fits_memory(checked: CheckedTask, examples: int) -> bool:
    shape = checked.teacher_shape
    return states_bytes(examples, shape.layers, shape.width) <= MOST_KEPT_BYTES
