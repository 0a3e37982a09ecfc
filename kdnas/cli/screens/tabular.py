"""How a comparison of strategies looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SIGNIFICANT = 0.05


def standing_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A row a strategy: regrets in thousandths of reward, trainings to the goal."""
    budgets = found["budgets"]
    yield (
        f"{found['table']}: {found['num_allowed']} of {found['num_states']} states may be taken, "
        f"the best {found['num_of_goal']} are the goal; {found['seeds']} seeds, episodes of "
        f"{found['candidates']}"
    )
    if not found["knows_noise"]:
        yield "no state was trained with several seeds: searches are told the truth, without noise"
    yield "regret in thousandths of reward, and trainings to the goal: median (95 % interval)"
    yield _row("strategy", [f"after {n}" for n in budgets], "trainings")
    for row in found["standings"]:
        tests = row["p_regrets"] or [None] * len(budgets)
        regrets = [
            _interval(value, 1000, 1) + _mark(p)
            for value, p in zip(row["regrets"], tests, strict=True)
        ]
        needed = _interval(row["trainings"], 1, 0) + _mark(row["p_trainings"])
        yield _row(row["name"], regrets, needed)
    yield f"* differs from {found['reference']} (p < {SIGNIFICANT}, paired by seed, Holm)"


def _row(name: str, cells: list[str], last: str) -> str:
    return f"{name:<18}" + "".join(f"{cell:>24}" for cell in [*cells, last])


def _interval(value: list[float | None], scale: float, digits: int) -> str:
    middle, low, high = (_number(part, scale, digits) for part in value)
    return f"{middle} ({low} to {high})"


def _number(value: float | None, scale: float, digits: int) -> str:
    return "never" if value is None else f"{value * scale:.{digits}f}"


def _mark(p: float | None) -> str:
    return "*" if p is not None and p < SIGNIFICANT else " "
