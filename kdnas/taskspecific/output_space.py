"""The space in which outputs are compared: distributions over classes, or numbers.

Universal-KD grounds all layers in the output space (Wu et al. 2021, §4.1). The paper writes its
formulas for classes; of a regression (STS-B) it says nothing. There squared errors stand in for
the KL divergence and the cross entropy, and a similarity that falls with the squared distance for
the product of two distributions: each formula below gives both.

Legend: B examples, K outputs, T the temperature, σ the softmax. All of it is computed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class OutputSpace(Protocol):
    """How the outputs of one task are compared; …, stands for any leading dimensions."""

    @property
    def size(self) -> int:
        """K, outputs of a network."""

    def answers(self, logits: Tensor) -> Tensor:
        """f(h), what a classifier says: (…, K) → (…, K)."""

    def divergence(self, target: Tensor, logits: Tensor) -> Tensor:
        """How far logits are from target answers, both (…, K): (…)."""

    def output_loss(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """L_KD of Eq. 1, from the logits of both, (B, K): (B,)."""

    def annealed(self, logits: Tensor, share: float) -> Tensor:
        """Logits (…, K) that are nearer to one answer for all, the more the smaller a share."""

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """L_CE of Eq. 1, from logits (…, K) and labels (…): (…)."""

    def similarity(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Exponents of Eq. 4, from answers (B, N, K) and (B, M, K): (B, M, N)."""

    def label_distance(self, answers: Tensor, labels: Tensor) -> Tensor:
        """Euclidean distance of answers (B, N, K) from labels (B,): (B, N)."""


@dataclass(frozen=True)
class Classes:
    """Distributions over K classes.

    * answers f = σ(z)
    * divergence KL(p ‖ σ(z)) = Σ_k p_k (log p_k − log σ(z)_k) (Eq. 3 and 6)
    * output loss T² KL(σ(z^t / T) ‖ σ(z^s / T)) (Eq. 1)
    * annealed φz
    * label loss −log σ(z)_y (Eq. 1)
    * similarity f^t · f^s (Eq. 4)
    * label distance ‖1_y − f‖₂ (§5.6, Fig. 3)

    Attributes:
        size: K.
    """

    size: int

    def answers(self, logits: Tensor) -> Tensor:
        """Distributions."""
        return logits.float().softmax(-1)

    def divergence(self, target: Tensor, logits: Tensor) -> Tensor:
        """KL(target ‖ σ(logits)); a class of probability 0 in the target adds 0."""
        log_student = logits.float().log_softmax(-1)
        # A target may have a gradient, through λ; that of xlogy at (0, 0) is no number.
        above = target.clamp_min(torch.finfo(target.dtype).tiny)
        terms: Tensor = torch.special.xlogy(target, above) - target * log_student
        return terms.sum(-1)

    def output_loss(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """T² KL of the softened distributions."""
        target = self.answers(teacher.float() / temperature)
        return temperature**2 * self.divergence(target, student.float() / temperature)

    def annealed(self, logits: Tensor, share: float) -> Tensor:
        """Logits nearer to 0, which is each class alike."""
        return share * logits.float()

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy."""
        rows = logits.float().flatten(0, -2)  # (R, K)
        right = labels.expand(logits.shape[:-1]).flatten()
        losses: Tensor = F.cross_entropy(rows, right, reduction="none")
        return losses.view(logits.shape[:-1])

    def similarity(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Products of distributions, from 0 to 1."""
        return student @ teacher.transpose(1, 2)

    def label_distance(self, answers: Tensor, labels: Tensor) -> Tensor:
        """From 0 to √2."""
        right = F.one_hot(labels, self.size).to(answers)[:, None]
        distances: Tensor = torch.linalg.vector_norm(answers - right, dim=-1)
        return distances


@dataclass(frozen=True)
class Numbers:
    """A number, K = 1: of a regression.

    * answers f = z
    * divergence, output loss and label loss (a − b)²; a temperature would only scale the output
      loss, and counts for nothing
    * annealed m + φ(z − m), with m the mean of the labels: to scale the number itself would move
      the mean from epoch to epoch, and students would learn little but to follow it (STS-B, three
      layers of MiniLM, 5 + 3 epochs, one seed: a Pearson correlation of 0.44, and 0.81 like this)
    * similarity −(f^t − f^s)² / s² with s the deviation of the labels, so that weights do not
      depend on the unit of what is predicted: a difference of one deviation is e times less. A
      product of numbers would attend to whatever layer says the largest one.
    * label distance |y − f|

    Attributes:
        deviation: s, of the labels that are learned from.
        centre: m, their mean.
    """

    deviation: float
    centre: float = 0.0
    size: int = 1

    def __post_init__(self) -> None:
        if not self.deviation > 0:
            raise ValueError(f"labels with a deviation of {self.deviation} are all the same number")

    def answers(self, logits: Tensor) -> Tensor:
        """The numbers themselves."""
        return logits.float()

    def divergence(self, target: Tensor, logits: Tensor) -> Tensor:
        """Squared error."""
        return (target - logits.float()).square().sum(-1)

    def output_loss(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """Squared error."""
        return self.divergence(teacher.float(), student)

    def annealed(self, logits: Tensor, share: float) -> Tensor:
        """Numbers nearer to the mean."""
        return self.centre + share * (logits.float() - self.centre)

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Squared error."""
        return (logits.float().squeeze(-1) - labels.float()).square()

    def similarity(self, teacher: Tensor, student: Tensor) -> Tensor:
        """From −∞ to 0."""
        difference = student - teacher.transpose(1, 2)  # (B, M, 1) − (B, 1, N)
        return -(difference / self.deviation).square()

    def label_distance(self, answers: Tensor, labels: Tensor) -> Tensor:
        """Absolute errors."""
        return (answers.squeeze(-1) - labels.float()[:, None]).abs()
