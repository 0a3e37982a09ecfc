"""Options that say what a table of the user's own holds."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from kdnas.cli.evaluate import evaluate
from kdnas.cli.options import own_table
from kdnas.cli.options.places import refuse_with_resume, request_of
from kdnas.cli.task_distill import task_distill
from kdnas.errors import SpecError

BARE = own_table.TableOptions(panel="Mine")


def command(
    kind: Annotated[own_table.Kind, BARE.kind] = None,
    text: Annotated[own_table.Text, BARE.text] = None,
    pair: Annotated[own_table.Pair, BARE.pair] = None,
    label: Annotated[own_table.Label, BARE.label] = None,
    metrics: Annotated[own_table.Metrics, BARE.metrics] = None,
) -> dict[str, Any]:
    """A command that says what it was given."""
    return locals()


def test_they_are_the_parts_of_a_task_of_ones_own() -> None:
    given = command(kind="tagging", text="words", pair="b", label="tags", metrics="f1, recall")
    assert request_of(command, given) == {
        "own": {
            "kind": "tagging",
            "text": "words",
            "pair": "b",
            "label": "tags",
            "metrics": ["f1", "recall"],
        }
    }
    with pytest.raises(SpecError, match="so --kind, --label, --metrics, --pair, --text cannot be"):
        refuse_with_resume(command, given, ())


def help_of(said_by: Any) -> str:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(said_by)
    return " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())


def test_a_command_of_suites_says_whose_they_are_and_knows_tagging() -> None:
    shown = help_of(evaluate)
    for told in (
        "--kind <str> own: classification, multilabel (several classes or none), regression or "
        "tagging; without training, by embeddings, similarity or retrieval. [default: "
        "classification]",
        "--text COLUMN own: column of the text; of tagging, of the list of words; of retrieval, of "
        "the query. [default: text]",
        "--pair COLUMN own: column of a second text; of retrieval, of the passage that answers.",
        "--label COLUMN own: column of the class, the number, or the list of classes or tags; "
        "several with commas; of retrieval, of the grade. [default: label]",
        "--metrics LIST own: accuracy, f1, f1_macro, f1_micro, f1_weighted, precision, recall, "
        "matthews, balanced_accuracy, auc, ece; f1_samples, subset_accuracy; pearson, spearman, "
        "mse, rmse, mae, r2; ndcg_at_10, recall_at_100, mrr_at_10, map_at_1000 …: the first "
        "counts, by default the kind's usual ones.",
    ):
        assert told in shown


def test_a_command_of_one_task_has_them_in_a_panel() -> None:
    shown = help_of(task_distill)
    for told in (
        "--kind <str> classification or regression; makes it one. [default: classification]",
        "--text COLUMN Column of the text. [default: text]",
        "--pair COLUMN Column of a second text.",
        "--label COLUMN Column of the class or the number. [default: label]",
        "--metrics LIST accuracy, f1, f1_macro, f1_micro, f1_weighted, precision, recall, "
        "matthews, balanced_accuracy, auc, ece; pearson, spearman, mse, rmse, mae, r2: the first "
        "counts. [default: accuracy,f1; pearson,spearman]",
    ):
        assert told in shown
    assert own_table.OF_A_TASK.kind.rich_help_panel == "A task of your own"
