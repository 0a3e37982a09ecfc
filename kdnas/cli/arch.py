"""``kdnas arch``: what an architecture is, costs and learns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.architecture import Architecture
from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import nested
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import answer, fact_lines
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.models.teacher import TeacherHandle

PAPER_VOCABULARY, PAPER_TEACHER_LAYERS = 30522, 12
PARTS = ("layers", "heads", "head_size", "hidden", "intermediate", "activation")


def arch(
    architecture: Annotated[
        str,
        typer.Argument(
            help="layers,heads,hidden,intermediate,activation, such as 4,12,576,768,gelu."
        ),
    ],
    teacher: Annotated[
        str | None,
        typer.Option(help="Whose student it is: vocabulary, mapping and latency come from it."),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Vocabulary.  [default: the teacher's, else 30522]")
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a sequence, for the FLOPs.")] = 128,
    as_json: common.Json = False,
) -> None:
    """Show what an architecture costs and learns.

    Parameters, FLOPs a token, layer mapping, and latency if it is known.
    """
    from kdnas.models.cost import EmbeddingShape, count_parameters, flops_per_token
    from kdnas.models.teacher import prepare_teacher
    from kdnas.specs.parts import TeacherSpec

    parsed = Architecture.parse(architecture)
    inputs = gather("search", nested({"teacher.ref": teacher}), Settings.from_environment())
    origin = inputs.origins.get("teacher")
    handle = None
    if origin:  # without one, the paper's: the default teacher would surprise
        handle = prepare_teacher(TeacherSpec.read(inputs.data["teacher"], "teacher"))
    embedding = EmbeddingShape.of(handle.shape) if handle else EmbeddingShape(PAPER_VOCABULARY)
    if vocab_size is not None:
        embedding = replace(embedding, vocab_size=vocab_size)
    millions = count_parameters(parsed, embedding) / 1e6
    teacher_layers = handle.shape.layers if handle else PAPER_TEACHER_LAYERS
    facts: dict[str, Any] = {
        "architecture": str(parsed),
        **{name: getattr(parsed, name) for name in PARTS},
        "vocab_size": embedding.vocab_size,
        "params_millions": millions,
        "embedding_params_millions": embedding.rows * parsed.hidden / 1e6,
        "mflops_per_token": flops_per_token(parsed, length, gated=embedding.gated) / 1e6,
        "length": length,
        "teacher": handle.ref if handle else None,
        "teacher_layers": teacher_layers,
        "layer_mapping": _mapping(parsed, teacher_layers),
        "latency": None if handle is None else _latency(parsed, handle),
    }
    answer(facts, as_json, fact_lines(_in_words(facts, origin), 13))


def _mapping(architecture: Architecture, teacher_layers: int) -> dict[str, list[int]] | None:
    from kdnas.objectives.layer_mapping import layer_mapping

    if architecture.layers > teacher_layers:
        return None
    mapping = layer_mapping("kdnas", architecture.layers, teacher_layers)
    return {str(i): list(layers) for i, layers in mapping.items()}


def _latency(architecture: Architecture, handle: TeacherHandle) -> dict[str, Any] | None:
    """Look the architecture up in the stored table of this machine's default profile."""
    from api.inputs.preparation import stored_latencies
    from kdnas.latency.measure import current_profile
    from kdnas.specs.search import LatencySpec

    with stored() as (database, _):
        table = stored_latencies(database, current_profile(LatencySpec()), handle)
    if table is None or str(architecture) not in table.entries:
        return None
    entry = table.entries[str(architecture)]
    return {
        "latency_ms": entry.latency_ms,
        "latency_ratio": table.ratio(architecture),
        "measured": entry.measured,
        "device": table.profile.device,
    }


def _in_words(facts: dict[str, Any], origin: str | None) -> dict[str, str]:
    whose = f"a teacher of {facts['teacher_layers']} layers"
    mapping = facts["layer_mapping"]
    mapped = (
        f"none: the student is deeper than {whose}"
        if mapping is None
        else "  ".join(f"{i}→{','.join(map(str, js))}" for i, js in mapping.items())
    )
    latency = facts["latency"]
    if latency:
        how = "measured" if latency["measured"] else "from the block model"
        known = (
            f"{latency['latency_ms']:.2f} ms, {latency['latency_ratio']:.2f} of the teacher's "
            f"({how}, {latency['device']})"
        )
    elif facts["teacher"]:
        known = "not known yet; build the table with kdnas latency build"
    else:
        known = "not known; name a --teacher"
    return {
        "teacher": f"{facts['teacher']}  ({origin})" if origin else "none named; the paper's sizes",
        "architecture": f"{facts['architecture']}  (heads of {facts['head_size']})",
        "parameters": f"{facts['params_millions']:.1f} M, of them "
        f"{facts['embedding_params_millions']:.1f} M embeddings (vocabulary "
        f"{facts['vocab_size']}, no pooler)",
        "FLOPs": f"{facts['mflops_per_token']:.1f} M a token at {facts['length']} tokens",
        "mapping": f"{mapped}  (kdnas, {whose})",
        "latency": known,
    }
