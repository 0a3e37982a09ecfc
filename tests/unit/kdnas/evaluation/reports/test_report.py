"""Reports: cells, averages, shares, published rows, and their formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev

import pytest

from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.reports.formats import (
    as_csv,
    as_latex,
    as_markdown,
    cell_text,
    figures_line,
    figures_table,
    metric_name,
    metric_text,
    score_table,
    source_lines,
)
from kdnas.evaluation.reports.published import published
from kdnas.evaluation.reports.report import Cell, Measured, Report, make_report, report_json
from kdnas.evaluation.results import TaskResult, main_score
from kdnas.evaluation.scoring.significance import paired_bootstrap
from kdnas.evaluation.scoring.tally import mean_of
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.registry import SUITES, find_task

TIMED = ("pytorch",)
WHERE = ("cpu:Test", 32, 1)


def result(
    task: str, seed: int, metrics: dict[str, dict[str, float]], official: bool = True
) -> TaskResult:
    found = find_task(task)
    return TaskResult(
        task=found.name,
        suite=found.suite,
        seed=seed,
        settings=FinetuneSettings(2e-5, 3),
        metrics=metrics,
        main=main_score(found, metrics),
        seconds=1.0,
        steps=10,
        train_examples=100,
        official_split=official,
        notes=("training was cut to 10 steps",),
    )


def accuracy(task: str, values: Sequence[float], part: str = "dev") -> list[TaskResult]:
    metric = find_task(task).main_metric
    return [result(task, seed, {part: {metric: value}}) for seed, value in enumerate(values)]


@pytest.fixture
def report() -> Report:
    student = Measured(
        "student_1", (*accuracy("SST-2", [0.80, 0.84]), *accuracy("CoLA", [0.2, 0.3]))
    )
    teacher = Measured("teacher", (*accuracy("SST-2", [0.90, 0.92]),))
    student = replace(student, figures=ModelFigures(5_000_000, 20_400_000, *TIMED, 2.5, *WHERE))
    teacher = replace(teacher, figures=ModelFigures(22_600_000, 90_900_000, *TIMED, 10.0, *WHERE))
    tests = {
        "teacher": {
            "SST-2": paired_bootstrap(
                [(mean_of([1, 0, 1, 0]), mean_of([1, 1, 1, 0]))], metric="accuracy", samples=200
            )
        }
    }
    return make_report("glue", [student, teacher], tests, layers=4, hidden=576, max_published=5)


def test_cells_are_means_and_deviations_over_seeds(report: Report) -> None:
    student = report.rows[0]
    assert student.cells["SST-2"] == Cell(pytest.approx(0.82), pytest.approx(stdev([0.8, 0.84])), 2)
    label = "GLUE (2 of 8)"  # seed by seed: 0.50 and 0.57
    assert student.cells[label] == Cell(pytest.approx(0.535), pytest.approx(stdev([0.5, 0.57])), 2)
    assert report.columns == ("SST-2", "CoLA", label)
    assert Cell.of([0.5]).deviation is None


def test_averages_over_different_tasks_have_columns_of_their_own() -> None:
    tasks = ("CoLA", "SST-2", "RTE")
    scores = {task: accuracy(task, [0.5, 0.6]) for task in tasks}
    first, second = (
        Measured(name, tuple(r for task in tasks if task != without for r in scores[task]))
        for name, without in (("first", "CoLA"), ("second", "RTE"))
    )
    apart = make_report("glue", [first, second])
    assert {"GLUE (2 of 8: SST-2, RTE)", "GLUE (2 of 8: CoLA, SST-2)"} <= {*apart.columns}
    assert "GLUE (2 of 8)" not in apart.columns
    assert "GLUE (2 of 8)" in make_report("glue", [first, first]).columns

    metrics = [{name: {"accuracy": 0.5} for name in names} for names in (["en", "de"], ["en"])]
    measured = [Measured(f"{n}", (result("XNLI", 0, one),)) for n, one in enumerate(metrics)]
    assert {"XNLI (2 of 15)", "XNLI (1 of 15)"} <= {*make_report("xnli", measured).columns}
    other = Measured(
        "other", (result("XNLI", 0, {"en": {"accuracy": 0.5}, "sw": metrics[1]["en"]}),)
    )
    columns = make_report("xnli", [measured[0], other]).columns
    assert {"XNLI (2 of 15: en, de)", "XNLI (2 of 15: en, sw)"} <= {*columns}


def test_the_teacher_stands_beside(report: Report) -> None:
    (against,) = report.against
    assert against.retained == {"SST-2": pytest.approx(0.82 / 0.91)}
    assert against.tests["SST-2"].difference == -0.25


def test_sizes_and_speeds_stand_beside(report: Report) -> None:
    assert report.against[0].speed_up == 4
    header, rows = figures_table(report)
    assert header[-1] == "speed-up over teacher"
    assert rows == [
        ["student_1", "5.0", "20.4", "2.50", "PyTorch", "4.00×"],
        ["teacher", "22.6", "90.9", "10.00", "PyTorch", "1.00×"],
    ]
    assert figures_line(report) == "ms: median of one sequence of 32 tokens, 1 thread, Test"
    assert "| student_1 | 5.0 | 20.4 | 2.50 | PyTorch | 4.00× |" in as_markdown(report)
    assert "glue,student_1,measured,,,,latency_ms,2.5,,\n" in as_csv(report)
    assert r"student\_1 & 5.0 & 20.4 & 2.50 & PyTorch & 4.00$\times$ \\" in as_latex(report)
    values = report_json(report)
    assert values["rows"][1]["figures"]["latency_ms"] == 10.0
    assert values["against"][0]["speed_up"] == 4


def test_speeds_under_other_conditions_are_not_compared() -> None:
    one = ModelFigures(1, 1, "pytorch", 2.0, "cpu:Test", 32, 1)
    assert one.speed_up_over(replace(one, latency_ms=3.0)) == 1.5
    for other in (replace(one, threads=2), replace(one, latency_ms=None), None):
        assert one.speed_up_over(other) is None
    assert ModelFigures.from_json(one.to_json()) == one
    # What stands with the results counts, timed if any of them has that.
    first, second = accuracy("RTE", [1, 0])
    timed = replace(first, figures=one)
    untimed = replace(second, figures=replace(one, latency_ms=None))
    assert Measured("m", (timed, untimed)).known_figures == one
    assert TaskResult.from_json(timed.to_json()) == timed
    assert figures_table(make_report("glue", [Measured("m", (first, second))]))[1] == []


def test_published_scores_by_another_metric_are_not_beside_ours() -> None:
    """Of MRPC and QQP ours is F1, and some papers have accuracy, also in their mean."""
    results = [one for task in SUITES["glue"] for one in accuracy(task, [0.8])]
    report = make_report("glue", [Measured("student", results)], max_published=1000)
    rows = [row for row in report.rows if row.origin == "published"]
    of_accuracy = [row for row in rows if row.about.startswith("Wu et al. 2021, Table 2")]
    assert of_accuracy
    for row in of_accuracy:
        assert {"RTE", "CoLA", "MNLI"} <= row.cells.keys()
        assert not {"MRPC", "QQP", "GLUE"} & row.cells.keys()
    assert any("MRPC" in row.cells for row in rows)  # where the paper does not say, or has F1


def test_published_rows_say_where_they_are_from(report: Report) -> None:
    rows = [row for row in report.rows if row.origin == "published"]
    assert len(rows) == 5
    assert rows[0].model == "KDNAS_Arch3"  # 4 layers, 576 wide
    assert rows[0].method == "HS transfer (Uniform+Last), from XLM-R Base (in-house)"
    assert rows[0].about == "Trivedi et al. 2023, Table 7"
    (source,) = published(paper="trivedi2023", table="7", model="KDNAS_Arch3")
    score = source.score("SST-2")
    assert score is not None
    assert rows[0].cells["SST-2"].mean == pytest.approx(score.value / 100)
    assert all("test set" not in row.about for row in rows)


def test_a_part_of_the_languages_is_not_set_beside_all_of_them() -> None:
    languages = tuple(find_task("XNLI").layout.languages.values())
    few = {code: {"accuracy": 0.5} for code in ("en", "sw")}
    every = {code: {"accuracy": 0.5} for code in languages}
    some, whole = (
        make_report("xnli", [Measured("m", (result("XNLI", 0, metrics),))])
        for metrics in (few, every)
    )
    assert some.columns == ("XNLI en", "XNLI sw", "XNLI (2 of 15)")
    assert not any("XNLI (2 of 15)" in row.cells for row in some.rows[1:])
    assert whole.columns[-1] == "XNLI"
    assert any("XNLI" in row.cells for row in whole.rows[1:])


def test_the_main_score_of_mnli_is_the_matched_part() -> None:
    metrics = {"matched": {"accuracy": 0.8}, "mismatched": {"accuracy": 0.6}}
    assert main_score(find_task("MNLI"), metrics) == 0.8


def test_notes_are_told_once() -> None:
    results = [result("RTE", seed, {"dev": {"accuracy": 0.5}}, official=False) for seed in (0, 1)]
    report = make_report("glue", [Measured("m", tuple(results))])
    assert report.notes == (
        "RTE: not the official split",
        "RTE: training was cut to 10 steps",
    )
    assert "- RTE: not the official split" in as_markdown(report)


def test_markdown_has_all_of_it(report: Report) -> None:
    text = as_markdown(report)
    assert "| student_1 | 82.0±2.8 | 25.0±7.1 | 53.5±4.9 |" in text
    assert "| share of teacher | 90.1 % | – | – |" in text
    assert "(published: Trivedi et al. 2023, Table 7)" in text
    assert "| student_1 | CoLA | dev | Matthews | 25.0±7.1 | 2 |" in text
    assert "SST-2, accuracy: student_1 − teacher = -25.0, 95 % interval" in text


def test_a_screen_shows_numbers_in_the_place_of_long_names(report: Report) -> None:
    _, rows = score_table(report, numbered=True)
    assert [row[0] for row in rows[:3]] == ["student_1", "teacher", "[1] KDNAS_Arch3"]
    lines = source_lines(report)
    assert len(lines) == 5
    assert lines[0].startswith("[1] KDNAS_Arch3: HS transfer (Uniform+Last), from XLM-R")
    assert lines[0].endswith("Trivedi et al. 2023, Table 7")


def test_csv_has_fractions(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    (own,) = (r for r in rows if r["model"] == "student_1" and r["metric"] == "matthews")
    assert (own["task"], own["set"], float(own["mean"]), own["seeds"]) == ("CoLA", "dev", 0.25, "2")
    assert {r["origin"] for r in rows} == {"measured", "published", "note"}


def test_latex_escapes_names_and_has_a_rule_between(report: Report) -> None:
    text = as_latex(report)
    assert "student\\_1 & 82.0$\\pm$2.8" in text
    scores, sizes, *_ = text.split("\n\n")
    assert (scores.count("\\midrule"), sizes.count("\\midrule")) == (2, 1)
    lines = [line for line in scores.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in lines} == {3}


def test_json_can_be_written(report: Report) -> None:
    data = json.loads(json.dumps(report_json(report)))
    assert data["rows"][0]["scores"]["SST-2"]["seeds"] == 2
    assert data["against"][0]["bootstrap"]["SST-2"]["examples"] == 4
    assert data["details"][0]["values"] == [0.8, 0.84]


def test_a_missing_score_is_a_dash() -> None:
    assert cell_text(None) == "–"
    assert cell_text(Cell(0.5, None, 1)) == "50.0"


@pytest.mark.parametrize(
    ("metric", "name", "text"),
    [
        ("f1", "F1", "25.0"),
        ("has_answer_exact_match", "has answer EM", "25.0"),
        ("no_answer_accuracy", "no answer accuracy", "25.0"),
        ("best_f1_threshold", "best F1 threshold", "0.25"),
    ],
)
def test_metrics_are_called_as_in_papers(metric: str, name: str, text: str) -> None:
    assert metric_name(metric) == name
    assert metric_text(metric, Cell.of([0.25])) == text


def test_every_suite_makes_a_report() -> None:
    for suite, tasks in SUITES.items():
        group = Measured("m", tuple(r for task in tasks for r in accuracy(task, [0.5, 0.6])))
        report = make_report(suite, [group])
        assert report.rows[0].cells
        assert as_latex(report).endswith("training was cut to 10 steps}\n")


def test_latex_has_real_minus_signs_and_the_notes() -> None:
    worse = [replace(r, official_split=False) for r in accuracy("CoLA", [-0.104, -0.02])]
    better = Measured("XLM-R_2", tuple(accuracy("CoLA", [0.5, 0.6])))
    tests = {
        better.model: {
            "CoLA": paired_bootstrap([(mean_of([0.0, 1.0, 0.0]), mean_of([1.0, 1.0, 1.0]))])
        }
    }
    text = as_latex(make_report("glue", [Measured("L-1", tuple(worse)), better], tests))
    assert "\nL-1 & $-$6.2$\\pm$5.9" in text
    assert r"\footnotesize CoLA, what an example scores: L-1 $-$ XLM-R\_2 = $-$66.7, 95" in text
    assert r"\par {\footnotesize CoLA: not the official split}" in text


def test_csv_has_shares_bootstrap_and_notes() -> None:
    groups = [Measured(n, tuple(accuracy("RTE", [v, v]))) for n, v in (("s", 0.5), ("t", 0.8))]
    test = paired_bootstrap([(mean_of([0.0, 1.0, 0.0]), mean_of([1.0, 1.0, 1.0]))])
    text = as_csv(make_report("glue", groups, {"t": {"RTE": test}}))
    rows = [r for r in csv.DictReader(io.StringIO(text)) if r["about"] == "against t"]
    assert {r["metric"]: float(r["mean"]) for r in rows if r["task"] == "RTE"} == {
        "share": 0.625,
        "difference": test.difference,
        "difference_low": test.low,
        "difference_high": test.high,
        "p_value": test.p_value,
    }
    assert "glue,,note,RTE: training was cut to 10 steps,,,,,,\n" in text


def test_published_figures_are_fractions_without_noise() -> None:
    report = make_report("glue", [Measured("m", tuple(accuracy("CoLA", [0.5])))])
    means = [row.cells["CoLA"].mean for row in report.rows if row.origin == "published"]
    assert means
    assert all(len(repr(mean)) <= 6 for mean in means)
