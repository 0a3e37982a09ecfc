from __future__ import annotations

import pytest

from kdnas.evaluation.reports.published import published
from kdnas.evaluation.scoring.averages import AVERAGES, language_average, suite_averages
from kdnas.evaluation.tasks.registry import SUITES, TASKS

SCORES = {task: 0.5 + number / 100 for number, task in enumerate(SUITES["glue"])}


def test_glue_is_averaged_over_eight_tasks_with_and_without_cola() -> None:
    whole, without = suite_averages("glue", SCORES)
    assert (whole.name, without.name) == ("GLUE", "GLUE w/o CoLA")
    assert len(whole.over) == 8
    assert "WNLI" not in whole.over
    assert whole.value == pytest.approx(sum(SCORES[t] for t in SUITES["glue"][:8]) / 8)
    assert without.value == pytest.approx(sum(SCORES[t] for t in SUITES["glue"][1:8]) / 7)
    assert not whole.missing
    assert whole.label == "GLUE"


def test_an_average_says_what_is_missing() -> None:
    scores = {name: SCORES[name] for name in ("CoLA", "RTE", "SST-2", "WNLI")}
    whole, without = suite_averages("glue", scores)
    assert whole.label == "GLUE (3 of 8)"
    assert whole.long_label == "GLUE (3 of 8: CoLA, SST-2, RTE)"
    (most, *_) = suite_averages(
        "glue", {name: SCORES[name] for name in AVERAGES["glue"]["GLUE"][1:]}
    )
    assert most.long_label == "GLUE (7 of 8: without CoLA)"
    assert set(whole.missing) == {"MRPC", "STS-B", "QQP", "MNLI", "QNLI"}
    assert without.value == pytest.approx((SCORES["RTE"] + SCORES["SST-2"]) / 2)


def test_one_task_is_no_average() -> None:
    assert suite_averages("glue", {"RTE": 0.7}) == []
    assert suite_averages("squad", {"SQuAD 1.1": 0.7}) == []


def test_the_languages_of_a_task_are_averaged() -> None:
    xnli = TASKS["xnli"]
    languages = list(xnli.layout.languages)
    metrics = {name: {"accuracy": n / 20} for n, name in enumerate(languages)}
    average = language_average(xnli, metrics)
    assert average is not None
    assert average.name == average.label == "XNLI"
    assert average.value == pytest.approx(sum(range(15)) / 15 / 20)
    some = language_average(xnli, {"en": {"accuracy": 0.8}, "sw": {"accuracy": 0.6}})
    assert some is not None
    assert (some.label, some.value) == ("XNLI (2 of 15)", pytest.approx(0.7))
    assert language_average(TASKS["rte"], {"dev": {"accuracy": 0.5}}) is None
    tydiqa = language_average(TASKS["tydiqa-goldp"], {"sw": {"f1": 0.5, "exact_match": 0.25}})
    assert tydiqa is not None
    assert len(tydiqa.missing) == 8


def test_averages_bear_the_names_of_published_tables() -> None:
    printed = {score.task for result in published() for score in result.scores}
    assert set(AVERAGES["glue"]) <= printed
    assert "XNLI" in printed
