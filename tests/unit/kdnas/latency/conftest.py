from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel

from kdnas.models.teacher import TeacherHandle
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace


@pytest.fixture(scope="session")
def handle(tmp_path_factory: pytest.TempPathFactory) -> TeacherHandle:
    """A BERT teacher of 2 × 24 with random weights."""
    folder = tmp_path_factory.mktemp("teacher")
    config = BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng():
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    shape = TeacherShape("bert", 2, 2, 24, 48, "gelu", 50, 16, 2, "tiny")
    return TeacherHandle("tiny", folder, shape)


@pytest.fixture(scope="session")
def space() -> SearchSpace:
    return SearchSpace((1, 2, 3, 4), (2, 3), (12, 24), (24, 48, 96), ("gelu", "relu"))
