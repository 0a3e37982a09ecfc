"""What every objective must do, as a suite of tests to inherit from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace

import pytest
import torch
from torch import Tensor

from kdnas.architecture import Architecture
from kdnas.models.batch import Batch
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.taps import PROJECTIONS, Activations, TapPoints
from kdnas.objectives.base import Head, Objective
from kdnas.records import Losses, TeacherShape

STUDENT = Architecture(2, 2, 8, 16, "gelu")
TEACHER = TeacherShape("bert", 5, 4, 12, 24, "gelu", 23, 32, 2, "made-up")
LENGTHS = (7, 3, 5, 1, 7, 2)


def made_up_activations(
    layers: int,
    hidden: int,
    lengths: Sequence[int] = LENGTHS,
    padding: float = 0.0,
    seed: int = 0,
    vocab_size: int = TEACHER.vocab_size,
) -> Activations:
    """Activations of all layers, drawn at random at the real tokens, with every third one masked.

    Args:
        layers: number of layers; the embeddings come on top.
        hidden: D.
        lengths: real tokens of each sequence.
        padding: what stands at the padded places.
        seed: of the values; layers of one seed and width are equal.
        vocab_size: rows of the word embeddings.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]  # (B, T)

    def values(scale: float) -> Tensor:
        drawn = torch.randn(len(lengths), longest, hidden, generator=generator) * scale
        drawn += torch.randn(hidden, generator=generator)  # dimensions differ in their mean
        return torch.where(mask[..., None], drawn, padding)

    states = {layer: values(1 + layer) for layer in range(layers + 1)}
    projections = {
        layer: {name: values(1.0) for name in PROJECTIONS} for layer in range(1, layers + 1)
    }
    words = torch.randn(vocab_size, hidden, generator=generator)
    return Activations(made_up_batch(lengths), states, projections, words)


def made_up_batch(lengths: Sequence[int] = LENGTHS, first: int = 0) -> Batch:
    """A batch whose tokens are counted up from ``first``, every third of them masked."""
    longest = max(lengths)
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    ids[mask] = (first + torch.arange(int(mask.sum()))) % TEACHER.vocab_size
    numbers = torch.zeros_like(ids)
    numbers[mask] = first + torch.arange(int(mask.sum()))
    labels = torch.where(mask & (numbers % 3 == 0), ids, -100)
    return Batch.of(ids, mask.long(), labels)


def cut(activations: Activations, lengths: Sequence[int], sequences: slice) -> Activations:
    """Some of the sequences of a batch, padded to their own longest."""
    chosen = lengths[sequences]
    longest = max(chosen)
    batch = made_up_batch(chosen, first=sum(lengths[: sequences.start]))
    hidden = {i: values[sequences, :longest] for i, values in activations.hidden.items()}
    projections = {
        i: {name: values[sequences, :longest] for name, values in found.items()}
        for i, found in activations.projections.items()
    }
    return Activations(batch, hidden, projections, activations.word_embeddings)


def read_tensors(activations: Activations, points: TapPoints) -> Iterator[Tensor]:
    """The tensors that these points name."""
    yield from (activations.hidden[i] for i in sorted(points.hidden))
    for i in sorted(points.projections):
        yield from activations.projections[i].values()


class ObjectiveContract:
    """Inherit in a test class and give :meth:`make`.

    Attributes:
        architecture: of the student; by default of other depth and width than its teacher.
        shape: of the teacher.
    """

    architecture = STUDENT
    shape = TEACHER

    def make(self) -> Objective:
        """A fresh objective."""
        raise NotImplementedError

    def head(self, seed: int = 0) -> Head:
        """Head for the student, with a masked-LM head of the teacher if it needs one."""
        objective = self.make()
        lm_head = (
            MaskedLMHead(self.shape.hidden, self.shape.hidden, self.shape.vocab_size, seed=7)
            if objective.needs_lm_head
            else None
        )
        return objective.head(self.architecture, self.shape, seed, lm_head)

    def student(self, padding: float = 0.0) -> Activations:
        """Activations of a student that has learned nothing."""
        return made_up_activations(
            self.architecture.layers, self.architecture.hidden, padding=padding, seed=1
        )

    def teacher(self, padding: float = 0.0) -> Activations:
        """Activations of the teacher on the same tokens."""
        return made_up_activations(self.shape.layers, self.shape.hidden, padding=padding, seed=2)

    def read(self, head: Head, *batches: tuple[Activations, Activations]) -> Losses:
        """Held-out losses of some batches of (student, teacher)."""
        meter = head.meter()
        with torch.no_grad():
            for student, teacher in batches:
                meter.add(student, teacher)
        return meter.losses(0.5)

    def test_it_names_what_it_reads(self) -> None:
        """Within the layers of both models, and something on either side."""
        objective, head = self.make(), self.head()
        assert objective.name
        assert objective.problem(self.architecture, self.shape) is None
        for points, layers in (
            (head.teacher_taps, self.shape.layers),
            (head.student_taps, self.architecture.layers),
        ):
            assert points.hidden <= set(range(layers + 1))
            assert points.projections <= set(range(1, layers + 1))
            assert points.hidden | points.projections

    def test_the_training_loss_is_a_finite_float32_number(self) -> None:
        """A scalar that has a gradient in all that is learned."""
        head, student = self.head(), self.student()
        for values in read_tensors(student, head.student_taps):
            values.requires_grad_()  # a head need not learn anything itself
        loss = head(student, self.teacher())
        assert (loss.shape, loss.dtype) == ((), torch.float32)
        assert torch.isfinite(loss)
        loss.backward()
        gradients = [p.grad for p in head.parameters() if p.requires_grad]
        assert all(g is not None and torch.isfinite(g).all() for g in gradients)

    def test_the_loss_is_float32_under_autocast(self) -> None:
        """Matrix products may be rounded, the loss is not."""
        head = self.head()
        exact = head(self.student(), self.teacher())
        with torch.autocast("cpu", torch.bfloat16):
            rounded = head(self.student(), self.teacher())
        assert rounded.dtype == torch.float32
        assert float(rounded.detach()) == pytest.approx(float(exact.detach()), rel=0.02)

    def test_no_gradient_reaches_the_teacher(self) -> None:
        """Nor is one lost on the way to the student."""
        student, teacher, head = self.student(), self.teacher(), self.head()
        learning = list(read_tensors(student, head.student_taps))
        teaching = [*read_tensors(teacher, head.teacher_taps), teacher.word_embeddings]
        for values in learning:
            values.requires_grad_()
        head(student, teacher).backward()
        assert all(values.grad is None for values in teaching)
        assert any(v.grad is not None and v.grad.abs().sum() > 0 for v in learning)
        assert all(p.grad is None for p in head.parameters() if not p.requires_grad)

    def test_what_is_in_the_padding_changes_nothing(self) -> None:
        """Neither the training loss nor any held-out loss, nor the student's gradient."""
        head, results = self.head(), []
        for padding in (0.0, 1e4):
            student, teacher = self.student(padding), self.teacher(padding)
            learning = list(read_tensors(student, head.student_taps))
            for values in learning:
                values.requires_grad_()
            loss = head(student, teacher)
            loss.backward()
            gradients = [v.grad for v in learning if v.grad is not None]
            results.append((float(loss.detach()), self.read(head, (student, teacher)), gradients))
        assert results[0][:2] == results[1][:2]
        assert len(results[0][2]) == len(results[1][2])
        for one, other in zip(results[0][2], results[1][2], strict=True):
            assert torch.equal(one, other)

    def test_a_batch_that_does_not_count_gives_zero(self) -> None:
        """All sums are 0, and so are the gradients, which are there and finite."""
        head = self.head()
        batch = made_up_batch()
        nothing = Batch.of(
            batch.input_ids,
            batch.attention_mask,
            torch.full_like(batch.input_ids, 3),
            counts=False,
            totals=batch.totals,
        )
        student, teacher = self.student(), self.teacher()
        student.batch = teacher.batch = nothing
        learning = list(read_tensors(student, head.student_taps))
        for values in learning:
            values.requires_grad_()
        loss = head(student, teacher)
        loss.backward()
        assert float(loss.detach()) == 0
        assert all(not v.grad.abs().sum() for v in learning if v.grad is not None)

    def test_the_parts_of_a_step_add_up_to_the_whole(self) -> None:
        """Losses are sums over the totals of the whole step, however it is cut."""
        head, student, teacher = self.head(), self.student(), self.teacher()
        whole = float(head(student, teacher).detach())
        parts = 0.0
        for sequences in (slice(0, 1), slice(1, 4), slice(4, 6)):
            cuts = [cut(a, LENGTHS, sequences) for a in (student, teacher)]
            for part in cuts:
                part.batch = replace(part.batch, totals=student.batch.totals)
            parts += float(head(*cuts).detach())
        assert parts == pytest.approx(whole, rel=1e-5)

    def test_the_cut_into_batches_changes_nothing(self) -> None:
        """Sums are divided at the end, so batches of uneven size count by their tokens."""
        head, student, teacher = self.head(), self.student(), self.teacher()
        whole = self.read(head, (student, teacher))
        for cuts in ([slice(0, 1), slice(1, 6)], [slice(i, i + 1) for i in range(6)]):
            parts = [(cut(student, LENGTHS, c), cut(teacher, LENGTHS, c)) for c in cuts]
            for one, other in zip(astuple(self.read(head, *parts)), astuple(whole), strict=True):
                assert one == pytest.approx(other, rel=1e-6)

    def test_a_meter_is_fresh(self) -> None:
        """Nothing of an earlier reading is left, and the training loss is passed through."""
        head, student, teacher = self.head(), self.student(), self.teacher()
        first = self.read(head, (student, teacher))
        assert first == self.read(head, (student, teacher))
        assert first.training == 0.5

    def test_the_seed_decides_the_head(self) -> None:
        """And the process's own random state stays as it was."""
        state = torch.get_rng_state()
        one, same, other = self.head(1), self.head(1), self.head(2)
        assert torch.equal(torch.get_rng_state(), state)
        drawn = zip(one.parameters(), same.parameters(), other.parameters(), strict=True)
        for a, b, c in drawn:
            assert torch.equal(a, b)
            if a.requires_grad and a.ndim > 1:  # biases and scales start alike
                assert not torch.equal(a, c)
