"""Size and speed of a model, as plain values that stand beside its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

RUNTIME_NAMES = {"pytorch": "PyTorch", "onnx": "ONNX", "onnx-int8": "ONNX int8"}


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """How large a model is, and how long it takes for one sequence.

    Attributes:
        parameters: of the encoder, without pooler and heads.
        disk_bytes: of its weights on disk; None of a model in int8 that was not made.
        runtime: that it was timed in: ``pytorch``, or ``onnx-int8`` of a model in int8.
        latency_ms: median of one sequence; None if it was not measured.
        device: hardware, such as ``cpu:AMD EPYC``.
        length: tokens of the sequence.
        threads: intra-op threads.
    """

    parameters: int
    disk_bytes: int | None
    runtime: str
    latency_ms: float | None = None
    device: str | None = None
    length: int | None = None
    threads: int | None = None

    @property
    def conditions(self) -> tuple[str | None, int | None, int | None]:
        """Device, length and threads: latencies under equal ones may be compared."""
        return self.device, self.length, self.threads

    def speed_up_over(self, other: ModelFigures | None) -> float | None:
        """How many times sooner this model answers than another one; None if that is not known."""
        if other is None or self.conditions != other.conditions:
            return None
        if not (self.latency_ms and other.latency_ms):
            return None
        return other.latency_ms / self.latency_ms

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` takes them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> ModelFigures | None:
        """Read back what :meth:`to_json` gave; None of a result that has no figures."""
        return None if values is None else cls(**values)
