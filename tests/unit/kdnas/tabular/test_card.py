"""What a table's rows say of its trainings."""

from __future__ import annotations

import pytest

from kdnas.architecture import Architecture
from kdnas.tabular.card import context_of_all, noise_after, trainings_of
from kdnas.tabular.table import Key, StateRow, Table, TableRow

A, B = (Architecture(layers, 2, 24, 48, "gelu") for layers in (1, 2))
CARD = {"context": {"proxy": {"batch_size": 8}}}


def table(*readings: tuple[Architecture, int, int, int, float], **card: object) -> Table:
    rows = tuple(TableRow(Key(*key), loss) for *key, loss in readings)
    return Table(rows, {A: StateRow(1.0), B: StateRow(2.0)}, None, card)


def test_noise_is_that_of_the_ends_of_trainings_around_the_mean_of_their_state() -> None:
    """Readings on the way and other lengths do not count; a state of one seed tells nothing."""
    own = table(
        *((A, seed, 60, 60, loss) for seed, loss in ((0, 0.30), (2, 0.34))),
        *((A, seed, 60, 30, loss) for seed, loss in ((0, 0.5), (2, 0.9))),
        (B, 1, 60, 60, 0.2),
        (B, 0, 480, 480, 0.1),
        (A, 0, 0, 0, 0.9),
        **CARD,
    )
    short, long = trainings_of(own)
    assert (short.steps, short.batch_size, short.seeds) == (60, 8, (0, 2))
    assert short.noise is not None
    assert (short.noise.num_states, short.noise.dof) == (1, 1)
    assert short.noise.sd == pytest.approx(0.02 * 2**0.5)
    assert str(short) == (
        "trainings of 60 steps of 8 sequences: between seeds the loss deviates by 0.028 "
        "(1 state, seeds 0, 2)"
    )
    assert (long.steps, long.seeds, long.noise) == (480, (0,), None)
    assert str(long) == (
        "trainings of 480 steps of 8 sequences: one seed, so that their noise is not known"
    )


def test_a_table_may_name_neither_steps_nor_batches_nor_two_seeds_of_a_state() -> None:
    (bare,) = trainings_of(table((A, 0, 0, 0, 0.5), (B, 1, 0, 0, 0.4)))
    assert str(bare) == "no state has two seeds, so that their noise is not known"
    assert trainings_of(table((A, 0, 60, 30, 0.5))) == []


def test_noise_of_a_loss_is_that_of_students_that_have_learned() -> None:
    states = {A: StateRow(1.0), B: StateRow(2.0)}
    rows = (
        TableRow(Key(A, 0, 60, 60), 0.30, 0.2, 0.4),
        TableRow(Key(A, 1, 60, 60), 0.34, 0.4, 0.4),
        TableRow(Key(A, 2, 60, 60), 0.90, 1.0, 0.9),  # it has not learned
        TableRow(Key(B, 0, 60, 60), 0.30),
        TableRow(Key(B, 1, 60, 60), 0.34),
    )
    table = Table(rows, states)
    relative, output = noise_after(table, 60, "relative"), noise_after(table, 60, "output")
    assert relative is not None
    assert output is not None
    assert (relative.sd, relative.dof) == (pytest.approx(0.02 * 2**0.5), 2)
    assert (output.sd, output.dof) == (pytest.approx(0.1 * 2**0.5), 1)
    assert noise_after(table, 480, "relative") is None


def test_the_context_of_all_trainings_is_without_their_seeds_and_lengths() -> None:
    proxy = {"seed": 1, "steps": 60, "epochs": 4.0, "batch_size": 8}
    assert context_of_all({"teacher": "t", "proxy": proxy}) == {
        "teacher": "t",
        "proxy": {"batch_size": 8},
    }
