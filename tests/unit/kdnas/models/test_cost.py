from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from kdnas.architecture import Architecture
from kdnas.models.cost import (
    EmbeddingShape,
    count_parameters,
    flops_per_token,
    teacher_architecture,
    training_bytes,
)
from kdnas.models.families import FAMILIES
from kdnas.models.student import build_student
from kdnas.records import TeacherShape

ENGLISH = EmbeddingShape(30522)  # BERT
MULTILINGUAL = EmbeddingShape(250002, 514, 1)  # XLM-R

# Millions of parameters as printed: Udagawa et al. 2023, Table 1; Trivedi et al. 2023, Table 2.
PUBLISHED = [
    (ENGLISH, "6,12,768,3072,gelu", 66),
    (ENGLISH, "6,12,384,1536,gelu", 23),
    (ENGLISH, "4,12,576,768,gelu", 27),
    (ENGLISH, "3,12,384,1024,gelu", 16),
    (ENGLISH, "12,12,768,3072,gelu", 110),
    (MULTILINGUAL, "6,12,768,3072,gelu", 234),
    (MULTILINGUAL, "6,12,384,1536,gelu", 107),
    (MULTILINGUAL, "4,12,576,768,gelu", 153),
    (MULTILINGUAL, "3,12,384,1024,gelu", 100),
    (MULTILINGUAL, "4,4,288,768,gelu", 76),
    (MULTILINGUAL, "12,12,768,3072,gelu", 277),
]


@pytest.mark.parametrize(("embedding", "text", "millions"), PUBLISHED)
def test_the_published_sizes(embedding: EmbeddingShape, text: str, millions: float) -> None:
    assert count_parameters(Architecture.parse(text), embedding) / 1e6 == pytest.approx(
        millions, abs=1.2
    )


def family_shape(model_type: str) -> tuple[PretrainedConfig, EmbeddingShape]:
    """A teacher's configuration of 77 words and 33 positions, and what its students take over."""
    types = 0 if model_type in {"distilbert", "modernbert"} else 2
    config = AutoConfig.for_model(
        model_type,
        vocab_size=77,
        max_position_embeddings=33,
        pad_token_id=0,
        **({"type_vocab_size": types} if types else {}),
    )
    shape = TeacherShape(model_type, 6, 12, 384, 1536, "gelu", 77, 33, types, "f")
    return config, EmbeddingShape.of(shape)


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("text", ["1,2,24,36,gelu", "3,4,48,96,relu"])
def test_the_count_is_that_of_the_real_model(model_type: str, text: str) -> None:
    config, embedding = family_shape(model_type)
    architecture = Architecture.parse(text)
    parameters = dict(build_student(config, architecture).named_parameters())
    assert sum(p.numel() for p in parameters.values()) == count_parameters(architecture, embedding)
    tables = [p for n, p in parameters.items() if n.endswith("embeddings.weight")]
    assert sum(len(table) for table in tables) == embedding.rows


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("text", ["1,2,24,36,gelu", "3,4,48,96,relu"])
def test_operations_are_those_of_the_real_model(model_type: str, text: str) -> None:
    """Counted by torch; eager attention, since it counts no fused kernel of a CPU."""
    config, embedding = family_shape(model_type)
    architecture, length = Architecture.parse(text), 16
    student = build_student(config, architecture).eval()
    assert isinstance(student, PreTrainedModel)
    student.set_attn_implementation("eager")
    ids = torch.randint(5, 70, (2, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        student(input_ids=ids, attention_mask=torch.ones_like(ids))
    expected = flops_per_token(architecture, length, gated=embedding.gated)
    assert counter.get_total_flops() == expected * ids.numel()


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("text", ["4,4,48,96,gelu", "4,12,384,1536,gelu", "4,4,192,192,relu"])
def test_memory_is_what_the_backward_pass_keeps(model_type: str, text: str) -> None:
    """Never less, so that a group that is said to fit does, and not half as much again."""
    config, embedding = family_shape(model_type)
    architecture, shape = Architecture.parse(text), (8, 32)
    student = build_student(config, architecture).train()
    weights = {p.untyped_storage().data_ptr() for p in student.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(5, 70, shape, generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 20:] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = student(input_ids=ids, attention_mask=mask).last_hidden_state
    bytes_kept = sum(kept.values())
    estimate = training_bytes(architecture, embedding, ids.numel(), 0)
    estimate -= 16 * count_parameters(architecture, embedding)
    assert output.requires_grad
    assert bytes_kept <= estimate <= 1.5 * bytes_kept


def test_operations_are_two_for_each_weight_of_a_matrix() -> None:
    architecture = Architecture.parse("3,12,384,1024,gelu")
    matrices = 3 * (4 * 384 * 384 + 2 * 384 * 1024)
    assert flops_per_token(architecture) == 2 * matrices
    assert flops_per_token(architecture, 32) == 2 * matrices + 3 * 4 * 32 * 384
    gate = 3 * 384 * 1024
    assert flops_per_token(architecture, gated=True) == 2 * (matrices + gate)


def test_a_teachers_students_take_over_its_familys_shape() -> None:
    shape = TeacherShape("bert", 6, 12, 384, 1536, "gelu", 30522, 512, 2, "f")
    assert EmbeddingShape.of(shape) == ENGLISH
    rotary = replace(shape, model_type="modernbert", max_positions=8192, type_vocab_size=0)
    assert EmbeddingShape.of(rotary) == EmbeddingShape(30522, 0, 0, gated=True, biases=False)
    # ModernBERT-base, answerdotai/ModernBERT-base: 149 million with the head of its checkpoint.
    base = EmbeddingShape(50368, 0, 0, gated=True, biases=False)
    own = Architecture(22, 12, 768, 1152)
    assert count_parameters(own, base) / 1e6 == pytest.approx(149, abs=1)


@pytest.mark.parametrize("width", [16, 48])
def test_a_factorised_embedding_stays_narrow_where_students_differ_in_depth_alone(
    width: int,
) -> None:
    own, other = Architecture(2, 4, 48, 96), Architecture(2, 4, 48, 96, "relu")
    config = AutoConfig.for_model(
        "electra",
        vocab_size=77,
        embedding_size=width,
        max_position_embeddings=33,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=48,
        intermediate_size=96,
    )
    embedding = EmbeddingShape.of(
        TeacherShape("electra", 2, 4, 48, 96, "gelu", 77, 33, 2, "f", embedding_size=width)
    )
    for architecture in (own, replace(own, layers=1), replace(own, layers=3), other):
        model = build_student(config, architecture)
        assert sum(p.numel() for p in model.parameters()) == count_parameters(
            architecture, embedding
        )
        assert hasattr(model, "embeddings_project") == (architecture != other and width != 48)
    assert EmbeddingShape(**asdict(embedding)) == embedding


def test_training_needs_more_memory_than_the_weights() -> None:
    architecture = Architecture.parse("3,12,384,1024,gelu")
    least = 16 * count_parameters(architecture, ENGLISH)
    few, many = (training_bytes(architecture, ENGLISH, n, 768) for n in (0, 1000))
    assert least == few < many


def test_the_teachers_own_architecture() -> None:
    shape = TeacherShape("bert", 6, 12, 384, 1536, "gelu", 30522, 512, 2, "f")
    assert teacher_architecture(shape) == Architecture(6, 12, 384, 1536)
    other = TeacherShape("bert", 6, 12, 384, 1536, "gelu_new", 30522, 512, 2, "f")
    assert teacher_architecture(other) is None
