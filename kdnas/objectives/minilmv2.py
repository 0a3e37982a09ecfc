"""MiniLMv2: relations of queries, keys and values (Wang Eq. 5-8, Udagawa Eq. 7-9).

    L(S, T) = Σ_{α,β} w_αβ · mean over sequences of L_αβ
    L_αβ    = 1/(A_r·|x|) Σ_a Σ_t KL(R^T_αβ,a,t ‖ R^S_αβ,a,t)

between the student's last layer and one layer of the teacher. Udagawa's Eq. 7 has a cross-entropy,
with the same gradient, in the place of KL, for which a perfect student scores 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from kdnas.architecture import Architecture
from kdnas.errors import RequestError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.relations import Compared
from kdnas.models.taps import Activations, Projection, TapPoints
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.objectives.relation_heads import relation_heads_problem
from kdnas.objectives.relation_loss import Pair, relation_loss, uniform_relation_loss
from kdnas.objectives.teacher_layer import teacher_layer, teacher_layer_problem
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objectives import MiniLMv2Spec

BASE_HEADS, LARGE_HEADS, LARGE_HIDDEN = 48, 64, 1024
"""Relation heads for a base and for a large teacher, and how wide a large one is (Wang §4.1)."""

_PROJECTIONS: dict[str, Projection] = {"q": "q", "k": "k", "v": "v"}


@dataclass(frozen=True)
class MiniLMv2:
    """Relations of queries, keys and values.

    Attributes:
        relations: names such as ``qk`` (α, then β), each with its weight.
        relation_heads: A_r; None takes 48, or 64 for a teacher at least 1024 wide.
        teacher_layer: which layer teaches; None takes the automatic one.
    """

    relations: tuple[tuple[str, float], ...] = (("qq", 1.0), ("kk", 1.0), ("vv", 1.0))
    relation_heads: int | None = None
    teacher_layer: int | None = None
    name: str = "minilmv2"
    masks_tokens: bool = False
    needs_lm_head: bool = False
    copies_layers: bool = False

    def heads_for(self, teacher: TeacherShape) -> int:
        """Return A_r for a teacher."""
        return self.relation_heads or (
            LARGE_HEADS if teacher.hidden >= LARGE_HIDDEN else BASE_HEADS
        )

    def compared(self, teacher: TeacherShape) -> Compared:
        """Those of the teacher layer that teaches."""
        return Compared(teacher_layer(self.teacher_layer, teacher), self.heads_for(teacher))

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Say that a width cannot be cut so, or that there is no such teacher layer.

        A student may be deeper than its teacher: nothing maps layer to layer.
        """
        return teacher_layer_problem(self.teacher_layer, teacher) or relation_heads_problem(
            self.heads_for(teacher), student, teacher
        )

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> MiniLMv2Head:
        """Make the head; it has no parameters, so the seed decides nothing."""
        if problem := self.problem(student, teacher):
            raise RequestError(problem)
        layer = teacher_layer(self.teacher_layer, teacher)
        return MiniLMv2Head(self.relations, self.heads_for(teacher), student.layers, layer)


def stages(spec: MiniLMv2Spec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (
        Stage(MiniLMv2(spec.weighted_relations(), spec.relation_heads, spec.known_teacher_layer)),
    )


class MiniLMv2Head(Head):
    """The relations of one layer of each model; nothing is learned beside the student.

    Args:
        relations: names with weights.
        relation_heads: A_r.
        student_layer: L^S.
        teacher_layer: the layer that teaches.
    """

    def __init__(
        self,
        relations: Iterable[tuple[str, float]],
        relation_heads: int,
        student_layer: int,
        teacher_layer: int,
    ) -> None:
        super().__init__()
        self.relations = dict(relations)
        self.relation_heads = relation_heads
        self.student_layer, self.teacher_layer = student_layer, teacher_layer
        self.student_taps = TapPoints(projections=frozenset({student_layer}))
        self.teacher_taps = TapPoints(projections=frozenset({teacher_layer}))

    def student_pair(self, relation: str, student: Activations) -> Pair:
        """Return A_α and A_β of the student."""
        return _pair(relation, student, self.student_layer)

    def teacher_pair(self, relation: str, teacher: Activations) -> Pair:
        """Return A_α and A_β of the teacher."""
        return _pair(relation, teacher, self.teacher_layer)

    def loss(self, relation: str, student: Activations, teacher: Activations) -> Tensor:
        """Return Σ over sequences of L_αβ."""
        return relation_loss(
            self.student_pair(relation, student),
            self.teacher_pair(relation, teacher),
            student.batch.real,
            self.relation_heads,
        )

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """Weighted sum of the relations' losses: a float32 scalar; 0 without real tokens."""
        first, *others = (
            weight * self.loss(relation, student, teacher)
            for relation, weight in self.relations.items()
        )
        return sum(others, first) / max(1, student.batch.totals.sequences)

    def meter(self) -> Meter:
        """Return a fresh meter of `mean`, `relative` and `output`."""
        return MiniLMv2Meter(self)


class MiniLMv2Meter:
    """Sums each relation's loss and L₀, that of uniform relations; all sums in float64."""

    def __init__(self, head: MiniLMv2Head) -> None:
        self._head = head
        self._losses: dict[str, Tensor | float] = dict.fromkeys(head.relations, 0.0)
        self._baselines: dict[str, Tensor | float] = dict.fromkeys(head.relations, 0.0)
        self._sequences = 0

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        head, real = self._head, teacher.batch.real
        for relation in head.relations:
            self._losses[relation] += head.loss(relation, student, teacher).double()
            baseline = uniform_relation_loss(
                head.teacher_pair(relation, teacher), real, head.relation_heads
            )
            self._baselines[relation] += baseline.double()
        self._sequences += int(real.any(1).sum())

    def losses(self, training: float) -> Losses:
        """Return `mean`, `relative` (mean of L/L₀) and `output`, the same ratio.

        Students of every depth are read on the same two layers, so nothing is left out of it.
        """
        loss = {relation: float(total) for relation, total in self._losses.items()}
        ratios = [total / float(self._baselines[relation]) for relation, total in loss.items()]
        relative = sum(ratios) / len(ratios)
        return Losses(
            training=training,
            mean=sum(loss.values()) / len(loss) / self._sequences,
            relative=relative,
            output=relative,
        )


def _pair(relation: str, activations: Activations, layer: int) -> Pair:
    alpha, beta = (activations.projections[layer][_PROJECTIONS[letter]] for letter in relation)
    return alpha, beta
