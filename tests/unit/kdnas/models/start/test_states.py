from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from kdnas.errors import StoreError, TeacherError
from kdnas.models.families import FAMILIES
from kdnas.models.start.repeated import repeated
from kdnas.models.start.states import FORMAT, META, Layout, TeacherStates, collect_states
from kdnas.models.taps import TapPoints, read_token_states
from kdnas.testing.start_lab import PAD, StartLab, make_start_lab, random_batches


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return make_start_lab(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def bert(tmp_path: Path) -> StartLab:
    return make_start_lab(tmp_path / "bert")


def test_states_come_back_as_the_teacher_has_them(lab: StartLab) -> None:
    states = TeacherStates(lab.states.folder)
    layers = range(lab.own.layers + 1)
    points = TapPoints(frozenset(layers), frozenset(layers[1:]))
    batches = list(random_batches(600, lab.handle.shape.vocab_size))
    real = read_token_states(lab.model, lab.family, points, batches)
    assert states.num_layers == lab.own.layers
    assert states.num_tokens == len(states.input_ids) == sum(states.lengths)
    ids = torch.cat([batch.input_ids.flatten()[batch.real_rows] for batch in batches])
    assert torch.equal(states.input_ids, ids)
    for layer in layers:
        torch.testing.assert_close(states.output(layer), real.hidden[layer])
    learned = states.token_states(lab.model, lab.family, points)
    for layer in layers:
        torch.testing.assert_close(learned.hidden[layer], real.hidden[layer])
    for layer, by_name in real.projections.items():
        for name, values in by_name.items():
            torch.testing.assert_close(
                learned.projections[layer][name], values, rtol=1e-4, atol=1e-4
            )


def test_the_text_comes_back_in_batches(lab: StartLab) -> None:
    found = list(lab.states.batches(PAD, "cpu"))
    ids = torch.cat([batch.input_ids.flatten()[batch.real_rows] for batch in found])
    assert torch.equal(ids, lab.states.input_ids)
    points = TapPoints(frozenset({1}))
    again = read_token_states(lab.model, lab.family, points, found)
    torch.testing.assert_close(again.hidden[1], lab.states.output(1), rtol=1e-4, atol=1e-4)


def test_a_feed_forward_block_leads_from_between_to_behind_a_layer(lab: StartLab) -> None:
    for number, layer in enumerate(lab.family.transformer_layers(lab.model), 1):
        between, behind = lab.states.attended(number), lab.states.hidden(number)
        neurons: list[torch.Tensor] = []
        end = layer.get_submodule(lab.family.silent[1])
        handle = end.register_forward_pre_hook(lambda _, given, kept=neurons: kept.append(given[0]))
        with torch.no_grad():
            if lab.family.normalises_first:
                found = between + layer.mlp(layer.mlp_norm(between))
            elif lab.family.model_type == "distilbert":
                found = layer.output_layer_norm(layer.ffn(between) + between)
            else:
                found = layer.feed_forward_chunk(between)
        handle.remove()
        torch.testing.assert_close(found, behind, rtol=1e-4, atol=1e-4)
        spread = neurons[0].std(0, correction=0)
        torch.testing.assert_close(lab.states.activity(number), spread, rtol=1e-3, atol=1e-4)


def test_states_tell_what_heads_read_and_how_much_there_is(lab: StartLab) -> None:
    heads, once = lab.own.heads, list(lab.states.batches(PAD, "cpu"))
    texts = [*once, *(repeated(batch, lab.handle.longest_sequence, PAD) for batch in once)]
    ends = [
        layer.get_submodule(lab.family.silent[0])
        for layer in lab.family.transformer_layers(lab.model)
    ]
    rows: list[list[torch.Tensor]] = [[] for _ in ends]
    kept: dict[int, torch.Tensor] = {}
    handles = [
        end.register_forward_pre_hook(lambda _, given, i=i: kept.update({i: given[0]}))
        for i, end in enumerate(ends)
    ]
    with torch.no_grad():
        for batch in texts:
            lab.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            for i, found in kept.items():
                rows[i].append(found.flatten(0, 1)[batch.real_rows])
    for handle in handles:
        handle.remove()
    for layer, parts in enumerate(rows, 1):
        by_head = torch.unflatten(torch.cat(parts), 1, (heads, -1)).unbind(1)
        biased = not lab.family.normalises_first  # of these families those that do have no biases
        kept_rows = [read - read.mean(0) * biased for read in by_head]
        wanted = torch.stack([read.T @ read / len(read) for read in kept_rows])
        torch.testing.assert_close(lab.states.read(layer), wanted, rtol=1e-3, atol=1e-6)
    for layer in range(lab.own.layers + 1):
        spread = lab.states.hidden(layer).double().var(0, correction=0).sum()
        assert lab.states.variance(layer) == pytest.approx(float(spread), rel=1e-6)


def test_components_are_of_the_embeddings_and_the_layers_asked_for(bert: StartLab) -> None:
    found = bert.states.components([2])
    assert found is bert.states.components([0, 2])
    parts = []
    for layer in (0, 2):
        states = bert.states.hidden(layer).double()
        centred = states - states.mean(0)
        covariance = centred.T @ centred
        parts.append(covariance / covariance.trace())
    values = torch.linalg.eigvalsh(parts[0] + parts[1]).flip(0)
    together = found.double().T @ (parts[0] + parts[1]) @ found.double()
    torch.testing.assert_close(together, values.diag(), rtol=0, atol=1e-6)


def test_a_layout_says_where_tokens_stand() -> None:
    layout = Layout([1, 3, 2], block=2)
    assert layout.places.tolist() == [0, 0, 1, 2, 0, 1]
    (first, grid), (second, last) = layout.blocks()
    assert (first, second) == (slice(0, 4), slice(4, 6))
    assert grid.tolist() == [[True, False, False], [True, True, True]]
    assert last.tolist() == [[True, True]]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no description": lambda folder: (folder / META).unlink(),
    "a cut description": lambda folder: (folder / META).write_text("{"),
    "a list for a description": lambda folder: (folder / META).write_text("[]"),
    "no number of layers": lambda folder: (folder / META).write_text(
        json.dumps({"format": FORMAT, "output": False})
    ),
    "no states": lambda folder: (folder / "hidden_01.npy").unlink(),
    "cut states": lambda folder: (folder / "hidden_01.npy").write_bytes(
        (folder / "hidden_01.npy").read_bytes()[:200]
    ),
    "empty states": lambda folder: (folder / "attended_01.npy").write_bytes(b""),
    "a cut header": lambda folder: (folder / "activity.npy").write_bytes(b"\x93NUMPY\x01"),
    "states of something else": lambda folder: (folder / "covariances.npy").write_text("hello"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(bert: StartLab, damage: str) -> None:
    DAMAGE[damage](bert.states.folder)
    with pytest.raises(StoreError, match=r"does not hold a teacher's states.*remove it"):
        TeacherStates(bert.states.folder)


def test_states_of_another_format_are_refused(bert: StartLab) -> None:
    meta = json.loads((bert.states.folder / META).read_text())
    (bert.states.folder / META).write_text(json.dumps(meta | {"format": FORMAT + 1}))
    with pytest.raises(StoreError, match=f"have format {FORMAT + 1}, this program reads {FORMAT}"):
        TeacherStates(bert.states.folder)


def test_what_is_read_from_states_does_not_change_them(bert: StartLab) -> None:
    bert.states.hidden(1).zero_()
    kept = np.load(bert.states.folder / "hidden_01.npy")
    assert kept.any()


def collect(lab: StartLab, folder: Path) -> None:
    folder.mkdir()
    batches, longest = lab.states.batches(PAD, "cpu"), lab.handle.longest_sequence
    collect_states(lab.model, lab.family, batches, folder, "broken", longest=longest)


def test_a_teacher_whose_states_are_not_finite_is_refused(lab: StartLab, tmp_path: Path) -> None:
    layer = lab.family.transformer_layers(lab.model)[1]
    weight = layer.get_submodule(lab.family.silent[1]).get_parameter("weight")
    before = weight.clone()
    with torch.no_grad():
        weight[0, 0] = torch.nan
    try:
        with pytest.raises(TeacherError, match="'broken' is broken: the states of layer 2 are not"):
            collect(lab, tmp_path / "new")
    finally:
        with torch.no_grad():
            weight.copy_(before)


def test_what_only_text_said_twice_reaches_is_looked_at_too(bert: StartLab, tmp_path: Path) -> None:
    positions = bert.model.get_submodule("embeddings.position_embeddings").get_parameter("weight")
    with torch.no_grad():
        positions[max(bert.states.lengths) :] = torch.nan
    with pytest.raises(TeacherError, match="'broken' is broken: what its heads read is not finite"):
        collect(bert, tmp_path / "new")


def test_a_teacher_that_says_the_same_of_all_tokens_is_refused(
    bert: StartLab, tmp_path: Path
) -> None:
    layer = bert.family.transformer_layers(bert.model)[0]
    with torch.no_grad():
        layer.get_submodule(bert.family.norms[1]).get_parameter("weight").zero_()
    with pytest.raises(TeacherError, match="states of layer 1 are the same for every token"):
        collect(bert, tmp_path / "new")


def test_embeddings_that_are_all_the_same_are_refused(bert: StartLab, tmp_path: Path) -> None:
    with torch.no_grad():
        norm = bert.model.get_submodule(bert.family.embedding_norm)
        norm.get_parameter("weight").zero_()
        norm.get_parameter("bias").zero_()
    with pytest.raises(TeacherError, match="states of the embeddings are the same"):
        collect(bert, tmp_path / "new")


def test_a_last_norm_that_says_the_same_of_all_tokens_is_refused(tmp_path: Path) -> None:
    lab = make_start_lab(tmp_path / "lab", "modernbert")
    with torch.no_grad():
        lab.model.get_submodule(lab.family.final).get_parameter("weight").zero_()
    with pytest.raises(TeacherError, match="states of the last norm are the same for every token"):
        collect(lab, tmp_path / "new")
