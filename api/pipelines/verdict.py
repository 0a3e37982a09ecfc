"""Which student of a pipeline to take, and how to say so.

Without latency budgets it is the best that the search chose, unless another student is no slower
and scores higher; with budgets it is, for each, the best student within it, whoever chose it. For
that one a faster one is taken where the two are less than a standard error apart. What is said of
it claims nothing for its distillation that it reaches undistilled, too, or might.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.pipelines.choice import Budget
from api.pipelines.results import (
    ENDINGS,
    ROLE_NAMES,
    Beside,
    Estimate,
    ModelLine,
    Pick,
    Verdict,
)
from api.pipelines.scores import Scoring

CLEARLY_FASTER = 0.95
"""Share of another student's latency below which a difference in speed is worth a word."""
FEWEST_RANKED = 3
FEW_RANKED = 8

Differences = Mapping[str, Estimate]
"""Other model → how much better the student to take is."""


def choose_picks(
    models: Sequence[ModelLine], budgets: Sequence[Budget], scoring: Scoring
) -> tuple[Pick, ...]:
    """Choose the students to take among those with a score.

    Args:
        models: of the pipeline.
        budgets: that were asked for; a budget that nothing keeps gets no pick.
        scoring: how models are compared.
    """
    asked: Sequence[tuple[float | None, str]] = sorted(set(budgets)) or [(None, "")]
    return tuple(
        Pick(_fastest_alike(pool, scoring).name, budget_ms, about)
        for budget_ms, about in asked
        if (pool := _pool(models, budget_ms))
    )


def _pool(models: Sequence[ModelLine], budget_ms: float | None) -> list[ModelLine]:
    """The students among whom the one to take is chosen."""
    students = [model for model in models if model.is_student and model.score is not None]
    if budget_ms is not None:
        return [model for model in students if model.is_within(budget_ms)]
    best = max((model for model in students if model.role == "chosen"), key=_rank, default=None)
    if best is None:
        return []
    return [best, *(m for m in students if m is not best and m.is_within(best.latency_ms))]


def _fastest_alike(pool: Sequence[ModelLine], scoring: Scoring) -> ModelLine:
    """The best student, or the fastest that is less than a standard error below it.

    That is the one-standard-error rule (Breiman et al. 1984, *Classification and Regression
    Trees*, §3.4.3): among what chance may have put in this order the least costly is taken.
    """
    best = max(pool, key=_rank)
    alike = [
        model
        for model in pool
        if _is_clearly_faster(model, best) and _is_alike(scoring.difference(best.name, model.name))
    ]
    fastest = min((model.latency_ms or 0.0 for model in alike), default=None)
    return max((model for model in pool if model.is_within(fastest)), key=_rank, default=best)


def _is_alike(difference: Estimate | None) -> bool:
    """Whether a difference is known to be less than a standard error, or none."""
    error = None if difference is None else difference.standard_error
    return difference is not None and error is not None and difference.value <= error


def _is_clearly_faster(model: ModelLine, other: ModelLine) -> bool:
    """Whether a model is so much faster than another that it is worth a word."""
    if not (model.latency_ms and other.latency_ms):
        return False
    return model.latency_ms < CLEARLY_FASTER * other.latency_ms


def _rank(model: ModelLine) -> tuple[float, float]:
    """The higher the better: by score, and of equal ones the faster."""
    score = -1.0 if model.score is None else model.score.mean
    return score, -(model.latency_ms or 0.0)


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

    def start_of(self, student: ModelLine) -> ModelLine | None:
        """Return a student as it starts, undistilled, if that has a score."""
        starts = (m for m in self.models if m.role == "undistilled" and m.score is not None)
        return next((m for m in starts if m.architecture == student.architecture), None)

    def differences(self, name: str) -> Differences:
        """Return how far a student to take is above each other model with a score."""
        return {one.other: one.difference for one in self.beside if one.model == name}

    def others(self, name: str) -> list[ModelLine]:
        """Return the other models with a score, beside a student to take."""
        known = self.differences(name)
        return [model for model in self.models if model.name in known]


def answer(case: Case) -> str:
    """Say which student to take, or for each budget which, and what it costs and brings.

    Then a sentence on each says what of that its distillation earned, and another one if something
    that is no slower is clearly better.
    """
    taken = [case.named(name) for name in dict.fromkeys(pick.name for pick in case.picks)]
    more = [said for model in taken for said in (_earned(model, case), _outdone(model, case))]
    return " ".join([_take(case), *filter(None, more)])


def _take(case: Case) -> str:
    head = "No example tells the students apart, only their speed does. " if _all_same(case) else ""
    if len(case.picks) == 1 and not case.picks[0].about:
        model = case.named(case.picks[0].name)
        return f"{head}Take {_called(model)}: it {_merits(model, case)}."
    taken = [(pick.about, case.named(pick.name)) for pick in case.picks]
    parts = [
        f"{about} {'' if number else 'take '}{_called(model)}, which {_merits(model, case)}"
        for number, (about, model) in enumerate(taken)
    ]
    return f"{head}{_sentence('; '.join(parts))}."


def _sentence(text: str) -> str:
    """Begin with a capital, whatever comes after it."""
    return f"{text[:1].upper()}{text[1:]}"


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
        share = model.retained.as_share("95 % interval ")
        score = f"{score} instead of {_score(teacher)}"
        verb = "reaches"  # unless it is clearly above itself undistilled
        if model.gained is not None and model.gained.verdict == "better":
            verb = "retains"
        said = f"{verb} {share} of {teacher.name}'s {name} score ({score})"
    parts = [part for part in (said, _speed(model, teacher), _size(model, teacher)) if part]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _earned(model: ModelLine, case: Case) -> str:
    """Say in a sentence what a student owes to its distillation, or that it is not known."""
    start, gained = case.start_of(model), model.gained
    if start is None or gained is None:
        unknown = f"It is not known whether {model.name} owes any of its score to distillation"
        return f"{unknown}: it has no score undistilled."
    before = f"undistilled it scores {_score(start)}"
    said = f"{gained.points} of its score to distillation ({gained.interval}): {before}"
    more = f"its score to distillation: {before}, {gained.points} more ({gained.interval})"
    shown = f"It is not shown that {model.name} owes any of its score to distillation: {before}"
    apart = f"{shown}, and the difference of {100 * gained.value:+.1f} points"
    sentences: Mapping[Verdict, str] = {
        "better": f"{model.name} owes {said}.",
        "worse": f"{model.name} does not owe {more}.",
        "within the noise": f"{apart} is within the noise ({gained.interval}).",
        "not known": f"{apart} may be noise, which is not known.",
    }
    return sentences[gained.verdict]


def _outdone(model: ModelLine, case: Case) -> str:
    """Say so if something else that is no slower is clearly better than a student."""
    other = _best_no_slower(model, case)
    difference = None if other is None else case.differences(model.name)[other.name]
    if other is None or difference is None or difference.verdict != "worse":
        return ""
    more = f"{difference.points} more ({difference.interval})"
    return _sentence(f"{other.with_role} is no slower and scores {more}.")


def _best_no_slower(model: ModelLine, case: Case) -> ModelLine | None:
    """Return the best other model with a score that is no slower, but for the student itself."""
    start = case.start_of(model)
    others = [m for m in case.others(model.name) if m.is_within(model.latency_ms)]
    return max((other for other in others if other is not start), key=_rank, default=None)


def _smallest_cut(model: ModelLine, case: Case) -> ModelLine | None:
    """Return the scored cut of the teacher of the fewest layers that is not faster."""
    cuts = [
        other
        for other in case.others(model.name)
        if other.kept_layers is not None and model.is_within(other.latency_ms)
    ]
    return min(cuts, key=lambda cut: (cut.kept_layers or 0, cut.latency_ms or 0.0), default=None)


def _score(model: ModelLine) -> str:
    return "" if model.score is None else f"{100 * model.score.mean:.1f}"


def _speed(model: ModelLine, teacher: ModelLine | None) -> str:
    if not model.latency_ratio or model.latency_ms is None:
        return ""
    times = f"{model.latency_ms:.3g} ms"
    if teacher is not None and teacher.latency_ms:
        times += f" instead of {teacher.latency_ms:.3g} ms"
    return f"is {_factor(1 / model.latency_ratio)} as fast ({times})"


def _size(model: ModelLine, teacher: ModelLine | None) -> str:
    if model.params_millions is None:
        return ""
    text = f"{model.params_millions:.1f} M parameters"
    if teacher is None or not teacher.params_millions:
        return f"has {text}"
    share = 100 * model.params_millions / teacher.params_millions
    return f"has {share:.0f} % of its size ({text} instead of {teacher.params_millions:.1f} M)"


def findings(case: Case) -> list[str]:
    """Say what else to know before deciding: whether searching paid, and what comes close."""
    return [
        f"{_sentence(pick.about)}: {line}" if pick.about else line
        for pick in case.picks
        for line in _of_pick(pick, case)
    ]


def _of_pick(pick: Pick, case: Case) -> list[str]:
    model, teacher = case.named(pick.name), case.teacher
    beside, others = case.differences(pick.name), case.others(pick.name)
    fitting = [m for m in others if pick.budget_ms is None or m.is_within(pick.budget_ms)]
    alike = [m.name for m in others if m.is_student and _is_the_same(beside[m.name])]
    higher = max(_pool(case.models, pick.budget_ms), key=_rank)
    bargains = [
        f"{m.name} ({ROLE_NAMES[m.role]}), {_times(model, m)} as fast"
        for m in others
        if m.is_student
        and _is_clearly_faster(m, model)
        and beside[m.name].verdict == "within the noise"
    ]
    rivals = {
        "the smallest scored cut of the teacher that is not faster": _smallest_cut(model, case),
        "the best of all else that is no slower": _best_no_slower(model, case),
    }
    lines = [
        f"{model.name} is right on the very same examples as {' and '.join(alike)}, as models are "
        "that have not learned the task; fine-tune longer before deciding."
        if alike
        else "",
        f"{model.name} is taken for {higher.with_role}, which scores {beside[higher.name].points} "
        f"more, less than a standard error, and takes {_times(higher, model)} as long."
        if higher.name in beside and _is_clearly_faster(model, higher)
        else "",
        _worth(model, fitting, beside, has_budget=pick.budget_ms is not None),
        *(
            f"Beside {said}, {model.name} is {_apart(model, rival, beside[rival.name])}."
            for said, rival in rivals.items()
            if rival is not None
        ),
        f"Faster than {model.name}, and within its noise: {'; '.join(bargains)}."
        if bargains
        else "",
        f"What sets {model.name} and {teacher.name} apart is within the noise."
        if teacher is not None
        and teacher.name in beside
        and beside[teacher.name].verdict == "within the noise"
        else "",
    ]
    return [line for line in lines if line]


def _worth(
    model: ModelLine, fitting: Sequence[ModelLine], beside: Differences, *, has_budget: bool
) -> str:
    """Say what searching was worth, as far as what keeps within the budget tells."""
    if model.role != "chosen":
        best = max((m for m in fitting if m.role == "chosen"), key=_rank, default=None)
        return _short_of(model, best, beside)
    rivals = [m for m in fitting if m.role in ("baseline", "random", "variant")]
    if rivals:
        parts = [_apart(model, rival, beside[rival.name]) for rival in rivals]
        return f"{model.name} is {'; '.join(parts)}."
    return "" if has_budget else "No baseline was scored, so what the search is worth is not known."


def _is_the_same(difference: Estimate) -> bool:
    """Whether no example tells two models apart."""
    return difference.over == "examples" and difference.low == difference.high == 0


def _short_of(model: ModelLine, best: ModelLine | None, beside: Differences) -> str:
    """Say how far the search's best falls short of a student that it did not choose."""
    if best is None:
        return "What the search chose has no score here."
    difference, taken = beside[best.name], f"the {ROLE_NAMES[model.role]} {model.name}"
    if difference.value == 0:
        return f"The search's best, {best.name}, scores the same as {taken}."
    ending = ENDINGS[difference.verdict]
    return f"The search's best, {best.name}, is {difference.points} below {taken}, {ending}."


def _apart(model: ModelLine, rival: ModelLine, difference: Estimate) -> str:
    """Say how far a student is above or below another, which is so much faster or slower."""
    other = rival.with_role
    if model.latency_ms and rival.latency_ms:
        speed = model.latency_ms / rival.latency_ms
        if speed > 1 / CLEARLY_FASTER:
            other += f", which is {_factor(speed)} as fast"
        elif speed < CLEARLY_FASTER:
            other += f", which takes {_factor(1 / speed)} as long"
        else:
            other += ", which is as fast"
    if difference.verdict == "within the noise":
        points = f"{100 * difference.value:+.1f}"
        return f"within the noise of {other} ({points}, {difference.interval})"
    if difference.value == 0:
        return f"as good as {other}"
    side = "above" if difference.value > 0 else "below"
    known = "how sure that is, is not known" if difference.ends is None else difference.interval
    return f"{difference.points} {side} {other} ({known})"


def _times(slower: ModelLine, faster: ModelLine) -> str:
    return _factor((slower.latency_ms or 0.0) / (faster.latency_ms or 1.0))


def _factor(value: float) -> str:
    """Write a factor: ``2.4 ×``."""
    return f"{value:.2g} ×" if value < 10 else f"{value:.0f} ×"


def unmet(models: Sequence[ModelLine], budgets: Sequence[Budget]) -> list[str]:
    """Name the budgets that no scored student keeps, once there are scores."""
    scored = [model for model in models if model.is_student and model.score is not None]
    missed = [
        about
        for budget_ms, about in sorted(set(budgets))
        if not any(model.is_within(budget_ms) for model in scored)
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
