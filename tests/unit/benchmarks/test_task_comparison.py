"""How methods of the study of distillation for one task are compared, on runs that are made up."""

from collections.abc import Callable
from types import ModuleType

import pytest
from scipy.stats import t as student_t

from kdnas.testing.study_runs import RIGHT, made_up_difference, made_up_runs


@pytest.fixture
def comparison(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("task_comparison")


def test_differences_are_of_the_same_seeds_and_teacher(comparison: ModuleType) -> None:
    one = made_up_runs(comparison, "RTE")
    found = comparison.difference(one, "universal-kd-il", one, "vanilla-kd")
    assert found is not None
    mean, low, high = found.points
    scores = {m: [one.by_method[m][s]["main"] for s in range(3)] for m in RIGHT}
    ahead = zip(scores["universal-kd-il"], scores["vanilla-kd"], strict=True)
    assert mean == pytest.approx(100 * sum(a - b for a, b in ahead) / 3)
    assert low < mean < high
    assert len(found.seeds) == 3
    assert comparison.difference(
        one, "none", made_up_runs(comparison, "other", seeds=2), "none"
    ).seeds == (0, 0)
    assert (
        comparison.difference(one, "none", made_up_runs(comparison, "other", teacher="two"), "none")
        is None
    )


def test_claims_are_looked_at_by_task_and_over_all(comparison: ModuleType) -> None:
    parts = {name: made_up_runs(comparison, name) for name in ("RTE", "CoLA", "STS-B")}
    looked = {
        one.where: one
        for one in comparison.looked_at(parts)
        if (one.claim.first, one.claim.second) == ("universal-kd-il", "vanilla-kd")
    }
    single = comparison.difference(
        parts["RTE"], "universal-kd-il", parts["RTE"], "vanilla-kd"
    ).points
    assert looked["RTE",].points == single
    assert (looked["RTE",].printed, looked["RTE",].verdict) == (2.6, "holds")
    whole = looked["RTE", "CoLA", "STS-B"]
    mean, low, high = whole.points  # of three that are the same
    assert mean == pytest.approx(single[0])
    assert single[1] < low < mean < high < single[2]
    assert whole.printed == pytest.approx((2.6 + 5.0 + 0.4) / 3)
    assert whole.fewest == 3
    del parts["CoLA"]
    assert all(len(one.where) == 1 for one in comparison.looked_at(parts))


def test_a_claim_holds_on_the_side_of_nothing_where_the_paper_has_it(
    comparison: ModuleType,
) -> None:
    def verdict(printed: float | None, centre: float, seeds: int = 3) -> str:
        known = {} if printed is None else {"RTE": printed}
        claim = comparison.Claim("a", "b", "Table 1", ("RTE",), known)
        return str(
            comparison.Looked(
                claim, ("RTE",), (made_up_difference(comparison, centre, seeds),)
            ).verdict
        )

    assert verdict(1.0, 4.0) == verdict(-1.0, -4.0) == "holds"
    assert verdict(None, 4.0) == verdict(None, -4.0) == verdict(None, 0.0) == "not in the paper"
    assert verdict(0.0, 4.0) == verdict(0.0, 0.0) == "even in the paper"
    assert verdict(1.0, -4.0) == verdict(-1.0, 4.0) == "the reverse"
    assert verdict(1.0, 1.0) == "not decided"
    assert verdict(1.0, 4.0, seeds=1) == "one seed"


def test_a_mean_of_parts_is_as_sure_as_examples_and_seeds_allow(comparison: ModuleType) -> None:
    claim = comparison.Claim("a", "b", "Table 1", ("RTE", "CoLA"), {})
    one, other = made_up_difference(comparison, 1.0, 3), made_up_difference(comparison, 3.0, 3)
    mean, low, high = comparison.Looked(claim, ("RTE", "CoLA"), (one, other)).points
    assert mean == pytest.approx(2.0)
    half = student_t.ppf(0.975, 4) * (2 * (1 / 3) / 4) ** 0.5  # of two parts with s² = 1, n = 3
    assert (high - low) / 2 == pytest.approx(half, rel=0.01)
