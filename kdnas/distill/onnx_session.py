"""ONNX graphs in onnxruntime on the CPU; no torch, since none is needed where they are served."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdnas.errors import RequestError

FLOAT_FILE, INT8_FILE = "model.onnx", "model.int8.onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def require_packages() -> None:
    """Check that the extra ``onnx`` is installed.

    Raises:
        RequestError: a package is missing.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"ONNX, and so int8, needs the package {missing[0]}, which is not installed; run: "
            "make setup, or pip install 'kdnas[onnx]'"
        )


class OnnxGraph:
    """An ONNX file in onnxruntime on the CPU.

    Args:
        file: the graph.
        threads: intra-op threads; 0 leaves them to onnxruntime.
    """

    def __init__(self, file: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(value.name for value in self._session.get_inputs())

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the graph on NumPy arrays; all outputs, in their order."""
        return list(self._session.run(None, dict(inputs)))

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Run the graph on NumPy arrays; its first output."""
        return self.run(inputs)[0]


def graph_bytes(file: Path) -> int:
    """Size of a graph on disk, with the weights that lie beside it."""
    beside = file.with_name(f"{file.name}.data")
    return sum(part.stat().st_size for part in (file, beside) if part.is_file())
