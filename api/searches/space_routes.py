"""The space that a search explores."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.http.rendering import rendered
from api.latency_tables.schemas import SpaceShape
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace

router = APIRouter(tags=["architectures"])


@router.get("/search-space", response_model=SpaceShape)
def read_search_space(
    kind: Literal["paper", "scaled"] = "paper",
    layers: Annotated[
        int, Query(ge=1, le=1000, description="Of the teacher, where the space is scaled to it.")
    ] = 12,
    hidden: Annotated[
        int, Query(ge=1, le=100_000, description="Of the teacher, where the space is scaled.")
    ] = 768,
) -> Response:
    """Give the axes of a search space, and how many states have each value."""
    space = SearchSpace.paper()
    if kind == "scaled":
        space = SearchSpace.scaled_to(_teacher(layers, hidden))
    return rendered(
        {
            "kind": kind,
            "num_states": len(space),
            "axes": {axis: list(values) for axis, values in space.axes.items()},
            "counts": {
                axis: _in_order(values, Counter(getattr(state, axis) for state in space.states))
                for axis, values in space.axes.items()
            },
        }
    )


def _teacher(layers: int, hidden: int) -> TeacherShape:
    """A teacher of this size; nothing else of it shapes the space."""
    return TeacherShape(
        model_type="bert",
        layers=layers,
        heads=1,
        hidden=hidden,
        intermediate=4 * hidden,
        activation="gelu",
        vocab_size=1,
        max_positions=1,
        type_vocab_size=1,
        fingerprint="",
    )


def _in_order(values: tuple[object, ...], counts: Counter[object]) -> dict[str, int]:
    return {str(value): counts[value] for value in values}
