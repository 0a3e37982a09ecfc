"""Measuring the size and the speed of models that are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from kdnas.distill.numerics import num_threads
from kdnas.distill.onnx_session import graph_bytes
from kdnas.errors import LatencyError
from kdnas.evaluation.finetuning.int8 import in_int8
from kdnas.evaluation.model_figures import ModelFigures
from kdnas.latency.side_by_side import time_side_by_side
from kdnas.models.families import family_of
from kdnas.models.making import MAKING_MODELS
from kdnas.models.opening import ModelHandle
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.specs.evaluation import TimedSpec

FIRST_ID = 5
"""Low ids are padding and other special tokens."""


@dataclass(frozen=True, slots=True)
class TimedModel:
    """A model as it is evaluated: on this machine, upper layers cut off or not, in int8 or not."""

    handle: TeacherHandle
    int8: bool = False


def parameters_of(handle: ModelHandle) -> int:
    """Count the parameters of what is timed: of a model's encoder, without pooler and heads.

    Of a student that is no Transformer, all of them.
    """
    from transformers import AutoModel

    with MAKING_MODELS, torch.device("meta"):
        if isinstance(handle, SequenceHandle):
            model = SequenceClassifier(handle.config)
        else:
            options = family_of(handle.shape.model_type).model_options()
            model = AutoModel.from_config(deepcopy(handle.config), **options)
    return sum(p.numel() for p in model.parameters())


def weights_on_disk(handle: ModelHandle) -> int:
    """Size of a model's weight files, in bytes; of one that was cut, its share of parameters."""
    whole = sum(file.stat().st_size for file in handle.folder.glob("*.safetensors"))
    if isinstance(handle, SequenceHandle) or handle.keep_layers is None:
        return whole
    return round(whole * parameters_of(handle) / parameters_of(replace(handle, keep_layers=None)))


def common_length(models: Sequence[TimedModel], wanted: TimedSpec) -> int:
    """Tokens of a sequence that all models take."""
    return min(wanted.length, *(model.handle.longest_sequence for model in models))


def measure_models(
    models: Sequence[TimedModel],
    wanted: TimedSpec | None,
    *,
    wait_seconds: float | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[list[ModelFigures], str | None]:
    """Measure models, their latencies in turns with the machine to themselves.

    Args:
        models: at least one.
        wanted: how latency is measured; None leaves it out, and the graphs of int8 with it.
        wait_seconds: longest time to wait for trainings on this machine to end.
        on_wait: is told if there is something to wait for.

    Returns:
        The figures of each, and why latency is missing, if it should be there.

    Raises:
        TeacherError: a model does not load.
        StoreError: a model cannot be exported for int8.
    """
    if wanted is None:
        return [_size(model) for model in models], None
    length = common_length(models, wanted)
    with ExitStack() as stack:
        stack.enter_context(num_threads(wanted.threads))
        runs: dict[str, Callable[[], object]] = {}
        figures = []
        for number, model in enumerate(models):
            run, file = _loaded(model, length, stack)
            runs[str(number)] = run
            size = _size(model)
            figures.append(size if file is None else replace(size, disk_bytes=graph_bytes(file)))
        try:
            profile, medians = time_side_by_side(
                runs, wanted.threads, length, on_wait, wait_seconds=wait_seconds
            )
        except LatencyError as error:
            return figures, f"latency was not measured: {error}"
    timed = [
        replace(
            one,
            latency_ms=medians[str(number)],
            device=profile.device,
            length=profile.length,
            threads=profile.threads,
        )
        for number, one in enumerate(figures)
    ]
    return timed, None


def _size(model: TimedModel) -> ModelFigures:
    return ModelFigures(
        parameters_of(model.handle),
        None if model.int8 else weights_on_disk(model.handle),
        "onnx-int8" if model.int8 else "pytorch",
    )


def _loaded(
    model: TimedModel, length: int, stack: ExitStack
) -> tuple[Callable[[], object], Path | None]:
    """Return one inference of a model, and the file of its graph, if it has one."""
    vocabulary = model.handle.shape.vocab_size
    ids = torch.from_numpy(
        np.random.default_rng(0).integers(
            min(FIRST_ID, vocabulary - 1), vocabulary, (1, length), dtype=np.int64
        )
    )
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    encoder = load_teacher_model(model.handle)
    if not model.int8:
        return lambda: encoder(**batch), None
    quantised, file = stack.enter_context(
        in_int8(encoder, frozenset(batch), ("last_hidden_state",), model.handle.ref)
    )
    return lambda: quantised(**batch), file
