"""Parameters and floating-point operations of an architecture, from its numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.records import TeacherShape


@dataclass(frozen=True, slots=True)
class EmbeddingShape:
    """What of a student's size comes from its family: vocabulary V, positions P, types."""

    vocab_size: int
    max_positions: int = 512
    type_vocab_size: int = 2

    @classmethod
    def of(cls, teacher: TeacherShape) -> EmbeddingShape:
        """Return the shape that a teacher's students take over."""
        return cls(teacher.vocab_size, teacher.max_positions, teacher.type_vocab_size)


def count_parameters(architecture: Architecture, embedding: EmbeddingShape) -> int:
    """Count the parameters of embeddings and encoder, without pooler and heads.

    With d hidden, f intermediate: embeddings (V + P + types)·d and a layer norm 2d; a layer has
    four projections 4(d² + d), the feed-forward block 2·d·f + f + d and two layer norms 4d.
    """
    d, f = architecture.hidden, architecture.intermediate
    rows = embedding.vocab_size + embedding.max_positions + embedding.type_vocab_size
    layer = 4 * (d * d + d) + (2 * d * f + f + d) + 4 * d
    return rows * d + 2 * d + architecture.layers * layer


def flops_per_token(architecture: Architecture, length: int = 0) -> int:
    """Count the operations of one token's forward pass; a multiply-add counts as two.

    Args:
        architecture: the student.
        length: tokens of the sequence, for the products of queries with keys and of weights with
            values (4·T·d a layer); 0 leaves them out.
    """
    d, f = architecture.hidden, architecture.intermediate
    return architecture.layers * (2 * (4 * d * d + 2 * d * f) + 4 * length * d)


def training_bytes(
    architecture: Architecture, embedding: EmbeddingShape, tokens: int, mapped_width: int
) -> int:
    """Estimate the memory of one student in training, in bytes.

    Weights, gradients and AdamW's two averages in float32, and what the backward pass keeps: some
    10·d + 2·f values a token and layer, and two values a mapped teacher dimension.

    Args:
        architecture: the student.
        embedding: its embedding's shape.
        tokens: of the largest batch, padding included.
        mapped_width: teacher dimensions that the head predicts in all, Σ |g(i)|·d_T.
    """
    per_token = architecture.layers * (10 * architecture.hidden + 2 * architecture.intermediate)
    return 16 * count_parameters(architecture, embedding) + 4 * tokens * (
        per_token + 2 * mapped_width
    )


def teacher_architecture(teacher: TeacherShape) -> Architecture | None:
    """Return the teacher's own architecture, or None if it has an activation outside the space."""
    if teacher.activation not in ACTIVATIONS:
        return None
    return Architecture(
        teacher.layers, teacher.heads, teacher.hidden, teacher.intermediate, teacher.activation
    )
