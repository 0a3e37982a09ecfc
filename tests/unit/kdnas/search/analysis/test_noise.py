"""Noise between seeds: what is known of it is found again."""

from __future__ import annotations

import numpy as np
import pytest

from kdnas.search.analysis.noise import noise_of


def test_known_noise_is_found_again() -> None:
    rng = np.random.default_rng(0)
    trained = [list(rng.uniform(0.1, 0.6) + rng.normal(0, 0.01, 3)) for _ in range(400)]
    noise = noise_of([*trained, [0.3]])
    assert noise is not None
    assert (noise.dof, noise.num_states) == (800, 400)
    assert noise.sd == pytest.approx(0.01, rel=0.06)
    assert noise_of([[0.3], [0.4]]) is None
