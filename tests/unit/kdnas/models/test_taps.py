from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from kdnas.architecture import Architecture
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.batch import Batch
from kdnas.models.families import FAMILIES, Family
from kdnas.models.student import build_student
from kdnas.models.taps import Tap, TapPoints
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

LAYERS = 3
LENGTHS = (14, 4, 6)
ALL = TapPoints(frozenset(range(LAYERS + 1)), frozenset(range(1, LAYERS + 1)))

Teacher = tuple[nn.Module, Family]


@pytest.fixture(scope="module", params=FAMILIES)
def teacher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Teacher:
    folder = make_tiny_teacher(tmp_path_factory.mktemp("t") / "t", request.param, layers=LAYERS)
    return load_teacher_model(prepare_teacher(str(folder))), FAMILIES[request.param]


def batch_of(padding_id: int = 0) -> Batch:
    """Three sequences of uneven length, longer than a window of local attention."""
    longest = max(LENGTHS)
    ids = torch.randint(5, 80, (3, longest), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(longest)[None] < torch.tensor(LENGTHS)[:, None]).long()
    return Batch.of(ids * mask + padding_id * (1 - mask), mask)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of()


def whole(model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    with torch.no_grad():
        states: tuple[Tensor, ...] = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=True,
        ).hidden_states
    return states


def num_hooks(model: nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def test_taps_are_the_models_own_hidden_states(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    expected = whole(model, batch)
    assert len(expected) == LAYERS + 1
    with Tap(model, family, ALL) as tap, torch.no_grad():
        output = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        states = tap.take(batch)
    for layer, state in enumerate(expected):
        assert torch.equal(states.hidden[layer], state)
        assert torch.equal(states.rows(layer), state[batch.attention_mask.bool()])
    assert torch.equal(states.hidden[LAYERS], output.last_hidden_state)
    assert states.rows(0).shape == (sum(LENGTHS), 48)
    assert states.word_embeddings is family.word_embeddings(model)


# Where each family has what turns a layer's input into its queries, keys and values: the layer
# norm before it, if there is one, and the projections. Written anew, to check the families' own.
SEPARATE = [f"attention.self.{name}" for name in ("query", "key", "value")]
PROJECTIONS = {
    "bert": SEPARATE,
    "roberta": SEPARATE,
    "xlm-roberta": SEPARATE,
    "electra": SEPARATE,
    "distilbert": [f"attention.{name}" for name in ("q_lin", "k_lin", "v_lin")],
    "modernbert": ["attn.Wqkv"],
}


def recomputed(layer: nn.Module, given: Tensor, model_type: str) -> list[Tensor]:
    """Q, K and V from a layer's input, weights and biases, one product each."""
    if model_type == "modernbert":
        given = layer.get_submodule("attn_norm")(given)
    weights, biases = [], []
    for path in PROJECTIONS[model_type]:
        projection = layer.get_submodule(path)
        assert isinstance(projection, nn.Linear)
        weights.append(projection.weight)
        biases.append(projection.weight.new_zeros(len(projection.weight)))
        if projection.bias is not None:
            biases[-1] = projection.bias
    weight, bias = torch.cat(weights), torch.cat(biases)  # (3·D, D), (3·D,)
    width = len(weight) // 3
    parts = [slice(i, i + width) for i in range(0, 3 * width, width)]
    return [F.linear(given, weight[part], bias[part]) for part in parts]


def test_projections_are_those_of_the_layers_input(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    inputs: list[Tensor] = []
    layers = family.transformer_layers(model)
    handles = [
        layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for layer in layers
    ]
    points = TapPoints(projections=frozenset({1, LAYERS}))
    with Tap(model, family, points) as tap, torch.no_grad():
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        states = tap.take(batch)
    for handle in handles:
        handle.remove()
    assert not states.hidden
    assert set(states.projections) == {1, LAYERS}
    for number, found in states.projections.items():
        expected = recomputed(layers[number - 1], inputs[number - 1], family.model_type)
        assert list(found) == ["q", "k", "v"]
        for name, values in zip(found, expected, strict=True):
            assert found[name].shape == (3, max(LENGTHS), 48)
            assert torch.allclose(found[name], values, atol=1e-5)
        assert not torch.allclose(found["q"], found["k"], atol=0.1)
        assert not torch.allclose(found["k"], found["v"], atol=0.1)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_gradient_flows_through_what_is_read(
    teacher: Teacher, batch: Batch, checkpointing: bool
) -> None:
    """Taps train a student, also under activation checkpointing, where hooks run twice."""
    config = teacher[0].config
    assert isinstance(config, PretrainedConfig)
    model, family = build_student(config, Architecture(LAYERS, 2, 24, 36), seed=3), teacher[1]
    if checkpointing:
        assert isinstance(model, PreTrainedModel)
        model.activation_checkpointing_enable()
    points = TapPoints(frozenset({LAYERS}), frozenset({LAYERS}))
    model.train()
    for _ in range(2):
        with Tap(model, family, points) as tap:
            model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            states = tap.take(batch)
            values = [states.hidden[LAYERS], *states.projections[LAYERS].values()]
            torch.stack([v.square().mean() for v in values]).sum().backward()
    gradients = [p.grad for p in family.transformer_layers(model)[0].parameters()]
    for gradient in gradients:
        assert gradient is not None
        assert torch.isfinite(gradient).all()
    assert sum(float(g.abs().sum()) for g in gradients if g is not None) > 0
    with Tap(model.eval(), family, points) as tap, torch.no_grad():
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        states = tap.take(batch)
    again = [states.hidden[LAYERS], *states.projections[LAYERS].values()]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(values, again, strict=True))


@pytest.mark.parametrize(
    ("hidden", "projections"),
    [({1}, ()), ({2}, ()), ({1, 2}, ()), ({3}, ()), ((), {1}), ((), {3}), ({1}, {2}), ((), ())],
)
def test_a_truncated_teacher_gives_the_same_states_and_is_whole_again(
    teacher: Teacher, batch: Batch, hidden: set[int], projections: set[int]
) -> None:
    model, family = teacher
    expected, ran = whole(model, batch), []
    points = TapPoints(frozenset(hidden), frozenset(projections))
    with TeacherPass(model, family, ALL, "cpu", "float32") as run:
        full = run(batch)
    hooks = num_hooks(model)
    handles = [
        layer.register_forward_hook(lambda *_, i=i: ran.append(i))
        for i, layer in enumerate(family.transformer_layers(model), 1)
    ]
    with TeacherPass(model, family, points, "cpu", "float32") as run:
        states = run(batch)
    for handle in handles:
        handle.remove()
    assert (set(states.hidden), set(states.projections)) == (set(hidden), set(projections))
    assert all(torch.equal(states.hidden[i], expected[i]) for i in hidden)
    for i in projections:
        found, whole_pass = states.projections[i], full.projections[i]
        assert all(torch.equal(found[name], whole_pass[name]) for name in whole_pass)
    assert ran == list(range(1, points.last_layer + 1))
    assert all(torch.equal(a, b) for a, b in zip(whole(model, batch), expected, strict=True))
    assert num_hooks(model) == hooks


def test_a_teacher_is_whole_again_after_an_error(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    points = TapPoints(frozenset({1}), frozenset({1}))
    hooks = num_hooks(model)
    with (
        pytest.raises(IndexError),
        TeacherPass(model, family, points, "cpu", "float32") as run,
    ):
        run(Batch.of(batch.input_ids + 1000, batch.attention_mask))
    assert len(family.transformer_layers(model)) == LAYERS
    assert num_hooks(model) == hooks


def test_what_is_in_the_padding_changes_nothing(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    points = TapPoints(frozenset({LAYERS}), frozenset({LAYERS}))
    with TeacherPass(model, family, points, "cpu", "float32") as run:
        clean, dirty = run(batch), run(batch_of(padding_id=7))
    assert not torch.equal(batch.input_ids, batch_of(padding_id=7).input_ids)
    assert torch.equal(clean.rows(LAYERS), dirty.rows(LAYERS))
    for name, values in clean.projections[LAYERS].items():
        other = dirty.projections[LAYERS][name]
        assert torch.equal(values[batch.real], other[batch.real])


def test_padding_is_zero_in_what_losses_take(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    with TeacherPass(model, family, TapPoints(frozenset({2})), "cpu", "float32") as run:
        states = run(batch)
    masked = states.masked(2).view(3, -1, 48)
    assert torch.equal(masked[batch.real], states.rows(2))
    assert not masked[~batch.real].any()
    assert states.masked(2) is states.masked(2)


@pytest.mark.parametrize(
    "points", [TapPoints(frozenset({LAYERS + 1})), TapPoints(projections=frozenset({LAYERS + 1}))]
)
def test_a_layer_above_the_model_is_refused(teacher: Teacher, points: TapPoints) -> None:
    model, family = teacher
    with pytest.raises(ValueError, match="layer 4 is above the model's 3 layers"):
        Tap(model, family, points)


def test_states_are_handed_out_once(teacher: Teacher, batch: Batch) -> None:
    model, family = teacher
    with Tap(model, family, TapPoints(frozenset({1}), frozenset({2}))) as tap, torch.no_grad():
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        states = tap.take(batch)
        assert states.hidden
        assert states.projections
        again = tap.take(batch)
        assert not again.hidden
        assert not again.projections


def test_points_join_and_know_their_last_layer() -> None:
    points = TapPoints.union(
        [TapPoints(frozenset({0, 2})), TapPoints(frozenset({1}), frozenset({4}))]
    )
    assert points == TapPoints(frozenset({0, 1, 2}), frozenset({4}))
    assert points.last_layer == 4
    assert TapPoints.union([]).last_layer == 0
