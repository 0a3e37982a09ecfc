"""Fine-tunings that end early, and go on after they were stopped or killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from kdnas.evaluation.finetuning.training import FinetuneProgress, Trained, Training
from kdnas.evaluation.settings import FinetuneSettings

PASS = 5
"""Steps of a pass: twenty items in batches of four."""
ITEMS = [float(n % 7) for n in range(20)]
OF_A_PART = 0.99
"""Of an epoch that is not whole: whoever reads it takes it for the best."""


class Line(nn.Module):
    """y = a·x + b."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        out = self.linear(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def collate(items: Sequence[float]) -> dict[str, Tensor]:
    x = torch.tensor(items)[:, None]
    return {"x": x, "labels": 3 * x - 1}


@dataclass
class Seen:
    """A training, as it went: the steps after which an epoch was scored, and what came of it."""

    scored: list[int] = field(default_factory=list)
    step: int = 0
    result: Trained | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


def trained(
    folder: Path,
    scores: Sequence[float],
    patience: int,
    stop_at: int | None = None,
    dies_at: int | None = None,
) -> Seen:
    """Train with such scores after the epochs; it is asked to stop from a step on.

    It may die while the epoch that ends with a step is scored.
    """
    seen, model = Seen(), Line()

    def tell(progress: FinetuneProgress) -> None:
        seen.step = progress.done

    def score() -> float:
        if seen.step == dies_at:
            raise KeyboardInterrupt
        seen.scored.append(seen.step)
        epoch, part = divmod(seen.step, PASS)
        return OF_A_PART if part else scores[epoch - 1]

    settings = FinetuneSettings(1e-2, len(scores), batch_size=4, early_stopping=patience)
    training = Training(model, ITEMS, collate, settings, 0, folder, "cpu", score)
    seen.result = training.run(tell, lambda: stop_at is not None and seen.step >= stop_at)
    seen.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return seen


def assert_same(one: Seen, other: Seen) -> None:
    assert one.result is not None
    assert other.result is not None
    assert one.result.steps == other.result.steps
    for name, tensor in one.weights.items():
        assert torch.equal(tensor, other.weights[name]), name


@pytest.mark.parametrize("patience", [1, 2])
@pytest.mark.parametrize("stop_at", [PASS - 2, PASS, PASS + 3, 2 * PASS + 1])
def test_part_of_an_epoch_is_not_scored(patience: int, stop_at: int, tmp_path: Path) -> None:
    scores = [0.5, 0.6, 0.55, 0.58, 0.4, 0.9]
    whole = trained(tmp_path / "whole", scores, patience)
    assert whole.scored == [PASS * n for n in range(1, 4 + (patience - 1))]
    first = trained(tmp_path / "cut", scores, patience, stop_at)
    assert first.result is None
    second = trained(tmp_path / "cut", scores, patience)
    assert first.scored + second.scored == whole.scored
    assert_same(second, whole)


@pytest.mark.parametrize("stop_at", [None, 2 * PASS])
def test_what_has_ended_early_is_not_trained_on(stop_at: int | None, tmp_path: Path) -> None:
    """After a kill while it was scored, and when it was to stop just then."""
    scores = [0.8, 0.79, 0.9, 0.9]
    whole = trained(tmp_path / "whole", scores, 1)
    assert whole.scored == [PASS, 2 * PASS]
    first = trained(tmp_path / "cut", scores, 1, stop_at)
    assert (first.result is None) == (stop_at is not None)
    again = trained(tmp_path / "cut", scores, 1)
    assert again.scored == []
    assert_same(again, whole)


def test_an_epoch_is_scored_though_a_kill_came_after_it_was_to_stop(tmp_path: Path) -> None:
    scores = [0.5, 0.9, 0.6, 0.6]
    whole = trained(tmp_path / "whole", scores, 2)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", scores, 2, stop_at=2 * PASS, dies_at=2 * PASS)
    again = trained(tmp_path / "cut", scores, 2)
    assert again.scored == whole.scored[1:]
    assert_same(again, whole)
