"""Loss between the relations of two models (Wang Eq. 6-8), without keeping any relation.

For one pair (α, β) of queries, keys and values, and each relation head a,

    R_a = softmax(A_α,a A_β,aᵀ / √d_r)        (T × T)
    L   = 1/(A_r·|x|) Σ_a Σ_t KL(R^T_a,t ‖ R^S_a,t)

Kept for a backward pass, relations take A_r·T² floats a sequence. But the gradient of KL with
respect to the student's scores is R^S − R^T, known as soon as the loss is, and the loss is a
scalar: so the gradient of A_α^S and A_β^S is computed along with the loss, for a few relations at
a time, and the backward pass only scales it. What is kept is as large as the student's A_α and A_β.

Shapes: B sequences, T tokens, D width, A_r relation heads, d_r = D / A_r, N = B·A_r relations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Pair = tuple[Tensor, Tensor]
"""(A_α, A_β) of one model, each (B, T, D)."""

CHUNK_ELEMENTS = {"cpu": 2**18, "cuda": 2**24}
"""Scores that are worked on at a time: what fits a core's cache; enough to fill a GPU."""

_MASKED = -1e30
"""Score of a padded column. Not -inf: a sequence without a real token must not give NaN."""


def relation_loss(
    student: Pair,
    teacher: Pair,
    real: Tensor,
    relation_heads: int,
    chunk_elements: int | None = None,
) -> Tensor:
    """Return Σ over sequences of the mean over heads and real rows of KL(teacher ‖ student).

    It runs in float32, or in float64 if the student's tensors are, whatever autocast says. Padding
    is neither row nor column; a sequence without a real token adds 0. No gradient reaches the
    teacher. Gradients of gradients are not to be had.

    Args:
        student: A_α and A_β of the student, (B, T, D_S); they may be one tensor.
        teacher: A_α and A_β of the teacher, (B, T, D_T).
        real: (B, T) bool, True at real tokens.
        relation_heads: A_r; divides D_S and D_T.
        chunk_elements: scores that are worked on at a time, at least those of one head; None takes
            :data:`CHUNK_ELEMENTS`.

    Returns:
        A scalar in nats.

    Raises:
        ValueError: the relation heads do not divide a width.
    """
    if not torch.is_grad_enabled():  # or the gradient would be computed for nobody
        student = student[0].detach(), student[1].detach()
    loss: Tensor = _RelationLoss.apply(  # type: ignore[no-untyped-call]
        *student, *teacher, real, relation_heads, chunk_elements
    )
    return loss


@torch.no_grad()
def uniform_relation_loss(
    teacher: Pair, real: Tensor, relation_heads: int, chunk_elements: int | None = None
) -> Tensor:
    """Return the loss of a student all of whose relations are uniform over the real columns.

    That is L₀ of relations: Σ over sequences of the mean over heads and real rows of
    KL(teacher ‖ uniform) = log |x| + Σ_j R^T_j log R^T_j. Arguments as in :func:`relation_loss`.
    """
    dtype = torch.promote_types(teacher[0].dtype, torch.float32)
    places = _Places(real, relation_heads, dtype)
    with _exact(real):
        relations = _Relations(teacher, places)
        kl = torch.empty_like(places.weights)  # (N, T)
        for chunk, (scores, p, log_p) in places.chunks(3, chunk_elements):
            relations.write_scores(chunk, out=scores)
            torch.softmax(scores, -1, out=p)
            torch.log_softmax(scores, -1, out=log_p)
            torch.sum(log_p.mul_(p), -1, out=kl[chunk])
        return places.total(kl + places.counts.clamp_min(1).log()[:, None])


class _Places:
    """Which rows and columns of the N relations count, and how much.

    Attributes:
        padding: (B, T, 1), True at the places that do not count.
        column_scores: (N, 1, T), added to the scores: -1e30 at columns that do not count, else 0.
        counts: (N,) real tokens |x|.
        weights: (N, T), 1/(A_r·|x|) at real rows, 0 at the others.
    """

    def __init__(self, real: Tensor, heads: int, dtype: torch.dtype) -> None:
        self.heads, self.dtype = heads, dtype
        self.padding = ~real[..., None]
        each = real.repeat_interleave(heads, 0)  # (N, T)
        self.column_scores = torch.where(each, 0.0, _MASKED).to(dtype)[:, None]
        self.counts = each.sum(1).to(dtype)
        self.weights = each / (heads * self.counts.clamp_min(1))[:, None]

    def chunks(
        self, buffers: int, elements: int | None
    ) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        """Yield slices of the N relations with so many (n, T, T) buffers, used again each time."""
        number, tokens = self.weights.shape
        elements = elements or CHUNK_ELEMENTS.get(self.weights.device.type, 2**24)
        size = max(1, min(number, elements // max(1, tokens * tokens)))
        space = self.weights.new_empty(buffers, size, tokens, tokens)
        for start in range(0, number, size):
            chunk = slice(start, min(start + size, number))
            yield chunk, tuple(buffer[: chunk.stop - start] for buffer in space)

    def total(self, kl: Tensor) -> Tensor:
        """Weigh and sum the rows' (N, T) divergences, added up in float64."""
        return (kl.double() * self.weights).sum().to(self.dtype)


class _Relations:
    """One model's A_α and A_β in float32, zero at the padding, cut anew into relation heads.

    Attributes:
        alpha: (N, T, d_r).
        beta: (N, T, d_r).
        scale: 1/√d_r.
    """

    def __init__(self, pair: Pair, places: _Places) -> None:
        self._places = places
        width = pair[0].shape[-1]
        if width % places.heads:
            raise ValueError(f"{places.heads} relation heads do not divide the width {width}")
        self.scale = (width // places.heads) ** -0.5
        self.alpha, self.beta = self._cut(pair[0]), self._cut(pair[1])

    def _cut(self, values: Tensor) -> Tensor:
        """(B, T, D) → (N, T, d_r)."""
        clean = values.to(self._places.dtype).masked_fill(self._places.padding, 0.0)
        return torch.unflatten(clean, -1, (self._places.heads, -1)).transpose(1, 2).flatten(0, 1)

    def join(self, values: Tensor) -> Tensor:
        """(N, T, d_r) → (B, T, D)."""
        return torch.unflatten(values, 0, (-1, self._places.heads)).transpose(1, 2).flatten(2)

    def write_scores(self, chunk: slice, out: Tensor) -> None:
        """Write A_α A_βᵀ / √d_r of some relations, with padded columns far below all others."""
        torch.baddbmm(
            self._places.column_scores[chunk],
            self.alpha[chunk],
            self.beta[chunk].mT,
            alpha=self.scale,
            out=out,
        )


class _RelationLoss(torch.autograd.Function):
    """Computes the loss and, where the student learns, its gradient in one go."""

    @staticmethod
    def forward(
        ctx: Any,
        student_alpha: Tensor,
        student_beta: Tensor,
        teacher_alpha: Tensor,
        teacher_beta: Tensor,
        real: Tensor,
        relation_heads: int,
        chunk_elements: int | None,
    ) -> Tensor:
        """Sum up KL; keep the gradient with respect to the student's two tensors."""
        learns = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        dtype = torch.promote_types(student_alpha.dtype, torch.float32)
        places = _Places(real, relation_heads, dtype)
        with _exact(real):
            student = _Relations((student_alpha, student_beta), places)
            teacher = _Relations((teacher_alpha, teacher_beta), places)
            kl = torch.empty_like(places.weights)  # (N, T)
            if learns:
                row_weights = places.weights[..., None] * student.scale  # (N, T, 1)
                weighted = student.alpha * row_weights
                grad_alpha = torch.empty_like(student.alpha)
                grad_beta = torch.empty_like(student.beta)
            for chunk, (scores, p, log_p, q) in places.chunks(4, chunk_elements):
                teacher.write_scores(chunk, out=scores)
                torch.softmax(scores, -1, out=p)
                torch.log_softmax(scores, -1, out=log_p)
                student.write_scores(chunk, out=scores)
                log_ratio = log_p.sub_(torch.log_softmax(scores, -1, out=q))  # q holds log R^S
                torch.sum(log_ratio.mul_(p), -1, out=kl[chunk])
                if learns:
                    torch.softmax(scores, -1, out=q)  # much faster than the exponential of log R^S
                    grad_scores = q.sub_(p)  # R^S − R^T; the row's weight comes with the products
                    torch.bmm(grad_scores, student.beta[chunk], out=grad_alpha[chunk])
                    torch.bmm(grad_scores.mT, weighted[chunk], out=grad_beta[chunk])
            if learns:
                grad_alpha.mul_(row_weights)
                ctx.save_for_backward(student.join(grad_alpha), student.join(grad_beta))
                ctx.input_dtypes = student_alpha.dtype, student_beta.dtype
            return places.total(kl)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass kept."""
        gradients = (
            (kept * grad_loss).to(dtype) if needed else None
            for kept, dtype, needed in zip(
                ctx.saved_tensors, ctx.input_dtypes, ctx.needs_input_grad, strict=False
            )
        )
        return (*gradients, None, None, None, None, None)


def _exact(tensor: Tensor) -> torch.autocast:
    """No rounding of matrix products on a tensor's device."""
    return torch.autocast(tensor.device.type, enabled=False)
