"""One full distillation, put together and run: by the command line, or by the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from api.distillations.kind import KIND
from api.distillations.prepare import (
    PreparedDistillation,
    address_of,
    prepare_distillation,
)
from api.inputs.preparation import Pinned, Watchers, stored_latencies
from api.jobs.context import JobContext, StoppedError
from api.jobs.files import checkpoints_of, output_folder, run_folder
from api.jobs.work import do_job
from kdnas.db.engine import Database, Session
from kdnas.db.records import DistillationRecord, HeldOutReading
from kdnas.db.repository import distillations, jobs
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.export import CardFacts, export_student, is_export_of, refuse_used_folder
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.distill.numerics import choose_device
from kdnas.distill.tensorboard import RunEvents
from kdnas.errors import CancelledError
from kdnas.latency.measure import current_profile
from kdnas.records import CurvePoint
from kdnas.search.checks import not_learned
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import LatencySpec
from kdnas.store import Store

OnProgress = Callable[[FullProgress], None]


@dataclass(frozen=True)
class DistillationOutcome:
    """How a distillation ended: where the student is, or that it waits to be resumed.

    ``distilled`` is None if it was stopped before training began.
    """

    record: DistillationRecord
    output: Path
    distilled: Distilled | None


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


def run_stored_distillation(
    distillation_id: str,
    database: Database,
    settings: Settings,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> DistillationOutcome:
    """Run a stored distillation of the command line, or go on with it from its newest checkpoint.

    A request that was stored as it came in is prepared first, and stored with nothing left open.

    Args:
        distillation_id: of one that is not finished.
        database: where it is stored.
        settings: of this process.
        on_progress: is told how training goes.
        should_stop: asked between steps, and while inputs are prepared; True ends this run after
            a checkpoint.

    Raises:
        ConflictError: it is finished or cancelled, or another process works on it.
        CancelledError: somebody cancelled it meanwhile; its checkpoints are removed.
        KdnasError: whatever kept it from going on; its status says so.
    """
    ended: list[Distilled] = []
    status = do_job(
        distillation_id,
        database,
        settings,
        lambda context: run_in(context, on_progress, ended.append),
        should_stop=should_stop,
        clean_up=KIND.clean_up,
    )
    record = database.ask(lambda session: distillations.get_distillation(session, distillation_id))
    if status == "cancelled":
        raise CancelledError(
            f"distillation {record.name!r} was cancelled, so this run has ended and its "
            "checkpoints are removed; start a new one with kdnas full-distill"
        )
    spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
    output = output_folder(settings, spec, record.id)
    return DistillationOutcome(record, output, ended[0] if ended else None)


def run_in(
    context: JobContext,
    on_progress: OnProgress = lambda _: None,
    on_distilled: Callable[[Distilled], object] = lambda _: None,
) -> None:
    """Do the work of a distillation on whose job this process is at work.

    Args:
        context: of the distillation.
        on_progress: is told how training goes.
        on_distilled: is told what came of the training, finished or not.

    Raises:
        StoppedError: it was to stop.
        KdnasError: whatever kept it from going on.
    """
    stored = DistillationSpec.read(dict(context.spec), context.called)
    output = output_folder(context.settings, stored, context.id)
    reach = context.settings.reach
    if not is_export_of(output, context.id, reach):  # a kill may have come after the export
        refuse_used_folder(output, reach, is_stored=True)
    distilled = _train(context, stored, output, on_progress)
    on_distilled(distilled)
    _note_end(context, distilled, output)
    if not distilled.finished:
        raise StoppedError


def _train(
    context: JobContext, stored: DistillationSpec, output: Path, on_progress: OnProgress
) -> Distilled:
    """Train from the newest checkpoint, and export the student at the end.

    Raises:
        StoppedError: it was to stop before it began, or before there was anything to keep.
    """
    database, settings, run_id = context.database, context.settings, context.id
    watchers = Watchers.of(context) if context.claimed else Watchers()
    told = watchers.checked(context.check)
    unnamed = stored.model_copy(update={"output": None})  # the folder was looked at before
    prepared = prepare_distillation(unnamed, settings, told.corpus, told.preparing)
    for text in prepared.warnings:
        watchers.warning(text)
    context.check()
    absolute = str(Path(stored.output).absolute()) if stored.output else None
    spec = prepared.spec.model_copy(update={"output": absolute})
    checkpoints = checkpoints_of(spec, settings, run_id)
    if spec.training.checkpoints is not None and stored.training.checkpoints is None:
        checkpoints.take_over(checkpoints_of(stored, settings, run_id))  # begun without cluster
    database.transact(lambda session: jobs.resolve(session, run_id, spec.to_json()))
    pinned = prepared.pinned
    events = run_folder(settings, run_id) / "tensorboard"
    with RunEvents(events, max(checkpoints.steps(), default=0)) as written:
        curve = _Curve(database, run_id)

        def tell(progress: FullProgress) -> None:
            curve.add(progress)
            written.add(progress)
            on_progress(progress)

        context.end_preparation("training")
        _run(spec, prepared, checkpoints, settings, tell, context)
        curve.write()
    distilled = load_distilled(spec, pinned.teacher, checkpoints)
    if distilled is None:  # workers that still wait for a measurement have nothing to write
        raise StoppedError
    reach = settings.reach
    if distilled.finished and not is_export_of(output, run_id, reach):
        output_loss, rate = distilled.best.losses.output, spec.training.learning_rate
        doubt = not_learned(output_loss, rate, "training.learning_rate")
        facts = CardFacts(
            run_id=run_id,
            corpus_fingerprint=pinned.corpus.fingerprint,
            corpus_sequences=len(pinned.corpus.train_indices),
            dtype=prepared.dtype,
            device=prepared.device,
            latency=_latency_sentence(spec, pinned, database),
            not_learned=None if distilled.undistilled else doubt,
        )
        export_student(
            distilled,
            spec,
            pinned.teacher,
            facts,
            output,
            events,
            reach,
            run_folder(settings, run_id) if reach.limited else None,
        )
    return distilled


def _run(
    spec: DistillationSpec,
    prepared: PreparedDistillation,
    checkpoints: Checkpoints,
    settings: Settings,
    on_progress: OnProgress,
    context: JobContext,
) -> None:
    """Train in this process, or on a cluster: where there is one, and for several workers."""
    address = address_of(spec, settings)
    if address is not None or spec.training.num_workers > 1:
        from workers.distillation import distil_in_parallel

        training = spec.training.model_copy(update={"address": address})
        distil_in_parallel(
            spec.model_copy(update={"training": training}),
            settings.store_url,
            checkpoints.url,
            on_progress,
            context.should_stop,
            checkpoints.reach,
            context.phase,
        )
        return
    pinned = prepared.pinned
    with ExitStack() as machine:

        def take() -> None:
            waited: list[str] = []
            machine.enter_context(context.training(waited.append))
            if waited:  # which is no part of its pace
                context.end_preparation("training")

        def tell(progress: FullProgress) -> None:
            on_progress(progress)
            if progress.held_out is not None:  # at a checkpoint a measurement may have its turn
                machine.close()
                take()

        take()

        FullDistillation(
            spec,
            pinned.teacher,
            pinned.corpus,
            Store.from_settings(settings),
            checkpoints,
            choose_device(prepared.device),
            prepared.dtype,
            prepared.origin,
        ).run(tell, context.should_stop)


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


class _Curve:
    """Writes down the training curve and held-out readings as they come.

    While the database does not answer they are kept, and training goes on.
    """

    def __init__(self, database: Database, distillation_id: str) -> None:
        self._database, self._id = database, distillation_id
        self._points: list[CurvePoint] = []
        self._readings: list[HeldOutReading] = []
        self._step = self._total_steps = 0

    def add(self, progress: FullProgress) -> None:
        """Take note of what is new, if there is anything, and write all that is not written."""
        self._step, self._total_steps = progress.step, progress.total_steps
        self._points += progress.points
        if (point := progress.held_out) is not None:
            self._readings.append(HeldOutReading(point.step, point.losses))
        if self._is_new and self._database.note(self._write):
            self._forget()

    def write(self) -> None:
        """Write what is not written, as soon as the database answers."""
        if self._is_new:
            self._database.transact(self._write)
            self._forget()

    @property
    def _is_new(self) -> bool:
        return bool(self._points or self._readings)

    def _write(self, session: Session) -> None:
        distillations.set_distillation_progress(
            session, self._id, self._step, self._total_steps, self._points, self._readings
        )

    def _forget(self) -> None:
        self._points, self._readings = [], []


def _note_end(context: JobContext, distilled: Distilled, output: Path) -> None:
    """Write down where a run ended: all readings, and the result if it is finished.

    The result is written only where the job is still ``running``: what was paused on its last step
    succeeds as soon as it is resumed.
    """
    readings = [HeldOutReading(point.step, point.losses) for point in distilled.held_out]

    def write(session: Session) -> None:
        distillations.set_distillation_progress(
            session, context.id, distilled.steps, distilled.total_steps, held_out=readings
        )
        if distilled.finished and jobs.locked_job(session, context.id).status == "running":
            distillations.set_distillation_result(
                session,
                context.id,
                metrics={"step": distilled.best.step, **asdict(distilled.best.losses)},
                artefact=None,
                output_path=str(output),
            )

    context.database.transact(write)
