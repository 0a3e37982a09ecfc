"""Attention over a teacher's layers in the output space: Eq. 4 to 6 of Wu et al. 2021."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.output_space import OutputSpace


def attention_weights(space: OutputSpace, teacher: Tensor, student: Tensor) -> Tensor:
    """λ_ij = softmax over i of f_i^t · f_j^s (Eq. 4).

    The product is that of the answers, not of the logits, so that it lies between 0 and 1 and
    weights never differ by more than a factor of e. Of a regression see
    :class:`~kdnas.taskspecific.output_space.Numbers`.

    Args:
        space: of the outputs.
        teacher: (B, N, K) answers.
        student: (B, J, K) answers.

    Returns:
        (B, J, N), each row a distribution over the teacher's layers.
    """
    return space.similarity(teacher, student).softmax(-1)


def universal_losses(space: OutputSpace, teacher: Tensor, student: Tensor) -> Tensor:
    """l_Univ(j) = KL(F^t(j) ‖ f_j^s), with F^t(j) = Σ_i λ_ij f_i^t (Eq. 5 and 6).

    As printed, F^t(j) depends on the student by λ, and the gradient goes that way too: a student
    layer also learns to attend to the teacher layers that it agrees with.

    Args:
        space: of the outputs.
        teacher: (B, N, K) logits of the pseudo-classifiers.
        student: (B, J, K) logits of the student's.

    Returns:
        (B, J).
    """
    answers = space.answers(teacher)
    weights = attention_weights(space, answers, space.answers(student))
    return space.divergence(weights @ answers, student)  # F^t: (B, J, N) · (B, N, K)
