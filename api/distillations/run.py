"""One full distillation, put together and run: by the command line, or by the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from api.distillations.prepare import (
    PreparedDistillation,
    address_of,
    prepare_distillation,
)
from api.distillations.status import note_end, note_progress
from api.inputs.objective_preparation import OnPreparing
from api.inputs.preparation import OnCorpus, Pinned, stored_latencies
from api.jobs.files import checkpoints_of, output_folder, remove_run_files, run_folder
from api.jobs.work import StoppedError, StoppedStatus, Work, at_work
from kdnas.corpus.tokenized import CorpusProgress
from kdnas.db.engine import Database
from kdnas.db.records import DistillationRecord
from kdnas.db.repository import distillations
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.export import CardFacts, export_student, is_export_of, refuse_used_folder
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.distill.numerics import choose_device
from kdnas.distill.tensorboard import RunEvents
from kdnas.errors import CancelledError, ConflictError
from kdnas.latency.device_lock import training_lock
from kdnas.latency.measure import current_profile
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
    *,
    on_corpus: OnCorpus = lambda _: None,
    on_preparing: OnPreparing = lambda *_: None,
    on_warning: Callable[[str], None] = lambda _: None,
    claim: str | None = None,
    stopped_status: StoppedStatus = "paused",
) -> DistillationOutcome:
    """Run a stored distillation, or go on with it from its newest checkpoint.

    A request that was stored as it came in is prepared first, and stored with nothing left open.

    Args:
        distillation_id: of one that is not finished.
        database: where it is stored.
        settings: of this process.
        on_progress: is told how training goes.
        should_stop: asked between steps, and while inputs are prepared; True ends this run after
            a checkpoint.
        on_corpus: is told how tokenising goes.
        on_preparing: is told how preparing the objective goes.
        on_warning: is told what the user should know before hours are spent.
        claim: token of the coordinator's claim on it; None runs it for the command line.
        stopped_status: what it is after ``should_stop``: ``paused``, or ``running`` still.

    Raises:
        ConflictError: it is finished or cancelled, or another process works on it.
        CancelledError: somebody cancelled it meanwhile; its checkpoints are removed.
        KdnasError: whatever kept it from going on; its status says so.
    """
    with database.read() as session:
        record = distillations.get_distillation(session, distillation_id)
    if record.status in {"succeeded", "cancelled"} and claim is None:
        raise ConflictError(f"distillation {record.name!r} is {record.status}; start a new one")
    spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
    output = output_folder(settings, spec, record.id)
    distilled: Distilled | None = None
    with at_work(database, record, claim, should_stop, stopped_status) as work:
        if work.status == "running":
            if not is_export_of(output, record.id, settings.reach):  # killed after the export
                refuse_used_folder(output, settings.reach)
            told = _Told(on_progress, on_corpus, on_preparing, on_warning)
            try:
                distilled = _train(record, spec, output, database, settings, told, work)
            except StoppedError:
                work.rest()
            else:
                note_end(database, record, distilled, output, stopped_status)
        with database.read() as session:
            record = distillations.get_distillation(session, record.id)
        if record.status in {"succeeded", "cancelled"}:
            ended = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
            remove_run_files(ended, settings, record.id)  # preparing has said where they are
        if record.status == "cancelled":
            raise CancelledError(
                f"distillation {record.name!r} was cancelled, so this run has ended and its "
                "checkpoints are removed; start a new one with kdnas full-distill"
            )
    return DistillationOutcome(record, output, distilled)


@dataclass(frozen=True)
class _Told:
    """Who is told what."""

    progress: OnProgress
    corpus: OnCorpus
    preparing: OnPreparing
    warning: Callable[[str], None]


def _train(
    record: DistillationRecord,
    stored: DistillationSpec,
    output: Path,
    database: Database,
    settings: Settings,
    told: _Told,
    work: Work,
) -> Distilled:
    """Train from the newest checkpoint, and export the student at the end.

    Raises:
        StoppedError: it was to stop before it began.
    """

    def on_corpus(progress: CorpusProgress) -> None:
        told.corpus(progress)
        work.check()

    def on_preparing(what: str, done: int, total: int) -> None:
        told.preparing(what, done, total)
        work.check()

    unnamed = stored.model_copy(update={"output": None})  # the folder was looked at before
    prepared = prepare_distillation(unnamed, settings, on_corpus, on_preparing)
    for text in prepared.warnings():
        told.warning(text)
    work.check()
    absolute = str(Path(stored.output).absolute()) if stored.output else None
    spec = prepared.spec.model_copy(update={"output": absolute})
    checkpoints = checkpoints_of(spec, settings, record.id)
    if spec.training.checkpoints is not None and stored.training.checkpoints is None:
        checkpoints.take_over(checkpoints_of(stored, settings, record.id))  # begun without cluster
    if spec != stored:
        with database.write() as session:
            distillations.set_distillation_spec(session, record.id, spec.to_json())
    pinned = prepared.pinned
    events = run_folder(settings, record.id) / "tensorboard"
    with RunEvents(events, max(checkpoints.steps(), default=0)) as written:

        def tell(progress: FullProgress) -> None:
            note_progress(database, record.id, progress)
            written.add(progress)
            told.progress(progress)

        _run(spec, prepared, checkpoints, settings, tell, work.should_stop)
    distilled = load_distilled(spec, pinned.teacher, checkpoints)
    assert distilled is not None  # run() writes a checkpoint whenever it ends
    reach = settings.reach
    if distilled.finished and not is_export_of(output, record.id, reach):
        output_loss, rate = distilled.best.losses.output, spec.training.learning_rate
        doubt = not_learned(output_loss, rate, "training.learning_rate")
        facts = CardFacts(
            run_id=record.id,
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
            run_folder(settings, record.id) if reach.limited else None,
        )
    return distilled


def _run(
    spec: DistillationSpec,
    prepared: PreparedDistillation,
    checkpoints: Checkpoints,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
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
            should_stop,
            checkpoints.reach,
        )
        return
    pinned = prepared.pinned
    with ExitStack() as machine:
        machine.enter_context(training_lock())

        def tell(progress: FullProgress) -> None:
            on_progress(progress)
            if progress.held_out is not None:  # at a checkpoint a measurement may have its turn
                machine.close()
                machine.enter_context(training_lock())

        FullDistillation(
            spec,
            pinned.teacher,
            pinned.corpus,
            Store.from_settings(settings),
            checkpoints,
            choose_device(prepared.device),
            prepared.dtype,
            prepared.origin,
        ).run(tell, should_stop)


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
