"""The best student of each method, copied to where the request wants it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from api.jobs.files import task_run_folder
from api.task_distillations.report import STUDENT, best_run
from kdnas.artefact import files_of
from kdnas.distill.export import refuse_used_folder
from kdnas.errors import StoreError
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec


def output_folders(spec: TaskDistillationSpec) -> dict[str, Path]:
    """Method → where its student goes: the output itself of one method, else a folder in it each.

    Nothing where no output is named.
    """
    if spec.output is None:
        return {}
    output = Path(spec.output)
    alone = len(spec.methods) == 1
    return {method: output if alone else output / method for method in spec.methods}


def student_folder(settings: Settings, job_id: str, method: str, seed: int) -> Path:
    """Return where a run leaves its student."""
    return task_run_folder(settings, job_id, method, seed) / STUDENT


def check_outputs(
    spec: TaskDistillationSpec, settings: Settings | None = None, job_id: str | None = None
) -> None:
    """Refuse output folders that hold something else than students of this job.

    Args:
        spec: of the job.
        settings: of the process that works on it; None of one that is yet to be stored.
        job_id: of the job.

    Raises:
        RequestError: one is out of reach.
        OutputError: one is used, or cannot be made.
    """
    reach, stored = ANYWHERE if settings is None else settings.reach, job_id is not None
    if spec.output is not None and not Path(spec.output).exists():
        refuse_used_folder(Path(spec.output), reach, is_stored=stored)
        return  # nor are there folders in it; none is made before there is something for it
    for method, target in output_folders(spec).items():
        made: Iterable[Path] = ()
        if settings is not None and job_id is not None:
            made = (student_folder(settings, job_id, method, seed) for seed in spec.seeds)
        if not any(_is_copy(target, folder, reach) for folder in made):
            refuse_used_folder(target, reach, is_stored=stored)


def write_outputs(
    spec: TaskDistillationSpec, job_id: str, runs: Sequence[TaskRun], settings: Settings
) -> None:
    """Copy each method's best student, by its held-out score, to its output folder.

    Raises:
        RequestError: a folder is out of reach.
        OutputError: a folder is used by now.
        StoreError: a student is not on this machine any more, or cannot be copied.
    """
    for method, target in output_folders(spec).items():
        best = best_run([run for run in runs if run.method == method])
        if best is None:
            continue  # its runs have failed, which the report says
        student = student_folder(settings, job_id, method, best.seed)
        if not student.is_dir():
            raise StoreError(
                f"the student of {method} with seed {best.seed} is not in {student}; go on where "
                "it was trained, or start anew"
            )
        if not _is_copy(target, student, settings.reach):
            _put(student, target, job_id, method, spec, settings)


def _put(
    student: Path,
    target: Path,
    job_id: str,
    method: str,
    spec: TaskDistillationSpec,
    settings: Settings,
) -> None:
    reach = settings.reach
    made = [student_folder(settings, job_id, method, seed) for seed in spec.seeds]
    replaces = any(_is_copy(target, folder, reach) for folder in made)  # the best one before
    if not replaces:
        refuse_used_folder(target, reach, is_stored=True)
    try:
        reach.put(student, target, f".{target.name}.draft-{job_id}", replaces=replaces)
    except OSError as error:
        raise StoreError(
            f"the student of {method} could not be written to {target} ({error.strerror}); free "
            "space there and go on"
        ) from None


def _is_copy(target: Path, student: Path, reach: Reach) -> bool:
    """Whether a folder holds the very files of a student."""
    if not student.is_dir() or not target.is_dir():
        return False
    try:
        wanted = files_of(student)
        found = {path.relative_to(target).as_posix(): path for path in reach.files_below(target)}
        return found.keys() == wanted.keys() and all(
            _digest(found[name], reach) == _digest(wanted[name], ANYWHERE) for name in wanted
        )
    except OSError:
        return False


def _digest(path: Path, reach: Reach) -> str:
    with reach.open(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
