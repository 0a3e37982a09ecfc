"""One full distillation, put together and run: by the command line, or by the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from api.lease import held_lease
from api.preparation import OnCorpus, Pinned, pin, stored_latencies
from kdnas.db.engine import Database
from kdnas.db.models import Distillation
from kdnas.db.records import DistillationRecord
from kdnas.db.repository import distillations
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.export import CardFacts, export_student, is_export_of, refuse_used_folder
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.distill.numerics import available_cores, choose_device, choose_dtype
from kdnas.errors import ArchitectureError, ConflictError, KdnasError
from kdnas.latency.device_lock import training_lock
from kdnas.latency.measure import current_profile
from kdnas.models.cost import EmbeddingShape, count_parameters, teacher_architecture
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import objective_problem
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import LatencySpec
from kdnas.store import Store

OnProgress = Callable[[FullProgress], None]


@dataclass(frozen=True)
class PreparedDistillation:
    """A request with nothing left open, its teacher and corpus in the store."""

    spec: DistillationSpec
    pinned: Pinned
    device: str
    dtype: str

    def warnings(self) -> list[str]:
        """What the user should know before hours are spent."""
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


@dataclass(frozen=True)
class DistillationOutcome:
    """How a distillation ended: where the student is, or that it waits to be resumed."""

    record: DistillationRecord
    output: Path
    distilled: Distilled


def prepare_distillation(
    spec: DistillationSpec, settings: Settings, on_corpus: OnCorpus = lambda _: None
) -> PreparedDistillation:
    """Check a request, bring its inputs into the store and decide what it left open.

    Raises:
        RequestError: anything in the request that cannot be done, such as a student deeper than
            its teacher or an output folder that is not empty.
    """
    device = choose_device(spec.training.device)
    if spec.output:
        refuse_used_folder(Path(spec.output))

    def check(teacher: TeacherHandle) -> None:
        problem = objective_problem(spec.objective, spec.arch, teacher.shape)
        if problem:
            raise ArchitectureError(problem)

    pinned = pin(spec.teacher, spec.corpus, Store.from_settings(settings), on_corpus, check)
    dtype = choose_dtype(spec.training.dtype, device)
    training = spec.training.model_copy(
        update={
            "threads": spec.training.threads or available_cores(),
            "device": device,
            "dtype": dtype,
        }
    )
    resolved = spec.model_copy(
        update={
            "teacher": pinned.teacher_spec,
            "corpus": pinned.corpus_spec,
            "training": training,
            "output": str(Path(spec.output).absolute()) if spec.output else None,
        }
    )
    return PreparedDistillation(resolved, pinned, device, dtype)


def create_distillation(prepared: PreparedDistillation, database: Database) -> DistillationRecord:
    """Store a prepared distillation of the command line.

    Raises:
        ConflictError: its name is taken.
    """
    spec = prepared.spec
    with database.write() as session:
        return distillations.create_distillation(
            session, spec.to_json(), spec.arch, name=spec.name, owner_kind="cli"
        )


def checkpoints_of(spec: DistillationSpec, settings: Settings, distillation_id: str) -> Checkpoints:
    """Return a distillation's checkpoints: where it was asked to keep them, or under KDNAS_HOME."""
    root = spec.training.checkpoints or str(settings.home / "distillations")
    return Checkpoints(f"{root.rstrip('/')}/{distillation_id}")


def output_folder(settings: Settings, spec: DistillationSpec, distillation_id: str) -> Path:
    """Return where the student goes: as asked, or a folder named by the run."""
    return Path(spec.output) if spec.output else settings.home / "students" / distillation_id


def run_stored_distillation(
    distillation_id: str,
    database: Database,
    settings: Settings,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> DistillationOutcome:
    """Run a stored distillation, or go on with it from its newest checkpoint.

    Raises:
        ConflictError: it is finished, or another process works on it.
        KdnasError: whatever kept it from going on; its status says so.
    """
    with database.read() as session:
        record = distillations.get_distillation(session, distillation_id)
    if record.status in {"succeeded", "cancelled"}:
        raise ConflictError(f"distillation {record.name!r} is {record.status}; start a new one")
    spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
    output = output_folder(settings, spec, record.id)
    with held_lease(database, Distillation, record.id, "cli") as lost:
        with database.write() as session:
            distillations.set_distillation_status(session, record.id, "running")
        try:
            if not is_export_of(output, record.id):  # a kill may have come just after the export
                refuse_used_folder(output)
            distilled = _train(
                record,
                spec,
                output,
                database,
                settings,
                on_progress,
                lambda: should_stop() or lost.is_set(),
            )
        except Exception as error:
            if not lost.is_set():
                reason = str(error) if isinstance(error, KdnasError) else repr(error)
                with database.write() as session:
                    distillations.set_distillation_status(session, record.id, "failed", reason)
            raise
        if lost.is_set():
            raise ConflictError(
                f"another process took over distillation {record.name!r}; this one has stopped"
            )
        with database.write() as session:
            if distilled.finished:
                distillations.set_distillation_result(
                    session,
                    record.id,
                    metrics={"step": distilled.best.step, **asdict(distilled.best.losses)},
                    artefact=None,
                    output_path=str(output),
                )
            status: SearchStatus = "succeeded" if distilled.finished else "paused"
            record = distillations.set_distillation_status(session, record.id, status)
    if distilled.finished:
        checkpoints_of(spec, settings, record.id).remove()
    return DistillationOutcome(record, output, distilled)


def _train(
    record: DistillationRecord,
    spec: DistillationSpec,
    output: Path,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
) -> Distilled:
    prepared = prepare_distillation(spec.model_copy(update={"output": None}), settings)
    pinned = prepared.pinned
    checkpoints = checkpoints_of(spec, settings, record.id)

    def tell(progress: FullProgress) -> None:
        if progress.held_out is not None or progress.points:
            with database.write() as session:
                distillations.set_distillation_progress(
                    session, record.id, progress.step, progress.total_steps, progress.points
                )
        on_progress(progress)

    with training_lock():
        run = FullDistillation(
            spec,
            pinned.teacher,
            pinned.corpus,
            checkpoints,
            choose_device(prepared.device),
            prepared.dtype,
        )
        run.run(tell, should_stop)
    distilled = load_distilled(spec, pinned.teacher, checkpoints)
    assert distilled is not None  # run() writes a checkpoint whenever it ends
    if distilled.finished and not is_export_of(output, record.id):
        facts = CardFacts(
            run_id=record.id,
            corpus_fingerprint=pinned.corpus.fingerprint,
            corpus_sequences=len(pinned.corpus.train_indices),
            dtype=prepared.dtype,
            device=prepared.device,
            latency=_latency_sentence(spec, pinned, database),
        )
        export_student(distilled, spec, pinned.teacher, facts, output)
    return distilled


def _latency_sentence(spec: DistillationSpec, pinned: Pinned, database: Database) -> str | None:
    profile = current_profile(LatencySpec())
    table = stored_latencies(database, profile, pinned.teacher)
    if table is None or spec.architecture not in table.entries:
        return None
    entry = table.entries[spec.architecture]
    how = "measured" if entry.measured else "from a block model of measured layers"
    return (
        f"{entry.latency_ms:.2f} ms, {table.ratio(spec.arch):.2f} of the teacher's "
        f"{table.teacher_ms:.2f} ms ({how}; {profile.device.partition(':')[2]}, "
        f"{profile.threads} thread, {profile.length} tokens, {profile.dtype}, {profile.runtime})"
    )
