"""Which student of a pipeline to take, and how to say so.

Without latency budgets it is the best that the search chose, unless another student is no slower
and scores higher; with budgets it is, for each, the best student within it, whoever chose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.pipeline_results import Beside, Estimate, ModelLine, Pick, Verdict
from api.pipeline_scores import Scoring

ROLE_NAMES = {
    "chosen": "chosen by the search",
    "baseline": "baseline",
    "random": "random pick",
    "teacher": "teacher",
    "variant": "undistilled teacher",
}

FEWEST_RANKED = 3
FEW_RANKED = 8
CLEARLY_FASTER = 0.95
"""Share of another student's latency below which a difference in speed is worth a word."""

Budget = tuple[float, str]
"""Milliseconds, and the budget in words: ``within 6 ms``."""

Differences = Mapping[str, Estimate]
"""Other model → how much better the student to take is."""


def choose_picks(models: Sequence[ModelLine], budgets: Sequence[Budget]) -> tuple[Pick, ...]:
    """Choose the students to take among those with a score.

    Args:
        models: of the pipeline.
        budgets: that were asked for; a budget that nothing keeps gets no pick.
    """
    students = [model for model in models if model.is_student and model.score is not None]
    if budgets:
        picks = []
        for budget_ms, about in sorted(set(budgets)):
            within = [m for m in students if _is_within(m, budget_ms)]
            if within:
                picks.append(Pick(max(within, key=_rank).name, budget_ms, about))
        return tuple(picks)
    chosen = [model for model in students if model.role == "chosen"]
    if not chosen:
        return ()
    best = max(chosen, key=_rank)
    rivals = [] if best.latency_ms is None else students
    return (
        Pick(max([best, *(m for m in rivals if _is_within(m, best.latency_ms))], key=_rank).name),
    )


def _rank(model: ModelLine) -> tuple[float, float]:
    """The higher the better: by score, and of equal ones the faster."""
    score = -1.0 if model.score is None else model.score.mean
    return score, -(model.latency_ms or 0.0)


def _is_within(model: ModelLine, budget_ms: float | None) -> bool:
    return model.latency_ms is not None and budget_ms is not None and model.latency_ms <= budget_ms


@dataclass(frozen=True)
class Case:
    """What a verdict is given on.

    Attributes:
        models: of the pipeline.
        picks: the students to take.
        beside: those beside the other models.
        scoring: how models are compared.
    """

    models: Sequence[ModelLine]
    picks: Sequence[Pick]
    beside: Sequence[Beside]
    scoring: Scoring

    def named(self, name: str) -> ModelLine:
        """Return the model of a name."""
        return next(model for model in self.models if model.name == name)

    @property
    def teacher(self) -> ModelLine | None:
        """The teacher, if it takes part."""
        return next((model for model in self.models if model.role == "teacher"), None)


def answer(case: Case) -> str:
    """Say which student to take, or for each budget which, and what it costs and brings."""
    head = "No example tells the students apart, only their speed does. " if _all_same(case) else ""
    if len(case.picks) == 1 and not case.picks[0].about:
        model = case.named(case.picks[0].name)
        return f"{head}Take {_called(model)}: it {_merits(model, case)}."
    parts = []
    for number, pick in enumerate(case.picks):
        model = case.named(pick.name)
        verb = "take " if number == 0 else ""
        parts.append(f"{pick.about} {verb}{_called(model)}, which {_merits(model, case)}")
    text = "; ".join(parts)
    return f"{head}{text[:1].upper()}{text[1:]}."


def _all_same(case: Case) -> bool:
    """Whether all scored students, of several, are right on the very same examples."""
    students = {model.name for model in case.models if model.is_student}
    pairs = [one.difference for one in case.beside if one.other in students]
    return bool(pairs) and all(_is_the_same(difference) for difference in pairs)


def _called(model: ModelLine) -> str:
    if model.role == "chosen":
        return model.name
    return f"{model.name} (no choice of the search, but a {ROLE_NAMES[model.role]})"


def _merits(model: ModelLine, case: Case) -> str:
    teacher, name = case.teacher, case.scoring.name
    score = _score(model)
    if teacher is None or model.retained is None:
        said = f"scores {score} in {name}"
    else:
        share = share_text(model.retained)
        score = f"{score} instead of {_score(teacher)}"
        said = f"retains {share} of {teacher.name}'s {name} score ({score})"
    parts = [part for part in (said, _speed(model, teacher), _size(model, teacher)) if part]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _score(model: ModelLine) -> str:
    return "" if model.score is None else f"{100 * model.score.mean:.1f}"


def _speed(model: ModelLine, teacher: ModelLine | None) -> str:
    if not model.latency_ratio or model.latency_ms is None:
        return ""
    instead = "" if teacher is None or teacher.latency_ms is None else teacher.latency_ms
    times = f"{model.latency_ms:.3g} ms" + (f" instead of {instead:.3g} ms" if instead else "")
    return f"is {factor(1 / model.latency_ratio)} as fast ({times})"


def _size(model: ModelLine, teacher: ModelLine | None) -> str:
    if model.params_millions is None:
        return ""
    text = f"{model.params_millions:.1f} M parameters"
    if teacher is None or not teacher.params_millions:
        return f"has {text}"
    share = 100 * model.params_millions / teacher.params_millions
    return f"has {share:.0f} % of its size ({text} instead of {teacher.params_millions:.1f} M)"


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


def findings(case: Case) -> list[str]:
    """Say what else to know before deciding: whether searching paid, and what comes close."""
    said: list[str] = []
    for pick in case.picks:
        head = f"{pick.about[:1].upper()}{pick.about[1:]}: " if pick.about else ""
        said += [head + line for line in _of_pick(pick, case)]
    return said


def _of_pick(pick: Pick, case: Case) -> list[str]:
    model = case.named(pick.name)
    beside = {one.other: one.difference for one in case.beside if one.model == pick.name}
    others = [other for other in case.models if other.name in beside]
    fitting = [m for m in others if pick.budget_ms is None or _is_within(m, pick.budget_ms)]
    rivals = [m for m in fitting if m.role in ("baseline", "random", "variant")]
    lines = []
    alike = [m.name for m in others if m.is_student and _is_the_same(beside[m.name])]
    if alike:
        lines.append(
            f"{model.name} is right on the very same examples as {' and '.join(alike)}, as models "
            "are that have not learned the task; fine-tune longer before deciding."
        )
    if model.role != "chosen":
        best = max((m for m in fitting if m.role == "chosen"), key=_rank, default=None)
        lines.append(_short_of(model, best, beside))
    elif rivals:
        lines.append(_against(model, rivals, beside))
    elif pick.budget_ms is None:
        lines.append("No baseline was scored, so what the search is worth is not known.")
    bargains = [m for m in others if _is_bargain(model, m, beside)]
    if bargains:
        lines.append(_as_good(model, bargains))
    teacher = case.teacher
    difference = None if teacher is None else beside.get(teacher.name)
    if teacher is not None and difference and difference.verdict == "within the noise":
        lines.append(f"What sets {model.name} and {teacher.name} apart is within the noise.")
    return lines


def _is_the_same(difference: Estimate) -> bool:
    """Whether no example tells two models apart."""
    return difference.over == "examples" and difference.low == difference.high == 0


def _is_bargain(model: ModelLine, other: ModelLine, beside: Differences) -> bool:
    """Whether another student is clearly faster and not clearly worse."""
    if not (other.is_student and model.latency_ms and other.latency_ms):
        return False
    is_faster = other.latency_ms < CLEARLY_FASTER * model.latency_ms
    return is_faster and beside[other.name].verdict == "within the noise"


def _as_good(model: ModelLine, others: Sequence[ModelLine]) -> str:
    """Name the students that are faster than one without being clearly worse."""
    named = [
        f"{other.name} ({ROLE_NAMES[other.role]}), "
        f"{factor((model.latency_ms or 0) / (other.latency_ms or 1))} as fast"
        for other in others
    ]
    return f"Faster than {model.name}, and within its noise: {'; '.join(named)}."


def _points(difference: Estimate) -> str:
    return f"{abs(100 * difference.value):.1f} points"


_ENDINGS: dict[Verdict, str] = {
    "better": "which is more than noise",
    "worse": "which is more than noise",
    "within the noise": "which is within the noise",
    "not known": "and whether that is more than noise is not known",
}


def _short_of(model: ModelLine, best: ModelLine | None, beside: Differences) -> str:
    """Say how far the search's best falls short of a student that it did not choose."""
    if best is None:
        return "What the search chose has no score here."
    difference = beside[best.name]
    if difference.value == 0:
        return (
            f"The search's best, {best.name}, scores the same as the {ROLE_NAMES[model.role]} "
            f"{model.name}."
        )
    return (
        f"The search's best, {best.name}, is {_points(difference)} below the "
        f"{ROLE_NAMES[model.role]} {model.name}, {_ENDINGS[difference.verdict]}."
    )


def _against(model: ModelLine, rivals: Iterable[ModelLine], beside: Differences) -> str:
    """Set a student beside baselines and random picks in a sentence."""
    parts = [_apart(model, rival, beside[rival.name]) for rival in rivals]
    return f"{model.name} is {'; '.join(parts)}."


def _apart(model: ModelLine, rival: ModelLine, difference: Estimate) -> str:
    """Say how far a student is above or below another, which is so much faster or slower."""
    other = f"the {ROLE_NAMES[rival.role]} {rival.name}"
    if model.latency_ms and rival.latency_ms:
        speed = model.latency_ms / rival.latency_ms
        if speed > 1 / CLEARLY_FASTER:
            other += f", which is {factor(speed)} as fast"
        elif speed < CLEARLY_FASTER:
            other += f", which takes {factor(1 / speed)} as long"
        else:
            other += ", which is as fast"
    if difference.verdict == "within the noise":
        low, high = difference.low or 0.0, difference.high or 0.0
        interval = f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}"
        return f"within the noise of {other} ({100 * difference.value:+.1f}, {interval})"
    if difference.value == 0:
        return f"as good as {other}"
    side = "above" if difference.value > 0 else "below"
    sure = "how sure that is, is not known"
    if difference.low is not None and difference.high is not None:
        ends = sorted((abs(difference.low), abs(difference.high)))
        sure = f"95 % interval {100 * ends[0]:.1f} to {100 * ends[1]:.1f}"
    return f"{_points(difference)} {side} {other} ({sure})"


def unmet(models: Sequence[ModelLine], budgets: Sequence[Budget]) -> list[str]:
    """Name the budgets that no scored student keeps, once there are scores."""
    scored = [model for model in models if model.is_student and model.score is not None]
    missed = [
        about
        for budget_ms, about in sorted(set(budgets))
        if not any(_is_within(model, budget_ms) for model in scored)
    ]
    return [f"No student with a score is {' or '.join(missed)}."] if scored and missed else []


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Rank of each value, (N,); equal ones share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def rank_correlation(models: Sequence[ModelLine]) -> list[str]:
    """Say how far the search's short trainings foretold the scores, if there are enough of both."""
    known = [
        (-model.search_loss, model.score.mean)
        for model in models
        if model.search_loss is not None and model.score is not None
    ]
    if len(known) < FEWEST_RANKED or any(len(set(one)) < 2 for one in zip(*known, strict=True)):
        return []
    rho = float(np.corrcoef([_ranks(one) for one in zip(*known, strict=True)])[0, 1])
    few = " (so few say little)" if len(known) < FEW_RANKED else ""
    return [
        f"The search's losses rank the {len(known)} students that it trained as their scores do "
        f"with a Spearman correlation of {rho:.2f}{few}."
    ]
