"""A model run for its first tokens' readers says what it says by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from kdnas.models import first_token
from kdnas.models.families import FAMILIES, family_of
from kdnas.models.first_token import FirstTokenPass
from kdnas.testing.tiny_teacher import make_tiny_teacher

LAYERS = 3
SERVED = [name for name, family in FAMILIES.items() if FirstTokenPass.serves(family)]
LENGTHS = {
    "none is padding": (9, 9, 9, 9),
    "little is padding": (9, 8, 9, 9),
    "most is padding": (40, 1, 2, 3),
    "one text": (7,),
}


def model_of(folder: Path, dropout: float = 0.0) -> Any:
    """A model with a drawn head of many labels: a text's two logits cancel now and then."""
    teacher = make_tiny_teacher(folder, folder.name, layers=LAYERS)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        teacher, num_labels=32, dtype=torch.float32
    )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model.train()


def batch(lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Token ids and mask."""
    mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
    return (torch.arange(mask.numel()).view(mask.shape) % 40 + 6) * mask, mask


def trained(model: Any, lengths: tuple[int, ...], dtype: str, *, own: bool) -> list[Tensor]:
    """Logits, states, and all gradients of a loss on them."""
    ids, mask = batch(lengths)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        if own:
            family = family_of(model.config.model_type)
            logits, states = FirstTokenPass(model, family)({"input_ids": ids}, mask)
        else:
            said = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
            logits, states = said.logits, [h[:, 0] for h in said.hidden_states[1:]]
    whole = torch.stack([state.float() for state in states])
    (logits.float().tanh().sum() + whole.tanh().square().sum()).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return [logits.detach().float(), whole.detach(), gradients]


@pytest.fixture(scope="module", params=SERVED)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return model_of(tmp_path_factory.mktemp("models") / request.param)


def test_bert_and_its_like_are_served() -> None:
    assert SERVED == ["bert", "roberta", "xlm-roberta", "electra"]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(("dtype", "near"), [("float32", 2e-6), ("bfloat16", 0.1)])
def test_it_says_and_learns_what_the_model_does(
    model: Any, lengths: tuple[int, ...], dtype: str, near: float
) -> None:
    wanted = trained(model, lengths, dtype, own=False)
    found = trained(model, lengths, dtype, own=True)
    assert found[1].shape == (LAYERS, len(lengths), model.config.hidden_size)
    for own, usual in zip(found, wanted, strict=True):
        assert (own - usual).norm() <= near * usual.norm()


@pytest.mark.parametrize("longest", [1, 128])
def test_readings_and_long_texts_come_to_the_same(
    model: Any, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_token, "LONGEST_PLAIN", longest)
    wanted = trained(model, (9, 4, 7), "float32", own=False)
    found = trained(model, (9, 4, 7), "float32", own=True)
    for own, usual in zip(found, wanted, strict=True):
        assert (own - usual).norm() <= 1e-5 * usual.norm()
    ids, mask = batch((9, 4, 7))
    with torch.no_grad():
        logits, _ = FirstTokenPass(model, family_of(model.config.model_type))(
            {"input_ids": ids}, mask
        )
    torch.testing.assert_close(logits, wanted[0], rtol=1e-5, atol=1e-5)


def test_the_model_is_whole_again(model: Any) -> None:
    """Also after a run that failed."""
    names = list(model.state_dict())
    before = trained(model, (9, 4), "float32", own=False)
    trained(model, (9, 4), "float32", own=True)
    ids, mask = batch((5, 3))
    runs = FirstTokenPass(model, family_of(model.config.model_type))
    with pytest.raises(IndexError):
        runs({"input_ids": ids + 10**6}, mask)
    assert list(model.state_dict()) == names
    assert all(map(torch.equal, before, trained(model, (9, 4), "float32", own=False)))


def test_dropout_is_drawn_in_training_alone(tmp_path: Path) -> None:
    model = model_of(tmp_path / "bert", dropout=0.5)
    one, other = (trained(model, (9, 4), "float32", own=True)[0] for _ in range(2))
    assert not torch.equal(one, other)
    quiet = [trained(model.eval(), (9, 4), "float32", own=True)[0] for _ in range(2)]
    assert torch.equal(*quiet)


def test_padding_that_comes_first_is_not_for_it() -> None:
    assert FirstTokenPass.reads(torch.tensor([[1, 1], [1, 0]]))
    assert not FirstTokenPass.reads(torch.tensor([[1, 1], [0, 1]]))


@pytest.mark.parametrize(
    ("count", "wanted"), [(1, 1), (31, 31), (32, 32), (33, 34), (163, 168), (1000, 1024)]
)
def test_few_numbers_of_tokens_are_run(count: int, wanted: int) -> None:
    assert first_token._rounded_up(count) == wanted
