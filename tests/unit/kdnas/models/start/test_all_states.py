"""Every state of a space as large as the paper's can start from a teacher."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from kdnas.models.families import FAMILIES
from kdnas.testing.start_lab import TINY_SPACE, assert_finite, make_start_lab


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_all_states_are_finite(family: str, tmp_path: Path) -> None:
    """Each state in one family; in all of them, which takes six times as long, if that is asked."""
    assert len(TINY_SPACE) == 2400
    order = Random(0).sample(TINY_SPACE.states, len(TINY_SPACE))
    share = order[sorted(FAMILIES).index(family) :: len(FAMILIES)]
    assert len(share) == 400
    lab = make_start_lab(tmp_path, family, tokens=300)
    for architecture in order if "KDNAS_ALL_STATES" in os.environ else share:
        assert_finite(lab, architecture)
