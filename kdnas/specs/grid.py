"""What grids of hyper-parameters have in common: each point is a choice of one value of each."""

from __future__ import annotations

from math import prod
from typing import Any, Final, Self

from pydantic import field_validator, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.wording import shown

MOST_POINTS: Final = 100
"""Of a grid."""


class ProductSpec(Spec):
    """A grid whose fields are the values that are tried of each hyper-parameter."""

    @field_validator("*")
    @classmethod
    def _distinct(cls, value: Any) -> Any:
        if len(set(value)) < len(value):
            raise ValueError(f"values of a grid must differ, not {shown(list(value))}")
        return value

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        count = prod(len(getattr(self, name)) for name in type(self).model_fields)
        if count > MOST_POINTS:
            raise ValueError(f"a grid has at most {MOST_POINTS} points, not {count}")
        return self
