"""A picture of which classes are taken for which."""

from __future__ import annotations

import io
import warnings

import numpy as np

from kdnas.evaluation.reports.classes import Confusion

MOST_NUMBERED = 20
"""Classes up to which each cell has its count."""
DARK = 0.6
"""Shares above it are written in white."""


def draw_confusion(confusion: Confusion, title: str) -> bytes:
    """Draw counts as shares of their rows: of the examples of a class, what they were taken for.

    Returns:
        A PNG.
    """
    from matplotlib.figure import Figure

    counts = np.array(confusion.counts, np.float64)
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    places = range(len(confusion.labels))
    side = min(max(4.0, 1.5 + 0.55 * len(places)), 16.0)  # inches
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    drawn = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    axes.set_xticks(places, confusion.labels, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(places, confusion.labels, parse_math=False)
    axes.set(xlabel="said", ylabel="right")
    axes.set_title(title, parse_math=False)
    if len(places) <= MOST_NUMBERED:
        for row in places:
            for column in places:
                colour = "white" if shares[row, column] > DARK else "black"
                text = str(confusion.counts[row][column])
                axes.text(column, row, text, ha="center", va="center", color=colour)
    figure.colorbar(drawn, label="share of the row", shrink=0.8)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks become boxes, which the table beside the picture makes good.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()
