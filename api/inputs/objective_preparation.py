"""What an objective needs before training: a masked-LM head, or the choice of a teacher layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

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
from kdnas.objectives.registry import build_stages
from kdnas.specs.objectives import (
    EQUAL,
    DirectMiniLMSpec,
    DistilBertSpec,
    MiniLMv2Spec,
    MultiStageSpec,
    ObjectiveSpec,
    OutputSpec,
    TrialSpec,
)
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.store import Store

LARGEST_RATE_OF_OD = 5e-4
"""Between 2e-4, which teaches a student, and 1e-3, which ruins it (docs/objectives.md)."""

OnPreparing = Callable[[str, int, int], None]
"""Is told what is being prepared, steps made, and of how many."""


def check_objective(objective: ObjectiveSpec, teacher: TeacherHandle) -> None:
    """Refuse what the teacher cannot give, before a corpus is tokenised.

    Raises:
        TeacherError: a masked-LM head is needed, there is none, and none is to be fitted.
    """
    if (
        isinstance(objective, OutputSpec | DistilBertSpec | MultiStageSpec)
        and objective.fit_lm_head is None
        and objective.lm_head is None
        and not has_lm_head(teacher)
    ):
        raise TeacherError(
            f"teacher {teacher.ref!r} has no masked-LM head, which the objective "
            f"{objective.name} needs; add --fit-lm-head 1000 to train one on the corpus first, or "
            "choose hs, minilmv2 or direct-minilm"
        )


def rate_warnings(objective: ObjectiveSpec, rate: float) -> list[str]:
    """Say of a learning rate that it ruins what learns output distributions."""
    learning = [stage for stage in build_stages(objective) if stage.objective.needs_lm_head]
    peaks = [rate * stage.rate for stage in learning]
    return [
        f"a learning rate of {peak:g} is large for output distributions: 0.0002 taught a student "
        f"that 0.001 ruined; give at most {LARGEST_RATE_OF_OD:g}"
        + (f" (it is {peak / rate:g} times {rate:g}: od_rate)" if peak != rate else "")
        for peak in peaks
        if peak > LARGEST_RATE_OF_OD
    ]


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
    if isinstance(objective, MiniLMv2Spec | DirectMiniLMSpec):
        if objective.teacher_layer != "search":
            return objective, teacher
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
        return objective.model_copy(update=found), teacher
    if not isinstance(objective, OutputSpec | DistilBertSpec | MultiStageSpec):
        return objective, teacher
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
    return objective, teacher


def without_trials(objective: ObjectiveSpec) -> dict[str, Any]:
    """Return an objective as part of a loss's context: how it was prepared does not count."""
    left_out = {"trials", "trial_steps", "fit_lm_head"}  # the head itself is named by ``lm_head``
    told = {k: v for k, v in objective.to_json().items() if k not in left_out}
    # What was stored before layers could differ in weight says nothing of it, and is the same.
    return {k: v for k, v in told.items() if (k, v) != ("last_weight", EQUAL)}
