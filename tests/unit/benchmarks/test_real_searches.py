"""The study of real searches asks each once, and takes of each what a user would take."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas.search.hypervolume import hypervolume

FACTS = {
    "corpus_source": ["t"], "corpus_fingerprint": "f", "corpus_sequences": 2, "corpus_held_out": 1,
}  # fmt: skip


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("real_searches")


def row(architecture: str, ratio: float, loss: float) -> dict[str, Any]:
    return {"architecture": architecture, "latency_ratio": ratio, "relative_loss": loss}


ROWS = [row("b", 0.1, 0.6), row("a", 0.1, 0.6), row("c", 0.3, 0.4), row("d", 0.9, 0.1)]


def test_starts_are_read_after_all_who_must_not_know_them(study: ModuleType) -> None:
    names = [job.name for job in study.plan()]
    assert len(names) == len(set(names)) == 3 * 4 + 7
    assert names[-2:] == ["starts", "reading-only-0"]
    trained = [job.command for job in study.plan() if job.command[0] == "search"]
    assert all("--no-reuse" in command for command in trained)
    goals = [command[command.index("--goal") + 1] for command in trained]
    assert (goals.count("front"), goals.count("limit")) == (14, 4)
    assert ["--rungs" in command for command in trained].count(True) == 2


def test_the_best_within_a_latency_is_taken(study: ModuleType) -> None:
    assert study.chosen(ROWS, 0.1) == "a"
    assert study.chosen(ROWS, 0.4) == "c"
    assert study.chosen(ROWS[3:], 0.4) is None
    assert study.finals({"gp-0": ROWS, "random-0": ROWS[3:]}) == ["a", "c"]


SPEC = {
    "teacher": {"fingerprint": "teacher"},
    "corpus": {"fingerprint": "text"},
    "objective": {"name": "hs"},
    "student": {"init": "teacher"},
    "proxy": {"batch_size": 16, "dtype": "bfloat16"},
}


def test_final_trainings_are_in_groups_of_a_seed(study: ModuleType) -> None:
    names = [str(n) for n in range(study.GROUP + 1)]
    planned = list(study.final_plan(SPEC, names))
    assert [(g.context["proxy"]["seed"], len(g.architectures)) for g in planned] == [
        (seed, count) for seed in study.FINAL_SEEDS for count in (study.GROUP, 1)
    ]
    for group in planned:
        assert group.read_after == (0, study.FINAL_STEPS)
        assert group.context["proxy"]["steps"] == study.FINAL_STEPS
        assert (group.context["teacher"], group.context["corpus"]) == ("teacher", "text")
        assert group.context["dtype"] == "bfloat16"


def test_the_page_has_a_row_a_strategy(study: ModuleType) -> None:
    losses = {"a": 0.3, "c": 0.2}
    found = study.summary({"gp-0": ROWS, "gp-1": ROWS[1:], "reading-only-0": ROWS}, losses)
    assert list(found) == ["gp", "reading-only"]
    assert found["gp"]["final loss ≤ 0.4"] == [0.2, 0.2]
    whole = hypervolume([(r["relative_loss"], r["latency_ratio"]) for r in ROWS])
    assert found["gp"]["hypervolume after 60"][0] == whole
    page = study.page({**FACTS, "strategies": found, "limited": {}})
    assert "| `gp` | " in page
    assert "0.2000 (0.2000 to 0.2000)" in page
    assert f"| `reading-only` | {whole:.4f} | {whole:.4f} | {whole:.4f} | " in page


def test_a_search_without_a_student_that_fast_says_so(study: ModuleType) -> None:
    found = study.summary({"random-0": ROWS[3:]}, {})
    row = (
        study.page({**FACTS, "strategies": found, "limited": {}})
        .split("| `random` | ")[1]
        .splitlines()[0]
    )
    assert row.endswith("none | none | none |")


def test_what_is_still_to_come_is_told(study: ModuleType) -> None:
    searches = {"gp-0": ROWS, "random-0": ROWS, "random-1": ROWS}
    trained = [
        {
            "architecture": name,
            "context": {"proxy": {"seed": seed}},
            "readings": [[0, 0.9, 0.9, 0.9], [study.FINAL_STEPS, 0.1, 0.2, 0.3]],
        }
        for name in ("a", "c")
        for seed in study.FINAL_SEEDS
    ]
    longer = study.final_losses(trained)
    assert longer == {name: dict.fromkeys(study.FINAL_SEEDS, 0.1) for name in ("a", "c")}
    assert study.of_all_seeds(["a", "c"], longer) == {"a": 0.1, "c": 0.1}
    assert study.of_all_seeds(["a", "b"], longer) is None
    for cut_off in ([], [[0, 0.9, 0.9, 0.9]]):
        some = study.final_losses([*trained[:-1], {**trained[-1], "readings": cut_off}])
        assert study.of_all_seeds(["a", "c"], some) is None
    page = study.page({**FACTS, "strategies": study.summary(searches, None), "limited": {}})
    assert "The longer trainings of what was found are still to come." in page
    assert "final loss" not in page
    assert (
        "Searches that are still to come: 2 of `gp`, 3 of `controller`, 1 of `random`, 3 of "
        "`tpe`, 1 of `size-only`, 1 of `limit`, 1 of `limit-rungs`, 1 of `limit-long`, "
        "1 of `limit-long-rungs`, 1 of `reading-only`." in page
    )


def test_within_a_latency_the_steps_are_told_with_what_they_found(study: ModuleType) -> None:
    ended = {"status": "stopped", "num_steps": 0, "relative_loss": 0.1, "architecture": "z"}
    rows = [{**one, "status": "succeeded", "num_steps": 60} for one in ROWS[:3]]
    searches = {"gp-0": ROWS, "limit-0": rows, "limit-rungs-0": [ended, *rows[1:]]}
    assert list(study.fronts(searches)) == ["gp-0"]
    found = study.limited(searches)
    assert found["limit-0"] == {
        "trainings": 3, "stopped": 0, "steps": 180, "loss": 0.4, "student": "c",
    }  # fmt: skip
    assert found["limit-rungs-0"] == {
        "trainings": 3, "stopped": 1, "steps": 120, "loss": 0.4, "student": "c",
    }  # fmt: skip
    strategies = study.summary(study.fronts(searches), None)
    page = study.page({**FACTS, "strategies": strategies, "limited": found})
    assert "| `limit-rungs-0` | 0 | 3 | 1 | 120 | 0.4000 | `c` |" in page
    assert "1 of `limit`" not in page


@pytest.mark.parametrize("losses", [None, {"a": 0.3, "c": 0.2}])
def test_what_was_found_is_drawn(
    study: ModuleType, tmp_path: Path, losses: dict[str, float] | None
) -> None:
    searches = {"gp-0": ROWS, "gp-1": ROWS[1:], "random-0": ROWS[3:]}  # the last has none so fast
    path = tmp_path / "drawn.png"
    study.draw(searches, losses, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    result = {**FACTS, "strategies": study.summary(searches, None), "limited": {}}
    assert "(drawn.png)" in study.page({**result, "picture": path.name})
    assert ".png" not in study.page(result)
