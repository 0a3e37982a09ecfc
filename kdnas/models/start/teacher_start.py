"""A student cut from its teacher: the recipe, whole."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from kdnas.architecture import Architecture
from kdnas.models.families import Family
from kdnas.models.start.basis import student_basis
from kdnas.models.start.embeddings import start_embeddings
from kdnas.models.start.layers import shares
from kdnas.models.start.post_norm import PostNormWalk, Teacher
from kdnas.models.start.states import Layout, TeacherStates
from kdnas.models.start.weights import norm_eps, read_layer, write_layer
from kdnas.search_space import AXES


@torch.no_grad()
def start_from_teacher(
    student: nn.Module,
    teacher: nn.Module,
    family: Family,
    architecture: Architecture,
    states: TeacherStates,
    seed: int,
) -> None:
    """Write the weights that a student of any architecture begins with.

    Args:
        student: as built, in the teacher's family.
        teacher: the whole teacher.
        family: of both.
        architecture: of the student.
        states: the teacher's, on some text.
        seed: of the turn of the basis, and of dimensions that nothing is known of.
    """
    config: Any = teacher.config
    if all(getattr(config, family.config_keys[axis]) == getattr(architecture, axis) for axis in AXES):
        student.load_state_dict(teacher.state_dict())
        return
    layers = family.transformer_layers(teacher)
    pieces = shares(architecture.layers, len(layers))
    components = states.components(share.target for share in pieces)
    basis = student_basis(components, architecture.hidden, seed)
    layout = Layout(states.lengths)
    own = start_embeddings(
        student, teacher, family, basis, states.input_ids, layout, states.hidden(0) @ basis
    )
    generator = torch.Generator().manual_seed(_derived(seed, architecture))
    walk = PostNormWalk(
        Teacher(
            tuple(read_layer(family, layer) for layer in layers),
            getattr(config, family.config_keys["heads"]),
            getattr(config, family.config_keys["activation"]),
            norm_eps(layers[0].get_submodule(family.norms[0])),
        ),
        states,
        layout,
        architecture,
        basis,
        generator,
    )
    for share, layer in zip(pieces, family.transformer_layers(student), strict=True):
        weights, own = walk.layer(share, own)
        write_layer(family, layer, weights)


def _derived(seed: int, architecture: Architecture) -> int:
    digest = hashlib.sha256(f"start|{seed}|{architecture}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
