"""The DistilBERT baseline (Sanh et al. 2019, as in Udagawa App. E).

    L = w_cos · L_cos + w_OD · L_OD + w_MLM · L_MLM

    L_cos = 1 − cos(H^S, H^T), last hidden states, a mean over real tokens
    L_OD  = Eq. 5 of Udagawa at temperature 2, at the masked tokens
    L_MLM = cross entropy of the student's scores with the tokens that were masked

with the weights 1, 5 and 2. Sanh et al. compare the last hidden states alone, which we follow. They
take L_OD at all tokens; we take it at the masked ones, where a masked-LM model is trained to
guess, at a seventh of the cost. The student's layers, embeddings and masked-LM head start as
copies of the teacher's, so it may differ from its teacher in depth alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.models.batch import Batch, MaskedTokens
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.copied import copy_problem
from kdnas.models.taps import Activations
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.objectives.output_distribution import (
    DistributionSums,
    OutputDistributionHead,
    Outputs,
)
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objective_registry import choice_of
from kdnas.specs.objectives import DistilBertSpec


@dataclass(frozen=True)
class DistilBert:
    """The baseline; ``weights`` are those of the cosine loss, of OD, and of masked-LM."""

    temperature: float = 2.0
    weights: tuple[float, float, float] = (1.0, 5.0, 2.0)
    name: str = "distilbert"
    masks_tokens: bool = True
    needs_lm_head: bool = True
    copies_layers: bool = True

    def compared(self, teacher: TeacherShape) -> None:
        """Queries, keys and values are not compared."""

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Say where the student differs from its teacher in more than depth."""
        if not any(self.weights):
            return "all weights of distilbert are 0; give at least one that is larger"
        any_size = choice_of(lambda kind: not (kind.copies_layers or kind.needs_lm_head))
        deeper = choice_of(lambda kind: kind.allows_deeper)
        problem = copy_problem(
            asdict(student),
            asdict(teacher),
            f"the objective {any_size} for students of other sizes",
            f"the objective {deeper} for deeper ones",
        )
        return problem and f"distilbert begins with copied layers, and {problem}"

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> DistilBertHead:
        """Make the student's masked-LM head, a copy of the teacher's.

        Raises:
            ArchitectureError: with the words of :meth:`problem`.
            ValueError: the teacher's head was not given.
        """
        if problem := self.problem(student, teacher):
            raise ArchitectureError(problem)
        return DistilBertHead(self.temperature, self.weights, student, teacher, seed, lm_head)


def stages(spec: DistilBertSpec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (Stage(DistilBert(spec.temperature, spec.weights)),)


class DistilBertHead(OutputDistributionHead):
    """OD at the masked tokens, with two losses more on what is tapped anyway."""

    def __init__(
        self,
        temperature: float,
        weights: tuple[float, float, float],
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None,
    ) -> None:
        super().__init__(temperature, "masked", student, teacher, seed, lm_head)
        self.weights = weights
        copied = self.own.state_dict()
        for name, value in self.teachers.state_dict().items():
            if name in copied:  # the student's decoder is tied, whatever the teacher's is
                copied[name].copy_(value)

    fit = Head.fit  # nothing: as in the paper the head begins as the teacher's, like the layers

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """The weighted sum of the three losses: a float32 scalar."""
        batch = student.batch
        outputs = self.outputs(student, teacher)
        masked = max(1, batch.totals.masked)
        cosine = self.distance(student, teacher).sum() / max(1, batch.totals.tokens)
        distribution = self.temperature**2 * outputs.cross_entropy() / masked
        language = self.language(outputs, batch).sum() / masked
        cosine_weight, output_weight, language_weight = self.weights
        return cosine_weight * cosine + output_weight * distribution + language_weight * language

    def distance(self, student: Activations, teacher: Activations) -> Tensor:
        """1 − cos(H^S, H^T) of the last layers, 0 at the padding: (R,)."""
        last, teachers_last = self.output_pair
        cosine = F.cosine_similarity(student.flat(last), teacher.flat(teachers_last), dim=1)
        return (1 - cosine).masked_fill(student.batch.padding.squeeze(1), 0.0)

    def language(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Cross entropy with the masked tokens, 0 at places of weight 0: (M,)."""
        labels = labels_of(batch).labels
        return F.cross_entropy(outputs.student, labels, reduction="none") * outputs.weights

    def meter(self) -> Meter:
        """Return a fresh meter of `mean`, `relative` and `output`."""
        return DistilBertMeter(self)


def labels_of(batch: Batch) -> MaskedTokens:
    """Return the masked places of a batch."""
    if batch.masked is None:
        raise ValueError("no tokens were masked in this batch")
    return batch.masked


class DistilBertMeter:
    """Reads the three losses, each beside that of the best student that ignores its input.

    - Cosine: the best constant direction is that of the mean of the teacher's unit vectors, and
      its loss is 1 − the length of that mean.
    - OD: KL, as in :class:`~kdnas.objectives.output_distribution.DistributionSums`.
    - Masked-LM: the best constant answer is the frequency of the held-out labels, and its loss is
      their entropy.

    `mean` is the mean of the three losses (1 − cos, KL, CE in nats) by their weights, `relative`
    that of the ratios of the losses that are trained on at all, unweighted, and `output` is the
    ratio of the cosine loss. The teacher itself guesses masked tokens with some loss, so that a
    student equal to its teacher scores 0 in `output`, but not in `mean` and `relative`.
    """

    def __init__(self, head: DistilBertHead) -> None:
        self._head = head
        self._distributions = DistributionSums()
        self._cosine: Tensor | float = 0.0
        self._language: Tensor | float = 0.0
        self._directions: Tensor | float = 0.0
        self._labels: Tensor | float = 0.0
        self._tokens = 0

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        head, batch = self._head, student.batch
        outputs, masked = head.outputs(student, teacher), labels_of(batch)
        self._distributions.add(outputs)
        self._cosine = self._cosine + head.distance(student, teacher).double().sum()
        self._language = self._language + head.language(outputs, batch).double().sum()
        units = F.normalize(teacher.rows(head.output_pair[1]).double(), dim=1)
        self._directions = self._directions + units.sum(0)
        self._labels = self._labels + torch.bincount(
            masked.labels, masked.weights.double(), outputs.student.shape[1]
        )
        self._tokens += batch.num_tokens

    def losses(self, training: float) -> Losses:
        """Return `mean`, `relative` and `output` of all batches so far."""
        labels, directions = map(torch.as_tensor, (self._labels, self._directions))
        places = labels.sum()
        cosine = float(self._cosine / self._tokens)
        language = float(self._language / places)
        output = cosine / (1 - float(directions.norm() / self._tokens))
        ratios = (
            output,
            self._distributions.relative(),
            language / float(torch.special.entr(labels / places).sum()),
        )
        losses = (cosine, self._distributions.mean(), language)
        weights = self._head.weights
        trained = [ratio for ratio, weight in zip(ratios, weights, strict=True) if weight]
        return Losses(
            training=training,
            mean=sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights),
            relative=sum(trained) / len(trained),
            output=output,
        )
