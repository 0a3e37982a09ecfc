"""Pictures: what a search has found, and how strategies compare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdnas.cli.screens.tabular import REGRETS
from kdnas.errors import OutputError, SpecError, StoreError

SMALLEST_REGRET = 1e-4
"""Below it a picture of regrets is linear, down to 0."""
COLOURS = {"random": "#7a8794", "controller": "#d1495b"}


def check_plot(path: Path) -> None:
    """Refuse a place where no picture can be written, before the work that it is to show.

    Raises:
        SpecError: the file is no PNG.
        OutputError: its folder is not there, or it cannot be written.
    """
    if path.suffix != ".png":
        raise SpecError(f"--plot {path} is no .png file; give its name this ending")
    if not path.parent.is_dir():
        raise OutputError(
            f"--plot {path}: there is no folder {path.parent}; make it, or choose another --plot"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"--plot {path} cannot be written; choose another --plot")


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


def plot_regrets(found: Mapping[str, Any], path: Path) -> None:
    """Draw the regret of each strategy over its trainings, with its interval.

    Args:
        found: as ``kdnas tabular strategies --json`` prints it.
        path: of the PNG.

    Raises:
        StoreError: it cannot be written.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    colours = colormaps["tab20"]
    for number, curve in enumerate(found["curves"]):
        colour = colours(number % colours.N)
        middle, low, high = zip(*curve["regrets"], strict=True)
        axes.plot(curve["trainings"], middle, color=colour, label=curve["name"])
        axes.fill_between(curve["trainings"], low, high, color=colour, alpha=0.12, linewidth=0)
    share = "share of the " if found["goal"] == "front" else ""
    axes.set(
        xlabel="trainings",
        ylabel=f"regret ({share}{REGRETS[found['goal']]})",
        title=f"{found['table']}, goal {found['goal']}: medians of {found['seeds']} seeds",
        xscale="log",
        ylim=(0, None),
    )
    axes.set_yscale("symlog", linthresh=SMALLEST_REGRET)
    axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({error.strerror or error}); choose another --plot"
        ) from None
