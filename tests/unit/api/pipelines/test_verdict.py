"""Which students are picked, whatever they scored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pipelines.results import Beside, Estimate, ModelLine
from api.pipelines.scores import Scoring
from api.pipelines.verdict import Case, answer, choose_picks, findings
from kdnas.evaluation.reports.report import Cell
from kdnas.records import MemberRole

TEACHER = ModelLine(
    id="0",
    name="the-teacher",
    role="teacher",
    reasons=(),
    architecture=None,
    reward=None,
    search_loss=None,
    held_out_loss=None,
    params_millions=20.0,
    latency_ms=20.0,
    latency_ratio=1.0,
    scores={},
    score=Cell(0.9, None, 1),
    retained=None,
    gained=None,
    kept_layers=None,
    distillation=None,
    num_evaluated=1,
    num_evaluations=1,
)

NOTHING_KEPT = Scoring("glue", [])
"""Knows no difference, as where predictions are elsewhere and there is one seed."""


class Known(Scoring):
    """Knows how far models are apart, with a standard error of one point."""

    def __init__(self, scores: dict[str, float]) -> None:
        super().__init__("glue", [])
        self._scores = scores

    def difference(self, name: str, other: str) -> Estimate:
        value = self._scores[name] - self._scores[other]
        return Estimate(value, value - 0.0196, value + 0.0196, "examples")


def line(name: str, role: MemberRole, score: float | None, latency_ms: float | None) -> ModelLine:
    return replace(
        TEACHER,
        name=name,
        role=role,
        score=None if score is None else Cell(score, None, 1),
        latency_ms=latency_ms,
        latency_ratio=None if latency_ms is None else latency_ms / 20,
        retained=None if score is None else Estimate(score / 0.9),
        params_millions=5.0,
    )


LINES = st.lists(
    st.tuples(
        st.sampled_from(["chosen", "baseline", "random"]),
        st.none() | st.integers(1, 9).map(lambda n: n / 10),
        st.none() | st.integers(1, 9).map(float),
    ),
    max_size=8,
).map(lambda rows: [line(str(i), *row) for i, row in enumerate(rows)])


@given(LINES)
def test_no_student_is_better_and_no_slower_than_the_pick(students: list[ModelLine]) -> None:
    picks = choose_picks([TEACHER, *students], [], NOTHING_KEPT)
    chosen = [m for m in students if m.role == "chosen" and m.score is not None]
    assert len(picks) == min(1, len(chosen))
    for pick in picks:
        taken = next(m for m in students if m.name == pick.name)
        assert taken.score is not None
        best = max(m.score.mean for m in chosen if m.score)
        assert taken.score.mean >= best
        for other in students:
            if other.score is None or other.latency_ms is None or taken.latency_ms is None:
                continue
            assert not (
                other.score.mean > taken.score.mean and other.latency_ms <= taken.latency_ms
            )


@given(LINES, st.lists(st.integers(0, 10), max_size=4))
def test_each_budget_gets_the_best_within_it(students: list[ModelLine], budgets: list[int]) -> None:
    asked = [(float(ms), f"within {ms} ms") for ms in budgets]
    picks = {
        pick.budget_ms: pick.name
        for pick in choose_picks([TEACHER, *students], asked, NOTHING_KEPT)
    }
    if not budgets:
        return
    for ms in budgets:
        within = {
            m.name: m.score.mean
            for m in students
            if m.score is not None and m.latency_ms is not None and m.latency_ms <= ms
        }
        assert (float(ms) in picks) == bool(within)
        if within:
            assert within[picks[float(ms)]] == max(within.values())


@given(LINES, st.lists(st.integers(0, 10), max_size=2))
def test_the_pick_is_not_clearly_worse_and_as_fast_as_can_be(
    students: list[ModelLine], budgets: list[int]
) -> None:
    scores = {m.name: m.score.mean / 10 for m in students if m.score}
    asked = [(float(ms), f"within {ms} ms") for ms in budgets]
    best = choose_picks(students, asked, NOTHING_KEPT)
    taken = choose_picks(students, asked, Known(scores))
    assert [pick.budget_ms for pick in taken] == [pick.budget_ms for pick in best]
    for pick, top in zip(taken, best, strict=True):
        model, rival = (next(m for m in students if m.name == p.name) for p in (pick, top))
        assert model == rival or (
            scores[rival.name] - scores[model.name] <= 0.01 + 1e-9
            and (model.latency_ms or 0) < (rival.latency_ms or 0)
        )


@pytest.mark.parametrize(
    ("score", "latency_ms", "taken"),
    [(0.795, 4.0, "quick"), (0.785, 4.0, "best"), (0.795, 4.9, "best"), (0.795, None, "best")],
)
def test_a_faster_one_is_taken_within_a_standard_error(
    score: float, latency_ms: float | None, taken: str
) -> None:
    best, quick = line("best", "baseline", 0.8, 5.0), line("quick", "chosen", score, latency_ms)
    models, scoring = [TEACHER, best, quick], Known({"best": 0.8, "quick": score})
    picks = choose_picks(models, [(6.0, "within 6 ms")], scoring)
    assert [pick.name for pick in picks] == [taken]


def test_it_is_said_for_whom_a_faster_one_is_taken() -> None:
    best, quick = line("best", "baseline", 0.8, 6.0), line("quick", "chosen", 0.795, 4.0)
    models, scoring = [TEACHER, best, quick], Known({"best": 0.8, "quick": 0.795})
    picks = choose_picks(models, [(6.0, "within 6 ms")], scoring)
    difference = scoring.difference("quick", "best")
    beside = [Beside("quick", "best", difference, difference.verdict, {})]
    found = Case(models, picks, beside, scoring)
    assert answer(found).startswith("Within 6 ms take quick, which reaches ")
    assert findings(found)[0] == (
        "Within 6 ms: quick is taken for the baseline best, which scores 0.5 points more, less "
        "than a standard error, and takes 1.5 × as long."
    )


def case(*students: ModelLine) -> Case:
    models = [TEACHER, *students]
    return Case(models, choose_picks(models, [], NOTHING_KEPT), [], NOTHING_KEPT)


def test_a_student_that_the_search_did_not_choose_is_called_so() -> None:
    found = case(line("best", "chosen", 0.8, 5.0), line("plain", "baseline", 0.85, 5.0))
    assert answer(found).startswith("Take plain (no choice of the search, but a baseline): it ")
    assert "is 4 × as fast (5 ms instead of 20 ms)" in answer(found)
    assert "has 25 % of its size (5.0 M parameters instead of 20.0 M)" in answer(found)


def test_it_is_said_when_there_is_nothing_to_compare_with() -> None:
    found = case(line("best", "chosen", 0.8, 5.0))
    assert findings(found) == ["No baseline was scored, so what the search is worth is not known."]
    assert answer(found).startswith("Take best: it reaches 88.9 % of the-teacher's")
    assert answer(found).endswith(
        "It is not known whether best owes any of its score to distillation: it has no score "
        "undistilled."
    )


def test_a_share_without_an_interval_has_none() -> None:
    assert Estimate(0.9).as_share("95 % interval ") == "90.0 %"
    known = Estimate(0.9, 0.8, 1.01)
    assert known.as_share() == "90.0 % (80.0 to 101.0)"
    assert known.as_share("95 % interval ") == "90.0 % (95 % interval 80.0 to 101.0)"


def test_models_that_no_example_tells_apart_are_a_warning() -> None:
    best, other = line("best", "chosen", 0.5, 5.0), line("other", "random", 0.5, 6.0)
    models = [TEACHER, best, other]
    same = Estimate(0.0, 0.0, 0.0, "examples")
    beside = [Beside("best", "other", same, same.verdict, {})]
    found = Case(models, choose_picks(models, [], NOTHING_KEPT), beside, NOTHING_KEPT)
    assert answer(found).startswith("No example tells the students apart, only their speed does. ")
    assert findings(found)[0].startswith("best is right on the very same examples as other")
    assert "within the noise of the random pick other" in findings(found)[1]


def test_equal_scores_are_neither_above_nor_below() -> None:
    best, other = line("best", "chosen", 0.5, 5.0), line("other", "baseline", 0.5, 5.0)
    models = [TEACHER, best, other]
    beside = [Beside("best", "other", Estimate(0.0), "not known", {})]
    found = Case(models, choose_picks(models, [], NOTHING_KEPT), beside, NOTHING_KEPT)
    as_good = "as good as the baseline other, which is as fast."
    assert findings(found) == [
        f"best is {as_good}",
        f"Beside the best of all else that is no slower, best is {as_good}",
    ]


NAME = "2,2,192,1024,relu"


def compared(
    gained: Estimate | None, *others: tuple[ModelLine, Estimate], latency_ms: float = 5.0
) -> Case:
    """A chosen student beside itself undistilled, and beside others.

    Args:
        gained: by distilling; None where the undistilled one has no score.
        others: with how far the student is above each.
        latency_ms: of the student.
    """
    student = replace(line(NAME, "chosen", 0.781, latency_ms), architecture=NAME, gained=gained)
    score = None if gained is None else 0.781 - gained.value
    start = replace(
        line(f"{NAME} undistilled", "undistilled", score, latency_ms), architecture=NAME
    )
    models = [TEACHER, student, start, *(other for other, _ in others)]
    known = [(other.name, difference) for other, difference in others]
    if gained is not None:
        known.append((start.name, gained))
    beside = [Beside(NAME, name, one, one.verdict, {}) for name, one in known]
    return Case(models, choose_picks(models, [], NOTHING_KEPT), beside, NOTHING_KEPT)


@pytest.mark.parametrize(
    ("gained", "verb", "sentence"),
    [
        (
            Estimate(0.032, 0.010, 0.054, "examples"),
            "retains",
            f"{NAME} owes 3.2 points of its score to distillation (95 % interval 1.0 to 5.4): "
            "undistilled it scores 74.9.",
        ),
        (
            Estimate(-0.013, -0.030, 0.004, "examples"),
            "reaches",
            f"It is not shown that {NAME} owes any of its score to distillation: undistilled it "
            "scores 79.4, and the difference of -1.3 points is within the noise (95 % interval "
            "-3.0 to +0.4).",
        ),
        (
            Estimate(-0.013, -0.024, -0.002, "examples"),
            "reaches",
            f"{NAME} does not owe its score to distillation: undistilled it scores 79.4, 1.3 "
            "points more (95 % interval 0.2 to 2.4).",
        ),
        (
            Estimate(0.02),
            "reaches",
            f"It is not shown that {NAME} owes any of its score to distillation: undistilled it "
            "scores 76.1, and the difference of +2.0 points may be noise, which is not known.",
        ),
        (
            None,
            "reaches",
            f"It is not known whether {NAME} owes any of its score to distillation: it has no "
            "score undistilled.",
        ),
    ],
    ids=["better", "within the noise", "worse", "not known", "not scored"],
)
def test_nothing_is_put_down_to_distillation_that_it_did_not_earn(
    gained: Estimate | None, verb: str, sentence: str
) -> None:
    found = compared(gained)
    said = answer(found)
    assert said.startswith(f"Take {NAME}: it {verb} 86.8 % of the-teacher's")
    assert said.endswith(sentence)
    assert said.count("distillation") == 1


def test_each_student_to_take_has_its_own_sentence() -> None:
    earned, not_earned = Estimate(0.1, 0.05, 0.15), Estimate(0.0, -0.05, 0.05)
    models, beside = [TEACHER], []
    for name, ms, gained in (("fast", 2.0, not_earned), ("good", 8.0, earned)):
        score = 0.5 + ms / 100
        student = replace(line(name, "chosen", score, ms), architecture=name, gained=gained)
        start = line(f"{name} undistilled", "undistilled", score - gained.value, ms)
        models += [student, replace(start, architecture=name)]
        beside.append(Beside(name, start.name, gained, gained.verdict, {}))
    budgets = [(float(ms), f"within {ms} ms") for ms in (2, 3, 9)]
    found = Case(models, choose_picks(models, budgets, NOTHING_KEPT), beside, NOTHING_KEPT)
    said = answer(found)
    assert said.count("It is not shown that fast owes any of its score") == 1
    assert "good owes 10.0 points of its score to distillation (95 % interval 5.0 to 15.0)" in said
    assert "take fast, which reaches" in said
    assert "good, which retains" in said


def test_the_smallest_scored_cut_of_the_teacher_that_is_not_faster_is_named() -> None:
    def cut(layers: int, score: float, latency_ms: float) -> ModelLine:
        return replace(
            line(f"the-teacher ({layers} layers)", "variant", score, latency_ms),
            kept_layers=layers,
        )

    difference = Estimate(-0.015, -0.039, 0.009, "examples")
    int8 = line("the-teacher (int8)", "variant", 0.88, 12.0)
    faster, same, slower = cut(1, 0.7, 3.0), cut(2, 0.796, 5.0), cut(3, 0.82, 8.0)
    cuts = [(one, difference) for one in (int8, slower, same, faster)]
    said = [line for line in findings(compared(None, *cuts)) if "smallest scored cut" in line]
    assert said == [
        f"Beside the smallest scored cut of the teacher that is not faster, {NAME} is within the "
        "noise of the undistilled teacher the-teacher (2 layers), which is as fast (-1.5, 95 % "
        "interval -3.9 to +0.9)."
    ]
    only_faster = compared(None, (faster, difference), (int8, difference))
    assert not any("smallest scored cut" in line for line in findings(only_faster))


def test_what_the_same_latency_buys_otherwise_is_named() -> None:
    gained = Estimate(0.0, -0.01, 0.01, "examples")
    worse = replace(line("1,2,96,96,relu undistilled", "undistilled", 0.79, 2.0), architecture="w")
    slower = line("slow", "variant", 0.89, 9.0)
    alike = Estimate(-0.009, -0.02, 0.002, "examples")
    found = compared(gained, (worse, alike), (slower, Estimate(-0.1, -0.2, -0.05)))
    assert (
        f"Beside the best of all else that is no slower, {NAME} is within the noise of the "
        "undistilled w, which is 2.5 × as fast (-0.9, 95 % interval -2.0 to +0.2)."
    ) in findings(found)
    assert "is no slower and scores" not in answer(found)
    clearly = compared(gained, (worse, Estimate(-0.009, -0.015, -0.003, "examples")))
    assert answer(clearly).endswith(
        "The undistilled w is no slower and scores 0.9 points more (95 % interval 0.3 to 1.5)."
    )
    alone = compared(gained, (slower, alike))
    assert not any("no slower" in line for line in findings(alone))


def test_another_choice_of_the_search_is_called_so() -> None:
    other = line("2,3,192,384,relu", "chosen", 0.7, 3.0)
    found = compared(None, (other, Estimate(0.081, 0.05, 0.11)))
    assert f"no slower, {NAME} is 8.1 points above the search's {other.name}, which is" in " ".join(
        findings(found)
    )
