"""Sequences to which the map of sentence embeddings is fitted, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from kdnas.corpus.batches import PaddedBatch
from kdnas.distill import sentence_map
from kdnas.distill.sentence_map import KIND, SentenceMaps, shortened
from kdnas.models.pooling import Pooling
from kdnas.models.teacher import load_teacher_model
from kdnas.store import MADE_OF, Store
from kdnas.testing.tiny_lab import TinyLab


def test_longer_sequences_are_cut_but_keep_their_end() -> None:
    ids = np.array([[1, 5, 6, 7, 2], [1, 5, 6, 2, 0], [1, 5, 2, 0, 0], [1, 2, 0, 0, 0]])
    cut = shortened(PaddedBatch(ids, (ids > 0).astype(np.int64)), 3)
    assert cut.input_ids.tolist() == [[1, 5, 2], [1, 5, 2], [1, 5, 2], [1, 2, 0]]
    assert cut.attention_mask.tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0]]
    whole = shortened(PaddedBatch(ids, (ids > 0).astype(np.int64)), 9)
    assert whole.input_ids.tolist() == ids.tolist()


def test_the_teacher_embeds_them_once(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_map, "SEQUENCES", 40)
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    model, runs = load_teacher_model(lab.teacher), []
    model.register_forward_hook(lambda *_: runs.append(1))

    def maps(*modes: str) -> SentenceMaps:
        return SentenceMaps(lab.teacher, Pooling(modes), model, lab.corpus, store, "cpu")

    states = torch.randn(100, 48, generator=torch.Generator().manual_seed(0))
    fitted = maps("mean").fit(model, states, states)
    assert torch.allclose(fitted, torch.eye(48), atol=1e-2)  # the teacher is its own student
    assert len(runs) == 4  # 2 batches for the teacher and 2 for the student
    maps("mean")
    assert len(runs) == 4
    maps("cls")  # other embeddings
    assert len(runs) == 6
    folders = store.folders(KIND)
    assert len(folders) == 2
    for folder in folders:
        made_of = store.manifest(KIND, folder.name).metadata[MADE_OF]
        assert made_of == [lab.teacher.fingerprint, lab.corpus.fingerprint]
