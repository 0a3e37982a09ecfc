"""MiniLMv2: relations of queries, keys and values (Wang Eq. 5-8)."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.models.lm_head import MaskedLMHead
from kdnas.objectives.base import Head
from kdnas.records import TeacherShape


@dataclass(frozen=True)
class MiniLMv2:
    """Relations of queries, keys and values."""

    relations: tuple[tuple[str, float], ...] = (("qq", 1.0), ("kk", 1.0), ("vv", 1.0))
    relation_heads: int | None = None
    teacher_layer: int | None = None
    name: str = "minilmv2"
    masks_tokens: bool = False
    needs_lm_head: bool = False
    copies_layers: bool = False

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
