"""What every request needs before work begins: teacher, corpus, objective and latencies."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from api.jobs.context import JobContext
from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import CorpusProgress, TokenizedCorpus, build_corpus
from kdnas.db.engine import Database, Session
from kdnas.db.repository import latencies
from kdnas.distill.calibration import calibration_problem, training_tokens
from kdnas.distill.fit_lm_head import fit_lm_head
from kdnas.distill.layer_search import try_teacher_layers
from kdnas.distill.numerics import choose_dtype, num_threads, own_device
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.errors import SpecError, TeacherError
from kdnas.latency.device_lock import measuring_lock, training_turn
from kdnas.latency.measure import current_profile
from kdnas.latency.table import Progress, build_latency_table, family
from kdnas.models.families import family_of
from kdnas.models.lm_head import has_lm_head
from kdnas.models.start.copied import start_problem
from kdnas.models.teacher import (
    TeacherHandle,
    open_teacher,
    prepare_teacher,
    with_fitted_head,
)
from kdnas.objectives.registry import build_stages, objective_problem
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import LatencyEntry, LatencyProfile, LatencyTable
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.objective_base import LearnsOneLayer, NeedsLMHead, ObjectiveSpec, TrialSpec
from kdnas.specs.objective_registry import choice_of
from kdnas.specs.parts import CorpusSpec, Start, StudentSpec, TeacherSpec, TrainingSpec
from kdnas.specs.search import LatencySpec, SpaceSpec
from kdnas.store import Store
from workers.machine import Machine

Student = TypeVar("Student", bound=StudentSpec)
OnCorpus = Callable[[CorpusProgress], None]
OnPreparing = Callable[[str, int, int], None]
"""Is told what is being prepared, steps made, and of how many; of 0 where it waits for somebody."""


@dataclass(frozen=True)
class Watchers:
    """Who is told what, and nobody else.

    Attributes:
        latency: how far the latency table is.
        progress: how far the work itself is.
        corpus: how tokenising goes.
        preparing: how preparing the objective goes.
        warning: what the user should know before hours are spent.
        waiting: once, that the machine is not free for measuring.
    """

    latency: Progress = lambda share, text: None
    progress: Callable[[Any], None] = lambda _: None
    corpus: OnCorpus = lambda _: None
    preparing: OnPreparing = lambda *_: None
    warning: Callable[[str], None] = lambda _: None
    waiting: Callable[[str], None] = lambda _: None

    @classmethod
    def of(cls, context: JobContext) -> Watchers:
        """Tell everybody of a job of the service who follows it."""
        return cls(
            context.latency,
            corpus=context.corpus,
            preparing=context.objective,
            warning=context.warn,
            waiting=lambda text: context.latency(0.0, text),
        )

    def checked(self, check: Callable[[], None]) -> Watchers:
        """Call something after each word on the preparations; what it raises ends them."""

        def then(tell: Callable[..., None]) -> Callable[..., None]:
            def tell_and_check(*told: Any) -> None:
                tell(*told)
                check()

            return tell_and_check

        told = {name: then(getattr(self, name)) for name in ("latency", "corpus", "preparing")}
        return replace(self, **told)


@dataclass(frozen=True)
class Pinned:
    """A teacher and a corpus in the store, and the specs that name them by their content."""

    teacher: TeacherHandle
    corpus: TokenizedCorpus
    teacher_spec: TeacherSpec
    corpus_spec: CorpusSpec


def pin(
    teacher: TeacherSpec,
    corpus: CorpusSpec,
    store: Store,
    on_corpus: OnCorpus = lambda _: None,
    check: Callable[[TeacherHandle], object] = lambda _: None,
    reach: Reach = ANYWHERE,
) -> Pinned:
    """Bring teacher and corpus into the store, or back from it if they are pinned already.

    Args:
        teacher: what to find.
        corpus: what to tokenise.
        store: where both are kept.
        on_corpus: is told how tokenising goes.
        check: whatever can be refused once the teacher is known, before a corpus is tokenised.
        reach: how folders and files that they name are opened.

    Raises:
        RequestError: one of these is out of reach.
        TeacherError, CorpusError: see ``prepare_teacher`` and ``build_corpus``.
        StoreError: the store cannot be written, or lost what was pinned.
    """
    handle = (
        open_teacher(teacher.fingerprint, store)
        if teacher.fingerprint
        else prepare_teacher(teacher, store, reach)
    )
    check(handle)
    tokenized = (
        TokenizedCorpus.open(store.fetch("corpus", corpus.fingerprint))
        if corpus.fingerprint
        else build_corpus(
            corpus,
            handle.folder,
            store,
            on_corpus,
            max_positions=handle.longest_sequence,
            reach=reach,
        )
    )
    return Pinned(
        handle,
        tokenized,
        teacher.model_copy(update={"fingerprint": handle.fingerprint}),
        corpus.model_copy(update={"fingerprint": tokenized.fingerprint}),
    )


def check_length(name: str, length: int, teacher: TeacherHandle) -> None:
    """Refuse sequences for which the teacher has no positions.

    Raises:
        SpecError: names the two numbers.
    """
    if length > teacher.longest_sequence:
        raise SpecError(
            f"{name} ({length}) is above the longest sequence that teacher {teacher.ref!r} has "
            f"positions for ({teacher.longest_sequence}); make it smaller"
        )


def store_warnings(machine: Machine, settings: Settings) -> list[str]:
    """What to say if nodes of a cluster on other hosts could not reach the store.

    They might all the same, if ``KDNAS_HOME`` is on a disk that all share; nobody here can know.
    """
    elsewhere = [host for host in machine.hosts if host != socket.gethostname()]
    folder = settings.store_url.removeprefix("file://")
    own = "://" not in folder and Path(folder).absolute().is_relative_to(settings.home)
    if not (elsewhere and own):
        return []
    more = f" and {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
    return [
        f"{machine.name} works on other hosts ({elsewhere[0]}{more}), and the store {folder} lies "
        "in KDNAS_HOME of this one; unless all share that disk, set KDNAS_STORE to a URL that "
        "every node reaches"
    ]


def possible_start(
    student: Student, objective: ObjectiveSpec, pinned: Pinned, *, trained_before: bool = False
) -> tuple[Student, list[str]]:
    """Let students start warm where there is too little text to cut them out of their teacher.

    The warning is that of a warm start on too little text, too, so that a request says the same
    when it is prepared again. Copies and students that were trained before need no text, but what
    is fitted to them does.

    Args:
        student: how students are to start.
        objective: what they learn.
        pinned: the teacher and the text.
        trained_before: whether they begin with weights of a student that was trained before.

    Returns:
        How they can start, and what to say of it.
    """
    copies = build_stages(objective)[0].objective.copies_layers
    if copies and (trained_before or student.init in ("teacher", "copy")):
        return student, []  # the default, and what is done
    if copies:
        return student, [
            f"{objective.name} copies the layers of the teacher, so the start {student.init!r} "
            "(student.init) is not used"
        ]
    if student.init == "random" and not trained_before:
        return student, []
    problem = calibration_problem(
        pinned.teacher.shape, training_tokens(pinned.corpus), student.calibration_tokens
    )
    if problem is None:
        return student, []
    if trained_before:
        return student, [f"{problem}; what the objective learns beside the student is not fitted"]
    if student.init == "copy":
        return student, [f"{problem}; what the objective learns beside students starts at random"]
    return student.model_copy(update={"init": "warm"}), [
        f"{problem}; students start warm (student.init), and what the objective learns beside "
        "them at random"
    ]


def build_space(
    spec: SpaceSpec, teacher: TeacherHandle, objective: ObjectiveSpec, init: Start
) -> SearchSpace:
    """Build the space that a spec names, without states that the teacher cannot teach so.

    Args:
        spec: the axes.
        teacher: the teacher.
        objective: what students are to learn.
        init: how they start.

    Raises:
        SearchSpaceError: wrong axes, or no state is left.
    """
    if spec.kind == "paper":
        space = SearchSpace.paper()
    elif spec.kind == "custom":
        space = SearchSpace.from_axes(spec.axes)
    else:
        space = SearchSpace.scaled_to(teacher.shape)
    space = replace(space, head_multiple=family_of(teacher.shape.model_type).head_multiple)
    return space.limited_to(
        lambda state: (
            objective_problem(objective, state, teacher.shape)
            or start_problem(init, state, teacher.shape)
        )
    )


def check_objective(objective: ObjectiveSpec, teacher: TeacherHandle) -> None:
    """Refuse what the teacher cannot give, before a corpus is tokenised.

    Raises:
        TeacherError: a masked-LM head is needed, there is none, and none is to be fitted.
    """
    if (
        isinstance(objective, NeedsLMHead)
        and objective.fit_lm_head is None
        and objective.lm_head is None
        and not has_lm_head(teacher)
    ):
        raise TeacherError(
            f"teacher {teacher.ref!r} has no masked-LM head, which the objective "
            f"{objective.name} needs; add `objective.fit_lm_head` 1000 to train one on the "
            f"corpus first, or choose {choice_of(lambda kind: not kind.needs_lm_head)}"
        )


def prepare_objective(
    objective: ObjectiveSpec,
    architecture: Architecture,
    teacher: TeacherHandle,
    corpus: TokenizedCorpus,
    store: Store,
    student: StudentSpec,
    training: TrainingSpec,
    device: str,
    dtype: str,
    threads: int,
    on_preparing: OnPreparing = lambda *_: None,
    origin: TeacherHandle | None = None,
) -> tuple[ObjectiveSpec, TeacherHandle]:
    """Do what an objective leaves open, or take it up where it was done before.

    It is done in this process, whatever cluster the training goes to.

    Args:
        objective: the request.
        architecture: student of the trials of teacher layers.
        teacher: the teacher.
        corpus: the tokenised corpus.
        store: keeps fitted heads.
        student: how students start.
        training: batch size, learning rate and seed of the trials.
        device: as asked for; only ``cpu`` keeps this process from using a GPU of its own.
        dtype: format of the forward passes, as asked for.
        threads: intra-op threads on a CPU.
        on_preparing: is told how it goes.
        origin: the model whose weights students begin with, if there is one.

    Returns:
        The objective with nothing left open, and the teacher with its head.

    Raises:
        KdnasError: the training of a head or of a trial failed.
    """
    own = own_device(device)
    dtype = choose_dtype(dtype, own)
    if isinstance(objective, NeedsLMHead):
        if objective.lm_head is None and not has_lm_head(teacher):
            assert objective.fit_lm_head is not None  # check_objective
            with _machine(on_preparing):
                fitted = fit_lm_head(
                    teacher,
                    corpus,
                    objective.fit_lm_head,
                    store,
                    own,
                    dtype,
                    threads=threads,
                    on_progress=lambda done, total: on_preparing(
                        "fitting the teacher's masked-LM head", done, total
                    ),
                )
            objective = objective.model_copy(update={"lm_head": fitted.fingerprint})
        if objective.lm_head is not None:
            teacher = with_fitted_head(teacher, objective.lm_head, store)
    if isinstance(objective, LearnsOneLayer) and objective.needs_layer_search:
        with _machine(on_preparing), num_threads(threads):
            trials = try_teacher_layers(
                Setup(teacher, CalibrationText(corpus, store), own, dtype, student, origin),
                corpus,
                architecture,
                objective,
                training,
                objective.trial_steps,
                lambda done, total: on_preparing("trying teacher layers", done, total),
            )
        best = min(trials, key=lambda trial: (trial.probe, trial.teacher_layer))
        found = {
            "teacher_layer": best.teacher_layer,
            "trials": tuple(TrialSpec(**asdict(trial)) for trial in trials),
        }
        objective = objective.model_copy(update=found)
    return objective, teacher


def stored_latencies(
    database: Database, profile: LatencyProfile, teacher: TeacherHandle
) -> LatencyTable | None:
    """Read the latency table of a profile for a teacher's students; None if there is none."""
    return _stored_latencies(database, profile.fingerprint, teacher)


def _stored_latencies(
    database: Database, profile: str, teacher: TeacherHandle
) -> LatencyTable | None:
    shape = teacher.shape
    return database.ask(
        lambda session: latencies.load_latency_table(
            session, profile, family(shape), shape.fingerprint
        )
    )


def ensure_latencies(
    database: Database,
    spec: LatencySpec,
    teacher: TeacherHandle,
    space: SearchSpace,
    on_progress: Progress | None = None,
    on_wait: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
    *,
    anew: bool = False,
    began_with: str | None = None,
) -> LatencyTable:
    """Return a table that has every state of the space; build and store it if there is none.

    Args:
        database: where tables are stored.
        spec: the conditions, and how thorough a build is.
        teacher: whose students are measured.
        space: their architectures.
        on_progress: is told how far the build is.
        on_wait: is told once if trainings on this machine must end first.
        check: asked while it waits for them; what it raises ends the wait.
        anew: measure in any case, in place of what is known.
        began_with: fingerprint of the profile by which the work began that goes on now, perhaps on
            another machine: a table that it has is taken before that of this machine.

    Raises:
        LatencyError: the device cannot be measured.
    """

    def stored(fingerprint: str) -> LatencyTable | None:
        known = None if anew else _stored_latencies(database, fingerprint, teacher)
        whole = known is not None and all(str(state) in known.entries for state in space.states)
        return known if whole else None

    known = None if began_with is None else stored(began_with)
    if known is not None:
        return known
    profile = current_profile(spec)
    known = stored(profile.fingerprint)
    if known is not None:
        return known
    with measuring_lock(on_wait=on_wait, check=check):
        known = stored(profile.fingerprint)  # somebody else may have built it while this one waited
        if known is not None:
            return known
        table = _measured(database, spec, profile, teacher, space, on_progress)

        def store(session: Session) -> LatencyTable:
            # What searches have used stays as it is; another machine may have stored some by now.
            key = (profile.fingerprint, table.family, table.teacher_fingerprint)
            known = None if anew else latencies.load_latency_table(session, *key)
            whole = table if known is None else _joined(known, table)
            latencies.save_latency_table(session, whole)
            return whole

        return database.transact(store)


def _measured(
    database: Database,
    spec: LatencySpec,
    profile: LatencyProfile,
    teacher: TeacherHandle,
    space: SearchSpace,
    on_progress: Progress | None,
) -> LatencyTable:
    """Measure a table while this process has its machine alone.

    An exhaustive build stores what it has, and goes on with what an earlier one has stored.
    """
    key = (family(teacher.shape), teacher.shape.fingerprint)

    def store(entries: Sequence[LatencyEntry]) -> None:
        database.transact(
            lambda session: latencies.save_latency_entries(session, profile, *key, entries)
        )

    timed = database.ask(
        lambda session: latencies.load_latency_entries(session, profile.fingerprint, *key)
    )
    return build_latency_table(
        teacher,
        space,
        profile,
        budget_seconds=spec.budget_seconds,
        exhaustive=spec.exhaustive,
        progress=on_progress,
        known=timed if spec.exhaustive else None,
        on_entries=store,
    )


def _joined(known: LatencyTable, new: LatencyTable) -> LatencyTable:
    """Add what is new to a table.

    New entries are scaled to the known teacher's time, so that every ratio is the one to the
    teacher of its own run.
    """
    scale = known.teacher_ms / new.teacher_ms
    scaled = {
        name: replace(e, latency_ms=e.latency_ms * scale, spread_ms=e.spread_ms * scale)
        for name, e in new.entries.items()
    }
    return replace(new, teacher_ms=known.teacher_ms, entries={**scaled, **known.entries})


@contextmanager
def _machine(on_preparing: OnPreparing) -> Iterator[None]:
    """Hold the machine for training; whom it waits for is told, which may break the wait off."""
    with ExitStack() as machine:
        for waits in training_turn(machine):
            on_preparing(waits, 0, 0)
        yield
