"""Published results: values typed from the papers, averages, and facts about the models."""

from __future__ import annotations

import pytest

from kdnas.architecture import Architecture
from kdnas.evaluation.reports.published import PublishedResult, Score, papers, published

SPOTS = [
    ("trivedi2023", "3", "KDNAS_Arch2", "HS", "distillation loss", 0.049, None),
    ("trivedi2023", "4", "KDNAS_Arch3", "HS", "TyDi", 66.8, 0.6),
    ("trivedi2023", "4", "Random_Seed1", "HS", "TyDi", 49.3, 13.14),
    ("trivedi2023", "6", "6L-768H", "(Last-1)", "XNLI", 56.2, 0.4),
    ("trivedi2023", "7", "KDNAS_Arch1", "HS", "CoLA", 7.7, None),
    ("trivedi2023", "8", "6L-384H", "HS", "XNLI sw", 48.9, None),
    ("trivedi2023", "9", "KDNAS_Arch3", "MiniLMv2", "SQuAD", 67.4, 0.5),
    ("udagawa2023", "3", "3L (monolingual)", "HS transfer (L)", "GLUE w/o CoLA", 78.9, None),
    ("udagawa2023", "3", "4L (multilingual)", "MiniLMv2 (L-1)", "XNLI", 65.6, None),
    ("udagawa2023", "4", "6L-DistilBERT (multilingual)", "DistilBERT", "XNLI", 61.8, 0.5),
    ("udagawa2023", "5", "6L (monolingual)", "MiniLMv2", "GLUE w/o CoLA", 82.5, 0.1),
    ("udagawa2023", "6", "3L (multilingual)", "OD", "CoLA", 2.6, None),
    ("udagawa2023", "7", "3L (multilingual)", "MiniLMv2", "XNLI zh", 62.4, None),
    ("wang2021", "1", "TinyBERT", "TinyBERT", "RTE", 72.2, None),
    ("wang2021", "2", "BERT Large", "no distillation", "average", 82.1, None),
    ("wang2021", "5", "XLM-100", "no distillation", "XNLI sw", 58.2, None),
    ("wang2021", "6", "XLM-15", "no distillation", "MLQA vi EM", 41.8, None),
    ("wang2021", "7", "6×384", "(qk vv)", "SQuAD 2.0", 72.4, None),
    ("wang2021", "9", "12×384", "all nine", "STS-B", 86.0, None),
    ("wu2021", "2", "BERT-4", "MHKD", "CoLA", 32.8, None),
    ("wu2021", "3", "BERT-4", "ALP-KD", "MRPC F1", 83.2, None),
    ("wu2021", "4", "DistilRoBERTa", "vanilla KD", "SST-2", 92.54, None),
    ("wu2021", "5", "Gated CNN", "Universal-KD (CA)", "STS-B", 24.9, None),
    ("wu2021", "6", "DistilRoBERTa", "▲", "QQP", 91.4, None),
]


@pytest.mark.parametrize(("paper", "table", "model", "method", "task", "value", "deviation"), SPOTS)
def test_figures_are_those_of_the_papers(
    paper: str,
    table: str,
    model: str,
    method: str,
    task: str,
    value: float,
    deviation: float | None,
) -> None:
    rows = published(paper=paper, table=table, task=task, method=method)
    (row,) = (row for row in rows if row.model == model)
    score = row.score(task)
    assert score is not None
    assert (score.value, score.deviation) == (value, deviation)


def test_all_papers_and_tables_are_there() -> None:
    tables = {paper: {row.table for row in published(paper=paper)} for paper in papers()}
    assert tables == {
        "wang2021": {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"},
        "wu2021": {"2", "3", "4", "5", "6"},
        "trivedi2023": {"3", "4", "6", "7", "8", "9"},
        "udagawa2023": {"3", "4", "5", "6", "7"},
    }


def means(row: PublishedResult) -> dict[str, tuple[float, float]]:
    """Average → what is printed and the mean of its tasks, where all of them are there."""
    values = {score.task: score.value for score in row.scores}
    return {
        name: (values[name], sum(values[task] for task in tasks) / len(tasks))
        for name, tasks in row.averages.items()
        if name in values and values.keys() >= set(tasks)
    }


def test_printed_averages_are_the_means_of_their_tasks() -> None:
    """Tasks are rounded to 0.1, and so are the averages; rows that differ by more say so."""
    checked = 0
    for row in published():
        for name, (printed, mean) in means(row).items():
            checked += 1
            is_odd = row.note is not None and "not the mean" in row.note
            assert is_odd or printed == pytest.approx(mean, abs=0.1001), (row.model, name)
    assert checked > 150


def test_rows_said_to_be_odd_are_odd() -> None:
    for row in published():
        if row.note is not None and "not the mean" in row.note:
            assert any(abs(printed - mean) > 0.1 for printed, mean in means(row).values()), row


def test_the_best_mappings_of_one_table_are_the_rows_of_another() -> None:
    """Udagawa's Tables 5 to 7 give the best row of each method in Table 3.

    One row of Table 7 names another mapping than its average belongs to; its note says more.
    """
    compared = 0
    for table, task in (("5", "GLUE w/o CoLA"), ("6", "GLUE w/o CoLA"), ("7", "XNLI")):
        for row in published(paper="udagawa2023", table=table):
            if row.note is not None and "languages left out" in row.note:
                continue
            score = row.score(task)
            (same,) = (
                other
                for other in published(paper="udagawa2023", table="3", task=task)
                if (other.model, other.method) == (row.model, row.method)
            )
            assert score is not None
            assert same.score(task) == Score(task, score.metric, score.value)
            compared += 1
    assert compared == 50


def test_facts_about_the_models() -> None:
    (row,) = published(paper="trivedi2023", table="7", model="KDNAS_Arch2")
    facts = (row.layers, row.heads, row.hidden, row.intermediate, row.activation)
    assert Architecture(*facts) == Architecture.parse("4,4,288,768,gelu")  # type: ignore[arg-type]
    assert (row.params_millions, row.cpu_ms, row.gpu_ms) == (76, 6.12, 3.49)
    assert (row.objective, row.mapping, row.runs) == ("hs", "kdnas", 3)
    assert "130000 steps" in str(row.training)
    (student,) = (
        row for row in published(paper="wang2021", table="1") if row.params_millions == 30
    )
    assert (student.teacher, student.teacher_layer) == ("RoBERTa Large", "19")
    assert (student.speedup, student.intermediate) == (5.3, None)


def test_what_was_not_distilled_has_no_training() -> None:
    for row in published(method="teacher"):
        assert (row.teacher, row.training, row.objective, row.mapping) == (None,) * 4


def test_selection() -> None:
    assert {row.objective for row in published(objective="minilmv2")} == {"minilmv2"}
    assert {row.paper for row in published(objective="minilmv2")} == {
        *("wang2021", "trivedi2023", "udagawa2023")
    }
    assert all(row.score("MNLI") for row in published(task="mnli"))
    assert published(paper="nobody") == ()
    assert len(published(paper="wu", table="5", method="universal-kd")) == 2


def test_what_cannot_be_read_is_left_out() -> None:
    (row,) = published(paper="wang2021", table="4", method="MiniLM (last layer)")
    assert row.score("SST-2") is None
    assert row.score("average") == Score("average", None, 85.0)
