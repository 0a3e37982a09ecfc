from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from kdnas.architecture import Architecture
from kdnas.errors import NotFoundError, TeacherError
from kdnas.models.cost import EmbeddingShape
from kdnas.models.families import FAMILIES, family_of
from kdnas.models.lm_head import (
    MaskedLMHead,
    has_lm_head,
    load_lm_head,
    load_teacher_lm_head,
    save_lm_head,
    save_masked_lm,
)
from kdnas.models.student import build_student
from kdnas.models.teacher import (
    LM_HEAD_KIND,
    TeacherHandle,
    load_teacher_model,
    open_teacher,
    prepare_teacher,
    quiet_transformers,
    with_fitted_head,
)
from kdnas.store import Store
from kdnas.testing.tiny_heads import with_head
from kdnas.testing.tiny_teacher import make_tiny_teacher

IDS = torch.tensor([[2, 9, 17, 4, 30], [2, 11, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tie_word_embeddings": False},
    "another activation and epsilon": {"activation": "relu", "layer_norm_eps": 0.1},
}


def make_with_head(folder: Path, model_type: str, *, shards: str = "1GB", **values: Any) -> Path:
    """A tiny masked-LM model of a family, with all of its head's numbers random."""
    make_tiny_teacher(folder, model_type, **values)
    (folder / "model.safetensors").unlink()
    config = AutoConfig.from_pretrained(folder)
    with torch.random.fork_rng(), quiet_transformers():
        torch.manual_seed(3)
        model = AutoModelForMaskedLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder, max_shard_size=shards)
    return folder


def scores(handle: TeacherHandle) -> Tensor:
    """Of our head on the family's encoder, at the real tokens."""
    encoder, head = load_teacher_model(handle), load_teacher_lm_head(handle)
    return head_scores(encoder, head, handle.shape.model_type)


def head_scores(encoder: nn.Module, head: MaskedLMHead, model_type: str) -> Tensor:
    words = family_of(model_type).word_embeddings(encoder)
    with torch.no_grad():
        hidden = encoder.eval()(input_ids=IDS, attention_mask=MASK).last_hidden_state
        scored: Tensor = head(hidden[MASK == 1], words)
    return scored


def transformers_scores(folder: Path) -> Tensor:
    with quiet_transformers():
        model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        found: Tensor = model(input_ids=IDS, attention_mask=MASK).logits[MASK == 1]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_scores_are_those_of_the_familys_own_model(
    model_type: str, variant: str, tmp_path: Path
) -> None:
    values = dict(VARIANTS[variant])
    epsilon = family_of(model_type).lm_head.layer_norm_eps
    if "layer_norm_eps" in values and epsilon != "layer_norm_eps":
        values.pop("layer_norm_eps")
        values |= {epsilon: 0.1} if epsilon else {}
    folder = make_with_head(tmp_path, model_type, **values)
    handle = prepare_teacher(str(folder))
    assert has_lm_head(handle)
    torch.testing.assert_close(scores(handle), transformers_scores(folder), rtol=0, atol=1e-5)
    assert not any(p.requires_grad for p in load_teacher_lm_head(handle).parameters())


def test_a_head_in_several_files_is_found(tmp_path: Path) -> None:
    folder = make_with_head(tmp_path, "bert", shards="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    handle = prepare_teacher(str(folder))
    assert has_lm_head(handle)
    torch.testing.assert_close(scores(handle), transformers_scores(folder), rtol=0, atol=1e-5)


def rewrite(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def test_the_names_of_old_checkpoints_are_known(tmp_path: Path) -> None:
    folder = make_with_head(tmp_path, "bert")
    wanted = transformers_scores(folder)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for new, former in old.items():
            tensors = {name.replace(new, former): tensor for name, tensor in tensors.items()}
        return tensors

    rewrite(folder, rename)
    torch.testing.assert_close(scores(prepare_teacher(str(folder))), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("differs", [False, True])
def test_a_decoder_in_the_file_counts_where_it_differs(differs: bool, tmp_path: Path) -> None:
    """Though the configuration ties it; transformers does the same."""
    folder = make_with_head(tmp_path, "bert")
    rewrite(
        folder,
        lambda tensors: (
            tensors
            | {
                "cls.predictions.decoder.weight": tensors[
                    "bert.embeddings.word_embeddings.weight"
                ].clone()
                + differs
            }
        ),
    )
    handle = prepare_teacher(str(folder))
    assert (load_teacher_lm_head(handle).decoder is not None) == differs
    torch.testing.assert_close(scores(handle), transformers_scores(folder), rtol=0, atol=1e-4)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_teacher_without_a_head_is_told_what_to_do(model_type: str, tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path, model_type)))
    assert not has_lm_head(handle)
    with pytest.raises(TeacherError, match=r"no masked-LM head.*`objective.fit_lm_head`.*minilmv2"):
        load_teacher_lm_head(handle)


def test_half_a_head_is_none(tmp_path: Path) -> None:
    folder = make_with_head(tmp_path, "roberta")
    rewrite(folder, lambda tensors: {k: v for k, v in tensors.items() if "layer_norm" not in k})
    assert not has_lm_head(prepare_teacher(str(folder)))


@pytest.mark.parametrize("bias", [True, False])
def test_the_head_of_a_classifier_is_none(bias: bool, tmp_path: Path) -> None:
    """That of ModernBERT has the names of its masked-LM head."""
    made = make_tiny_teacher(tmp_path / "encoder", "modernbert", decoder_bias=bias)
    with_head(made, "classification", tmp_path / "classifier")
    assert not has_lm_head(prepare_teacher(str(tmp_path / "classifier")))


def test_a_head_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = make_with_head(tmp_path, "bert")
    rewrite(
        folder,
        lambda tensors: tensors | {"cls.predictions.bias": tensors["cls.predictions.bias"][:-1]},
    )
    with pytest.raises(TeacherError, match=r"has a bias of shape"):
        load_teacher_lm_head(prepare_teacher(str(folder)))


class TestFitted:
    @pytest.fixture
    def handle(self, tmp_path: Path) -> TeacherHandle:
        store = Store(str(tmp_path / "store"), tmp_path / "cache")
        return prepare_teacher(str(make_tiny_teacher(tmp_path / "t")), store)

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Store(str(tmp_path / "store"), tmp_path / "cache")

    def fitted(self, handle: TeacherHandle, folder: Path) -> MaskedLMHead:
        head = MaskedLMHead.of_config(handle.config, seed=5)
        with torch.no_grad():
            head.bias.normal_()
        folder.mkdir()
        save_lm_head(head, folder)
        return head

    def test_it_is_used_from_the_store(
        self, handle: TeacherHandle, store: Store, tmp_path: Path
    ) -> None:
        head = self.fitted(handle, tmp_path / "head")
        name = store.put(LM_HEAD_KIND, tmp_path / "head", metadata={"teacher": handle.fingerprint})
        opened = open_teacher(handle.fingerprint, store, name)
        assert has_lm_head(opened)
        found = load_teacher_lm_head(opened).state_dict()
        assert found.keys() == head.state_dict().keys()
        assert all(torch.equal(found[key], value) for key, value in head.state_dict().items())
        assert open_teacher(handle.fingerprint, store).fitted_head is None

    def test_that_of_another_teacher_is_refused(
        self, handle: TeacherHandle, store: Store, tmp_path: Path
    ) -> None:
        self.fitted(handle, tmp_path / "head")
        name = store.put(LM_HEAD_KIND, tmp_path / "head", metadata={"teacher": "another"})
        with pytest.raises(TeacherError, match="fitted to teacher another"):
            with_fitted_head(handle, name, store)
        with pytest.raises(NotFoundError, match="no lm-head 'nowhere'"):
            with_fitted_head(handle, "nowhere", store)

    def test_a_folder_without_it_is_refused(self, handle: TeacherHandle, tmp_path: Path) -> None:
        with pytest.raises(TeacherError, match="holds no masked-LM head"):
            load_lm_head(handle, tmp_path)
        self.fitted(handle, tmp_path / "head")
        tensors = load_file(tmp_path / "head" / "lm_head.safetensors")
        del tensors["norm_weight"]
        save_file(tensors, tmp_path / "head" / "lm_head.safetensors")
        with pytest.raises(TeacherError, match="norm_weight of shape None"):
            load_lm_head(handle, tmp_path / "head")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("text", ["3,2,24,40,relu", "3,4,48,96,gelu"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_student_with_its_head_is_an_ordinary_masked_lm(
    model_type: str, text: str, tied: bool, tmp_path: Path
) -> None:
    """The second one differs from its teacher in depth alone, and so may have a narrow table."""
    folder = make_with_head(tmp_path / "t", model_type, tie_word_embeddings=tied)
    handle = prepare_teacher(str(folder))
    architecture = Architecture.parse(text)
    student = build_student(handle.config, architecture)
    width = EmbeddingShape.of(handle.shape).width(architecture)
    head = load_teacher_lm_head(handle).for_student(architecture, family_of(model_type), 1, width)
    with torch.no_grad():
        for parameter in (*student.parameters(), *head.parameters()):
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    state = torch.get_rng_state()
    save_masked_lm(student, head, tmp_path / "out")
    assert torch.equal(torch.get_rng_state(), state)
    own = head_scores(student, head, model_type)
    torch.testing.assert_close(transformers_scores(tmp_path / "out"), own, rtol=0, atol=1e-5)
    with quiet_transformers():
        encoder = AutoModel.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        inputs = {"input_ids": IDS, "attention_mask": MASK}
        one, other = (m(**inputs).last_hidden_state[MASK == 1] for m in (encoder, student))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(folder / name, tmp_path / "out" / name)
    again = prepare_teacher(str(tmp_path / "out"))  # and it can go on from there
    assert has_lm_head(again)
    torch.testing.assert_close(scores(again), own, rtol=0, atol=1e-5)
    assert again.config.architectures == [
        type(AutoModelForMaskedLM.from_config(again.config)).__name__
    ]


@pytest.mark.parametrize("text", ["3,2,24,40,silu", "3,4,48,96,gelu"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_students_head_is_the_one_that_its_configuration_describes(
    model_type: str, text: str, tmp_path: Path
) -> None:
    """So a checkpoint's head can be rebuilt from the student alone."""
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path, model_type)))
    architecture, teacher_head = Architecture.parse(text), MaskedLMHead.of_config(handle.config)
    width = EmbeddingShape.of(handle.shape).width(architecture)
    one = teacher_head.for_student(architecture, family_of(model_type), 4, width)
    other = MaskedLMHead.of_config(build_student(handle.config, architecture).config, seed=4)  # type: ignore[arg-type]
    assert (one.activation, one._eps, one.absent) == (other.activation, other._eps, other.absent)
    for (name, a), (same, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert name == same
        assert a.requires_grad == b.requires_grad
        assert torch.equal(a, b)


def test_a_bias_that_the_family_lacks_stays_zero() -> None:
    head = MaskedLMHead(6, 6, 9, absent=("dense_bias", "norm_bias"))
    head(torch.randn(4, 6), torch.randn(9, 6)).sum().backward()
    assert head.dense_bias.grad is None
    assert head.norm_bias.grad is None
    assert head.bias.grad is not None
    assert head.dense_weight.grad is not None
