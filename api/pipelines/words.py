"""How a pipeline's verdict names models, and puts figures into words."""

from __future__ import annotations

from api.pipelines.results import Estimate, ModelLine

ROLE_NAMES = {
    "chosen": "chosen by the search",
    "baseline": "baseline",
    "random": "random pick",
    "undistilled": "undistilled student",
    "teacher": "teacher",
    "variant": "undistilled teacher",
}

CLEARLY_FASTER = 0.95
"""Share of another student's latency below which a difference in speed is worth a word."""


def factor(value: float) -> str:
    """Write a factor: ``2.4 ×``."""
    return f"{value:.2g} ×" if value < 10 else f"{value:.0f} ×"


def share_text(share: Estimate) -> str:
    """Write a share with its interval: ``96.3 % (94.1 to 98.3)``."""
    text = f"{100 * share.value:.1f} %"
    if share.low is None or share.high is None:
        return text
    return f"{text} (95 % interval {100 * share.low:.1f} to {100 * share.high:.1f})"


def difference_text(difference: Estimate) -> str:
    """Write a difference in points with its interval."""
    text = f"{100 * difference.value:+.1f}"
    if difference.low is None or difference.high is None:
        return text
    return f"{text} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"


def points_text(difference: Estimate) -> str:
    """Write how large a difference is: ``1.5 points``."""
    return f"{abs(100 * difference.value):.1f} points"


def interval_text(difference: Estimate) -> str:
    """Write the interval of a difference: without signs where all of it is on one side."""
    low, high = 100 * (difference.low or 0.0), 100 * (difference.high or 0.0)
    if low <= 0 <= high:
        return f"95 % interval {low:+.1f} to {high:+.1f}"
    ends = sorted((abs(low), abs(high)))
    return f"95 % interval {ends[0]:.1f} to {ends[1]:.1f}"


def with_role(model: ModelLine) -> str:
    """Name a model with its role."""
    if model.role == "undistilled":
        return f"the undistilled {model.architecture}"
    if model.role == "chosen":
        return f"the search's {model.name}"
    return f"the {ROLE_NAMES[model.role]} {model.name}"


def apart_text(model: ModelLine, rival: ModelLine, difference: Estimate) -> str:
    """Say how far a student is above or below another, which is so much faster or slower."""
    other = with_role(rival)
    if model.latency_ms and rival.latency_ms:
        speed = model.latency_ms / rival.latency_ms
        if speed > 1 / CLEARLY_FASTER:
            other += f", which is {factor(speed)} as fast"
        elif speed < CLEARLY_FASTER:
            other += f", which takes {factor(1 / speed)} as long"
        else:
            other += ", which is as fast"
    if difference.verdict == "within the noise":
        points = f"{100 * difference.value:+.1f}"
        return f"within the noise of {other} ({points}, {interval_text(difference)})"
    if difference.value == 0:
        return f"as good as {other}"
    side = "above" if difference.value > 0 else "below"
    sure = "how sure that is, is not known"
    if difference.low is not None and difference.high is not None:
        sure = interval_text(difference)
    return f"{points_text(difference)} {side} {other} ({sure})"
