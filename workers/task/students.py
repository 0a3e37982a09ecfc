"""Students of a task as they start: cut from the teacher, built anew, or taken from a folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock
from torch import nn

from kdnas.corpus.tokenized import build_corpus
from kdnas.distill.export import copy_tokenizer
from kdnas.distill.numerics import Device, derived_seed
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import plan_stages
from kdnas.errors import ArchitectureError, CorpusError, SpecError, TeacherError
from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.run import tidy_process
from kdnas.evaluation.finetuning.text import mean_number
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.models.families import family_of, family_problem
from kdnas.models.opening import load_tokenizer
from kdnas.models.sequence.config import SequenceConfig
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.teacher import (
    TeacherHandle,
    load_teacher_model,
    prepare_teacher,
    quiet_transformers,
)
from kdnas.objectives.registry import build_stages
from kdnas.reach import Reach
from kdnas.specs.objectives import DEFAULT
from kdnas.specs.parts import CorpusSpec, StudentSpec, TrainingSpec
from kdnas.specs.task_student import (
    LayersOfTeacher,
    SequenceStudent,
    StudentChoice,
    StudentFolder,
    StudentOfSpace,
)
from kdnas.specs.wording import shown
from kdnas.store import MADE_OF, Store
from kdnas.taskspecific.methods.base import NetworkShape
from kdnas.taskspecific.networks import LayeredNetwork, SequenceNetwork, TransformerNetwork

START_KIND = "task-start"
"""Kind of started students in the store."""
COMPARED = 200
"""Examples on which two tokenizers have to agree."""


@dataclass(frozen=True)
class StudentPlan:
    """A student that can be built, for any seed.

    Attributes:
        choice: what was asked for.
        origin: model whose layers, words and tokenizer it has; of a folder that model itself.
        data: of the task, of which what is learned from counts alone.
        shape: of the student.
        start: how it starts, in words.
    """

    choice: StudentChoice
    origin: TeacherHandle
    data: TaskData
    shape: NetworkShape
    start: str

    @property
    def kind(self) -> str:
        """``transformer``, ``bilstm`` or ``gated-cnn``."""
        return self.choice.kind if isinstance(self.choice, SequenceStudent) else "transformer"

    def build(self, dropout: float, seed: int) -> TaskModel:
        """Make the student with a fresh head, on the CPU.

        Args:
            dropout: of all layers and of the head.
            seed: of whatever is fresh.
        """
        if isinstance(self.choice, SequenceStudent):
            return self._sequence(self.choice, dropout, seed)
        made = load_task_model(
            self.origin,
            self.data.task,
            self.data.labels,
            dropout,
            seed,
            centre=mean_number(self.data),
            fresh_head=True,
        )
        if isinstance(self.choice, LayersOfTeacher):
            family = family_of(self.origin.shape.model_type)
            encoder: Any = made.model.get_submodule(str(made.model.base_model_prefix))
            layers = self.choice.of(self.origin.shape.layers, self.origin.ref)
            family.keep_layers(encoder, encoder.config, layers)
        return made

    def _sequence(self, choice: SequenceStudent, dropout: float, seed: int) -> TaskModel:
        """Random layers over the teacher's words.

        Tables of words have deviations of some hundredths, for layer norms that follow; under them
        the gates of fresh layers hardly open, and 2000 sentences of SST-2 take four epochs in place
        of one to come to the same accuracy.
        """
        with quiet_transformers():
            tokenizer = load_tokenizer(self.origin)
        encoder = load_teacher_model(self.origin)
        words = family_of(self.origin.shape.model_type).word_embeddings(encoder).detach()
        config = SequenceConfig.for_teacher(
            choice.kind, self.origin, labels=self.data.labels or (), dropout=dropout
        )
        model = SequenceClassifier.from_teacher(
            config, words / words.std(), seed, centre=mean_number(self.data)
        )
        taken = frozenset({"input_ids", "attention_mask"})
        return TaskModel(model, tokenizer, taken, self.origin.longest_sequence)


def network_of(task_model: TaskModel) -> LayeredNetwork:
    """Return a task's model as it is read layer by layer."""
    model = task_model.model
    if isinstance(model, SequenceClassifier):
        return SequenceNetwork(model)
    config: Any = model.config
    # As it is read when it is scored, by a tokenizer of its own.
    unknown = {"token_type_ids"} - {*task_model.tokenizer.model_input_names}
    return TransformerNetwork(model, family_of(config.model_type), task_model.inputs - unknown)


def shape_before(choice: StudentChoice, teacher: TeacherHandle) -> NetworkShape | None:
    """Return layers and width of a student before anything of it is made or opened.

    Args:
        choice: what is asked for.
        teacher: as for :func:`plan_student`.

    Returns:
        None of a folder, which says it itself.

    Raises:
        SpecError, ArchitectureError: the teacher has no such layers, or cannot have such a student.
    """
    match choice:
        case LayersOfTeacher():
            layers = choice.of(teacher.shape.layers, teacher.ref)
            return NetworkShape(len(layers), teacher.shape.hidden)
        case SequenceStudent():
            config = SequenceConfig.for_teacher(choice.kind, teacher, labels=())
            return NetworkShape(config.layers, config.hidden, transformer=False)
        case StudentOfSpace():
            problem = family_problem(choice.architecture, teacher.shape)
            if problem is not None:
                raise ArchitectureError(problem)
            return NetworkShape(choice.architecture.layers, choice.architecture.hidden)
        case StudentFolder():
            return None


def plan_student(
    choice: StudentChoice,
    teacher: TeacherHandle,
    data: TaskData,
    max_length: int,
    store: Store,
    reach: Reach,
    device: Device,
    threads: int | None,
) -> StudentPlan:
    """Check that a student can be made, and how.

    Args:
        choice: what is asked for.
        teacher: as it was before it learned the task, where that is known.
        data: of the task.
        max_length: tokens of an example.
        store: where models are kept.
        reach: how a folder is opened.
        device: where a start is fitted.
        threads: intra-op threads on a CPU; None leaves them as they are.

    Raises:
        SpecError, ArchitectureError: the teacher has no such layers, or cannot have such a student.
        TeacherError: the folder is no model, or its tokenizer is another one than the teacher's.
    """
    shape = shape_before(choice, teacher)

    def plan(origin: TeacherHandle, start: str) -> StudentPlan:
        own = shape or NetworkShape(origin.shape.layers, origin.shape.hidden)
        return StudentPlan(choice, origin, data, own, start)

    match choice:
        case LayersOfTeacher():
            layers = choice.of(teacher.shape.layers, teacher.ref)
            listed = ", ".join(map(str, layers))
            word = "layer" if len(layers) == 1 else "layers"
            return plan(teacher, f"{word} {listed} of {teacher.ref}")
        case SequenceStudent():
            start = f"random, over the word embeddings of {teacher.ref} scaled to a deviation of 1"
            return plan(teacher, start)
        case StudentOfSpace():
            with tidy_process(threads):
                started = started_student(choice, teacher, data, max_length, store, device)
            return plan(started, f"cut from {teacher.ref} on the task's own texts")
        case StudentFolder():
            own = prepare_teacher(choice.ref, store, reach)
            check_tokenizer(own, teacher, data)
            return plan(own, f"folder {own.ref}")


def check_tokenizer(student: TeacherHandle, teacher: TeacherHandle, data: TaskData) -> None:
    """Refuse a student that knows other tokens than its teacher, or cuts texts differently.

    Raises:
        TeacherError: names the first token, or the first text, that they disagree on.
    """
    with quiet_transformers():
        own, theirs = (load_tokenizer(handle) for handle in (student, teacher))
    numbers, known = own.get_vocab(), theirs.get_vocab()
    if numbers != known:
        token = min(
            (word for word in {*numbers, *known} if numbers.get(word) != known.get(word)),
            key=lambda word: (known.get(word, len(known)), word),
        )
        here, there = (
            "none" if number is None else f"token {number}"
            for number in (numbers.get(token), known.get(token))
        )
        raise TeacherError(
            f"student {student.ref!r} has another tokenizer than teacher {teacher.ref!r} "
            f"({shown(token)} is {here} of its own and {there} of the teacher's), so that it "
            "cannot read the same tokens; give a student that was distilled from this teacher"
        )
    texts = [(e.text, e.pair) for e in data.train[:COMPARED] if isinstance(e, TextExample)]
    for text, pair in texts:
        if own(text, pair)["input_ids"] != theirs(text, pair)["input_ids"]:
            raise TeacherError(
                f"student {student.ref!r} has another tokenizer than teacher {teacher.ref!r} (they "
                f"cut {text[:40]!r} differently), so that it cannot read the same tokens; give a "
                "student that was distilled from this teacher"
            )


def started_student(
    choice: StudentOfSpace,
    teacher: TeacherHandle,
    data: TaskData,
    max_length: int,
    store: Store,
    device: Device,
) -> TeacherHandle:
    """Return a student of an architecture as it starts: as searches start theirs.

    It is cut from the teacher, which is watched on the task's own texts for that; of too few texts
    the start is warm. It is kept in the store, the same for all methods and seeds.
    """
    texts = [e for e in data.train if isinstance(e, TextExample)]
    digest = hashlib.sha256(repr([(e.text, e.pair) for e in texts]).encode("utf-8", "replace"))
    parts = f"1|{teacher.fingerprint}|{choice.architecture}|{max_length}|{digest.hexdigest()}"
    key = hashlib.sha256(parts.encode()).hexdigest()[:32]
    store.cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(store.cache_dir / f".{START_KIND}-{key}.lock"):
        if not store.has(START_KIND, key):
            with store.create(START_KIND) as draft:
                student = _cut(choice, teacher, texts, max_length, store, device)
                with quiet_transformers():
                    student.save_pretrained(draft.folder)  # type: ignore[operator]
                copy_tokenizer(teacher, draft.folder)
                about = {"teacher": teacher.ref, "architecture": str(choice)}
                draft.publish(key, {**about, MADE_OF: [teacher.fingerprint]})
    return replace(prepare_teacher(str(store.fetch(START_KIND, key))), ref=str(choice))


def _cut(
    choice: StudentOfSpace,
    teacher: TeacherHandle,
    texts: list[TextExample],
    max_length: int,
    store: Store,
    device: Device,
) -> nn.Module:
    training = TrainingSpec(steps=1)
    (plan, *_) = plan_stages(build_stages(DEFAULT), 1)
    with TemporaryDirectory(prefix="kdnas-texts-") as folder:
        file = Path(folder, "texts.txt")
        lines = [" ".join(t.split()) for e in texts for t in (e.text, e.pair) if t]
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        spec = CorpusSpec(source=(str(file),), max_length=min(max_length, teacher.longest_sequence))
        try:
            corpus = build_corpus(spec, teacher.folder, store)
        except CorpusError as error:
            raise SpecError(
                f"the texts of {len(texts)} examples are too few to start student {choice} with "
                f"({error}); choose first-layers, or distil the student on a larger text first"
            ) from None
    setup = Setup(teacher, CalibrationText(corpus, store), device, "float32", StudentSpec())
    if not setup.has_enough_text:
        warm = StudentSpec(init="warm")
        setup = Setup(teacher, CalibrationText(corpus, store), device, "float32", warm)
    seeded = training.model_copy(update={"seed": derived_seed("task-start") % 2**31})
    student = setup.student(choice.architecture, plan, seeded)
    student.set_attn_implementation("sdpa")  # type: ignore[operator]
    return student.cpu()
