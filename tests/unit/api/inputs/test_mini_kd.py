"""What of a request decides the losses of its students."""

from __future__ import annotations

from api.inputs.mini_kd import _facts
from kdnas.specs.search import ProxySpec


def test_where_a_training_may_end_early_is_no_part_of_its_context() -> None:
    plain = ProxySpec(steps=120)
    early = ProxySpec(steps=120, rungs=(30, 60), keep=3, reuse=False)
    assert _facts(early) == _facts(plain)
    assert {"rungs", "keep", "reuse"}.isdisjoint(_facts(plain))
    assert _facts(ProxySpec(steps=121)) != _facts(plain)
