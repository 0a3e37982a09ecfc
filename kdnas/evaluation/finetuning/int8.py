"""Models with weights of 8 bits, in onnxruntime on the CPU: what ``kdnas export --int8`` serves.

Torch's own dynamic quantisation is on its way out, and less exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from kdnas.distill.onnx_graph import INPUTS, Traced, quantise, traced_inputs, write_graph
from kdnas.distill.onnx_session import FLOAT_FILE, INT8_FILE, OnnxGraph, require_packages
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.models.teacher import TeacherHandle

INT8_NOTE = "weights in int8 (dynamic quantisation), run by onnxruntime on the CPU"


class GraphModel(nn.Module):
    """A graph in the place of a model: tensors in, outputs by name."""

    def __init__(self, graph: OnnxGraph, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self._graph, self._outputs = graph, outputs

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Run the graph; inputs that it does not have are left out."""
        arrays = {name: inputs[name].cpu().numpy() for name in self._graph.inputs}
        values = map(torch.from_numpy, self._graph.run(arrays))
        return dict(zip(self._outputs, values, strict=True))


@contextmanager
def in_int8(
    model: nn.Module, inputs: frozenset[str], outputs: tuple[str, ...], name: str
) -> Iterator[tuple[GraphModel, Path]]:
    """Quantise a model for the time of a ``with`` block.

    Args:
        model: on the CPU afterwards, in eval mode.
        inputs: names of the tensors that it takes.
        outputs: names of the outputs that are wanted.
        name: what the user calls it.

    Yields:
        The quantised model, and the file of its graph.

    Raises:
        RequestError: the extra ``onnx`` is not installed.
        StoreError: the model cannot be exported.
    """
    require_packages()
    example = traced_inputs([name for name in INPUTS if name in inputs])
    with TemporaryDirectory(prefix="kdnas-int8-") as scratch:
        folder = Path(scratch)
        traced = Traced(model.cpu().eval(), outputs).eval()
        write_graph(traced, example, outputs, folder / FLOAT_FILE, name)
        quantise(folder)
        graph = OnnxGraph(folder / INT8_FILE, torch.get_num_threads())
        yield GraphModel(graph, outputs).eval(), folder / INT8_FILE


@contextmanager
def task_model_in_int8(
    task_model: TaskModel, kind: str, handle: TeacherHandle
) -> Iterator[TaskModel]:
    """Quantise a fine-tuned model, head included, for the time of a ``with`` block.

    Args:
        task_model: the model.
        kind: of its task.
        handle: of the model that was fine-tuned.

    Raises:
        RequestError: the extra ``onnx`` is not installed.
        StoreError: the model cannot be exported.
    """
    inputs = frozenset(task_model.taken(task_model.tokenizer("a", "b")))
    outputs = ("start_logits", "end_logits") if kind == "span" else ("logits",)
    with in_int8(task_model.model, inputs, outputs, handle.ref) as (model, _):
        yield replace(task_model, model=model)
