"""Which students a pipeline distils, and what it compares them with."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from api.pipelines.choice import Choice, choose
from kdnas.architecture import Architecture
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import (
    ExploredState,
    LatencyEntry,
    LatencyProfile,
    LatencyTable,
    Losses,
    SearchFacts,
)
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.pipeline import PipelineSpec

SPACE = SearchSpace((1, 3, 6), (6, 12), (192, 384), (768, 1536), ("gelu",))
TEACHER = Architecture.parse("6,12,384,1536,gelu")
EMBEDDING = EmbeddingShape(vocab_size=1000)
FACTS = SearchFacts(
    teacher={axis: getattr(TEACHER, axis) for axis in AXES},
    embedding=asdict(EMBEDDING),
    axes={axis: list(values) for axis, values in SPACE.axes.items()},
    head_multiple=1,
    allowed=None,
    latency_profile="p",
    family="f",
    teacher_fingerprint="t",
    teacher_ms=10.0,
)


def explored(index: int, reward: float, loss: float, latency_ms: float) -> ExploredState:
    return ExploredState(
        candidate_id=f"c{index}",
        index=index,
        architecture=str(SPACE[index]),
        source="controller",
        episode=1,
        predicted_reward=None,
        reward=reward,
        losses=Losses(loss, loss, loss, loss),
        latency_ms=latency_ms,
        latency_ratio=latency_ms / 10,
        params_millions=1.5,
    )


STATES = [
    explored(0, 0.5, 0.6, 2.0),
    explored(5, 0.7, 0.4, 4.0),
    explored(9, 0.6, 0.2, 8.0),
]


def table(cuts: dict[int, float]) -> LatencyTable:
    """A table of nothing but the teacher's lowest layers, so many → milliseconds."""
    depths = {replace(TEACHER, layers=layers): ms for layers, ms in cuts.items()}
    entries = {str(a): LatencyEntry(a, ms, 0.0, measured=False) for a, ms in depths.items()}
    profile = LatencyProfile("cpu:made up", "pytorch-eager", 1, "float32", 32)
    return LatencyTable(profile, "f", "t", FACTS.teacher_ms, entries)


def chosen(
    facts: SearchFacts = FACTS,
    states: Any = STATES,
    latencies: LatencyTable | None = None,
    **parts: Any,
) -> Choice:
    spec = PipelineSpec.read({"evaluation": {"suite": "glue"}, **parts}, "test")
    return choose(spec, spec.search, facts, states, latencies)


def by_role(choice: Choice, role: str) -> list[str]:
    return [str(m.architecture) for m in choice.members if m.reasons[0].role == role]


def test_the_highest_rewards_the_proportions_and_a_random_pick() -> None:
    choice = chosen(choose=2)
    assert [m.reasons[0].role for m in choice.members] == [
        *("teacher", "chosen", "chosen", "baseline", "baseline", "random"),
        *["undistilled"] * 5,
    ]
    assert by_role(choice, "chosen") == [str(SPACE[5]), str(SPACE[9])]
    assert by_role(choice, "baseline") == ["3,12,384,1536,gelu", "3,12,192,768,gelu"]
    (picked,) = by_role(choice, "random")
    assert Architecture.parse(picked) in SPACE
    assert choice.num_chosen == 2
    first = choice.members[1]
    assert first.reasons[0].about == "reward no. 1"
    assert (first.figures.reward, first.figures.latency_ms) == (0.7, 4.0)
    params = choice.members[3].figures.params_millions
    assert params == count_parameters(Architecture.parse("3,12,384,1536,gelu"), EMBEDDING) / 1e6
    assert choice == chosen(choose=2)  # the same from the same rows


def test_an_architecture_with_two_reasons_is_distilled_once() -> None:
    half = SPACE.index(Architecture.parse("3,12,384,1536,gelu"))
    choice = chosen(states=[explored(half, 0.9, 0.1, 5.0)], choose=1)
    member = choice.members[1]
    assert [reason.role for reason in member.reasons] == ["chosen", "baseline"]
    assert by_role(choice, "undistilled") == [str(m.architecture) for m in choice.members[1:4]]
    assert len(set(by_role(choice, "undistilled"))) == 3


def test_every_student_is_there_undistilled_unless_that_is_switched_off() -> None:
    """Each of them may be the one to take; the search knows nothing of them as they start."""
    choice = chosen(choose=2)
    students = choice.members[1:6]
    starts = choice.members[6:]
    assert [m.architecture for m in starts] == [m.architecture for m in students]
    for student, start in zip(students, starts, strict=True):
        assert [(r.role, r.about) for r in start.reasons] == [("undistilled", "as it starts")]
        assert start.variant is None
        assert start.figures.latency_ms == student.figures.latency_ms
        assert start.figures.latency_ratio == student.figures.latency_ratio
        assert start.figures.params_millions == student.figures.params_millions
        assert (start.figures.reward, start.figures.loss_relative) == (None, None)
    without = chosen(choose=2, baselines={"undistilled": False})
    assert without.members == choice.members[:6]


@pytest.mark.parametrize(
    "way",
    [{"latency_budgets_ms": [9, 1, 3]}, {"latency_budgets_ratio": [0.9, 0.1, 0.3]}],
)
def test_the_lowest_loss_under_each_budget(way: dict[str, Any]) -> None:
    choice = chosen(choose=way)
    assert by_role(choice, "chosen") == [str(SPACE[0]), str(SPACE[9])]
    (note,) = choice.notes
    assert "explored no student within" in note
    assert "the fastest takes 2 ms" in note


def test_random_picks_are_new_and_within_the_limits() -> None:
    allowed = [0, 5, 7, 11]
    facts = SearchFacts(**{**asdict(FACTS), "allowed": allowed})
    choice = chosen(facts, choose=2, baselines={"random": 5, "proportions": []})
    picked = by_role(choice, "random")
    assert sorted(SPACE.index(Architecture.parse(p)) for p in picked) == [0, 7, 11]
    assert "3 other students" in choice.notes[0]
    other = chosen(choose=1, baselines={"random": 3, "seed": 1})
    assert by_role(other, "random") != by_role(
        chosen(choose=1, baselines={"random": 3, "seed": 2}), "random"
    )


@pytest.mark.parametrize(
    ("part", "name"), [({"objective": "distilbert"}, "distilbert"), ({"student": "copy"}, "copy")]
)
def test_a_baseline_that_cannot_be_made_is_left_out_with_a_note(
    part: dict[str, Any], name: str
) -> None:
    if "objective" in part:
        part = {"objective": {"name": "distilbert"}}
    choice = chosen(choose=1, distillation=part)
    assert by_role(choice, "baseline") == ["3,12,384,1536,gelu"]
    assert any(name in note and "0.5 of the width" in note for note in choice.notes)


def test_fewer_than_asked_for_and_none_at_all() -> None:
    few = chosen(choose=5)
    assert few.num_chosen == 3
    assert "3 are chosen instead of 5" in few.notes[0]
    none = chosen(states=[], choose=1)
    assert (none.num_chosen, len(none.members)) == (0, 1)


def test_widths_fit_the_relation_heads() -> None:
    objective = {"name": "minilmv2", "relation_heads": 32}
    choice = chosen(
        choose=1,
        distillation={"objective": objective},
        baselines={"proportions": [[1.0, 0.4]], "random": 0},
    )
    (name,) = by_role(choice, "baseline")
    assert Architecture.parse(name).hidden == 192


def test_the_teacher_in_other_forms() -> None:
    variants = [{"int8": True}, {"layers": 0.5}, {"layers": 0.45}, {"int8": True, "layers": 0.5}]
    choice = chosen(choose=1, baselines={"variants": variants, "proportions": [], "random": 0})
    teacher, int8, half, both, *_ = choice.members
    assert [m.reasons[0].about for m in (teacher, int8, half, both)] == [
        *("minilm", "minilm (int8)", "minilm (3 layers)", "minilm (3 layers, int8)")
    ]
    assert {m.reasons[0].role for m in (int8, half, both)} == {"variant"}
    assert half.variant == {"int8": False, "keep_layers": 3}
    assert teacher.figures.params_millions is not None
    assert half.figures.params_millions is not None
    assert half.figures.params_millions < teacher.figures.params_millions
    assert int8.figures.params_millions == teacher.figures.params_millions
    shallow = SearchFacts(**{**asdict(FACTS), "teacher": {**FACTS.teacher, "layers": 1}})
    alone = chosen(shallow, choose=1, baselines={"variants": [{"layers": 0.5}], "random": 0})
    assert "variant" not in {m.reasons[0].role for m in alone.members}


def test_a_cut_is_a_share_or_a_count_of_layers() -> None:
    variants = [{"layers": 1}, {"layers": 0.01}, {"layers": 5}, {"layers": 6}, {"layers": 24}]
    choice = chosen(choose=1, baselines={"variants": variants})
    kept = [m.variant["keep_layers"] for m in choice.members if m.variant is not None]
    assert kept == [1, 5]  # a share of one in a hundred is one, too, and six are all of them


def cut_latencies(choice: Choice) -> dict[int, float | None]:
    """Latencies of the teacher's cuts, by the layers that they keep."""
    forms = [m for m in choice.members if m.variant is not None]
    return {m.variant["keep_layers"]: m.figures.latency_ms for m in forms if m.variant is not None}


CUTS = {1: 2.0, 2: 3.5, 3: 5.0, 5: 8.0, 6: 9.5}


@pytest.mark.parametrize(
    ("student_ms", "cuts"),
    [
        (1.0, {1: 2.0}),
        (2.0, {1: 2.0}),  # as fast
        (2.1, {2: 3.5}),
        (5.1, {4: 6.5}),  # a depth that the table lacks
        (8.0, {5: 8.0}),
        (8.1, {}),  # every cut is faster, and the teacher is there anyway
    ],
)
def test_the_smallest_cut_that_is_not_faster(student_ms: float, cuts: dict[int, float]) -> None:
    baselines = {"proportions": [], "random": 0, "smallest_cuts": True}
    states = [explored(0, 0.5, 0.6, student_ms)]
    choice = chosen(FACTS, states, table(CUTS), choose=1, baselines=baselines)
    assert cut_latencies(choice) == pytest.approx(cuts)
    assert choice.notes == ()


def test_each_student_has_its_smallest_cut_and_no_form_is_there_twice() -> None:
    """Any student may be the one to take, also one that the search did not choose."""
    variants = [{"layers": 0.5}, {"layers": 1}]
    baselines = {"proportions": [[0.5, 1.0]], "random": 0, "variants": variants}
    asked = {"choose": 3, "baselines": baselines | {"smallest_cuts": True}}
    choice = chosen(latencies=table(CUTS), **asked)
    # Those asked for come first; the search's students take 2, 4 and 8 ms, the baseline 5.
    assert list(cut_latencies(choice)) == [3, 1, 5]
    without = chosen(latencies=table(CUTS), choose=3, baselines=baselines)
    assert list(cut_latencies(without)) == [3, 1]
    assert [m for m in choice.members if m in without.members] == list(without.members)


def test_depths_beyond_those_of_the_table_lie_on_its_line() -> None:
    baselines = {"variants": [{"layers": 1}, {"layers": 5}], "proportions": [], "random": 0}
    choice = chosen(latencies=table({2: 4.0, 3: 5.5}), choose=1, baselines=baselines)
    assert cut_latencies(choice) == pytest.approx({1: 2.5, 5: 8.5})  # the teacher takes 10 ms


@pytest.mark.parametrize("latencies", [None, table({}), table({6: 9.5})])
def test_a_table_without_the_cuts_of_the_teacher_is_told(latencies: LatencyTable | None) -> None:
    choice = chosen(latencies=latencies, choose=1, baselines={"smallest_cuts": True})
    assert cut_latencies(choice) == {}
    assert [note for note in choice.notes if "smallest cuts" in note] == [
        "the latency table has none of the teacher's lowest layers alone, so its smallest cuts "
        "that are not faster are not known, and none is evaluated"
    ]
