"""Encoders with heads at random, as a fine-tuning would leave them in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from kdnas.models.heads import SEVERAL_LABELS
from kdnas.models.making import MAKING_MODELS
from kdnas.models.teacher import quiet_transformers

HEADS = {
    "classification": "ForSequenceClassification",
    "multilabel": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}
"""Kind of task → end of the name of transformers' class."""
_LOUDER = 20
"""What a head at random says is small beside what is compared."""


def with_head(source: Path, kind: str, folder: Path) -> Any:
    """Save an encoder with a head.

    Args:
        source: folder of the encoder.
        kind: key of ``HEADS``; three classes or tags.
        folder: new.

    Returns:
        The model, in eval mode.
    """
    import transformers

    shutil.copytree(source, folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    if kind != "span":
        config.num_labels = 1 if kind == "regression" else 3
    if kind == "multilabel":
        config.problem_type = SEVERAL_LABELS
    with MAKING_MODELS, torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(1)
        made = getattr(transformers, f"AutoModel{HEADS[kind]}").from_pretrained(
            folder, config=config
        )
        for name, parameter in made.named_parameters():
            if not name.startswith(made.base_model_prefix) and parameter.ndim == 2:
                parameter.data.mul_(_LOUDER)
        made.save_pretrained(folder)
    return made.eval()
