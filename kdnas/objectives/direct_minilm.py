"""DirectMiniLM: queries, keys and values themselves (Udagawa Eq. 10).

    L(S, T) = Σ_{α ∈ {Q,K,V}} Σ_{a=1}^{A_r} MSE(A_α,a^S W_α,a, A_α,a^T)

between the student's last layer and one layer of the teacher, with W_α,a ∈ R^{d_r^S × d_r^T}
learned, without bias, begun as fitted to where the student starts, or, with a random start, as
drawn from N(0, 0.02²); MSE is a mean over real tokens and the d_r^T
dimensions of a teacher's relation head, in float32. Under the orthogonal constraint W_α,a has
orthonormal rows or, where d_r^S > d_r^T, columns.

Shapes: B sequences, T tokens, R = B·T, D width, A_r relation heads, d_r = D / A_r.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from kdnas.architecture import Architecture
from kdnas.errors import RequestError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.linear import least_squares, nearest_orthogonal
from kdnas.models.start.relations import Compared
from kdnas.models.taps import PROJECTIONS, Activations, Projection, TapPoints, TokenStates
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.objectives.hidden_state import PROJECTION_STD
from kdnas.objectives.relation_heads import relation_heads_problem
from kdnas.objectives.teacher_layer import teacher_layer, teacher_layer_problem
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objectives import DirectMiniLMSpec


@dataclass(frozen=True)
class DirectMiniLM:
    """Queries, keys and values through learned projections.

    Attributes:
        relation_heads: A_r; None takes the teacher's attention heads.
        teacher_layer: which layer teaches; None takes the automatic one.
        orthogonal: keep the projections orthogonal.
    """

    relation_heads: int | None = None
    teacher_layer: int | None = None
    orthogonal: bool = False
    name: str = "direct-minilm"
    masks_tokens: bool = False
    needs_lm_head: bool = False
    copies_layers: bool = False

    def heads_for(self, teacher: TeacherShape) -> int:
        """Return A_r for a teacher."""
        return self.relation_heads or teacher.heads

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
    ) -> DirectMiniLMHead:
        """Make the projections W of a student."""
        if problem := self.problem(student, teacher):
            raise RequestError(problem)
        heads = self.heads_for(teacher)
        layer = teacher_layer(self.teacher_layer, teacher)
        shape = (len(PROJECTIONS), heads, student.hidden // heads, teacher.hidden // heads)
        return DirectMiniLMHead(shape, student.layers, layer, seed, self.orthogonal)


def stages(spec: DirectMiniLMSpec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (Stage(DirectMiniLM(spec.relation_heads, spec.known_teacher_layer, spec.orthogonal)),)


class DirectMiniLMHead(Head):
    """The projections W_α,a of all relation heads, in one tensor.

    Attributes:
        weight: (3, A_r, d_r^S, d_r^T); queries, keys, values.

    Args:
        shape: of the weight.
        student_layer: L^S.
        teacher_layer: the layer that teaches.
        seed: of the weight; the process's random state stays as it was.
        keep_orthogonal: constrain the weight.
    """

    weight: Tensor

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        student_layer: int,
        teacher_layer: int,
        seed: int,
        keep_orthogonal: bool = False,
    ) -> None:
        super().__init__()
        self.student_layer, self.teacher_layer = student_layer, teacher_layer
        self.student_taps = TapPoints(projections=frozenset({student_layer}))
        self.teacher_taps = TapPoints(projections=frozenset({teacher_layer}))
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(shape, generator=generator) * PROJECTION_STD)
        self.relation_heads = shape[1]
        self._orthogonal, self._seed = keep_orthogonal, seed
        if keep_orthogonal:
            with self._own_randomness():
                # Not householder, torch's choice where W is not square: it rounds a diagonal of
                # ones down to zeros as soon as weight decay has touched it.
                orthogonal(self, "weight", "matrix_exp")

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Torch completes W to a square matrix at random whenever W is set."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._seed)
            yield

    def squares(self, student: Activations, teacher: Activations) -> Tensor:
        """Return Σ over real tokens of (A_α,a^S W_α,a − A_α,a^T)² / d_r^T, (3, A_r) in float32."""
        padding = student.batch.padding  # (R, 1)
        with torch.autocast(padding.device.type, enabled=False):
            weight = self.weight  # once: an orthogonal one is computed each time
        sums = []
        for name, matrices in zip(PROJECTIONS, weight, strict=True):
            source = self._cut(student.projections[self.student_layer][name])  # (A_r, R, d_r^S)
            projected = torch.bmm(source, matrices).float()  # (A_r, R, d_r^T)
            error = projected - self.target(name, teacher)
            sums.append(error.masked_fill(padding, 0.0).square().sum((1, 2)))
        return torch.stack(sums) / weight.shape[-1]

    def target(self, name: Projection, teacher: Activations) -> Tensor:
        """Return the teacher's A_α, (A_r, R, d_r^T) in float32."""
        return self._cut(teacher.projections[self.teacher_layer][name]).float()

    def _cut(self, values: Tensor) -> Tensor:
        """(B, T, D) → (A_r, R, d_r)."""
        heads = torch.unflatten(values.flatten(0, 1), 1, (self.relation_heads, -1))
        return heads.transpose(0, 1)

    def fit(self, student: TokenStates, teacher: TokenStates) -> None:
        """Set each W_α,a by least squares; under the constraint, by the nearest orthogonal map."""
        fit = nearest_orthogonal if self._orthogonal else least_squares
        heads = (self.relation_heads, -1)
        fitted = torch.empty_like(self.weight)
        for number, name in enumerate(PROJECTIONS):
            own = torch.unflatten(student.projections[self.student_layer][name], 1, heads)
            target = torch.unflatten(teacher.projections[self.teacher_layer][name], 1, heads)
            for head in range(self.relation_heads):
                fitted[number, head] = fit(own[:, head], target[:, head].to(own))
        with torch.no_grad():
            if self._orthogonal:
                with self._own_randomness():
                    self.weight = fitted
                # Setting W leaves its parameter transposed in memory, unlike a loaded one, and
                # fused AdamW is right for one order of both parameter and averages only.
                free = self.get_parameter("parametrizations.weight.original")
                free.data = free.data.contiguous()
            else:
                self.weight.copy_(fitted)

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """Sum of all MSE: a float32 scalar; 0 for a batch without real tokens."""
        return self.squares(student, teacher).sum() / max(1, student.batch.totals.tokens)

    def meter(self) -> Meter:
        """Return a fresh meter of `mean`, `relative` and `output`."""
        return DirectMiniLMMeter(self)


class DirectMiniLMMeter:
    """Sums squared errors and the teacher's moments of each (α, a); all sums in float64.

    L₀ of a pair, the loss of the best student that ignores its input, is the variance of A_α,a^T:
    a mean over dimensions of the variance over real tokens.
    """

    def __init__(self, head: DirectMiniLMHead) -> None:
        self._head = head
        self._squares: Tensor | float = 0.0  # (3, A_r)
        self._first: Tensor | float = 0.0  # (3, A_r, d_r^T)
        self._second: Tensor | float = 0.0
        self._tokens = 0

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        self._squares = self._squares + self._head.squares(student, teacher).double()
        rows = torch.stack(
            [self._head.target(name, teacher).double() for name in PROJECTIONS]
        ).index_select(2, teacher.batch.real_rows)  # (3, A_r, N, d_r^T)
        self._first = self._first + rows.sum(2)
        self._second = self._second + rows.square().sum(2)
        self._tokens += teacher.batch.num_tokens

    def losses(self, training: float) -> Losses:
        """Return `mean`, `relative` (mean of L/L₀) and `output`, the same ratio.

        Students of every depth are read on the same two layers, so nothing is left out of it.
        """
        loss = torch.as_tensor(self._squares) / self._tokens
        first, second = (
            torch.as_tensor(moment) / self._tokens for moment in (self._first, self._second)
        )
        variance = (second - first.square()).mean(-1)
        relative = float((loss / variance).mean())
        return Losses(
            training=training, mean=float(loss.mean()), relative=relative, output=relative
        )
