"""How a comparison of strategies looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SIGNIFICANT = 0.05
REGRETS = {"reward": "reward", "limit": "loss", "front": "hypervolume that is missing"}
"""What a regret is an amount of, by the goal."""
NOTHING = "–"


def standing_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A row a strategy: regrets and trainings to the goal; then what else it has found."""
    budgets = found["budgets"]
    yield (
        f"{found['table']}, goal {found['goal']}: {found['num_allowed']} of {found['num_states']} "
        f"states may be taken, {_solved(found)}; {found['seeds']} seed"
        f"{'' if found['seeds'] == 1 else 's'}, episodes of {found['candidates']}"
    )
    if found["num_states"] < found["num_states_of_axes"]:
        trained = f", trained for {found['steps']} steps" if found["steps"] > 1 else ""
        yield (
            f"{found['num_states']} of the {found['num_states_of_axes']} states of its axes are in "
            f"the table{trained}"
        )
    if not found["knows_teacher"]:
        yield (
            f"no row has teacher_ms: the largest latency, {found['teacher_ms']:.4g} ms, stands for "
            "the teacher's"
        )
    if not found["knows_sizes"]:
        yield "no row has params_millions: the parameters of the layers stand for the size"
    if not found["knows_starts"]:
        yield "no strategy knows the losses with which states start"
    if not found["knows_noise"]:
        yield "no state was trained with several seeds: searches are told the truth, without noise"
    if found["rungs"]:
        rungs = ", ".join(map(str, found["rungs"]))
        yield f"trainings that promise too little end after step {rungs}, and count as one each"
    yield (
        f"regret in thousandths of {REGRETS[found['goal']]}, and trainings to the goal: "
        "median (95 % interval)"
    )
    yield _row("strategy", [f"after {n}" for n in budgets], "trainings")
    for row in found["standings"]:
        tests = row["p_regrets"] or [None] * len(budgets)
        regrets = [
            _interval(value, 1000, 1) + _mark(p)
            for value, p in zip(row["regrets"], tests, strict=True)
        ]
        needed = _interval(row["trainings"], 1, 0) + _mark(row["p_trainings"])
        yield _row(row["name"], regrets, needed)
    if any(_differs(p) for row in found["standings"] for p in _tests(row)):
        yield f"* differs from {found['reference']} (p < {SIGNIFICANT}, paired by seed, Holm)"
    yield ""
    yield f"after {budgets[-1]}: share of the hypervolume, and the lowest loss under a latency"
    ratios = [f"under {ratio:g} × teacher's" for ratio in found["latency_ratios"]]
    saved = ["steps saved, %"] if found["rungs"] else []
    yield _row("strategy", [*saved, "hypervolume, %", *ratios[:-1]], ratios[-1])
    for row in found["standings"]:
        shares = [row["saved"]] if saved else []
        shown = [_interval(value, 100, 1) for value in [*shares, row["covered"][-1]]]
        *losses, last = [_interval(value, 1, 3, NOTHING) for value in row["best_losses"][-1]]
        yield _row(row["name"], [*shown, *losses], last)


def _solved(found: Mapping[str, Any]) -> str:
    if found["goal"] == "front":
        return f"{found['volume_of_goal']:.0%} of their hypervolume solves it"
    count = found["num_of_goal"]
    return "the best one solves it" if count == 1 else f"the best {count} solve it"


def _row(name: str, cells: list[str], last: str) -> str:
    return f"{name:<20}" + "".join(f"{cell:>24}" for cell in [*cells, last])


def _interval(value: list[float | None], scale: float, digits: int, none: str = "never") -> str:
    middle, low, high = (none if x is None else _number(x * scale, digits) for x in value)
    return middle if low == high else f"{middle} ({low} to {high})"


def _number(value: float, digits: int) -> str:
    """A count that is the median of an even number of seeds may end in a half."""
    return f"{value:.{digits}f}" if digits else f"{value:g}"


def _tests(row: Mapping[str, Any]) -> list[float | None]:
    return [*(row["p_regrets"] or []), row["p_trainings"]]


def _differs(p: float | None) -> bool:
    return p is not None and p < SIGNIFICANT


def _mark(p: float | None) -> str:
    return "*" if _differs(p) else " "
