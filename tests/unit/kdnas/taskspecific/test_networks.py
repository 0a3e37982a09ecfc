"""Networks read behind each of their layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.families import FAMILIES, family_of
from kdnas.models.teacher import prepare_teacher
from kdnas.taskspecific.networks import LayeredNetwork, TaskStudent, TransformerNetwork
from kdnas.testing.tiny_task_training import (
    tiny_examples,
    tiny_network,
    tiny_sequence_network,
    tiny_transformer,
)
from kdnas.testing.tiny_teacher import make_tiny_teacher

LABELS, LAYERS, HIDDEN = ("no", "yes"), 3, 24
BATCH = tiny_examples(6).batch(torch.arange(6).numpy())
KINDS = ("bert", "bilstm", "gated-cnn")


def inputs(padding: str) -> dict[str, Tensor]:
    """Two texts of 9 and 5 tokens; padding comes last, or first."""
    ids = torch.zeros(2, 9, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, count in enumerate((9, 5)):
        places = slice(0, count) if padding == "right" else slice(9 - count, 9)
        ids[row, places] = torch.arange(2, 2 + count)
        mask[row, places] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_states_are_those_of_the_first_real_token(
    model_type: str, padding: str, tmp_path: Path
) -> None:
    """Of every family, as transformers gives hidden states, the last one's norm included."""
    folder = make_tiny_teacher(tmp_path, model_type, layers=LAYERS, hidden=HIDDEN, heads=2)
    made = load_task_model(prepare_teacher(str(folder)), find_task("SST-2"), LABELS, 0.0, 0)
    model: Any = made.model.eval()
    network = TransformerNetwork(model, family_of(model_type), made.inputs)
    assert (network.shape.layers, network.shape.width) == (LAYERS, HIDDEN)
    assert network.shape.transformer
    given = inputs(padding)
    taken = {name: tensor for name, tensor in given.items() if name in made.inputs}
    with torch.no_grad():
        logits, states = network.read(given)
        wanted = model(**taken, output_hidden_states=True)
        encoder = model.get_submodule(model.base_model_prefix)
        last = encoder(**taken).last_hidden_state
    first = given["attention_mask"].argmax(1)
    rows = torch.arange(2)
    torch.testing.assert_close(logits, wanted.logits)
    assert len(states) == LAYERS
    for layer in range(LAYERS - 1):
        torch.testing.assert_close(states[layer], wanted.hidden_states[layer + 1][rows, first])
    torch.testing.assert_close(states[-1], last[rows, first])


def test_what_is_kept_of_a_batch_goes_with_it() -> None:
    network = tiny_transformer(dropout=0.0)
    with torch.no_grad():
        one = network.read(BATCH.inputs)[1]
        other = network.read(tiny_examples(6, seed=4).batch(torch.arange(6).numpy()).inputs)[1]
        again = network.read(BATCH.inputs)[1]
    assert not torch.equal(one[0], other[0])
    assert all(map(torch.equal, one, again))


@pytest.mark.parametrize("kind", ["bilstm", "gated-cnn"])
def test_sequence_networks_are_read_behind_every_layer(kind: str) -> None:
    """States and mask of inner layers, which have poolings of their own; the last one's vector."""
    network = tiny_sequence_network(kind, dropout=0.0)
    model: Any = network.model.eval()
    with torch.no_grad():
        logits, read = network.read(BATCH.inputs)
        wanted = model(BATCH.inputs["input_ids"], BATCH.inputs["attention_mask"])
        mask = BATCH.inputs["attention_mask"].bool()
        vector = model.pooling(wanted.hidden_states[-1], mask)
    assert not network.shape.transformer
    assert (network.shape.layers, network.shape.width) == (3, 12)
    torch.testing.assert_close(logits, wanted.logits)
    *inner, last = read
    for (states, real), expected in zip(inner, wanted.hidden_states, strict=False):
        torch.testing.assert_close(states, expected)
        assert torch.equal(real, mask)
    torch.testing.assert_close(last, vector)
    torch.testing.assert_close(model.head(last), logits)


def test_others_may_run_a_model_that_is_read() -> None:
    """Two readers, or whoever scores it: each gets its own, and nothing is heaped up."""
    network = tiny_sequence_network("bilstm", dropout=0.0)
    model = network.model.eval()
    with torch.no_grad():
        _, before = network.read(BATCH.inputs)
        for _ in range(3):
            model(torch.ones(1, 4, dtype=torch.int64), torch.ones(1, 4, dtype=torch.int64))
        _, after = network.read(BATCH.inputs)
    assert torch.equal(before[-1], after[-1])


def student(network: LayeredNetwork, **options: Any) -> TaskStudent:
    usual = {"classifies_layers": False, "reads_states": False, "seed": 0}
    return TaskStudent(network, 2, **usual | options).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_hands_out_what_was_asked_for(kind: str) -> None:
    layers, width = tiny_network(kind).shape.layers, tiny_network(kind).shape.width
    for classifies, reads in ((False, False), (True, False), (False, True), (True, True)):
        made = student(tiny_network(kind), classifies_layers=classifies, reads_states=reads)
        said = made(BATCH.inputs)
        assert said.logits.shape == (6, 2)
        assert (said.layers is not None, said.states is not None) == (classifies, reads)
        if said.layers is not None:
            assert said.layers.shape == (6, layers, 2)
            assert torch.equal(said.layers[:, -1], said.logits)
        if said.states is not None:
            assert said.states.shape == (6, layers, width)


@pytest.mark.parametrize("kind", KINDS)
def test_pseudo_classifiers_read_the_inner_layers(kind: str) -> None:
    made = student(tiny_network(kind), classifies_layers=True, reads_states=True)
    said = made(BATCH.inputs)
    assert len(made.classifiers) == made.network.shape.layers - 1
    for layer, classify in enumerate(made.classifiers):
        torch.testing.assert_close(classify(said.states[:, layer]), said.layers[:, layer])
    beside = {id(parameter) for parameter in made.thrown_away()}
    of_student = {id(parameter) for parameter in made.model.parameters()}
    assert beside
    assert not beside & of_student
    assert beside | of_student == {id(parameter) for parameter in made.parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_pseudo_classifiers_are_exact_where_the_rest_is_rounded(kind: str) -> None:
    """In bfloat16 a number near 2000 is one of every eighth."""
    made = student(tiny_network(kind), classifies_layers=True, centre=2000.0)
    with torch.autocast("cpu", torch.bfloat16):
        said = made(BATCH.inputs).layers[:, :-1]
    assert said.dtype == torch.float32
    assert not bool((said == said.bfloat16()).all())


def test_a_student_without_inner_layers_has_nothing_beside() -> None:
    made = student(tiny_transformer(1), classifies_layers=True, reads_states=True)
    said = made(BATCH.inputs)
    assert not made.thrown_away()
    assert torch.equal(said.layers[:, 0], said.logits)
    assert said.states.shape == (6, 1, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_what_is_beside(kind: str) -> None:
    """And not how the student starts, nor the process's random state."""
    before = torch.get_rng_state()
    one, same, other = (
        student(tiny_network(kind), classifies_layers=True, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(one.classifiers, same.classifiers, other.classifiers, strict=True):
        assert torch.equal(a.weight, b.weight)
        assert not torch.equal(a.weight, c.weight)
    for a, c in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, c)


def test_of_a_regression_every_layer_begins_at_the_mean_of_its_numbers() -> None:
    made = student(tiny_transformer(), classifies_layers=True, centre=2.7)
    assert all(bool((classify.bias == 2.7).all()) for classify in made.classifiers)
    usual = student(tiny_transformer(), classifies_layers=True)
    assert not any(bool(classify.bias.any()) for classify in usual.classifiers)
