"""ONNX graphs: made from a module, and made int8."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from kdnas.distill.onnx_lstm import with_onnx_lstms
from kdnas.distill.onnx_session import FLOAT_FILE, INT8_FILE
from kdnas.errors import StoreError

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What graphs may take, in this order; all int64 (B, T)."""


class Traced(nn.Module):
    """A model as a function of tensors that returns some of its outputs.

    Args:
        model: in eval mode; its output has them by name.
        outputs: their names.
    """

    def __init__(self, model: nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, tuple(outputs)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        output = self.model(**inputs)
        return tuple(output[name] for name in self.outputs)


def traced_inputs(names: Sequence[str], length: int = 8) -> dict[str, Tensor]:
    """Make a small batch, (2, T) each, to trace a model with; padding and both types are in it.

    Args:
        names: of :data:`INPUTS`.
        length: T.
    """
    ids = torch.full((2, length), 5)
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    mask[1, -2:] = 0
    types[:, length // 2 :] = 1
    values = dict(zip(INPUTS, (ids, mask, types), strict=True))
    return {name: values[name] for name in names}


def write_graph(
    module: nn.Module,
    example: Mapping[str, Tensor],
    outputs: Sequence[str],
    file: Path,
    name: str,
) -> int:
    """Export a module; batch and sequence of its inputs, (B, T) each, stay free.

    Args:
        module: a function of named tensors, in eval mode.
        example: inputs to trace it with, at least two rows and two tokens.
        outputs: names of what it returns.
        file: where to write the graph; large weights lie beside it.
        name: what the user calls the model.

    Returns:
        The opset of the graph.

    Raises:
        StoreError: the module cannot be exported.
    """
    axes = {0: "batch", 1: "sequence"}
    try:
        with quiet_exporters():
            program = torch.onnx.export(
                with_onnx_lstms(module),
                kwargs=dict(example),
                input_names=list(example),
                output_names=list(outputs),
                dynamic_shapes=dict.fromkeys(example, axes),
                dynamo=True,
                verbose=False,
            )
            assert program is not None  # it is None only without dynamo
            program.save(file)
    except (torch.onnx.errors.OnnxExporterError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise StoreError(
            f"{name} could not be exported to ONNX ({reason}); check the versions of torch "
            "and onnxscript against constraints.txt"
        ) from error
    return int(program.model.opset_imports[""])


def quantise(folder: Path) -> None:
    """Write the int8 graph beside the float one.

    Weights get 8 bits with a scale for each output channel, of which 7 are used: processors without
    VNNI add two products of 8 bits in 16, and what does not fit there is cut off without a word (a
    tiny ModernBERT: 16 % of its logits' range). Activations are quantised as they come
    (onnxruntime's dynamic quantisation).
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The quantiser turns the weights of a head round, and then stumbles over the shapes that the
    # exporter wrote down for them; it finds all shapes itself.
    model = onnx.load(folder / FLOAT_FILE, load_external_data=False)
    del model.graph.value_info[:]
    plain = folder / f"plain-{FLOAT_FILE}"
    onnx.save(model, plain)
    try:
        with quiet_exporters():
            quantize_dynamic(
                plain,
                folder / INT8_FILE,
                per_channel=True,
                weight_type=QuantType.QInt8,
                reduce_range=True,
                use_external_data_format=(folder / f"{FLOAT_FILE}.data").is_file(),
            )
    finally:
        plain.unlink()


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Keep the exporters' advice to their developers off the user's screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
