"""What an evaluation needs before it runs: the model, and the data of every task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kdnas.db.repository.evaluations import KEY
from kdnas.distill.export import RUN_FILE
from kdnas.distill.numerics import choose_device, choose_dtype
from kdnas.distill.onnx_session import require_packages
from kdnas.errors import TaskDataError
from kdnas.evaluation.data.choosing import chosen_tasks
from kdnas.evaluation.data.loading import left_out, load_task, what_is_amiss, without_plain
from kdnas.evaluation.finetuning.grid import grid_key
from kdnas.evaluation.finetuning.identity import METHOD, data_fingerprint, evaluation_key
from kdnas.evaluation.settings import FinetuneSettings, settings_for
from kdnas.evaluation.tasks.examples import Reading, TaskData
from kdnas.evaluation.tasks.task import Task
from kdnas.evaluation.untrained.own_head import labels_of_head
from kdnas.json_files import read_object
from kdnas.models.pooling import pooling_of
from kdnas.models.sentence_texts import prompts_of, text_form_of
from kdnas.models.teacher import TeacherHandle, prepare_teacher, with_layers
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.specs.parts import ModelSpec
from kdnas.store import Store


@dataclass(frozen=True)
class PlannedTask:
    """A task of an evaluation, looked at: its data are there and can be read.

    Attributes:
        task: the task.
        settings: of its fine-tunings.
        data: fingerprint of its data.
        train_examples: examples to learn from.
        evaluation_examples: evaluation set → its examples.
        official_split: whether training and evaluation sets are the benchmark's own.
        readings: how its files were understood.
    """

    task: Task
    settings: FinetuneSettings
    data: str
    train_examples: int
    evaluation_examples: dict[str, int]
    official_split: bool
    readings: tuple[Reading, ...] = ()

    def seeds(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Return the seeds to work with: where nothing is learned, there is nothing to draw."""
        return wanted if self.task.fine_tuned else (0,)

    @property
    def steps(self) -> float:
        """Steps of a fine-tuning, about: contexts may be several windows."""
        steps = self.train_examples / self.settings.batch_size * self.settings.epochs
        most = self.settings.max_steps
        return steps if most is None else min(steps, most)

    def key(self, model: TeacherHandle, seed: int, variant: str = "") -> str:
        """Name the fine-tuning of a model, or of a variant of it, with a seed."""
        if self.task.way == "embeddings":
            form = text_form_of(model, self.settings.max_length)
            how = [pooling_of(model).variant, form.variant]
            if self.task.kind == "retrieval":
                how.append(prompts_of(model.sentences, model.ref).variant)
            variant = ", ".join(filter(None, (variant, *how)))
        return evaluation_key(
            model.fingerprint, self.task.name, self.data, self.settings, seed, variant
        )

    def grid_key(self, model: TeacherHandle) -> str:
        """Name the grid of a model, which all seeds share; weights in int8 come after it."""
        cut = "" if model.keep_layers is None else f"{model.keep_layers} layers"
        return grid_key(model.fingerprint, self.task.name, self.data, self.settings, cut)


@dataclass(frozen=True)
class PreparedEvaluation:
    """An evaluation that can begin.

    Attributes:
        spec: the request with the model pinned.
        model: on this machine.
        tasks: in the order of the suite.
        absent: tasks of the suite that have no data, with the reason.
        device: that was chosen.
        distillation_id: of the distillation that made the model, if its folder says so and the
            model is taken as it is.
        keeps: whether fine-tuned models are kept beside their figures, to be saved elsewhere.
        reach: how what the request names is opened, now and later.
    """

    spec: EvaluationSpec
    model: TeacherHandle
    tasks: tuple[PlannedTask, ...]
    absent: dict[str, str]
    device: str
    distillation_id: str | None
    keeps: bool = False
    reach: Reach = ANYWHERE

    def is_like(self, other: PreparedEvaluation) -> bool:
        """Whether two evaluations with the same tasks are of the same model."""
        same_model = self.model.fingerprint == other.model.fingerprint
        return same_model and self.spec.variant == other.spec.variant

    def what_decides(self, planned: PlannedTask, seed: int) -> dict[str, Any]:
        """Say what decides the figures of a pair, with the key by which they are found again."""
        return {
            KEY: planned.key(self.model, seed, self.spec.variant),
            "model": self.spec.model.to_json(),
            "variant": self.spec.variant,
            "data": planned.data,
            "settings": planned.settings.to_json(),
            "method": METHOD,
        }

    def unchanged_data(self, planned: PlannedTask) -> TaskData:
        """Read the data of a planned task.

        Raises:
            TaskDataError: they are not those that were planned with, or not there any more.
        """
        data = read_data(self.spec, planned.task, self.reach)
        if data_fingerprint(data, tuned=planned.settings.tuned) != planned.data:
            raise TaskDataError(
                f"the data of {planned.task.name} in {', '.join(data.sources)} have changed since "
                "they were first read; run the command again"
            )
        return data


def prepare_evaluation(
    spec: EvaluationSpec,
    on_task: Callable[[str], None] = lambda _: None,
    store: Store | None = None,
    reach: Reach = ANYWHERE,
) -> PreparedEvaluation:
    """Find the model and read the data of every task once.

    Tasks that were named must have data; of a whole suite, those that have some are evaluated.

    Args:
        spec: the request.
        on_task: is told the name of the task whose data are read.
        store: where the model is brought; None leaves it where it is.
        reach: how model and data are opened; where that is limited, a store is needed.

    Raises:
        RequestError: the model, or a file of the data, is out of reach.
        SpecError: an unknown suite or task.
        TaskDataError: data that are not there or cannot be read.
        TeacherError: the model is not found or cannot be used.
    """
    tasks = chosen_tasks(spec)
    model = prepare_teacher(spec.model, store, reach)
    if spec.keep_layers is not None:
        model = with_layers(model, spec.keep_layers)
    if spec.int8:
        require_packages()
    device = choose_device(spec.device)
    dtype = choose_dtype(spec.dtype, device)
    planned: list[PlannedTask] = []
    absent: dict[str, TaskDataError] = {}
    for task in tasks:
        on_task(task.name)
        try:
            data = read_data(spec, task, reach)
        except TaskDataError as error:
            if spec.tasks:
                raise
            absent[task.name] = error
        else:
            if task.way == "own head":
                labels_of_head(model, data)
            settings = settings_for(task, spec, dtype)
            planned.append(
                PlannedTask(
                    task=task,
                    settings=settings,
                    data=data_fingerprint(data, tuned=settings.tuned),
                    train_examples=len(data.train),
                    evaluation_examples={n: len(part) for n, part in data.evaluations.items()},
                    official_split=data.official_split,
                    readings=data.readings,
                )
            )
    if not planned:
        raise what_is_amiss(tasks, absent)
    if not spec.tasks:
        certain = without_plain([one.task for one in planned])
        planned = [one for one in planned if one.task in certain]
    absent = left_out([one.task for one in planned], absent)
    missed = [t.name for t in tasks if t.name in absent and t.layout.folders]
    pinned = spec.model.model_copy(update={"fingerprint": model.fingerprint, "ref": _name(model)})
    return PreparedEvaluation(
        spec.model_copy(update={"model": pinned, "tasks": tuple(p.task.name for p in planned)}),
        model,
        tuple(planned),
        {name: str(absent[name]) for name in missed},
        device,
        None if spec.variant else _distillation_of(model, reach),
        reach=reach,
    )


def prepared_for(ref: str, prepared: PreparedEvaluation) -> PreparedEvaluation:
    """Return the evaluation of another model, as it is, with the same tasks, settings and seeds.

    Raises:
        TeacherError: the model is not found or cannot be used.
    """
    model = prepare_teacher(ref)
    spec = prepared.spec.model_copy(
        update={
            "model": ModelSpec(ref=_name(model), fingerprint=model.fingerprint),
            "int8": False,
            "keep_layers": None,
        }
    )
    origin = _distillation_of(model, prepared.reach)
    return replace(prepared, spec=spec, model=model, distillation_id=origin, keeps=False)


def read_data(spec: EvaluationSpec, task: Task, reach: Reach = ANYWHERE) -> TaskData:
    """Read a task's data: from the folder of the request, else from the hub."""
    folder = expanded(spec.data_dir) if spec.data_dir else None
    return load_task(task, folder, reach=reach)


def _name(model: TeacherHandle) -> str:
    """Return the name of a model that means the same in every working folder."""
    return str(expanded(model.ref).absolute()) if expanded(model.ref).is_dir() else model.ref


def _distillation_of(model: TeacherHandle, reach: Reach) -> str | None:
    # The copy of a folder that was named lacks it; no other folder is limited.
    file = (model.source or model.folder) / RUN_FILE
    about = read_object(file, reach if model.source else ANYWHERE) or {}
    found = about.get("distillation_id")
    return found if isinstance(found, str) else None
