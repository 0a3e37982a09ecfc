"""What a request for a pipeline becomes before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.pipelines.request import checked_pipeline
from kdnas.errors import RequestError, SpecError
from kdnas.reach import Reach
from kdnas.specs.pipeline import PipelineSpec, SecondStepSpec
from kdnas.testing.tiny_tasks import write_sst2

ONE_WIDTH = {"heads": [12], "hidden": [384], "intermediate": [1536], "activation": ["gelu"]}


def test_a_search_that_contradicts_itself_is_refused() -> None:
    search = {"reward": {"alpha": -0.1, "latency_price": 0.2}}
    spec = PipelineSpec.read({"search": search, "evaluation": {"suite": "glue"}}, "a pipeline")
    with pytest.raises(SpecError, match="contradict each other"):
        checked_pipeline(spec)


@pytest.mark.parametrize(
    ("choose", "limits", "expected"),
    [
        ({"latency_budgets_ms": [3, 9, 6]}, {}, (9, None)),
        ({"latency_budgets_ratio": [0.5, 0.25]}, {}, (None, 0.5)),
        ({"latency_budgets_ratio": [0.5]}, {"max_latency_ms": 20}, (20, None)),
        ({"latency_budgets_ms": [3]}, {"max_latency_ratio": 0.9}, (None, 0.9)),
        ({"latency_budgets_ms": [3]}, {"max_params_millions": 9}, (3, None)),
        ({"top": 2}, {}, (None, None)),
    ],
)
def test_the_search_keeps_to_what_a_budget_could_choose(
    choose: dict[str, Any],
    limits: dict[str, Any],
    expected: tuple[float | None, float | None],
    tmp_path: Path,
) -> None:
    write_sst2(tmp_path)
    asked = {
        "search": {"limits": limits},
        "choose": choose,
        "evaluation": {"suite": "glue", "tasks": ["SST-2"], "data_dir": str(tmp_path)},
    }
    found = checked_pipeline(PipelineSpec.read(asked, "a pipeline")).search.limits
    assert (found.max_latency_ms, found.max_latency_ratio) == expected
    assert found.max_params_millions == limits.get("max_params_millions")


@pytest.mark.parametrize(
    ("distillation", "search", "refused"),
    [
        ({"objective": "distilbert"}, {}, "distillation.objective"),
        ({"student": "copy"}, {}, "distillation.student"),
        ({"objective": "minilmv2"}, {}, None),
        ({"objective": "distilbert"}, {"objective": "distilbert"}, None),
        ({"student": "copy"}, {"student": "copy"}, None),
        ({"objective": "distilbert"}, {"space": {"axes": {"layers": [2, 3], **ONE_WIDTH}}}, None),
        (
            {"objective": "distilbert"},
            {"space": {"axes": {"layers": [2], **ONE_WIDTH, "hidden": [384, 768]}}},
            "distillation.objective",
        ),
    ],
)
def test_students_that_a_search_may_choose_can_be_distilled(
    distillation: dict[str, Any], search: dict[str, Any], refused: str | None, tmp_path: Path
) -> None:
    write_sst2(tmp_path)
    evaluation = {"suite": "glue", "tasks": ["SST-2"], "data_dir": str(tmp_path)}
    asked = {"search": search, "distillation": distillation, "evaluation": evaluation}
    spec = PipelineSpec.read(asked, "a pipeline")
    if refused is None:
        checked_pipeline(spec)
        return
    with pytest.raises(SpecError, match="differ from their teacher in layers alone") as caught:
        checked_pipeline(spec)
    assert [one.field for one in caught.value.fields] == [refused]


def test_data_out_of_reach_are_not_looked_at(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    write_sst2(outside)
    (root / "glue").symlink_to(outside)
    evaluation = {"suite": "glue", "tasks": ["SST-2"], "data_dir": str(root / "glue")}
    spec = PipelineSpec.read({"search": {}, "evaluation": evaluation}, "a pipeline")
    with pytest.raises(RequestError, match="out of the folders that requests may name"):
        checked_pipeline(spec, Reach.below([root]))


@pytest.mark.parametrize(
    ("choose", "limits", "expected"),
    [
        ({"latency_budgets_ms": ["3", 9]}, {"max_hours": 2}, {"max_latency_ms": 9, "max_hours": 2}),
        ({"latency_budgets_ratio": [0.5, 0.25]}, None, {"max_latency_ratio": 0.5}),
        ({"latency_budgets_ratio": [0.5]}, {"max_latency_ms": 20}, {"max_latency_ms": 20}),
        ({"latency_budgets_ms": [3]}, {"max_params_millions": 9}, {"max_params_millions": 9}),
    ],
)
def test_a_search_of_goal_limit_takes_the_largest_budget(
    choose: dict[str, Any], limits: dict[str, float] | None, expected: dict[str, float]
) -> None:
    search = {"goal": "limit"} | ({} if limits is None else {"limits": limits})
    asked = {"search": search, "choose": choose, "evaluation": {"suite": "glue"}}
    found = PipelineSpec.read(asked, "a pipeline").search.limits
    assert found.model_dump(exclude_none=True) == expected
    assert "limits" not in search or search["limits"] == limits  # as it was given


@pytest.mark.parametrize("choose", [{}, {"choose": {"top": 2}}])
def test_goal_limit_without_any_is_one_sentence(choose: dict[str, Any]) -> None:
    asked = {"search": {"goal": "limit"}, **choose, "evaluation": {"suite": "glue"}}
    with pytest.raises(SpecError) as raised:
        PipelineSpec.read(asked, "a pipeline")
    assert str(raised.value) == (
        "a pipeline: search.limits: goal limit asks for the lowest loss within limits, and there "
        "is none; add `limits.max_latency_ratio` (or max_latency_ms, max_params_millions), or take "
        "another goal"
    )


def second_step(step: Any, tmp_path: Path, **evaluation: Any) -> PipelineSpec:
    asked = {"suite": "glue", "data_dir": str(tmp_path), **evaluation}
    return PipelineSpec.read({"evaluation": asked, "task_distill": step}, "a pipeline")


def test_the_second_step_may_be_a_word(tmp_path: Path) -> None:
    write_sst2(tmp_path)
    spec = checked_pipeline(second_step("vanilla-kd", tmp_path))
    assert spec.task_distill == SecondStepSpec(method="vanilla-kd")
    assert spec == second_step({"method": "vanilla-kd"}, tmp_path, tasks=["SST-2"])


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("vanila-kd", "not 'vanila-kd'; did you mean 'vanilla-kd'"),
        ("universal-kd-ca", "with them it is universal-kd-il: take that"),
        ({"epochs": 3}, "task_distill.method: is missing"),
        ({"method": "pkd", "beta": 2}, "task_distill.beta: give a number from 0 to 1, not 2"),
        ({"method": "pkd", "seeds": 2}, "unknown key 'task_distill.seeds'"),
    ],
)
def test_a_second_step_that_cannot_be_is_refused(step: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        second_step(step, tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_second_step_with_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"text": ["a"], "label": ["O"]}\n', "utf-8")
    data = {"suite": "own", "data_dir": str(tmp_path / "words.jsonl"), "own": {"kind": "tagging"}}
    spec = second_step("vanilla-kd", tmp_path, **data)
    with pytest.raises(SpecError) as raised:
        checked_pipeline(spec)
    assert str(raised.value) == (
        "task_distill has nothing to do: no classification or regression is learned in words; "
        "leave it out, or evaluate other tasks"
    )


@pytest.mark.parametrize("choose", [{"latency_budgets_ms": ["six"]}, {"top": 1, "best": 2}, 0.5])
def test_a_wrong_choice_is_told_at_its_place(choose: Any) -> None:
    asked = {"search": {"goal": "limit"}, "choose": choose, "evaluation": {"suite": "glue"}}
    with pytest.raises(SpecError, match="choose"):
        PipelineSpec.read(asked, "a pipeline")
