"""What an architecture is and costs, and which ones a search space has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered
from api.latency_tables.schemas import ArchitectureFacts, SpaceShape
from kdnas.architecture import Architecture
from kdnas.db.lists.latency_pages import known_latencies
from kdnas.models.cost import EmbeddingShape, count_parameters, flops_per_token
from kdnas.objectives.layer_mapping import layer_mapping
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace

PAPER_VOCABULARY, PAPER_TEACHER_LAYERS = 30522, 12

router = APIRouter(tags=["architectures"])


@router.get("/architectures/{architecture}", response_model=ArchitectureFacts)
def read_architecture(
    architecture: Annotated[
        str,
        Path(
            max_length=200,
            description="layers,heads,hidden,intermediate,activation",
            examples=["4,12,576,768,gelu"],
        ),
    ],
    database: DatabaseDep,
    vocab_size: Annotated[int, Query(ge=1, le=10_000_000)] = PAPER_VOCABULARY,
    length: Annotated[
        int, Query(ge=1, le=1_000_000, description="Tokens of a sequence, for the FLOPs.")
    ] = 128,
    teacher_layers: Annotated[
        int, Query(ge=1, le=1000, description="Depth of the teacher, for the mapping.")
    ] = PAPER_TEACHER_LAYERS,
) -> Response:
    """Give an architecture's parameters, FLOPs, layer mapping, and latencies wherever known."""
    parsed = Architecture.parse(architecture)
    embedding = replace(EmbeddingShape(PAPER_VOCABULARY), vocab_size=vocab_size)
    mapping = None
    if parsed.layers <= teacher_layers:
        mapping = layer_mapping("kdnas", parsed.layers, teacher_layers)
    with database.read() as session:
        latencies = known_latencies(session, parsed)
    return rendered(
        {
            "architecture": str(parsed),
            "layers": parsed.layers,
            "heads": parsed.heads,
            "head_size": parsed.head_size,
            "hidden": parsed.hidden,
            "intermediate": parsed.intermediate,
            "activation": parsed.activation,
            "vocab_size": embedding.vocab_size,
            "params_millions": count_parameters(parsed, embedding) / 1e6,
            "embedding_params_millions": embedding.rows * parsed.hidden / 1e6,
            "mflops_per_token": flops_per_token(parsed, length, gated=embedding.gated) / 1e6,
            "length": length,
            "teacher_layers": teacher_layers,
            "layer_mapping": None
            if mapping is None
            else {str(layer): list(layers) for layer, layers in mapping.items()},
            "latencies": latencies,
        }
    )


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
