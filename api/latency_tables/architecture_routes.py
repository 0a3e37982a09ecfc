"""What an architecture is and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered
from api.latency_tables.schemas import ArchitectureFacts
from kdnas.architecture import Architecture
from kdnas.db.lists.latency_pages import known_latencies
from kdnas.models.cost import EmbeddingShape, count_parameters, flops_per_token
from kdnas.objectives.layer_mapping import layer_mapping

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
