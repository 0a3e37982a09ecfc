"""Students: built from an architecture in the teacher's family."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kdnas.architecture import Architecture
from kdnas.errors import TeacherError
from kdnas.models.families import family_of
from kdnas.models.making import MAKING_MODELS
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.search_space import AXES

if TYPE_CHECKING:
    from transformers import PretrainedConfig

INITIALIZER_STD = 0.02
"""Deviation of fresh weights, and of the embeddings of a warm start."""


def student_config(
    teacher: PretrainedConfig, architecture: Architecture, dropout: float = 0.0
) -> PretrainedConfig:
    """Return the configuration of a student: the teacher's, with the architecture's numbers.

    Family, vocabulary, positions, special tokens and attention windows stay; a factorised
    embedding becomes as wide as the student, unless that differs from its teacher in depth alone;
    the kinds of its layers follow the teacher's pattern, and fresh weights have a deviation of 0.02
    whatever the teacher's had.
    """
    family = family_of(teacher.model_type)
    config = deepcopy(teacher)
    values = family.config_values(architecture, teacher) | dict.fromkeys(
        family.dropout_keys, dropout
    )
    for key, value in values.items():
        setattr(config, key, value)
    config.initializer_range = INITIALIZER_STD
    config.architectures = None
    return config


def build_student(
    teacher: PretrainedConfig,
    architecture: Architecture,
    *,
    seed: int = 0,
    dropout: float = 0.0,
    vocab_size: int | None = None,
) -> nn.Module:
    """Build a student with random weights: no pooler, float32, on the CPU.

    Args:
        teacher: configuration of the teacher.
        architecture: sizes of the student.
        seed: of the weights; together with the architecture it decides them whole. The
            process's own random state stays as it was.
        dropout: all dropout probabilities.
        vocab_size: another vocabulary, for measuring speed without a large embedding.
    """
    from transformers import AutoModel

    config = student_config(teacher, architecture, dropout)
    if vocab_size is not None:
        config.vocab_size = vocab_size
        config.pad_token_id = min(config.pad_token_id or 0, vocab_size - 1)
    family = family_of(config.model_type)
    with MAKING_MODELS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(_weights_seed(seed, architecture))
        model: nn.Module = AutoModel.from_config(
            config, dtype=torch.float32, **family.model_options()
        )
    return model


def _weights_seed(seed: int, architecture: Architecture) -> int:
    digest = hashlib.sha256(f"{seed}|{architecture}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


WITHOUT_WEIGHTS = (
    *("layer_types", "local_attention", "rope_parameters"),
    *("layer_norm_eps", "norm_eps", "pad_token_id"),
)
"""Of a configuration: what a model computes by, and its weights do not tell."""


def load_weights(student: nn.Module, origin: TeacherHandle) -> None:
    """Begin with the weights of an earlier student of the same architecture.

    Raises:
        TeacherError: it is of another family, architecture or vocabulary, or lacks weights.
    """
    config: Any = student.config
    family, shape = family_of(config.model_type), origin.shape
    own = {"model type": config.model_type, **family.axes(config)}
    own |= {"vocabulary": config.vocab_size, "positions": config.max_position_embeddings}
    theirs = {"model type": shape.model_type, **{axis: getattr(shape, axis) for axis in AXES}}
    theirs |= {"vocabulary": shape.vocab_size, "positions": shape.max_positions}
    both = [key for key in WITHOUT_WEIGHTS if hasattr(config, key) and hasattr(origin.config, key)]
    own |= {key: getattr(config, key) for key in both}
    theirs |= {key: getattr(origin.config, key) for key in both}
    for what, wanted in own.items():
        if theirs[what] != wanted:
            raise TeacherError(
                f"init_from {origin.ref!r} has {what} {theirs[what]}, and the student has "
                f"{what} {wanted}; name a model whose architecture is that of the student "
                f"({','.join(str(own[axis]) for axis in AXES)}), distilled from the same teacher"
            )
    try:
        student.load_state_dict(load_teacher_model(origin).state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[-160:]
        raise TeacherError(
            f"the weights of init_from {origin.ref!r} do not fit the student ({reason}); name a "
            "student that was distilled from the same teacher"
        ) from None
