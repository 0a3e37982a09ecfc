"""A request for a full distillation, checked and with nothing left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from api.inputs.preparation import (
    OnCorpus,
    OnPreparing,
    Pinned,
    check_objective,
    pin,
    possible_start,
    prepare_objective,
    store_warnings,
)
from api.jobs.files import checkpoints_in_store, reach_of_checkpoints
from kdnas.corpus.batches import refuse_too_few
from kdnas.cpu import available_cores
from kdnas.distill.checkpoint import absolute_place, check_place
from kdnas.distill.export import refuse_used_folder
from kdnas.errors import ArchitectureError, TeacherError
from kdnas.models.cost import EmbeddingShape, count_parameters, teacher_architecture
from kdnas.models.pooling import teaching_pooling
from kdnas.models.start.copied import start_problem
from kdnas.models.teacher import TeacherHandle, open_teacher, prepare_teacher
from kdnas.objectives.registry import objective_problem
from kdnas.reach import Reach
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.objective_base import NeedsLMHead
from kdnas.store import Store
from workers.machine import machine_at


@dataclass(frozen=True)
class PreparedDistillation:
    """A request with nothing left open, its teacher and corpus in the store."""

    spec: DistillationSpec
    pinned: Pinned
    origin: TeacherHandle | None
    device: str
    dtype: str
    about_the_start: tuple[str, ...] = ()
    about_the_store: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What the user should know before hours are spent."""
        return [
            *self.pinned.corpus.meta["warnings"],
            *self._size_warnings(),
            *self.about_the_start,
            *self._start_warnings(),
            *self.about_the_store,
        ]

    def _size_warnings(self) -> list[str]:
        shape = self.pinned.teacher.shape
        embedding = EmbeddingShape.of(shape)
        own = teacher_architecture(shape)
        size = count_parameters(self.spec.arch, embedding)
        if own is None or size <= count_parameters(own, embedding):
            return []
        return [
            f"student {self.spec.architecture} ({size / 1e6:.1f} M parameters) is larger than its "
            f"teacher {own} ({count_parameters(own, embedding) / 1e6:.1f} M); it is distilled all "
            "the same"
        ]

    def _start_warnings(self) -> list[str]:
        objective, rate = self.spec.objective, self.spec.training.learning_rate
        found = objective.doubts(rate, from_scratch=self.origin is None)
        asked = isinstance(objective, NeedsLMHead) and objective.fit_lm_head
        if asked and self.pinned.teacher.fitted_head is None:
            found.append(
                f"teacher {self.spec.teacher.ref!r} has a masked-LM head of its own, which is "
                "used; `objective.fit_lm_head` counts for nothing"
            )
        return found


def prepare_distillation(
    spec: DistillationSpec,
    settings: Settings,
    on_corpus: OnCorpus = lambda _: None,
    on_preparing: OnPreparing = lambda *_: None,
) -> PreparedDistillation:
    """Check a request, bring its inputs into the store and decide what it left open.

    Raises:
        RequestError: anything in the request that cannot be done, such as a student deeper than
            its teacher or an output folder that is not empty.
        WorkError: a masked-LM head could not be fitted, or no trial of a teacher layer worked.
    """
    address = address_of(spec, settings)
    machine = machine_at(address, spec.training.device)
    device = machine.choose_device(spec.training.device)
    dtype = machine.choose_dtype(spec.training.dtype, device)
    num_workers = spec.training.num_workers
    if device == "cuda":
        machine.check_gpus(num_workers)
    store = Store.from_settings(settings)
    if spec.output:
        refuse_used_folder(Path(spec.output), settings.reach)
    checkpoints = spec.training.checkpoints
    if checkpoints is None and address is not None:
        checkpoints = checkpoints_in_store(settings)
    if checkpoints is not None:
        checkpoints = absolute_place(checkpoints)
        check_place(checkpoints, reach_of_checkpoints(checkpoints, settings))
    origin: TeacherHandle | None = None

    def check(teacher: TeacherHandle) -> None:
        nonlocal origin
        problem = objective_problem(spec.objective, spec.arch, teacher.shape)
        if problem is None and spec.student.init_from is None:
            problem = start_problem(spec.student.init, spec.arch, teacher.shape)
        if problem:
            raise ArchitectureError(problem)
        check_objective(spec.objective, teacher)
        teaching_pooling(teacher)  # or what is amiss with it would be found after hundreds of steps
        origin = _origin(spec, teacher, store, settings.reach)

    pinned = pin(spec.teacher, spec.corpus, store, on_corpus, check, settings.reach)
    refuse_too_few(len(pinned.corpus.train_indices), spec.training.batch_size)
    student, about_the_start = possible_start(
        spec.student, spec.objective, pinned, trained_before=origin is not None
    )
    threads = spec.training.threads or machine.threads_each(num_workers)
    training = spec.training.model_copy(
        update={
            "threads": threads,
            "device": device,
            "dtype": dtype,
            "checkpoints": checkpoints,
        }
    )
    objective, teacher = prepare_objective(
        spec.objective,
        spec.arch,
        pinned.teacher,
        pinned.corpus,
        store,
        student,
        training,
        spec.training.device,
        spec.training.dtype,
        min(threads, available_cores()),
        on_preparing,
        origin,
    )
    if student.init_from is not None and origin is not None:
        named = student.init_from.model_copy(update={"fingerprint": origin.fingerprint})
        student = student.model_copy(update={"init_from": named})
    resolved = spec.model_copy(
        update={
            "teacher": pinned.teacher_spec,
            "corpus": pinned.corpus_spec,
            "objective": objective,
            "student": student,
            "training": training,
            "output": str(Path(spec.output).absolute()) if spec.output else None,
        }
    )
    return PreparedDistillation(
        resolved,
        replace(pinned, teacher=teacher),
        origin,
        device,
        dtype,
        tuple(about_the_start),
        tuple(store_warnings(machine, settings)),
    )


def address_of(spec: DistillationSpec, settings: Settings) -> str | None:
    """Return the Ray cluster that a distillation goes to, with one worker as with several."""
    return spec.training.address or settings.ray_address


def _origin(
    spec: DistillationSpec, teacher: TeacherHandle, store: Store, reach: Reach
) -> TeacherHandle | None:
    """Find the student that training begins with, and check that it is of the same build."""
    named = spec.student.init_from
    if named is None:
        return None
    if named.fingerprint:
        return open_teacher(named.fingerprint, store)
    try:
        origin = prepare_teacher(named, store, reach)
    except TeacherError as error:
        raise TeacherError(f"`student.init_from`: {error}") from None
    own = teacher_architecture(origin.shape)
    if own != spec.arch:
        raise ArchitectureError(
            f"`student.init_from` {named.ref} is a {own or 'model of another activation'}, not the "
            f"{spec.arch} that was asked for; give `architecture` {own}, or another folder"
        )
    ours, theirs = (
        (s.model_type, s.vocab_size, s.max_positions) for s in (origin.shape, teacher.shape)
    )
    if ours != theirs:
        raise TeacherError(
            f"`student.init_from` {named.ref} is a {ours[0]} of {ours[1]} tokens and {ours[2]} "
            f"positions, the teacher a {theirs[0]} of {theirs[1]} and {theirs[2]}; give "
            "a student of this teacher"
        )
    return origin
