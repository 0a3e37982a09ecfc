"""Students: built from an architecture in the teacher's family, and given a start."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError, TeacherError
from kdnas.models.families import Family, family_of
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.records import TeacherShape
from kdnas.search_space import AXES
from kdnas.specs.parts import Start

if TYPE_CHECKING:
    from transformers import PretrainedConfig

INITIALIZER_STD = 0.02
"""Deviation of fresh weights, and of warm-started embeddings (science §8)."""


def student_config(
    teacher: PretrainedConfig, architecture: Architecture, dropout: float = 0.0
) -> PretrainedConfig:
    """Return the configuration of a student: the teacher's, with the architecture's numbers.

    Family, vocabulary, positions, special tokens and attention windows stay; a factorised
    embedding becomes as wide as the student, unless that is of the teacher's own architecture; the
    kinds of its layers follow the teacher's pattern, and fresh weights have a deviation of 0.02
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_weights_seed(seed, architecture))
        model: nn.Module = AutoModel.from_config(
            config, dtype=torch.float32, **family.model_options()
        )
    return model


def _weights_seed(seed: int, architecture: Architecture) -> int:
    digest = hashlib.sha256(f"{seed}|{architecture}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class EmbeddingBasis:
    """A teacher's embeddings in the order of their principal components.

    Attributes:
        words: (V, d_T) centred word embeddings, times the components.
        positions: (P, d_T) centred position embeddings, times the same components.
    """

    words: Tensor
    positions: Tensor

    @classmethod
    def of(cls, teacher: nn.Module, family: Family) -> EmbeddingBasis:
        """Compute the basis once for all students of a teacher (float64 inside)."""
        words, positions = (e.double().cpu() for e in family.input_embeddings(teacher))
        words = words - words.mean(0)
        positions = positions - positions.mean(0)
        _, components = torch.linalg.eigh(words.T @ words)  # ascending
        components = components.flip(1)  # (d_T, d_T), strongest first
        return cls((words @ components).float(), (positions @ components).float())


def start_student(
    student: nn.Module,
    family: Family,
    init: Start,
    basis: EmbeddingBasis | None,
    teacher: nn.Module | None = None,
) -> None:
    """Give a student its start (science §8); ``random`` leaves it as built.

    ``teacher`` is :func:`kdnas.models.start.teacher_start.start_from_teacher`, and not made here.

    ``warm`` restricts no architecture and does two things:

    1. word and position embeddings become the teacher's, projected on their first d_S principal
       components and rescaled so that the word embeddings have a deviation of 0.02; a student
       wider than its teacher keeps random values in the other dimensions;
    2. the matrices that end the residual branches of attention and feed-forward become zero, so
       that a deep student begins as a shallow one.

    ``copy`` takes embeddings and layers from the teacher (Sanh et al. 2019): layer i from layer
    ⌈i·L^T/L^S⌉, which is the mapping ``uniform`` of science §2.

    Raises:
        ArchitectureError: ``copy``, and the student differs from its teacher in more than depth.
    """
    if init == "random":
        return
    if init == "copy":
        if teacher is None:
            raise ValueError("a start from copied layers needs the teacher")
        _copy_layers(student, family, teacher)
        return
    if basis is None:
        raise ValueError("a warm start needs the teacher's embedding basis")
    _silence(student, family)
    if hasattr(student, "embeddings_project") and teacher is not None:
        _copy_embeddings(student, teacher)  # as factorised as its teacher's
        return
    width = min(basis.words.shape[1], family.word_embeddings(student).shape[1])
    words, positions = basis.words[:, :width], basis.positions[:, :width]
    scale = INITIALIZER_STD / words.std()
    with torch.no_grad():
        family.word_embeddings(student)[:, :width] = words * scale
        places = family.position_embeddings(student)
        if places is not None:
            places[: len(positions), :width] = positions * scale


def _silence(student: nn.Module, family: Family) -> None:
    with torch.no_grad():
        for layer in family.transformer_layers(student):
            for path in family.silent:
                layer.get_submodule(path).get_parameter("weight").zero_()


def _copy_embeddings(student: nn.Module, teacher: nn.Module) -> None:
    for part in ("embeddings", "embeddings_project"):
        if hasattr(student, part):
            student.get_submodule(part).load_state_dict(teacher.get_submodule(part).state_dict())


def start_problem(init: str, student: Architecture, teacher: TeacherShape) -> str | None:
    """Say why a student of this teacher cannot have this start, or None if it can."""
    if init != "copy":
        return None
    return _copy_problem(*({axis: getattr(of, axis) for axis in AXES} for of in (student, teacher)))


def _copy_problem(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    for axis in AXES[1:]:
        if own[axis] != wanted[axis]:
            return (
                f"a student with {axis} {own[axis]} cannot copy layers of a teacher with {axis} "
                f"{wanted[axis]}; choose {axis} {wanted[axis]}, or the start warm"
            )
    if own["layers"] > wanted["layers"]:
        return (
            f"a student of {own['layers']} layers cannot copy those of a teacher of "
            f"{wanted['layers']}; choose at most {wanted['layers']}, or the start warm"
        )
    return None


def _copy_layers(student: nn.Module, family: Family, teacher: nn.Module) -> None:
    own, wanted = (_axes(model.config, family) for model in (student, teacher))
    if problem := _copy_problem(own, wanted):
        raise ArchitectureError(problem)
    width = family.word_embeddings(teacher).shape[1]
    if width != family.word_embeddings(student).shape[1]:
        raise ArchitectureError(
            f"a student of width {own['hidden']} cannot copy the embeddings of its teacher, which "
            f"are {width} wide; choose student.init warm"
        )
    layers, sources = map(family.transformer_layers, (student, teacher))
    _copy_embeddings(student, teacher)
    parts: list[tuple[nn.Module, nn.Module]] = []
    if family.final:
        parts.append((student.get_submodule(family.final), teacher.get_submodule(family.final)))
    for i, layer in enumerate(layers, 1):
        parts.append((layer, sources[-(-i * len(sources) // len(layers)) - 1]))
    for part, source in parts:
        values = source.state_dict()  # ModernBERT's first layer lacks a norm that others have
        part.load_state_dict({name: values[name] for name in part.state_dict()})


def load_weights(student: nn.Module, origin: TeacherHandle) -> None:
    """Begin with the weights of an earlier student of the same architecture.

    Raises:
        TeacherError: it is of another family, architecture or vocabulary, or lacks weights.
    """
    config: Any = student.config
    family, shape = family_of(config.model_type), origin.shape
    own = {"model type": config.model_type, **_axes(config, family)}
    own |= {"vocabulary": config.vocab_size, "positions": config.max_position_embeddings}
    theirs = {"model type": shape.model_type, **{axis: getattr(shape, axis) for axis in AXES}}
    theirs |= {"vocabulary": shape.vocab_size, "positions": shape.max_positions}
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


def _axes(config: Any, family: Family) -> dict[str, Any]:
    return {axis: getattr(config, family.config_keys[axis]) for axis in AXES}
