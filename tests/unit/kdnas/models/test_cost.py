from __future__ import annotations

import pytest
from transformers import AutoConfig

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


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("text", ["1,2,24,36,gelu", "3,4,48,96,relu"])
def test_the_count_is_that_of_the_real_model(model_type: str, text: str) -> None:
    types = {} if model_type == "distilbert" else {"type_vocab_size": 2}
    config = AutoConfig.for_model(
        model_type, vocab_size=77, max_position_embeddings=33, pad_token_id=0, **types
    )
    architecture = Architecture.parse(text)
    student = build_student(config, architecture)
    shape = EmbeddingShape(77, 33, len(types) * 2)
    assert sum(p.numel() for p in student.parameters()) == count_parameters(architecture, shape)


def test_operations_are_two_for_each_weight_of_a_matrix() -> None:
    architecture = Architecture.parse("3,12,384,1024,gelu")
    matrices = 3 * (4 * 384 * 384 + 2 * 384 * 1024)
    assert flops_per_token(architecture) == 2 * matrices
    assert flops_per_token(architecture, 32) == 2 * matrices + 3 * 4 * 32 * 384


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
