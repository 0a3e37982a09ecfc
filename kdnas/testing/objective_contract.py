"""What every objective must do, as a suite of tests to inherit from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import pytest
import torch
from torch import Tensor

from kdnas.models.taps import HiddenStates, real_rows
from kdnas.objectives.base import Head, Objective
from kdnas.records import Losses

STUDENT_LAYERS, TEACHER_LAYERS = 2, 5
STUDENT_HIDDEN, TEACHER_HIDDEN = 8, 12
LENGTHS = (7, 3, 5, 1, 7, 2)


def made_up_states(
    layers: int, hidden: int, lengths: Sequence[int] = LENGTHS, padding: float = 0.0, seed: int = 0
) -> HiddenStates:
    """Hidden states of all layers, drawn at random at the real tokens, in batches of one length.

    Args:
        layers: number of layers; the embeddings come on top.
        hidden: D.
        lengths: real tokens of each sequence.
        padding: what stands at the padded places.
        seed: of the values; layers of one seed and width are equal.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]  # (B, T)
    found = {}
    for layer in range(layers + 1):
        values = torch.randn(len(lengths), longest, hidden, generator=generator) * (1 + layer)
        values += torch.randn(hidden, generator=generator)  # dimensions differ in their mean
        found[layer] = torch.where(mask[..., None], values, padding)
    return HiddenStates(found, real_rows(mask))


def cut(states: HiddenStates, lengths: Sequence[int], sequences: slice) -> HiddenStates:
    """Some of the sequences of a batch, padded to their own longest."""
    chosen = lengths[sequences]
    longest = max(chosen)
    mask = torch.arange(longest)[None] < torch.tensor(chosen)[:, None]
    layers = {i: values[sequences, :longest] for i, values in states.layers.items()}
    return HiddenStates(layers, real_rows(mask))


class ObjectiveContract:
    """Inherit in a test class and give :meth:`make`."""

    def make(self) -> Objective:
        """A fresh objective."""
        raise NotImplementedError

    def head(self, seed: int = 0) -> Head:
        """Head for a student of other depth and width than its teacher's."""
        return self.make().head(
            STUDENT_LAYERS, STUDENT_HIDDEN, TEACHER_LAYERS, TEACHER_HIDDEN, seed
        )

    def student(self, padding: float = 0.0) -> HiddenStates:
        """Hidden states of a student that has learned nothing."""
        return made_up_states(STUDENT_LAYERS, STUDENT_HIDDEN, padding=padding, seed=1)

    def teacher(self, padding: float = 0.0) -> HiddenStates:
        """Hidden states of the teacher on the same tokens."""
        return made_up_states(TEACHER_LAYERS, TEACHER_HIDDEN, padding=padding, seed=2)

    def read(self, head: Head, *batches: tuple[HiddenStates, HiddenStates]) -> Losses:
        """Held-out losses of some batches of (student, teacher)."""
        meter = head.meter()
        with torch.no_grad():
            for student, teacher in batches:
                meter.add(student, teacher)
        return meter.losses(0.5)

    def test_it_names_the_layers_that_it_needs(self) -> None:
        """The head's teacher layers are those that the objective announces."""
        objective, head = self.make(), self.head()
        assert objective.name
        assert head.teacher_layers == objective.teacher_layers(STUDENT_LAYERS, TEACHER_LAYERS)
        assert head.teacher_layers <= set(range(TEACHER_LAYERS + 1))
        assert head.student_layers <= set(range(STUDENT_LAYERS + 1))
        assert head.teacher_layers
        assert head.student_layers

    def test_the_training_loss_is_a_finite_float32_number(self) -> None:
        """A scalar that has a gradient in all that is learned."""
        head = self.head()
        loss = head(self.student(), self.teacher())
        assert (loss.shape, loss.dtype) == ((), torch.float32)
        assert torch.isfinite(loss)
        loss.backward()
        gradients = [p.grad for p in head.parameters()]
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
        student, teacher = self.student(), self.teacher()
        leaves: list[Tensor] = []
        for states in (student, teacher):
            for values in states.layers.values():
                values.requires_grad_(states is student)
                leaves.append(values)
        head = self.head()
        head(student, teacher).backward()
        assert all(values.grad is None for values in teacher.layers.values())
        learned = [student.layers[i].grad for i in head.student_layers]
        assert all(g is not None and g.abs().sum() > 0 for g in learned)

    def test_what_is_in_the_padding_changes_nothing(self) -> None:
        """Neither the training loss nor any held-out loss, nor the student's gradient."""
        head, results = self.head(), []
        for padding in (0.0, 1e4):
            student, teacher = self.student(padding), self.teacher(padding)
            for values in student.layers.values():
                values.requires_grad_()
            loss = head(student, teacher)
            loss.backward()
            gradient = next(student.layers[i].grad for i in sorted(head.student_layers))
            assert gradient is not None
            results.append((float(loss.detach()), self.read(head, (student, teacher)), gradient))
        assert results[0][:2] == results[1][:2]
        assert torch.equal(results[0][2], results[1][2])

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
        for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)
            assert not torch.equal(a, c)
