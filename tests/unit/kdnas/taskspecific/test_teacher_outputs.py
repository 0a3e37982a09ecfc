"""What the teacher says: kept over epochs, or said anew for each batch."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kdnas.errors import StoreError
from kdnas.taskspecific import teacher_outputs
from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.pseudo_classifiers import PseudoClassifiers
from kdnas.taskspecific.teacher_outputs import (
    KeptTeacher,
    RunningTeacher,
    run_over,
    running_teacher,
    states_bytes,
)
from kdnas.testing.tiny_task_training import (
    tiny_examples,
    tiny_sequence_network,
    tiny_teacher_network,
)

EXAMPLES = tiny_examples(70)  # two batches of a teacher that is run over all of them
HEADS = PseudoClassifiers(4, 24, 2, seed=3).eval().requires_grad_(False)
CHOSEN = np.array([69, 3, 40, 8])


@pytest.fixture(scope="module")
def running() -> RunningTeacher:
    return replace(tiny_teacher_network(), classifiers=HEADS)


def close(one: NetworkOutputs, other: NetworkOutputs) -> None:
    """But for the rounding that comes from how long a batch is padded."""
    for name in ("logits", "layers", "states"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-5, atol=1e-5)


def test_kept_equals_running(running: RunningTeacher, tmp_path: Path) -> None:
    kept = run_over(running, EXAMPLES, tmp_path).with_layers(HEADS)
    close(kept.of(EXAMPLES.batch(CHOSEN)), running.of(EXAMPLES.batch(CHOSEN)))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_before_anything_is_computed(
    running: RunningTeacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(teacher_outputs, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match=r"could not be had in .*\(No space left on device\)"):
        run_over(running, EXAMPLES, tmp_path)


def test_states_on_the_disk_are_the_same(
    running: RunningTeacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several parts of as many examples each keeps its own, and none is left when it is over."""
    in_memory = run_over(running, EXAMPLES, tmp_path)
    monkeypatch.setattr(teacher_outputs, "IN_MEMORY_BYTES", 0)
    mapped = run_over(running, EXAMPLES, tmp_path)
    others = run_over(running, tiny_examples(70, seed=8), tmp_path)
    assert not list(tmp_path.iterdir())  # whoever is killed leaves nothing
    assert mapped.states is not None
    assert in_memory.states is not None
    assert others.states is not None
    assert torch.equal(mapped.states, in_memory.states)
    assert not torch.equal(mapped.states, others.states)
    one, other = (
        kept.with_layers(HEADS).of(EXAMPLES.batch(CHOSEN)) for kept in (in_memory, mapped)
    )
    assert torch.equal(one.layers_needed(), other.layers_needed())
    assert torch.equal(one.states_needed(), other.states_needed())


def test_what_is_said_is_float32_and_has_no_gradient(running: RunningTeacher) -> None:
    batch = EXAMPLES.batch(CHOSEN)
    rounded = replace(running, dtype="bfloat16").of(batch)
    exact = running.of(batch)
    for said in (rounded, exact):
        for tensor in (said.logits, said.layers_needed(), said.states_needed()):
            assert tensor.dtype == torch.float32
            assert not tensor.requires_grad
    assert not torch.equal(rounded.logits, exact.logits)
    torch.testing.assert_close(rounded.logits, exact.logits, rtol=0.1, atol=0.1)
    assert all(p.grad is None for p in running.network.model.parameters())


def test_layers_are_what_the_classifiers_make_of_the_states(running: RunningTeacher) -> None:
    said = running.of(EXAMPLES.batch(CHOSEN))
    torch.testing.assert_close(said.layers_needed(), HEADS(said.states_needed()))
    assert replace(running, classifiers=None).of(EXAMPLES.batch(CHOSEN)).layers is None


def test_what_nobody_needs_any_more_is_left_out(running: RunningTeacher, tmp_path: Path) -> None:
    kept = run_over(running, EXAMPLES, tmp_path)
    assert kept.layers is None
    small = kept.with_layers(HEADS).without_states()
    said = small.of(EXAMPLES.batch(CHOSEN))
    assert said.states is None
    assert said.layers_needed().shape == (4, 4, 2)
    with pytest.raises(ValueError, match="nobody asked for the states"):
        said.states_needed()
    with pytest.raises(ValueError, match="pseudo-classifiers need the states"):
        small.with_layers(HEADS)
    with pytest.raises(ValueError, match="nobody asked for the outputs layer by layer"):
        kept.of(EXAMPLES.batch(CHOSEN)).layers_needed()


@pytest.mark.parametrize("kind", ["bilstm", "gated-cnn"])
def test_a_network_without_vectors_can_teach_by_its_logits(kind: str, tmp_path: Path) -> None:
    """An assistant may be one; what stands behind its inner layers is not asked for."""
    network = tiny_sequence_network(kind, dropout=0.0)
    network.model.eval().requires_grad_(False)
    running = RunningTeacher(network, "cpu", "float32", reads_states=False)
    kept = run_over(running, EXAMPLES, tmp_path)
    assert (kept.states, kept.layers) == (None, None)
    batch = EXAMPLES.batch(CHOSEN)
    torch.testing.assert_close(kept.of(batch).logits, running.of(batch).logits)


def test_progress_is_told_and_may_end_it(running: RunningTeacher, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run_over(running, EXAMPLES, tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(64, 70), (70, 70)]

    def refuse(done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run_over(running, EXAMPLES, tmp_path, refuse)


def test_no_examples_are_an_error(running: RunningTeacher, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no examples"):
        run_over(running, Examples([], None, torch.zeros(0), 0, 64), tmp_path)


def test_a_lookup_does_not_copy_labels_around() -> None:
    kept = KeptTeacher(torch.arange(140.0).view(70, 2))
    assert kept.of(EXAMPLES.batch(CHOSEN)).logits[:, 0].tolist() == [138, 6, 80, 16]


def test_states_take_four_bytes_a_number() -> None:
    assert states_bytes(1000, 12, 768) == 1000 * 12 * 768 * 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_that_are_ready_say_the_same_to_the_bit(
    dtype: str, running: RunningTeacher
) -> None:
    batch = EXAMPLES.batch(CHOSEN)
    wanted = replace(running, dtype=dtype).of(batch)
    made = running_teacher(tiny_teacher_network().network, "cpu", dtype, HEADS)
    said = made.of(batch)
    for name in ("logits", "layers", "states"):
        assert torch.equal(getattr(said, name), getattr(wanted, name))
    parameters = list(made.network.model.parameters())
    assert not any(p.requires_grad for p in parameters)
    assert not made.network.model.training
    assert any(p.dtype == torch.bfloat16 for p in parameters) == (dtype == "bfloat16")
