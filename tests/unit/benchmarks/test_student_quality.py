"""The study of tasks goes on where it was cut off, and says by how much and how sure."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kdnas.evaluation.finetuning.identity import METHOD
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("student_quality")


@pytest.fixture
def page(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import quality_page

    monkeypatch.setattr(quality_page, "DRAWS", 200)
    return quality_page


def run(model: str, said: list[str], **more: Any) -> dict[str, Any]:
    row = {"model": model, "task": "SST-2", "how": "fine-tuned", "tuning_seed": 0}
    return {**row, "predictions": said, "method": METHOD, **more}


def write_glue(folder: Path) -> Path:
    """Twelve training and six dev examples of each task, in GLUE's own layout."""
    sts = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    words = ("good", "bad", "fine", "dull", "fast", "slow")
    for part, count in (("train", 12), ("dev", 6)):
        n = range(count)
        tables = {
            "SST-2": ["sentence\tlabel", *(f"a {words[i % 6]} film {i}\t{i % 2}" for i in n)],
            "CoLA": [f"src\t{i % 2}\t\tOne {words[i % 6]} ride {i}." for i in n],
            "RTE": [
                "index\tsentence1\tsentence2\tlabel",
                *(f"{i}\ta {words[i % 6]}\tb\t{('', 'not_')[i % 2]}entailment" for i in n),
            ],
            "STS-B": [
                sts,
                *(
                    f"{i}\tg\tf\ty\t0\tn\tn\ta {words[i % 6]} {i}\ta {words[i % 5]}\t{i % 5}.0"
                    for i in n
                ),
            ],
        }
        for task, lines in tables.items():
            (folder / task).mkdir(parents=True, exist_ok=True)
            (folder / task / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def some_data(labels: list[str]) -> TaskData:
    task = find_task("SST-2")
    examples = tuple(TextExample(str(n), "text", None, label) for n, label in enumerate(labels))
    return TaskData(task, examples, {"dev": examples}, ("0", "1"), True, ("file",), ())


def test_what_is_in_the_file_is_not_scored_again(study: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    study.Runs(file).add(run("student", ["0"]))
    again = study.Runs(file)
    tuned, probed = (study.Reading("SST-2", how) for how in ("fine-tuned", "probe"))
    assert [row["tuning_seed"] for row in again.of("student", tuned)] == [0]
    assert again.of("student", probed) == again.of("warm", tuned) == []


def test_only_what_chance_has_a_hand_in_is_made_more_than_once(study: ModuleType) -> None:
    seeds = {c.name: len(c.seeds) for c in study.Study().contenders}
    assert seeds["student"] == seeds["warm-0"] == seeds["even"] == 3
    assert seeds["even-0"] == seeds["lowest-0"] == 1


def test_cuts_are_as_deep_as_they_are_asked_to_be(study: ModuleType) -> None:
    single = {c.name: c for c in study.Study("2,2,192,1024,relu", 1).contenders}
    assert single["even-0"].arch == single["lowest"].arch == "1,12,384,1536,gelu"
    assert single["even-0"].words == "teacher's layer 6, undistilled"
    assert single["student"].arch == "2,2,192,1024,relu"
    three = {c.name: c.words for c in study.Study().contenders}
    assert three["even"] == "teacher's layers 2, 4, 6, distilled"
    assert three["lowest-0"] == "teacher's lowest 3 layers, undistilled"


def test_a_part_is_done_where_a_part_is_asked_for(study: ModuleType) -> None:
    asked = study.Choice(study.Study(), ("student", "teacher", "even-0"), (0, 2))
    found = [(contender.name, made, seed) for contender, made, seed in asked]
    assert found == [
        *(("teacher", 0, 0), ("even-0", 0, 0), ("student", 0, 0)),
        *(("teacher", 0, 2), ("even-0", 0, 2), ("student", 2, 2)),
    ]


def test_a_probe_finds_what_words_tell(study: ModuleType) -> None:
    task = find_task("SST-2")
    texts = [("a good film", "1"), ("a bad film", "0")] * 20
    examples = tuple(TextExample(str(n), text, None, y) for n, (text, y) in enumerate(texts))
    data = TaskData(task, examples, {"dev": examples[:4]}, ("0", "1"), True, ("file",), ())
    assert study.linear_probe.probe(None, data) == ["1", "0", "1", "0"]


@pytest.mark.slow
def test_a_model_is_read_in_every_way_and_not_twice(
    study: ModuleType, page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a tiny teacher and a little GLUE, to the page, at one of two learning rates."""
    teacher = str(make_tiny_teacher(tmp_path / "teacher"))
    glue = write_glue(tmp_path / "glue")
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(study, "TEACHER", teacher)
    monkeypatch.setattr(study, "choose_dtype", lambda *_: "float32")
    runs = study.Runs(tmp_path / "runs.jsonl")
    what = study.Study(tuning_steps=2)
    choice = study.Choice(what, ("teacher", "words", "student"), (0, 1))
    study.score_all(tmp_path / "none", glue, runs, choice)
    # The teacher is tuned twice, and read once in what has no seed; words are only probed.
    ways = Counter((row["model"], row["how"]) for row in runs.rows)
    assert ways == {
        ("teacher", study.CHOICE): 2,
        ("teacher", "fine-tuned"): 8,
        ("teacher", "probe"): 4,
        ("teacher", "cosine"): 1,
        ("words", "probe"): 4,
    }
    study.score_all(tmp_path / "none", glue, runs, choice)
    assert len(runs.rows) == 19
    tried = [row for row in runs.rows if row["how"] == study.CHOICE]
    best = max(tried, key=lambda row: row["score"])["settings"]
    tuned = [row["settings"] for row in runs.rows if row["how"] == "fine-tuned"]
    assert tuned == [best] * 8
    text, numbers = page.report(what, study.Runs(runs.path), glue)
    assert "| teacher |" in text.split("## Linear probe")[0]
    assert "| words and word pairs, no encoder |" in text.split("## Linear probe")[1]
    assert "- SST-2: unfinished." in text
    assert "| 0.0001 | 0.0003 |" in text.split("## What the learning rates")[1]
    assert all(-1 <= x <= 1 for x in numbers["teacher"]["STS-B, probe"]["runs"])


def test_examples_are_drawn_alike_for_all_models(page: ModuleType) -> None:
    truth = ["0", "1"] * 50
    wrong = ["1" if n < 10 else label for n, label in enumerate(truth)]
    data, task = some_data(truth), find_task("SST-2")
    perfect = page.resampled(task, data, [run("student", truth)])
    assert (perfect == 1).all()
    one, other = (page.resampled(task, data, [run(name, wrong)]) for name in ("student", "even"))
    assert np.array_equal(one, other)
    assert one.mean() == pytest.approx(0.95, abs=0.01)


def test_an_interval_holds_what_runs_and_examples_leave_open(page: ModuleType) -> None:
    chance = np.random.default_rng(0)
    draws = 0.02 + 0.01 * chance.standard_normal(2000)
    low, high = page.interval(0.02, draws)
    assert (low, high) == pytest.approx((0.0, 4.0), abs=0.1)  # 1.96 deviations, in per cent
    # Three runs whose means vary by .01 as well: Student's quantile at few degrees of freedom.
    runs = [0.5, 0.5 + 3**0.5 / 100, 0.5 - 3**0.5 / 100]
    low, high = page.interval(0.02, draws, runs)
    assert high - 2 == pytest.approx(100 * 2.306 * 2**0.5 / 100, rel=0.03)  # 8 of them
    assert page.interval(0.5, np.full(10, 0.5), [0.5, 0.5]) == (50.0, 50.0)


def test_runs_of_another_model_are_not_mixed_in(study: ModuleType, tmp_path: Path) -> None:
    runs = study.Runs(tmp_path / "runs.jsonl")
    one = run("student", ["0"], made_with_seed=0, fingerprint="a", settings={"max_steps": 2})
    assert not runs.has(one)
    runs.add(one)
    assert runs.has(one)
    assert not runs.has({**one, "tuning_seed": 1})
    for change in ({"fingerprint": "b"}, {"settings": {"max_steps": 500}}):
        with pytest.raises(SystemExit, match=f"with another {next(iter(change))}; begin another"):
            runs.has({**one, **change})


def test_a_rate_that_was_chosen_needs_its_model_no_more(study: ModuleType, tmp_path: Path) -> None:
    runs, what, data = study.Runs(tmp_path / "runs.jsonl"), study.Study(), some_data(["0", "1"])
    student = what.student_itself
    with pytest.raises(SystemExit, match=r"student-seed0, which is not there; make it first"):
        study.best_tuning(tmp_path, student, data, runs, what, "float32")
    for rate, score in zip(what.tuning_rates, (0.5, 0.7), strict=True):
        known = {"how": study.CHOICE, "settings": what.tuning(rate), "score": score}
        runs.add(run("student", [], **known, fingerprint="a"))
    best = study.best_tuning(tmp_path, student, data, runs, what, "float32")
    assert best == what.tuning(what.tuning_rates[1])


def test_another_study_takes_other_folders_and_files(study: ModuleType, tmp_path: Path) -> None:
    usual, other = study.Study(), study.Study("2,2,192,1024,relu", 1)
    for _ in range(2):
        study.keep_apart(tmp_path / "models", usual)
    with pytest.raises(SystemExit, match=r"holds the models of .* give another folder"):
        study.keep_apart(tmp_path / "models", other)
    runs = study.Runs(tmp_path / "runs.jsonl")
    runs.add(run("student", ["0"], study=usual.to_json()))
    runs.refuse_other_studies(usual)
    with pytest.raises(SystemExit, match=r"has scores of .* name another file with --results"):
        runs.refuse_other_studies(other)


@pytest.mark.parametrize(
    ("interval", "word"),
    [((0.1, 2.0), "met"), ((-0.1, 2.0), "within the noise"), ((-3, -1), "missed")],
)
def test_a_bar_is_met_where_the_interval_is_above_zero(
    study: ModuleType, page: ModuleType, interval: tuple[float, float], word: str
) -> None:
    numbers = {
        name: {
            f"{task}, fine-tuned": {
                "runs": [0.8 if name == "even-0" else 0.7] * 3,
                "student_above": sum(interval) / 2,
                "student_above_interval": interval,
            }
            for task in ("SST-2", "STS-B")
        }
        for name in ("student", "student-0", "warm-0", "even-0", "lowest-0")
    }
    found = page.verdicts(study.Study(), numbers)
    assert len(found) == 6
    assert sum("cuts to 3 layers" in line for line in found) == 2
    assert all(line.endswith(f"**{word}**.") for line in found)
    numbers["student"]["SST-2, fine-tuned"]["runs"].pop()
    found = page.verdicts(study.Study(), numbers)
    assert sum(line.endswith(f"**{word} so far, with 2 of 3 runs**.") for line in found) == 3
    numbers["even"] = {"STS-B, fine-tuned": numbers["even-0"]["STS-B, fine-tuned"]}
    *bars, beside = page.verdicts(study.Study(), numbers)
    assert bars == found
    assert beside.startswith("- STS-B, beside teacher's layers 2, 4, 6, distilled, which is no bar")
    assert any(f"**{w}**." in beside for w in ("ahead", "within the noise", "behind"))
    del numbers["lowest-0"]
    unfinished = ["- SST-2: unfinished.", "- STS-B: unfinished."]
    assert page.verdicts(study.Study(), numbers) == unfinished


def test_scores_by_another_method_are_not_gone_on_with(study: ModuleType, tmp_path: Path) -> None:
    runs = study.Runs(tmp_path / "runs.jsonl")
    runs.add(run("student", ["0"], study=study.Study().to_json(), method=1))
    with pytest.raises(
        SystemExit, match=f"scores by method 1 of fine-tuning, and this is {METHOD}"
    ):
        runs.refuse_other_studies(study.Study())
