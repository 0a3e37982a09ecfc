"""Loss against latency with the Pareto front, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLOURS = {"random": "#7a8794", "controller": "#d1495b"}


def plot_search(summary: Mapping[str, Any], path: Path) -> None:
    """Draw every succeeded state, the Pareto front and the best one.

    Args:
        summary: as ``kdnas searches show --json`` prints it.
        path: of the PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    states = summary["best"]
    for source in dict.fromkeys(state["source"] for state in states):
        own = [state for state in states if state["source"] == source]
        axes.scatter(
            [s["latency_ms"] for s in own],
            [s["loss"] for s in own],
            s=[8 + 4 * s["params_millions"] for s in own],
            color=COLOURS.get(source, "#2e6f95"),
            alpha=0.85,
            label=f"{source} picks ({len(own)})",
        )
    front = summary["pareto"]
    axes.step(
        [s["latency_ms"] for s in front],
        [s["loss"] for s in front],
        where="post",
        color="#1b1b1b",
        linewidth=1,
        label="Pareto front",
    )
    best = states[0]
    axes.annotate(
        f"best: {best['architecture']}",
        (best["latency_ms"], best["loss"]),
        xytext=(8, 10),
        textcoords="offset points",
    )
    axes.set(
        xlabel="latency of one inference (ms)",
        ylabel="held-out loss of mini-KD (0 perfect, 1 useless)",
        title=f"{summary['explored']} students of search {summary['name']}; "
        "a bubble's area grows with its parameters",
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
