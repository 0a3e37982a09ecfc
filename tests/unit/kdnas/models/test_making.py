"""Models that are loaded in threads leave transformers as it was."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformers import PreTrainedModel

from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher


def test_loads_in_threads_leave_weights_tied(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "teacher", layers=1)))
    before = PreTrainedModel.tie_weights
    try:
        with ThreadPoolExecutor(4) as threads:
            models = list(threads.map(lambda _: load_teacher_model(handle), range(24)))
        assert len(models) == 24
        assert PreTrainedModel.tie_weights is before
    finally:
        PreTrainedModel.tie_weights = before  # or it would be the other tests that fail
