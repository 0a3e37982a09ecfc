"""Parameters and floating-point operations of an architecture, from its numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.records import TeacherShape

KEPT_BYTES = 512 * 2**20
"""Memory of a process for what its teacher makes of the held-out text."""


@dataclass(frozen=True, slots=True)
class EmbeddingShape:
    """What of a student's size comes from its family.

    Attributes:
        vocab_size: rows of the table of words, V.
        max_positions: rows of the table of positions, P; 0 where positions are rotary.
        type_vocab_size: rows of the table of token types.
        gated: whether the feed-forward block has a third matrix, a gate (GLU).
        biases: whether projections and layer norms have biases.
        own_width: of the teacher's tables, where they may be factorised (ELECTRA), and of students
            that differ from it in depth alone; every other student's are as wide as its layers.
        own: the teacher's own architecture, where that is so.
    """

    vocab_size: int
    max_positions: int = 512
    type_vocab_size: int = 2
    gated: bool = False
    biases: bool = True
    own_width: int | None = None
    own: str | None = None

    @classmethod
    def of(cls, teacher: TeacherShape) -> EmbeddingShape:
        """Return the shape that a teacher's students take over."""
        from kdnas.models.families import family_of

        family = family_of(teacher.model_type)
        own = teacher_architecture(teacher) if teacher.embedding_size else None
        return cls(
            vocab_size=teacher.vocab_size,
            max_positions=teacher.max_positions if family.positions else 0,
            type_vocab_size=teacher.type_vocab_size,
            gated=family.gated,
            biases=family.biases,
            own_width=teacher.embedding_size if own else None,
            own=str(own) if own else None,
        )

    @property
    def rows(self) -> int:
        """Rows of all embedding tables, each of the same width."""
        return self.vocab_size + self.max_positions + self.type_vocab_size

    def width(self, architecture: Architecture) -> int:
        """Width of a student's tables, E: that of its layers, unless they are factorised."""
        if self.own_width is None or self.own is None:
            return architecture.hidden
        as_deep = replace(Architecture.parse(self.own), layers=architecture.layers)
        return self.own_width if architecture == as_deep else architecture.hidden


def count_parameters(architecture: Architecture, embedding: EmbeddingShape) -> int:
    """Count the parameters of embeddings and encoder, without pooler and heads.

    With d hidden: embeddings (V + P + types)·E and a layer norm 2E, or E without biases; E = d, or
    less and a matrix E·d + d that widens them; and the layers.
    """
    d, e = architecture.hidden, embedding.width(architecture)
    norm = 2 * e if embedding.biases else e
    widened = 0 if e == d else e * d + d
    layers = count_layer_parameters(architecture, gated=embedding.gated, biases=embedding.biases)
    return embedding.rows * e + norm + widened + layers


def count_layer_parameters(
    architecture: Architecture, *, gated: bool = False, biases: bool = True
) -> int:
    """Count the parameters of the encoder's layers.

    With d hidden, f intermediate: a layer has four projections 4(d² + d), the feed-forward block
    2·d·f + f + d and two layer norms 4d. A gate adds d·f + f; without biases what is linear in f
    goes, and a layer norm is d. (ModernBERT has no layer norm before its first attention, but one
    behind its last layer. Biases that a ModernBERT was given against its family's habit are not
    counted.)
    """
    d, f = architecture.hidden, architecture.intermediate
    inner = 2 * f if gated else f  # the outputs of the first product
    layer = 4 * d * d + d * (inner + f) + 2 * d
    if biases:
        layer += 4 * d + (inner + d) + 2 * d
    return architecture.layers * layer


def flops_per_token(architecture: Architecture, length: int = 0, *, gated: bool = False) -> int:
    """Count the operations of one token's forward pass; a multiply-add counts as two.

    Args:
        architecture: the student.
        length: tokens of the sequence, for the products of queries with keys and of weights with
            values (4·T·d a layer); 0 leaves them out. Local attention counts as global: what lies
            outside a window is computed and masked.
        gated: whether the feed-forward block has a gate: three matrices instead of two.
    """
    d, f = architecture.hidden, architecture.intermediate
    matrices = 4 * d * d + (3 if gated else 2) * d * f
    return architecture.layers * (2 * matrices + 4 * length * d)


def training_bytes(
    architecture: Architecture, embedding: EmbeddingShape, tokens: int, mapped_width: int
) -> int:
    """Estimate the memory of one student in training, in bytes.

    Weights, gradients and AdamW's two averages in float32, and what the backward pass keeps: some
    10·d + 2·f values a token and layer (12·d + 4·f with a gate and rotated queries and keys), and
    two values a mapped teacher dimension.

    Args:
        architecture: the student.
        embedding: its embedding's shape.
        tokens: of the largest batch, padding included.
        mapped_width: teacher dimensions that the head predicts in all, Σ |g(i)|·d_T.
    """
    d, f = architecture.hidden, architecture.intermediate
    per_token = architecture.layers * (12 * d + 4 * f if embedding.gated else 10 * d + 2 * f)
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
