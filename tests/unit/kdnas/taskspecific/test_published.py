"""Hyper-parameters as published, read off the paper's tables once more."""

from __future__ import annotations

import pytest

from kdnas.taskspecific.published import (
    TABLES,
    PublishedChoice,
    published_choice,
    published_epochs,
    table_for,
)


@pytest.mark.parametrize(
    ("table", "task", "choice"),
    [
        ("bert-4", "CoLA", PublishedChoice(5e-5, 32, 0.2)),
        ("bert-4", "QQP", PublishedChoice(2e-5, 32, 0.7)),
        ("bert-4", "RTE", PublishedChoice(5e-5, 16, 0.5)),
        ("bert-4", "STS-B", PublishedChoice(5e-5, 32, 0.2)),
        ("distilroberta", "MNLI", PublishedChoice(2e-5, 32, 0.5)),
        ("distilroberta", "SST-2", PublishedChoice(5e-5, 16, 0.5)),
        ("bilstm", "CoLA", PublishedChoice(2e-4, 8, 0.5, 0.4)),
        ("bilstm", "QNLI", PublishedChoice(2e-5, 32, 0.5, 0.2)),
        ("gated-cnn", "MRPC", PublishedChoice(3e-5, 16, 0.7, 0.4)),
        ("gated-cnn", "SST-2", PublishedChoice(5e-5, 64, 0.7, 0.3)),
    ],
)
def test_tables_are_the_papers(table: str, task: str, choice: PublishedChoice) -> None:
    assert published_choice(table, task) == choice


@pytest.mark.parametrize("table", TABLES)
def test_another_task_has_what_is_usual(table: str) -> None:
    usual = published_choice(table, "another")
    assert usual == published_choice(table, None)
    rates = {choice.learning_rate for choice in TABLES[table].values()}
    assert usual.learning_rate in rates
    assert usual.beta in {0.2, 0.5, 0.7}


def test_cola_takes_longer() -> None:
    assert published_epochs("CoLA") == (50, 10)
    assert published_epochs("RTE") == published_epochs("mine") == published_epochs(None) == (20, 10)


@pytest.mark.parametrize(
    ("kind", "family", "table"),
    [
        ("transformer", "bert", "bert-4"),
        ("transformer", "electra", "bert-4"),
        ("transformer", "roberta", "distilroberta"),
        ("transformer", "xlm-roberta", "distilroberta"),
        ("bilstm", "roberta", "bilstm"),
        ("gated-cnn", "bert", "gated-cnn"),
    ],
)
def test_the_nearest_table_is_taken(kind: str, family: str, table: str) -> None:
    assert table_for(kind, family) == table
