"""Which students are picked, whatever they scored."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from api.pipeline_results import Beside, Estimate, ModelLine
from api.pipeline_scores import Scoring
from api.pipeline_verdict import Case, answer, choose_picks, findings, share_text
from kdnas.evaluation.report import Cell
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
    distillation=None,
    num_evaluated=1,
    num_evaluations=1,
)


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
    picks = choose_picks([TEACHER, *students], [])
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
    picks = {pick.budget_ms: pick.name for pick in choose_picks([TEACHER, *students], asked)}
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


def case(*students: ModelLine) -> Case:
    models = [TEACHER, *students]
    return Case(models, choose_picks(models, []), [], Scoring("glue", []))


def test_a_student_that_the_search_did_not_choose_is_called_so() -> None:
    found = case(line("best", "chosen", 0.8, 5.0), line("plain", "baseline", 0.85, 5.0))
    assert answer(found).startswith("Take plain (no choice of the search, but a baseline): it ")
    assert "is 4 × as fast (5 ms instead of 20 ms)" in answer(found)
    assert "has 25 % of its size (5.0 M parameters instead of 20.0 M)" in answer(found)


def test_it_is_said_when_there_is_nothing_to_compare_with() -> None:
    assert findings(case(line("best", "chosen", 0.8, 5.0))) == [
        "No baseline was scored, so what the search is worth is not known."
    ]


def test_a_share_without_an_interval_has_none() -> None:
    assert share_text(Estimate(0.9)) == "90.0 %"
    assert share_text(Estimate(0.9, 0.8, 1.01)) == "90.0 % (95 % interval 80.0 to 101.0)"


def test_models_that_no_example_tells_apart_are_a_warning() -> None:
    best, other = line("best", "chosen", 0.5, 5.0), line("other", "random", 0.5, 6.0)
    models = [TEACHER, best, other]
    same = Estimate(0.0, 0.0, 0.0, "examples")
    beside = [Beside("best", "other", same, same.verdict, {})]
    found = Case(models, choose_picks(models, []), beside, Scoring("glue", []))
    assert answer(found).startswith("No example tells the students apart, only their speed does. ")
    assert findings(found)[0].startswith("best is right on the very same examples as other")
    assert "within the noise of the random pick other" in findings(found)[1]


def test_equal_scores_are_neither_above_nor_below() -> None:
    best, other = line("best", "chosen", 0.5, 5.0), line("other", "baseline", 0.5, 5.0)
    models = [TEACHER, best, other]
    beside = [Beside("best", "other", Estimate(0.0), "not known", {})]
    found = Case(models, choose_picks(models, []), beside, Scoring("glue", []))
    assert findings(found) == ["best is as good as the baseline other, which is as fast."]
