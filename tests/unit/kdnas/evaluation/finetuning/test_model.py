"""Heads on encoders of every kind of folder, and the tags of pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import RobertaProcessing
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizerFast,
)

from kdnas.distill.export import copy_tokenizer
from kdnas.distill.numerics import autocast
from kdnas.errors import TeacherError
from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.saving import save_task_model
from kdnas.evaluation.finetuning.tagging import IGNORED, TaggingEncoding
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaggedExample, TaskData
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.families import FAMILIES
from kdnas.models.making import MAKING_MODELS
from kdnas.models.teacher import prepare_teacher, quiet_transformers
from kdnas.testing.tiny_teacher import make_tiny_teacher

TAGS = ("O", "B-PER", "I-PER")
SPECIAL_NAMES = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
EXAMPLE = TaggedExample("0", ("anna", "zoo", "\u200b", "x"), ("B-PER", "O", "O", "I-PER"))


def load(folder: Path, task: str = "WNUT-17", seed: int = 0) -> TaskModel:
    labels = TAGS if task == "WNUT-17" else ("negative", "positive")
    return load_task_model(prepare_teacher(str(folder)), find_task(task), labels, 0.25, seed)


def head(model: TaskModel) -> torch.Tensor:
    return model.model.get_parameter("classifier.weight")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), words=["anna"])


def test_the_encoder_is_the_folders_and_the_head_the_seeds(folder: Path) -> None:
    before = torch.get_rng_state()
    first, again, other = (load(folder, "SST-2", seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    stored = load_file(folder / "model.safetensors")
    own = {k.removeprefix("bert."): v for k, v in first.model.state_dict().items()}
    kept = [name for name in stored if ".pooler." not in f".{name}"]
    assert len(kept) > 10
    for name in kept:
        assert torch.equal(own[name], stored[name]), name
    assert torch.equal(head(first), head(again))
    assert not torch.equal(head(first), head(other))
    config = first.model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.25)
    assert config.id2label == {0: "negative", 1: "positive"}


@pytest.mark.parametrize("task", ["SST-2", "WNUT-17", "SQuAD 1.1"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_dropout_is_that_of_every_layer_and_of_the_head(
    family: str, task: str, tmp_path: Path
) -> None:
    source = make_tiny_teacher(tmp_path / family, model_type=family, words=["anna"])
    config = AutoConfig.from_pretrained(source)
    for key in FAMILIES[family].head_dropout_keys:
        setattr(config, key, 0.5)
    config.save_pretrained(source)
    made = load(source, task).model
    drops = {name: m.p for name, m in made.named_modules() if isinstance(m, nn.Dropout)}
    assert len(drops) > 3
    assert set(drops.values()) == {0.25}, drops


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_not_rounded_where_products_are(family: str, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / family, model_type=family, words=["anna"])
    regression = load_task_model(prepare_teacher(str(folder)), find_task("STS-B"), None, 0.0, 0)
    ids = torch.tensor([[2, 5, 3], [2, 6, 3]])
    with torch.no_grad():
        precise = regression.model.eval()(input_ids=ids).logits
        with autocast("cpu", "bfloat16"):
            rounded = regression.model(input_ids=ids).logits
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, rounded.bfloat16().float())
    assert torch.allclose(rounded, precise, atol=0.05)


def test_a_fresh_head_of_a_regression_begins_at_the_mean(folder: Path, tmp_path: Path) -> None:
    task = find_task("STS-B")

    def bias(source: Path, centre: float) -> float:
        made = load_task_model(prepare_teacher(str(source)), task, None, 0.0, 0, centre=centre)
        return float(made.model.get_parameter("classifier.bias").detach())

    assert [bias(folder, centre) for centre in (0.0, 2.5)] == [0.0, 2.5]
    own = load_task_model(prepare_teacher(str(folder)), task, None, 0.0, 0, centre=1.25)
    with MAKING_MODELS, quiet_transformers():
        own.model.save_pretrained(tmp_path / "own")
    own.tokenizer.save_pretrained(tmp_path / "own")
    assert bias(tmp_path / "own", 2.5) == 1.25


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_is_left_where_a_fresh_one_is_asked_for(family: str, tmp_path: Path) -> None:
    source = make_tiny_teacher(tmp_path / family, model_type=family, words=["anna"])

    def loaded(folder: Path, seed: int, fresh_head: bool) -> TaskModel:
        handle = prepare_teacher(str(folder))
        return load_task_model(
            handle, find_task("STS-B"), None, 0.0, seed, centre=1.5, fresh_head=fresh_head
        )

    has_head = tmp_path / "own"
    first = loaded(source, 0, True)
    with MAKING_MODELS, quiet_transformers():
        first.model.save_pretrained(has_head)
    first.tokenizer.save_pretrained(has_head)

    def weights(made: TaskModel) -> tuple[list[float], list[float]]:
        """Of the encoder, and of the head."""
        parts: tuple[list[float], list[float]] = ([], [])
        for name, values in made.model.state_dict().items():
            parts[not name.startswith(f"{made.model.base_model_prefix}.")].extend(
                values.flatten().tolist()
            )
        return parts

    encoder, head = weights(first)
    assert weights(loaded(has_head, 1, False)) == (encoder, head)
    one, again, other = (weights(loaded(has_head, seed, True)) for seed in (1, 1, 2))
    assert one[0] == again[0] == other[0] == encoder
    assert one[1] == again[1]
    assert len({tuple(h) for h in (head, one[1], other[1])}) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_of_every_family_has_a_centre(family: str, tmp_path: Path) -> None:
    source = make_tiny_teacher(tmp_path / family, model_type=family, words=["anna"])
    made = load_task_model(
        prepare_teacher(str(source)), find_task("STS-B"), None, 0.0, 0, centre=100.0
    )
    with torch.no_grad():
        said = made.model.eval()(input_ids=torch.tensor([[2, 5, 3]])).logits
    assert said.item() == pytest.approx(100.0, abs=5)


def test_a_folder_without_pooler_gets_one(folder: Path, tmp_path: Path) -> None:
    bare = make_tiny_teacher(tmp_path / "bare", words=["anna"])
    weights = load_file(bare / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler")}
    assert len(kept) < len(weights)
    save_file(kept, bare / "model.safetensors", {"format": "pt"})
    first, again = load(bare, "SST-2"), load(bare, "SST-2")
    pooler = "bert.pooler.dense.weight"
    assert torch.equal(first.model.get_parameter(pooler), again.model.get_parameter(pooler))


def test_a_masked_lm_folder_loads(folder: Path, tmp_path: Path) -> None:
    made = make_tiny_teacher(tmp_path / "mlm", words=["anna"])
    with quiet_transformers():
        model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(made))
        model.save_pretrained(made)
    words = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(load(made).model.get_parameter(words), model.get_parameter(words))


def test_a_folder_that_lacks_a_layer_is_refused(tmp_path: Path) -> None:
    made = make_tiny_teacher(tmp_path / "cut")
    weights = load_file(made / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(kept, made / "model.safetensors", {"format": "pt"})
    with pytest.raises(TeacherError, match=r"lack \d+ tensors of the encoder, bert.encoder.layer"):
        load(made)


def test_the_first_piece_of_a_word_carries_its_tag(folder: Path) -> None:
    encoding = TaggingEncoding(load(folder), TAGS, 16)
    batch = encoding.collate([EXAMPLE, TaggedExample("1", ("anna",), ("B-PER",))])
    # [CLS] anna z ##o ##o x [SEP]; the third word has no piece.
    assert batch["labels"].tolist() == [
        [IGNORED, 1, 0, IGNORED, IGNORED, 2, IGNORED],
        [IGNORED, 1, *[IGNORED] * 5],
    ]
    assert batch["attention_mask"].sum(1).tolist() == [7, 3]


def test_words_without_a_piece_are_outside(folder: Path) -> None:
    model = load(folder)
    with torch.no_grad():  # a model that sees persons everywhere
        model.model.get_parameter("classifier.bias").copy_(torch.tensor([-1e4, 1e4, -1e4]))
    forward = Forward(model.model, "cpu", "float32")
    (whole,) = TaggingEncoding(model, TAGS, 16).predict([EXAMPLE], forward)
    assert whole.prediction == ("B-PER", "B-PER", "O", "B-PER")
    assert whole.score == 0
    (cut,) = TaggingEncoding(model, TAGS, 3).predict([EXAMPLE], forward)
    assert cut.prediction == ("B-PER", "O", "O", "O")


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("roberta", RobertaTokenizerFast),
        ("roberta", PreTrainedTokenizerFast),
        ("modernbert", PreTrainedTokenizerFast),
    ],
)
def test_byte_level_words_begin_with_a_space(family: str, kind: Any, tmp_path: Path) -> None:
    made = make_tiny_teacher(tmp_path / "made", family, words=[f"w{i}" for i in range(300)])
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (made / file).unlink()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate([*special, *letters])}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    named = dict(zip(SPECIAL_NAMES, special, strict=True))
    kind(tokenizer_object=tokenizer, **named).save_pretrained(made)
    model = load(made)
    batch = TaggingEncoding(model, TAGS, 16).collate(
        [TaggedExample("0", ("ab", "c"), ("B-PER", "O"))]
    )
    space = vocabulary["Ġ"]
    ids = [0, space, vocabulary["a"], vocabulary["b"], space, vocabulary["c"], 2]
    assert batch["input_ids"].tolist() == [ids]
    assert batch["labels"].tolist() == [[IGNORED, 1, IGNORED, IGNORED, 0, IGNORED, IGNORED]]
    # Who loads the tagger without kdnas reads words as it has learned them.
    example = TaggedExample("0", ("ab", "c"), ("B-PER", "O"))
    data = TaskData(find_task("WNUT-17"), (example,), {}, TAGS, True, ("made up",))
    handle = prepare_teacher(str(made))
    save_task_model(tmp_path / "saved", model, handle, data, FinetuneSettings(1e-3, 1), 0)
    saved = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert saved([["ab", "c"]], is_split_into_words=True)["input_ids"] == [ids]
    assert len(saved(["ab"] * 9, is_split_into_words=True)["input_ids"]) == 29  # nothing is cut
    assert saved("ab")["input_ids"] == [0, space, vocabulary["a"], vocabulary["b"], 2]


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_span_has_two_outputs_whatever_the_head_before_had(outputs: int, tmp_path: Path) -> None:
    made = make_tiny_teacher(tmp_path / "nli", num_labels=outputs)
    task = find_task("SQuAD 1.1")
    loaded = load_task_model(prepare_teacher(str(made)), task, None, 0.0, 0)
    found = loaded.model(input_ids=torch.tensor([[2, 5, 3]]))
    assert found.start_logits.shape == found.end_logits.shape == (1, 3)


def test_a_head_that_must_be_there_is(folder: Path, tmp_path: Path) -> None:
    handle, task = prepare_teacher(str(folder)), find_task("SST-2")
    said = r"lack 2 tensors of its head, classifier.bias first, which would answer at random"
    with pytest.raises(TeacherError, match=said):
        load_task_model(handle, task, ("no", "yes"), 0.0, 0, needs_head=True)
    whole = load_task_model(handle, task, ("no", "yes"), 0.0, 0)
    whole.model.save_pretrained(tmp_path / "whole")  # type: ignore[operator]
    copy_tokenizer(handle, tmp_path / "whole")
    again = prepare_teacher(str(tmp_path / "whole"))
    same = load_task_model(again, task, ("no", "yes"), 0.0, 1, needs_head=True)
    assert torch.equal(head(whole), head(same))
