"""Hidden-state transfer, HS (Trivedi Eq. 1, Udagawa Eq. 6).

    L_HS(S, T) = Σ_i Σ_{j ∈ g(i)} w_ij · MSE(H_i^S W_i^j, H_j^T)

with W_i^j ∈ R^{d_S × d_T} learned, without bias; MSE is a mean over real tokens and teacher
dimensions, in float32. w_ij is 1, as published, or, for the pair (L^S, L^T) of last layers, another
weight: what is read of a student is its last layer. Held-out losses know no weights. W begins as
the least-squares fit to where the student starts, or, with a random start, as drawn from
N(0, 0.02²).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.errors import LayerMappingError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.linear import least_squares
from kdnas.models.taps import Activations, TapPoints, TokenStates
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.objectives.layer_mapping import LayerMapping, layer_mapping
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objectives import HiddenStateSpec

PROJECTION_STD = 0.02


@dataclass(frozen=True)
class HiddenState:
    """The HS objective with one of the six mappings, or an explicit one.

    Attributes:
        mapping: which layers are compared.
        last_weight: of the pair of last layers; that of all others is 1.
    """

    mapping: str | Mapping[int, tuple[int, ...]] = "kdnas"
    last_weight: float = 1.0
    name: str = "hs"
    masks_tokens: bool = False
    needs_lm_head: bool = False
    copies_layers: bool = False

    def compared(self, teacher: TeacherShape) -> None:
        """Queries, keys and values are not compared."""

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Say why the mapping does not fit, such as a student deeper than its teacher."""
        try:
            layer_mapping(self.mapping, student.layers, teacher.layers)
        except LayerMappingError as error:
            return str(error)
        return None

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> HiddenStateHead:
        """Make the projections W of a student."""
        mapping = layer_mapping(self.mapping, student.layers, teacher.layers)
        return HiddenStateHead(mapping, student, teacher, seed, self.last_weight)


def stages(spec: HiddenStateSpec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (Stage(HiddenState(spec.mapping, spec.last_weight)),)


class HiddenStateHead(Head):
    """The projections W_i^j; those of one student layer are one matrix, so one product."""

    def __init__(
        self,
        mapping: LayerMapping,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        last_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.mapping = mapping
        self.student_taps = TapPoints(hidden=frozenset(mapping))
        self.teacher_taps = TapPoints(frozenset(j for layers in mapping.values() for j in layers))
        self.output_pair = (student.layers, teacher.layers)
        self.weights = {self.output_pair: last_weight}
        generator = torch.Generator().manual_seed(seed)
        self.projections = nn.ParameterDict(
            {
                str(i): torch.randn(
                    student.hidden, len(layers) * teacher.hidden, generator=generator
                )
                * PROJECTION_STD
                for i, layers in mapping.items()
            }
        )

    def pairs(
        self, student: Activations, teacher: Activations
    ) -> Iterator[tuple[tuple[int, int], Tensor]]:
        """Yield each mapped pair (i, j) with Σ (H_i^S W_i^j − H_j^T)² / d_T over real tokens."""
        for i, layers in self.mapping.items():
            projected = student.flat(i) @ self.projections[str(i)]  # (R, |g(i)|·d_T)
            masked = projected.float().masked_fill(student.batch.padding, 0.0)
            for j, part in zip(layers, masked.chunk(len(layers), dim=1), strict=True):
                target = teacher.masked(j)
                yield (i, j), F.mse_loss(part, target, reduction="sum") / target.shape[1]

    def fit(self, student: TokenStates, teacher: TokenStates) -> None:
        """Set each W_i^j by least squares."""
        with torch.no_grad():
            for i, layers in self.mapping.items():
                targets = torch.cat([teacher.hidden[j] for j in layers], 1)
                fitted = least_squares(student.hidden[i], targets.to(student.hidden[i]))
                self.projections[str(i)].copy_(fitted)

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """Weighted sum of the pairs' MSE: a float32 scalar; 0 for a batch without real tokens."""
        pairs = self.pairs(student, teacher)
        squares = torch.stack([self.weights.get(pair, 1.0) * square for pair, square in pairs])
        return squares.sum() / max(1, student.batch.totals.tokens)

    def meter(self) -> Meter:
        """Return a fresh meter of `mean`, `relative` and `output`."""
        return HiddenStateMeter(self)


class HiddenStateMeter:
    """Sums squared errors and the teacher's moments; all sums in float64.

    L₀ of a pair, the loss of the best student that ignores its input, is the variance of H_j^T:
    a mean over dimensions of the variance over real tokens.
    """

    def __init__(self, head: HiddenStateHead) -> None:
        self._head = head
        self._squares: dict[tuple[int, int], Tensor | float] = {}
        self._moments: dict[int, tuple[Tensor, Tensor]] = {}
        self._tokens = 0

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        for pair, square in self._head.pairs(student, teacher):
            self._squares[pair] = self._squares.get(pair, 0.0) + square.double()
        for j in self._head.teacher_taps.hidden:
            rows = teacher.rows(j).double()
            first, second = rows.sum(0), rows.square().sum(0)
            if j in self._moments:
                first, second = first + self._moments[j][0], second + self._moments[j][1]
            self._moments[j] = first, second
        self._tokens += teacher.batch.num_tokens

    def losses(self, training: float) -> Losses:
        """Return `mean`, `relative` (mean of L/L₀) and `output` (the pair (L^S, L^T))."""
        n = self._tokens
        variance = {
            j: float((second / n - (first / n).square()).mean())
            for j, (first, second) in self._moments.items()
        }
        loss = {pair: float(square) / n for pair, square in self._squares.items()}
        ratio = {(i, j): value / variance[j] for (i, j), value in loss.items()}
        return Losses(
            training=training,
            mean=sum(loss.values()) / len(loss),
            relative=sum(ratio.values()) / len(ratio),
            output=ratio[self._head.output_pair],
        )
