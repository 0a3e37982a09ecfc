from __future__ import annotations

import itertools

import pytest
import torch
from transformers import AutoConfig

from kdnas.architecture import Architecture
from kdnas.latency.students import TIMED_VOCABULARY, StudentFactory
from kdnas.models.families import FAMILIES
from kdnas.models.student import build_student

ARCHITECTURE = Architecture(2, 3, 24, 40, "relu")


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_students_of_every_family_run(model_type: str, dtype: str) -> None:
    random = torch.get_rng_state()
    factory = StudentFactory(AutoConfig.for_model(model_type), torch.device("cpu"), dtype)
    student = factory.build(ARCHITECTURE)
    ids = torch.arange(5, 13)[None]
    hidden = student(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    assert hidden.shape == (1, 8, 24)
    assert bool(torch.isfinite(hidden).all())
    assert str(hidden.dtype) == f"torch.{dtype}"
    assert not student.training
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_timed_student_is_a_real_one_but_for_its_weights(model_type: str) -> None:
    """Same parameters but for the vocabulary, and the same buffers at every width of head."""
    config = AutoConfig.for_model(model_type)
    factory = StudentFactory(config, torch.device("cpu"), "float32")
    for architecture in (ARCHITECTURE, Architecture(4, 2, 24, 40), Architecture(1, 6, 36, 12)):
        timed = factory.build(architecture)
        real = build_student(config, architecture, vocab_size=TIMED_VOCABULARY)
        shapes = [{n: p.shape for n, p in m.named_parameters()} for m in (timed, real)]
        assert shapes[0] == shapes[1]
        expected = dict(real.named_buffers())
        found = dict(timed.named_buffers())
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_parameters_of_a_student_do_not_overlap_and_students_share_memory() -> None:
    factory = StudentFactory(AutoConfig.for_model("bert"), torch.device("cpu"), "float32")
    large, again = factory.build(ARCHITECTURE), factory.build(ARCHITECTURE)
    spans = sorted((p.data_ptr(), p.data_ptr() + 4 * p.numel()) for p in large.parameters())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    first, same = next(large.parameters()), next(again.parameters())
    assert first.shape == (TIMED_VOCABULARY, 24)
    assert first.data_ptr() == same.data_ptr()
