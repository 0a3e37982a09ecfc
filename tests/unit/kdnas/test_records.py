from __future__ import annotations

from dataclasses import replace

import pytest

from kdnas.architecture import Architecture
from kdnas.records import (
    LatencyEntry,
    LatencyProfile,
    LatencyTable,
    Losses,
    MiniKDContext,
    fingerprint,
)

CONTEXT = MiniKDContext("t", "c", {"name": "hs"}, {"init": "warm"}, {"seed": 0}, "float32", "1")


def test_equal_contents_have_equal_fingerprints() -> None:
    assert fingerprint({"a": 1, "b": [2.5, None]}) == fingerprint({"b": [2.5, None], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert len(fingerprint(None)) == 16


def test_a_fingerprint_of_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="float"):
        fingerprint({"a": float("nan")})


@pytest.mark.parametrize(
    "change",
    [
        {"teacher": "u"},
        {"corpus": "d"},
        {"objective": {"name": "other"}},
        {"student": {"init": "random"}},
        {"proxy": {"seed": 1}},
        {"dtype": "bfloat16"},
        {"engine_version": "2"},
    ],
)
def test_whatever_decides_losses_is_in_the_contexts_fingerprint(change: dict[str, object]) -> None:
    assert replace(CONTEXT, **change).fingerprint != CONTEXT.fingerprint


def test_losses_by_name() -> None:
    losses = Losses(4.0, 3.0, 2.0, 1.0)
    assert [losses.named(name) for name in ("mean", "relative", "output")] == [3.0, 2.0, 1.0]


def test_the_host_does_not_count_in_a_latency_profile() -> None:
    profile = LatencyProfile("cpu:x", "pytorch-eager", 1, "float32", 32, "here")
    assert replace(profile, node="there").fingerprint == profile.fingerprint
    assert replace(profile, threads=2).fingerprint != profile.fingerprint


def test_a_latency_table_answers_by_architecture() -> None:
    small = Architecture(1, 2, 24, 48)
    profile = LatencyProfile("cpu:x", "pytorch-eager", 1, "float32", 32)
    table = LatencyTable(
        profile, "bert", "t", 8.0, {str(small): LatencyEntry(small, 2.0, 0.1, measured=True)}
    )
    assert table.ms(small) == 2.0
    assert table.ratio(small) == 0.25
    with pytest.raises(KeyError, match="2,2,24,48,gelu"):
        table.ms(replace(small, layers=2))
