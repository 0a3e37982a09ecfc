"""Output distributions of masked-LM, OD (Udagawa Eq. 5).

    L_OD = T² · CE(softmax(z^T / T), softmax(z^S / T))

with z the scores over the vocabulary, a mean over places: the masked ones, or all real tokens. The
teacher's head is frozen. The student has a head of its own, tied to its word embeddings, which
learn through it; head and student together are a masked-LM model of the family. Softmax, CE and
KL are taken in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.models.batch import Batch
from kdnas.models.cost import EmbeddingShape
from kdnas.models.families import family_of
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.lm_head import start_lm_head
from kdnas.models.taps import Activations, TapPoints, TokenStates
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objectives import OutputSpec


@dataclass(frozen=True)
class OutputDistribution:
    """The OD objective. It teaches students of any size; best those that learned HS before."""

    temperature: float = 1.0
    positions: str = "masked"
    name: str = "od"
    masks_tokens: bool = True
    needs_lm_head: bool = True
    copies_layers: bool = False

    def compared(self, teacher: TeacherShape) -> None:
        """Queries, keys and values are not compared."""

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """None: only the vocabularies must be equal, and they are."""
        return None

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> OutputDistributionHead:
        """Make the student's masked-LM head.

        Raises:
            ValueError: the teacher's head was not given.
        """
        return OutputDistributionHead(
            self.temperature, self.positions, student, teacher, seed, lm_head
        )


def stages(spec: OutputSpec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (Stage(OutputDistribution(spec.temperature, spec.positions)),)


@dataclass(frozen=True)
class Outputs:
    """Scores of student and teacher at the places that may count.

    Attributes:
        student: (M, V) scores z^S.
        teacher: (M, V) scores z^T, without gradient.
        weights: (M,), 1 at the places that count, else 0.
        temperature: T.
    """

    student: Tensor
    teacher: Tensor
    weights: Tensor
    temperature: float

    def cross_entropy(self) -> Tensor:
        """Σ over places of CE(p^T, p^S) at the temperature, a float32 scalar."""
        student, teacher = self.softened()
        per_place = F.cross_entropy(student, teacher.softmax(1), reduction="none")
        return (per_place * self.weights).sum()

    def softened(self) -> tuple[Tensor, Tensor]:
        """Scores of student and teacher, divided by the temperature."""
        if self.temperature == 1:
            return self.student, self.teacher
        return self.student / self.temperature, self.teacher / self.temperature


class OutputDistributionHead(Head):
    """The student's masked-LM head beside the teacher's, which is frozen.

    The teacher's head is one module that all students of a group share. The student's is fitted to
    it (:mod:`kdnas.models.start.lm_head`). Where that cannot be, it starts with the teacher's bias,
    for how often each token occurs takes long to learn, and with a dense layer that is the identity
    beside the usual noise, for its residual stream begins in the space of its word embeddings.
    """

    def __init__(
        self,
        temperature: float,
        positions: str,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None,
    ) -> None:
        if lm_head is None:
            raise ValueError("output distributions need the teacher's masked-LM head")
        super().__init__()
        self.temperature, self.positions = temperature, positions
        self.output_pair = (student.layers, teacher.layers)
        self.student_taps = TapPoints(hidden=frozenset({student.layers}))
        self.teacher_taps = TapPoints(hidden=frozenset({teacher.layers}))
        self.own = lm_head.for_student(
            student,
            family_of(teacher.model_type),
            seed,
            EmbeddingShape.of(teacher).width(student),
        )
        self.teachers = lm_head.requires_grad_(False)
        with torch.no_grad():
            self.own.bias.copy_(lm_head.bias)
            self.own.dense_weight.add_(torch.eye(*self.own.dense_weight.shape))

    @property
    def student_lm_head(self) -> MaskedLMHead:
        """The student's masked-LM head."""
        return self.own

    def fit(self, student: TokenStates, teacher: TokenStates) -> None:
        """Bring the student's head to say what the teacher's says."""
        last, teachers_last = self.output_pair
        own = student.hidden[last]
        start_lm_head(
            self.own,
            self.teachers,
            own,
            teacher.hidden[teachers_last].to(own),
            student.word_embeddings,
            teacher.word_embeddings,
        )

    def outputs(self, student: Activations, teacher: Activations) -> Outputs:
        """Score the places, picked before the product with the vocabulary."""
        last, teachers_last = self.output_pair
        rows, weights = self._places(student.batch)
        own = self.own(_pick(student, last, rows), student.word_embeddings)
        with torch.no_grad():
            target = self.teachers(_pick(teacher, teachers_last, rows), teacher.word_embeddings)
        return Outputs(own, target, weights, self.temperature)

    def count(self, batch: Batch) -> int:
        """Places of the whole step."""
        return batch.totals.masked if self.positions == "masked" else batch.totals.tokens

    def _places(self, batch: Batch) -> tuple[Tensor | None, Tensor]:
        """Rows to pick, None for all of them, and which of those count.

        All rows are scored, padding too, where all tokens count: batches are of one length, so it
        is little, and a new number of rows at each step would cost more (see ``Activations``).
        """
        if self.positions == "all":
            return None, batch.real.flatten().float()
        if batch.masked is None:
            raise ValueError("no tokens were masked in this batch")
        return batch.masked.rows, batch.masked.weights

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """T² · CE, a mean over the step's places: a float32 scalar; 0 without any place."""
        outputs = self.outputs(student, teacher)
        return self.temperature**2 * outputs.cross_entropy() / max(1, self.count(student.batch))

    def meter(self) -> Meter:
        """Return a fresh meter of `mean`, `relative` and `output`."""
        return OutputDistributionMeter(self)


def _pick(states: Activations, layer: int, rows: Tensor | None) -> Tensor:
    hidden = states.hidden[layer].flatten(0, 1)
    return hidden if rows is None else hidden.index_select(0, rows)


class DistributionSums:
    """Sums of KL(p^T ‖ p^S) and of what its yardstick needs: O(V) numbers in float64.

    The training loss is a cross entropy, CE = KL + H(p^T), which a perfect student brings down to
    the teacher's entropy and not to 0: a ratio of cross entropies would call a student useless
    only where the teacher is sure, and could never reach 0. So KL is read, at the temperature of
    training but without T²; its gradient is the same. Its yardstick L₀ is the best student that
    ignores its input: it answers p̄, the teacher's mean distribution over the held-out places, and
    its loss is the mean of KL(p^T ‖ p̄) = H(p̄) − mean H(p^T).
    """

    def __init__(self) -> None:
        self._kl: Tensor | float = 0.0
        self._entropy: Tensor | float = 0.0
        self._distribution: Tensor | float = 0.0
        self._places: Tensor | float = 0.0

    def add(self, outputs: Outputs) -> None:
        """Take in the places of a batch."""
        log_student, log_teacher = (scores.log_softmax(1) for scores in outputs.softened())
        weighted = log_teacher.exp() * outputs.weights[:, None]
        log_ratio = log_teacher - log_student
        self._kl = self._kl + (weighted * log_ratio).sum(1).double().sum()
        self._entropy = self._entropy - (weighted * log_teacher).sum(1).double().sum()
        self._distribution = self._distribution + weighted.sum(0, dtype=torch.float64)
        self._places = self._places + outputs.weights.double().sum()

    def mean(self) -> float:
        """KL(p^T ‖ p^S), a mean over places, in nats."""
        return float(self._kl / self._places)

    def relative(self) -> float:
        """KL over that of the best student that ignores its input."""
        mean = torch.as_tensor(self._distribution / self._places)
        useless = torch.special.entr(mean).sum() - self._entropy / self._places
        return float(self._kl / self._places / useless)


class OutputDistributionMeter:
    """`mean` is the KL of :class:`DistributionSums`; `relative` and `output` are its ratio."""

    def __init__(self, head: OutputDistributionHead) -> None:
        self._head, self._sums = head, DistributionSums()

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        self._sums.add(self._head.outputs(student, teacher))

    def losses(self, training: float) -> Losses:
        """Return `mean` (KL), `relative` and `output` (both KL over that of p̄)."""
        relative = self._sums.relative()
        return Losses(training, self._sums.mean(), relative, relative)
