"""Teachers small enough to build and run within a test, of every supported family."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from kdnas.models.families import family_of
from kdnas.models.teacher import quiet_transformers
from kdnas.testing.tiny_tokenizer import make_tiny_tokenizer

LOUDER = 5.0
"""Factor on the weight matrices: at a deviation of 0.02 all layers would give nearly the same."""
WINDOW = 8
"""Tokens that a layer with local attention sees, so that it matters within a short sequence."""


def make_tiny_teacher(
    folder: Path,
    model_type: str = "bert",
    *,
    layers: int = 2,
    hidden: int = 48,
    heads: int = 4,
    intermediate: int = 96,
    activation: str = "gelu",
    max_positions: int = 64,
    words: Iterable[str] = (),
    seed: int = 0,
    **config_values: Any,
) -> Path:
    """Save a teacher with random weights, its configuration and a tiny tokenizer.

    Args:
        folder: where to save it; made if missing.
        model_type: one of :data:`kdnas.models.families.FAMILIES`. An ELECTRA has a factorised
            embedding of half its width.
        layers: L^T.
        hidden: d_h.
        heads: A_h.
        intermediate: d_f.
        activation: of the feed-forward block.
        max_positions: rows of the position embeddings.
        words: whole words of the tokenizer's vocabulary.
        seed: of the weights; the process's random state stays as it was.
        config_values: any other entries of the configuration.

    Returns:
        The folder.
    """
    make_tiny_tokenizer(folder, words, max_positions)
    family = family_of(model_type)
    sizes = {
        "layers": layers,
        "heads": heads,
        "hidden": hidden,
        "intermediate": intermediate,
        "activation": activation,
    }
    values: dict[str, Any] = {key: sizes[axis] for axis, key in family.config_keys.items()}
    if family.factorised_embedding:
        values["embedding_size"] = hidden // 2
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    usual = AutoConfig.for_model(model_type)
    ours = {
        "local_attention": WINDOW,
        "bos_token_id": tokenizer.cls_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    values |= {key: v for key, v in ours.items() if getattr(usual, key, None) is not None}
    values |= {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": max_positions,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = AutoConfig.for_model(model_type, **values | config_values)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        model = AutoModel.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(LOUDER)
                else:  # zero biases and unit layer norms would hide mistakes
                    parameter.add_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(folder)
    return folder
