"""An analysis of a search in sentences, for the page and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from kdnas.search.analysis.findings import Analysis, Predictions
from kdnas.search.analysis.surrogate import FEWEST_STATES
from kdnas.specs.search import Goal


def in_words(found: Analysis, goal: Goal, num_states: int, steps: int | None) -> list[str]:
    """Say what was found out.

    Args:
        found: the analysis.
        goal: of the search.
        num_states: that have a result.
        steps: of each training, if they were asked for in steps.
    """
    return [
        *_noise(found, goal, steps),
        _predictions(found.predictions),
        *_importance(found, num_states),
        *_chance(found, num_states),
    ]


def _noise(found: Analysis, goal: Goal, steps: int | None) -> list[str]:
    if found.noise is None:
        how = "search again with another proxy.seed and otherwise the same settings"
        if steps:
            sweep = f"kdnas sweep --steps {steps} --seeds 1,2 --states 20"
            how = f"`{sweep}` with the same settings finds out"
        return [
            "Noise is not known: no state was trained with two seeds, nor does a table that comes "
            "with the program hold such trainings, so nobody can say which differences are chance; "
            f"{how}."
        ]
    noise = found.noise
    of_table = "" if noise.table is None else f" of the table {noise.table}, trained as these are"
    words = [
        f"Noise: between seeds the loss of a state has a standard deviation of {noise.sd:.4f} "
        f"({noise.dof} degrees of freedom, from {noise.num_states} states{of_table})."
    ]
    if found.within_noise is not None:
        count = len(found.within_noise)
        best = "those of the front" if goal == "front" else "the best"
        none = (
            "Every state off the front is beaten by more than noise."
            if goal == "front"
            else "The best state is better than every other by more than noise."
        )
        others = f"{count} other state{'' if count == 1 else 's'}"
        words.append(f"Noise cannot tell {others} from {best}." if count else none)
    return words


def _predictions(predictions: Sequence[Predictions]) -> str:
    judged = [p for p in predictions if p.rmse is not None]
    if not judged:
        return "Predictions: no finished episode has three picks with a predicted loss."
    last = judged[-1]
    order = "no order" if last.spearman is None else f"a rank correlation of {last.spearman:.2f}"
    return (
        f"Predictions: in episode {last.episode}, the last of {len(judged)} with at least three, "
        f"{last.pairs} predicted losses and the true ones have {order}, and a root mean square "
        f"error of {last.rmse:.3f}."
    )


def _importance(found: Analysis, num_states: int) -> list[str]:
    if num_states < FEWEST_STATES:
        return [f"Axes: it takes {FEWEST_STATES} states to say which matters, not {num_states}."]
    words = []
    for name, about in {"loss": found.loss_importance, "reward": found.reward_importance}.items():
        if about is None:
            words.append(f"Axes: of the {name}, a model of the five axes explains nothing.")
            continue
        first, second, third = (f"{axis.axis} ({_percent(axis.share)})" for axis in about.axes[:3])
        words.append(
            f"Axes: a model explains {_percent(about.explained)} of the variance of the {name}, "
            f"most of it by {first}, {second} and {third}."
        )
    return words


def _chance(found: Analysis, num_states: int) -> list[str]:
    if found.chance is None:
        if num_states < FEWEST_STATES:
            return []
        return ["Chance: no estimate, since the latencies of the other states are not stored."]
    chance = found.chance
    named = {"reward": "best reward", "hypervolume": "hypervolume"}
    words = [
        f"Chance: as many random states ({chance.budget} of {chance.num_allowed}) would have found "
        f"a {named[measure.measure]} of {measure.expected:.3f} (95 % of draws from "
        f"{measure.low:.3f} to {measure.high:.3f}), and in {_percent(measure.as_good)} of draws at "
        f"least the {measure.found:.3f} of this search."
        for measure in chance.measures
    ]
    words.append(
        "That is an estimate: a model of the loss stands in for what was not trained, and its root "
        f"mean square error on states that it has not seen is {chance.error:.4f}."
    )
    own = chance.measures[0].by_own_random
    if own is not None:
        words.append(
            f"The random picks of this search alone ({chance.num_random}) have a "
            f"{named[chance.measures[0].measure]} of {own:.3f}."
        )
    return words


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
