from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kdnas.errors import TeacherError
from kdnas.models.opening import prepare_model
from kdnas.models.sequence.config import SequenceConfig
from kdnas.models.sequence.encoders import ENCODERS
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.testing.tiny_teacher import make_tiny_teacher

KINDS = pytest.mark.parametrize("kind", ENCODERS)
IDS = torch.tensor([[2, 7, 5, 3], [2, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def table() -> torch.Tensor:
    return torch.randn(11, 5, generator=torch.Generator().manual_seed(9))


def config(kind: str, labels: tuple[str, ...] = ("a", "b", "c")) -> SequenceConfig:
    return SequenceConfig(
        kind=kind,
        layers=2,
        embedding_size=5,
        vocab_size=11,
        pad_token_id=0,
        hidden=6,
        dropout=0.3,
        labels=labels,
    )


def made(kind: str, seed: int = 0, labels: tuple[str, ...] = ("a", "b", "c")) -> SequenceClassifier:
    return SequenceClassifier.from_teacher(config(kind, labels), table(), seed).eval()


@KINDS
def test_it_answers_by_its_last_states(kind: str) -> None:
    model = made(kind)
    output = model(IDS, MASK)
    assert output["logits"] is output.logits
    assert output.logits.shape == (2, 3)
    states = output.hidden_states
    assert [tuple(s.shape) for s in states] == [(2, 4, 6)] * 2
    expected = model.head(model.pooling(states[-1], MASK.bool()))
    assert torch.equal(output.logits, expected)
    assert made(kind, labels=())(IDS, MASK).logits.shape == (2, 1)


@KINDS
def test_padding_changes_nothing(kind: str) -> None:
    model = made(kind)
    short = model(IDS[1:, :2]).logits  # without a mask there is none
    torch.testing.assert_close(model(IDS, MASK).logits[1:], short, atol=1e-6, rtol=0)
    other = IDS.masked_fill(MASK == 0, 8)
    torch.testing.assert_close(model(other, MASK).logits, model(IDS, MASK).logits)


@KINDS
def test_the_seed_decides_the_weights(kind: str) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (made(kind, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(same[name], value) for name, value in one.items())
    assert not torch.equal(one["head.weight"], other["head.weight"])
    assert torch.equal(one["embeddings.weight"], table())
    assert not one["head.bias"].any()
    regression = SequenceClassifier.from_teacher(config(kind, ()), table(), 1, centre=2.5)
    assert regression.head.bias.tolist() == [2.5]


@KINDS
@pytest.mark.parametrize("sizes", [{}, {"hidden": 768, "layers": 4}, {"embedding_size": 64}])
def test_its_numbers_are_told_roughly(kind: str, sizes: dict[str, int]) -> None:
    described = replace(config(kind), **sizes)
    with torch.device("meta"):
        held = sum(value.numel() for value in SequenceClassifier(described).state_dict().values())
    assert held / 16 <= described.numbers <= 4 * held


def test_weights_of_another_configuration_are_refused(tmp_path: Path) -> None:
    make_tiny_teacher(tmp_path)
    made("bilstm").save_pretrained(tmp_path)
    assert prepare_model(str(tmp_path)).shape.layers == 2
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "hidden": 60_000}), "utf-8")
    with pytest.raises(TeacherError, match=r"describes \d+ numbers, and its weights have \d+ by"):
        prepare_model(str(tmp_path))
    with pytest.raises(TeacherError, match="do not load"):
        SequenceClassifier.from_pretrained(tmp_path)


def test_a_table_of_other_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is \(11, 4\), not \(11, 5\)"):
        SequenceClassifier.from_teacher(config("bilstm"), table()[:, :4], 0)


@KINDS
def test_the_words_are_not_trained(kind: str) -> None:
    model = made(kind).train()
    torch.nn.functional.cross_entropy(model(IDS, MASK).logits, torch.tensor([0, 2])).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name == "embeddings.weight"), name
    torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1).step()
    assert torch.equal(model.embeddings.weight, table())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == sum(p.numel() for p in model.parameters()) - 55


@KINDS
def test_outputs_stay_float32_in_mixed_precision(kind: str) -> None:
    model = made(kind)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(IDS, MASK).logits
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, model(IDS, MASK).logits, atol=0.02, rtol=0)


@KINDS
def test_what_is_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    before = torch.random.get_rng_state()
    loaded = SequenceClassifier.from_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert loaded.config == model.config
    assert not loaded.training
    trained, before_saving = (
        [name for name, p in one.named_parameters() if p.requires_grad] for one in (loaded, model)
    )
    assert trained == before_saving
    saved, own = loaded.state_dict(), model.state_dict()
    assert saved.keys() == own.keys()
    assert all(torch.equal(saved[name], own[name]) for name in own)
    torch.testing.assert_close(loaded(IDS, MASK).logits, model(IDS, MASK).logits, rtol=0, atol=1e-5)
    loaded.train()(IDS, MASK).logits.sum().backward()
    assert loaded.embeddings.weight.grad is None
    assert loaded.head.weight.grad is not None


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match="holds neither a Bi-LSTM nor a gated CNN"):
        SequenceClassifier.from_pretrained(tmp_path)
    made("bilstm").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["head.bias"]
    save_file(weights, file)
    with pytest.raises(TeacherError, match=r"model 'it' do not load \(.*head.bias"):
        SequenceClassifier.from_pretrained(tmp_path, "it")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(TeacherError, match=r"do not load .*copy the folder again"):
        SequenceClassifier.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(TeacherError, match="do not load"):
        SequenceClassifier.from_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(values | {"hidden": 0}), "utf-8")
    with pytest.raises(TeacherError, match="hidden must be a whole number from 1 to 65536, not 0"):
        SequenceClassifier.from_pretrained(tmp_path)
