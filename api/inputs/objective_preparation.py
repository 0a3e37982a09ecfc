"""What an objective needs before training: a masked-LM head, or the choice of a teacher layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.fit_lm_head import fit_lm_head
from kdnas.distill.layer_search import try_teacher_layers
from kdnas.distill.numerics import choose_dtype, num_threads, own_device
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.errors import TeacherError
from kdnas.latency.device_lock import training_lock
from kdnas.models.lm_head import has_lm_head
from kdnas.models.teacher import TeacherHandle, with_fitted_head
from kdnas.specs.objective_base import LearnsOneLayer, NeedsLMHead, ObjectiveSpec, TrialSpec
from kdnas.specs.objective_registry import choice_of
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.store import Store

OnPreparing = Callable[[str, int, int], None]
"""Is told what is being prepared, steps made, and of how many."""


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
            f"{objective.name} needs; add --fit-lm-head 1000 to train one on the corpus first, or "
            f"choose {choice_of(lambda kind: not kind.needs_lm_head)}"
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
            with training_lock():
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
        with training_lock(), num_threads(threads):
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
