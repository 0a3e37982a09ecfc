from __future__ import annotations

import pytest
import torch
from torch import nn

from kdnas.distill.teacher_pass import Batch, TeacherPass
from kdnas.models.families import FAMILIES, Family
from kdnas.models.taps import HiddenStateTap, real_rows
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

LAYERS = 3


@pytest.fixture(scope="module", params=FAMILIES)
def teacher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[nn.Module, Family]:
    folder = make_tiny_teacher(tmp_path_factory.mktemp("t") / "t", request.param, layers=LAYERS)
    return load_teacher_model(prepare_teacher(str(folder))), FAMILIES[request.param]


@pytest.fixture(scope="module")
def batch() -> Batch:
    ids = torch.randint(5, 80, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9)[None] < torch.tensor([9, 4, 6])[:, None]).long()
    return Batch(ids * mask, mask, real_rows(mask))


def whole(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        states: tuple[torch.Tensor, ...] = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=True,
        ).hidden_states
    return states


def test_taps_are_the_models_own_hidden_states(
    teacher: tuple[nn.Module, Family], batch: Batch
) -> None:
    model, family = teacher
    expected = whole(model, batch)
    assert len(expected) == LAYERS + 1
    with HiddenStateTap(model, family, range(LAYERS + 1)) as tap, torch.no_grad():
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        states = tap.take(batch.real_rows)
    for layer, state in enumerate(expected):
        assert torch.equal(states.layers[layer], state)
        assert torch.equal(states.rows(layer), state[batch.attention_mask.bool()])
    assert states.rows(0).shape == (9 + 4 + 6, 48)


@pytest.mark.parametrize("layers", [{1}, {2}, {1, 2}, {3}])
def test_a_truncated_teacher_gives_the_same_states_and_is_whole_again(
    teacher: tuple[nn.Module, Family], batch: Batch, layers: set[int]
) -> None:
    model, family = teacher
    expected, ran = whole(model, batch), []
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    handles = [
        layer.register_forward_hook(lambda *_, i=i: ran.append(i))
        for i, layer in enumerate(family.transformer_layers(model), 1)
    ]
    with TeacherPass(model, family, layers, "cpu", "float32") as run:
        states = run(batch)
    for handle in handles:
        handle.remove()
    assert set(states.layers) == layers
    assert all(torch.equal(states.layers[i], expected[i]) for i in layers)
    assert ran == list(range(1, max(layers) + 1))
    assert all(torch.equal(a, b) for a, b in zip(whole(model, batch), expected, strict=True))
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks


def test_a_teacher_is_whole_again_after_an_error(
    teacher: tuple[nn.Module, Family], batch: Batch
) -> None:
    model, family = teacher
    with pytest.raises(IndexError), TeacherPass(model, family, {1}, "cpu", "float32") as run:
        run(Batch(batch.input_ids + 1000, batch.attention_mask, batch.real_rows))
    assert len(family.transformer_layers(model)) == LAYERS


def test_what_is_in_the_padding_changes_nothing(
    teacher: tuple[nn.Module, Family], batch: Batch
) -> None:
    model, family = teacher
    garbage = batch.input_ids + 7 * (1 - batch.attention_mask)
    with TeacherPass(model, family, {LAYERS}, "cpu", "float32") as run:
        clean = run(batch).rows(LAYERS)
        dirty = run(Batch(garbage, batch.attention_mask, batch.real_rows)).rows(LAYERS)
    assert torch.equal(clean, dirty)


def test_a_layer_above_the_model_is_refused(teacher: tuple[nn.Module, Family]) -> None:
    model, family = teacher
    with pytest.raises(ValueError, match="layer 4 is above the model's 3 layers"):
        HiddenStateTap(model, family, {LAYERS + 1})


def test_states_are_handed_out_once(teacher: tuple[nn.Module, Family], batch: Batch) -> None:
    model, family = teacher
    with HiddenStateTap(model, family, {1}) as tap, torch.no_grad():
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        assert tap.take(batch.real_rows).layers
        assert not tap.take(batch.real_rows).layers
