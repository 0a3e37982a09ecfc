from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel

from kdnas.models import attention
from kdnas.models.attention import use_training_attention
from kdnas.models.families import FAMILIES, family_of
from kdnas.testing.tiny_teacher import make_tiny_teacher

LENGTHS = (9, 4, 7)


def student(folder: Path, model_type: str, own: bool) -> nn.Module:
    options = family_of(model_type).model_options()
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, **options).train()
    if own:
        use_training_attention(model)
    return model


def trained(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states at the real tokens, and all gradients of a loss on them."""
    mask = (torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]).long()
    ids = (torch.arange(mask.numel()).view(mask.shape) % 40 + 6) * mask
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    real = states[mask == 1].float()
    torch.tanh(real).square().sum().backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return real.detach(), gradients


def count_fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the sequences that the fused kernel gets from now on."""
    seen: list[int] = []
    fused = F.scaled_dot_product_attention

    def counted(query: Tensor, *args: object, **options: object) -> Tensor:
        seen.append(query.shape[2])
        return fused(query, *args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    return seen


@pytest.fixture(scope="module", params=list(FAMILIES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dropouts = dict.fromkeys(family_of(kind).dropout_keys, 0.0)
    return make_tiny_teacher(tmp_path_factory.mktemp(kind), kind, **dropouts)


def test_plain_products_give_what_the_fused_kernel_gives(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, gradients = trained(student(folder, kind, own=False), torch.bfloat16)
    fused = count_fused(monkeypatch)
    own_states, own_gradients = trained(student(folder, kind, own=True), torch.bfloat16)
    assert not fused
    torch.testing.assert_close(own_states, states, rtol=0, atol=0.05)
    assert own_gradients.keys() == gradients.keys()
    whole = torch.cat([g.flatten() for g in gradients.values()]).norm()
    for name, gradient in gradients.items():  # that of the keys' bias is nothing but rounding
        assert (own_gradients[name] - gradient).norm() < 0.01 * whole, name


def test_in_float32_nothing_changes(kind: str, folder: Path) -> None:
    states, gradients = trained(student(folder, kind, own=False), torch.float32)
    own_states, own_gradients = trained(student(folder, kind, own=True), torch.float32)
    assert torch.equal(own_states, states)
    assert all(torch.equal(own_gradients[name], gradient) for name, gradient in gradients.items())


def test_long_sequences_and_readings_go_to_the_fused_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = student(make_tiny_teacher(tmp_path, "bert", layers=1), "bert", own=True)
    fused = count_fused(monkeypatch)
    monkeypatch.setattr(attention, "LONGEST_PLAIN", max(LENGTHS) - 1)
    trained(model, torch.bfloat16)
    assert fused == [max(LENGTHS)]
    monkeypatch.setattr(attention, "LONGEST_PLAIN", max(LENGTHS))
    trained(model, torch.bfloat16)
    assert fused == [max(LENGTHS)]
    ids = torch.full((2, 5), 7)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert fused == [max(LENGTHS), 5]


def test_dropout_reaches_the_weights(tmp_path: Path) -> None:
    folder = make_tiny_teacher(
        tmp_path, "bert", layers=1, attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0
    )
    model = student(folder, "bert", own=True)
    one, other = (trained(model, torch.bfloat16)[0] for _ in range(2))
    assert not torch.equal(one, other)
    quiet = [trained(model.eval(), torch.bfloat16)[0] for _ in range(2)]
    assert torch.equal(*quiet)


def test_the_choice_stays_out_of_a_saved_configuration(tmp_path: Path) -> None:
    model = student(make_tiny_teacher(tmp_path / "teacher", "bert"), "bert", own=True)
    model.save_pretrained(tmp_path / "saved")
    assert attention.NAME not in (tmp_path / "saved" / "config.json").read_text()
    assert AutoModel.from_pretrained(tmp_path / "saved").config._attn_implementation == "sdpa"
