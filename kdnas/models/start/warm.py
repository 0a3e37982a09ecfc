"""The warm start: a student of any architecture begins with its teacher's embeddings alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kdnas.models.families import Family
from kdnas.models.start.copied import copy_embeddings
from kdnas.models.student import INITIALIZER_STD


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


@torch.no_grad()
def start_warm(
    student: nn.Module, teacher: nn.Module, family: Family, basis: EmbeddingBasis
) -> None:
    """Write a teacher's embeddings into a student, and let its layers begin silent.

    1. Word and position embeddings become the teacher's, projected on their first d_S principal
       components and rescaled so that the word embeddings have a deviation of 0.02; a student
       wider than its teacher keeps random values in the other dimensions. One whose embeddings are
       as factorised as its teacher's has the teacher's own.
    2. The matrices that end the residual branches of attention and feed-forward become zero, so
       that a deep student begins as a shallow one.

    Args:
        student: as built, in the teacher's family, on the CPU.
        teacher: the teacher.
        family: of both.
        basis: of the teacher.
    """
    for layer in family.transformer_layers(student):
        for path in family.silent:
            layer.get_submodule(path).get_parameter("weight").zero_()
    if hasattr(student, "embeddings_project"):
        copy_embeddings(student, teacher)
        return
    width = min(basis.words.shape[1], family.word_embeddings(student).shape[1])
    words, positions = basis.words[:, :width], basis.positions[:, :width]
    scale = INITIALIZER_STD / words.std()
    family.word_embeddings(student)[:, :width] = words * scale
    places = family.position_embeddings(student)
    if places is not None:
        places[: len(positions), :width] = positions * scale
