"""Which student of a pipeline to take, and how to say so.

Without latency budgets it is the best that the search chose, unless another student is no slower
and scores higher; with budgets it is, for each, the best student within it, whoever chose it. For
that one a faster one is taken where the two are less than a standard error apart. What is said of
it claims nothing for its distillation that it reaches undistilled, too, or might.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.pipelines.results import Beside, Estimate, ModelLine, Pick, Verdict
from api.pipelines.scores import Scoring
from api.pipelines.words import (
    CLEARLY_FASTER,
    ROLE_NAMES,
    apart_text,
    factor,
    interval_text,
    points_text,
    share_text,
    with_role,
)

FEWEST_RANKED = 3
FEW_RANKED = 8

Budget = tuple[float, str]
"""Milliseconds, and the budget in words: ``within 6 ms``."""

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
        return [model for model in students if _is_within(model, budget_ms)]
    best = max((model for model in students if model.role == "chosen"), key=_rank, default=None)
    if best is None:
        return []
    return [best, *(m for m in students if m is not best and _is_within(m, best.latency_ms))]


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
    return max((model for model in pool if _is_within(model, fastest)), key=_rank, default=best)


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

    def start_of(self, student: ModelLine) -> ModelLine | None:
        """Return a student as it starts, undistilled, if that has a score."""
        return next(
            (
                model
                for model in self.models
                if model.role == "undistilled"
                and model.architecture == student.architecture
                and model.score is not None
            ),
            None,
        )

    def differences(self, name: str) -> Differences:
        """Return how far a student to take is above each other model with a score."""
        return {one.other: one.difference for one in self.beside if one.model == name}


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
        verb = "retains" if _gained(model) else "reaches"
        said = f"{verb} {share} of {teacher.name}'s {name} score ({score})"
    parts = [part for part in (said, _speed(model, teacher), _size(model, teacher)) if part]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _gained(model: ModelLine) -> bool:
    """Whether a student is clearly above itself undistilled."""
    return model.gained is not None and model.gained.verdict == "better"


def _earned(model: ModelLine, case: Case) -> str:
    """Say in a sentence what a student owes to its distillation, or that it is not known."""
    start, gained = case.start_of(model), model.gained
    if start is None or gained is None:
        unknown = f"It is not known whether {model.name} owes any of its score to distillation"
        return f"{unknown}: it has no score undistilled."
    before = f"undistilled it scores {_score(start)}"
    if gained.verdict == "better":
        said = f"owes {points_text(gained)} of its score to distillation ({interval_text(gained)})"
        return f"{model.name} {said}: {before}."
    if gained.verdict == "worse":
        more = f"{points_text(gained)} more ({interval_text(gained)})"
        return f"{model.name} does not owe its score to distillation: {before}, {more}."
    apart = f"the difference of {100 * gained.value:+.1f} points"
    sure = f"is within the noise ({interval_text(gained)})"
    if gained.verdict == "not known":
        sure = "may be noise, which is not known"
    unshown = f"It is not shown that {model.name} owes any of its score to distillation"
    return f"{unshown}: {before}, and {apart} {sure}."


def _outdone(model: ModelLine, case: Case) -> str:
    """Say so if something else that is no slower is clearly better than a student."""
    other = _best_no_slower(model, case)
    if other is None:
        return ""
    difference = case.differences(model.name)[other.name]
    if difference.verdict != "worse":
        return ""
    named = with_role(other)
    more = f"{points_text(difference)} more ({interval_text(difference)})"
    return f"{named[:1].upper()}{named[1:]} is no slower and scores {more}."


def _best_no_slower(model: ModelLine, case: Case) -> ModelLine | None:
    """Return the best other model with a score that is no slower, but for the student itself."""
    known, start = case.differences(model.name), case.start_of(model)
    others = [
        other
        for other in case.models
        if other.name in known and other is not start and _is_within(other, model.latency_ms)
    ]
    return max(others, key=_rank, default=None)


def _smallest_cut(model: ModelLine, case: Case) -> ModelLine | None:
    """Return the scored cut of the teacher of the fewest layers that is not faster."""
    known = case.differences(model.name)
    cuts = [
        other
        for other in case.models
        if other.kept_layers is not None
        and other.name in known
        and other.latency_ms is not None
        and model.latency_ms is not None
        and other.latency_ms >= model.latency_ms
    ]
    return min(cuts, key=lambda cut: (cut.kept_layers or 0, cut.latency_ms or 0.0), default=None)


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


def findings(case: Case) -> list[str]:
    """Say what else to know before deciding: whether searching paid, and what comes close."""
    said: list[str] = []
    for pick in case.picks:
        head = f"{pick.about[:1].upper()}{pick.about[1:]}: " if pick.about else ""
        said += [head + line for line in _of_pick(pick, case)]
    return said


def _of_pick(pick: Pick, case: Case) -> list[str]:
    model = case.named(pick.name)
    beside = case.differences(pick.name)
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
    higher = max(_pool(case.models, pick.budget_ms), key=_rank)
    if higher.name in beside and _is_clearly_faster(model, higher):
        lines.append(_taken_for(model, higher, beside[higher.name]))
    if model.role != "chosen":
        best = max((m for m in fitting if m.role == "chosen"), key=_rank, default=None)
        lines.append(_short_of(model, best, beside))
    elif rivals:
        lines.append(_against(model, rivals, beside))
    elif pick.budget_ms is None:
        lines.append("No baseline was scored, so what the search is worth is not known.")
    cut, rival = _smallest_cut(model, case), _best_no_slower(model, case)
    if cut is not None:
        lines.append(
            f"Beside the smallest scored cut of the teacher that is not faster, {model.name} is "
            f"{apart_text(model, cut, beside[cut.name])}."
        )
    if rival is not None:
        lines.append(
            f"Beside the best of all else that is no slower, {model.name} is "
            f"{apart_text(model, rival, beside[rival.name])}."
        )
    bargains = [m for m in others if _is_bargain(model, m, beside)]
    if bargains:
        lines.append(_as_good(model, bargains))
    teacher = case.teacher
    difference = None if teacher is None else beside.get(teacher.name)
    if teacher is not None and difference and difference.verdict == "within the noise":
        lines.append(f"What sets {model.name} and {teacher.name} apart is within the noise.")
    return lines


def _taken_for(model: ModelLine, higher: ModelLine, difference: Estimate) -> str:
    """Say for which slower student of a higher score one is taken."""
    longer = factor((higher.latency_ms or 0.0) / (model.latency_ms or 1.0))
    return (
        f"{model.name} is taken for {with_role(higher)}, which scores {points_text(difference)} "
        f"more, less than a standard error, and takes {longer} as long."
    )


def _is_the_same(difference: Estimate) -> bool:
    """Whether no example tells two models apart."""
    return difference.over == "examples" and difference.low == difference.high == 0


def _is_bargain(model: ModelLine, other: ModelLine, beside: Differences) -> bool:
    """Whether another student is clearly faster and not clearly worse."""
    is_faster = other.is_student and _is_clearly_faster(other, model)
    return is_faster and beside[other.name].verdict == "within the noise"


def _as_good(model: ModelLine, others: Sequence[ModelLine]) -> str:
    """Name the students that are faster than one without being clearly worse."""
    named = [
        f"{other.name} ({ROLE_NAMES[other.role]}), "
        f"{factor((model.latency_ms or 0) / (other.latency_ms or 1))} as fast"
        for other in others
    ]
    return f"Faster than {model.name}, and within its noise: {'; '.join(named)}."


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
        f"The search's best, {best.name}, is {points_text(difference)} below the "
        f"{ROLE_NAMES[model.role]} {model.name}, {_ENDINGS[difference.verdict]}."
    )


def _against(model: ModelLine, rivals: Iterable[ModelLine], beside: Differences) -> str:
    """Set a student beside baselines and random picks in a sentence."""
    parts = [apart_text(model, rival, beside[rival.name]) for rival in rivals]
    return f"{model.name} is {'; '.join(parts)}."


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
