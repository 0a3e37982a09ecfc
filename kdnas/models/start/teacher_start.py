"""A student cut from its teacher: the recipe, whole."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.models.families import Family
from kdnas.models.start.basis import student_basis
from kdnas.models.start.embeddings import start_embeddings, unit_stream
from kdnas.models.start.layers import shares
from kdnas.models.start.norms import fitted_norm, unit_factor
from kdnas.models.start.post_norm import PostNormWalk
from kdnas.models.start.pre_norm import PreNormWalk
from kdnas.models.start.relations import Compared
from kdnas.models.start.states import Layout, TeacherStates
from kdnas.models.start.walk import Model, Stream, Task, Walk
from kdnas.models.start.weights import norm_eps, write_layer, write_norm


@torch.no_grad()
def start_from_teacher(
    student: nn.Module,
    teacher: nn.Module,
    family: Family,
    architecture: Architecture,
    states: TeacherStates,
    seed: int,
    compared: Compared | None = None,
) -> list[Tensor]:
    """Write the weights that a student of any architecture begins with.

    A student of its teacher's own architecture gets the teacher's weights, whatever is compared.

    Args:
        student: as built, in the teacher's family, on the CPU.
        teacher: the whole teacher.
        family: of both.
        architecture: of the student.
        states: the teacher's, on some text.
        seed: of the turn of the basis, and of dimensions that nothing is known of.
        compared: what an objective compares the last layer's queries, keys and values with. Where
            positions are rotary, the basis of queries and keys is not free, and only values are
            cut for that.

    Returns:
        What the student then makes of the text, (N, d) behind its embeddings and each of its
        layers, of the last layer the encoder's output: known already, and so need not be run again.
    """
    config: Any = teacher.config
    if family.axes(config) == asdict(architecture):
        student.load_state_dict(teacher.state_dict())
        return [states.output(layer) for layer in range(states.num_layers + 1)]
    whole = Model.of(teacher, family)
    pieces = shares(
        architecture.layers,
        len(whole.layers),
        family.layer_kinds(student),
        family.layer_kinds(teacher),
        None if compared is None else compared.teacher_layer,
    )
    components = states.components(share.target for share in pieces)
    basis = student_basis(components, architecture.hidden, seed)
    layout = Layout(states.lengths)
    target = states.hidden(0) @ basis
    rows = start_embeddings(student, teacher, family, basis, states.input_ids, layout, target)
    own = unit_stream(student, family, Stream(rows, basis))
    generator = torch.Generator().manual_seed(_derived(seed, architecture))
    built = Model.of(student, family)
    task = Task(whole, built, states, layout, architecture, generator, compared)
    walk: Walk = PreNormWalk(task) if family.normalises_first else PostNormWalk(task)
    seen = [own.rows]
    for number, share in enumerate(pieces, 1):
        weights, own = walk.layer(number, share, own)
        seen.append(own.rows)
        write_layer(family, family.transformer_layers(student)[number - 1], weights)
    if family.final:
        final = student.get_submodule(family.final)
        biased = getattr(final, "bias", None) is not None
        norm, rows = fitted_norm(
            own.rows, states.output(len(whole.layers)) @ own.basis, norm_eps(final), biased
        )
        factor = unit_factor(norm)
        write_norm(final, norm.times(factor))
        seen[-1] = rows * factor
    return seen


def _derived(seed: int, architecture: Architecture) -> int:
    digest = hashlib.sha256(f"start|{seed}|{architecture}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
