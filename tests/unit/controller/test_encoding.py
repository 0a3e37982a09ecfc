from __future__ import annotations

import numpy as np

from controller.encoding import StateEncoder
from kdnas.search.protocols import Observation
from kdnas.search_space import SearchSpace


def test_a_step_of_the_papers_space() -> None:
    space = SearchSpace.paper()
    encoder = StateEncoder(space)
    assert encoder.width == 5 + 5 + 4 + 8 + 3 + 4 + 2
    index = next(i for i, s in enumerate(space.states) if str(s) == "4,12,576,768,relu")
    one_hot = (0, 1, 0, 0, 0), (0, 0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 0, 1, 0, 0, 0, 0), (0, 1, 0)
    ordinals = (1 / 4, 1.0, 2 / 3, 3 / 7)
    expected = np.concatenate([*one_hot, ordinals, (0.0, 0.0)])
    np.testing.assert_array_equal(encoder.candidates([index])[0], np.float64(expected))


def test_every_state_has_its_own_code() -> None:
    encoder = StateEncoder(SearchSpace.paper())
    assert len(np.unique(encoder.states, axis=0)) == 2400
    assert encoder.states.dtype == np.float64
    assert encoder.states.min() == 0
    assert encoder.states.max() == 1


def test_memory_has_reward_and_flag_and_is_zero_when_empty() -> None:
    encoder = StateEncoder(SearchSpace.paper())
    filled, empty = encoder.memory(Observation(1, 77, 0.75), None)
    np.testing.assert_array_equal(filled[:-2], encoder.states[77, :-2])
    assert filled[-2:].tolist() == [0.75, 1.0]
    assert not empty.any()
    assert not encoder.states[:, -2:].any()


def test_axes_in_any_order_and_of_one_value() -> None:
    space = SearchSpace(layers=(6, 2), heads=(2,), hidden=(96,), intermediate=(192,))
    encoder = StateEncoder(space)
    ordinals = encoder.states[:, -6:-2]
    assert ordinals[space.states.index(space[0])].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert ordinals[-1].tolist() == [0.0, 0.0, 0.0, 0.0]
