"""The DistilBERT baseline."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.models.lm_head import MaskedLMHead
from kdnas.objectives.base import Head
from kdnas.records import TeacherShape


@dataclass(frozen=True)
class DistilBert:
    """Relations of queries, keys and values."""

    temperature: float = 2.0
    weights: tuple[float, float, float] = (1.0, 5.0, 2.0)
    name: str = "distilbert"
    masks_tokens: bool = True
    needs_lm_head: bool = True
    copies_layers: bool = True

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Not written yet."""
        raise NotImplementedError

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> Head:
        """Not written yet."""
        raise NotImplementedError
