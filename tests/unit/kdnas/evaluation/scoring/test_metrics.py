from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from seqeval import metrics as seqeval
from sklearn import metrics as sklearn

from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.tasks.registry import TASKS, own_task

FINITE = st.floats(-1e6, 1e6)
TAG = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG"])


def pairs(values: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    """Two lists of one length."""
    return st.lists(st.tuples(values, values), min_size=1, max_size=40)


@given(pairs(st.sampled_from(["unacceptable", "acceptable"])))
def test_cola_is_scored_as_scikit_learn_does(rows: list[tuple[str, str]]) -> None:
    predicted, wanted = map(list, zip(*rows, strict=True))
    scores = score(TASKS["cola"], predicted, wanted)
    assert scores["accuracy"] == sklearn.accuracy_score(wanted, predicted)
    if len(set(predicted)) == 1 or len(set(wanted)) == 1:
        assert scores["matthews"] == 0
    else:
        assert scores["matthews"] == sklearn.matthews_corrcoef(wanted, predicted)


@given(pairs(st.sampled_from(["not_duplicate", "duplicate"])))
def test_f1_is_of_the_second_label(rows: list[tuple[str, str]]) -> None:
    predicted, wanted = map(list, zip(*rows, strict=True))
    assume({*predicted, *wanted} == {"not_duplicate", "duplicate"})
    f1 = sklearn.f1_score(wanted, predicted, pos_label="duplicate", zero_division=0)
    assert score(TASKS["qqp"], predicted, wanted)["f1"] == pytest.approx(f1)


@given(pairs(st.sampled_from("abcd")))
def test_f1_of_several_classes_is_their_mean(rows: list[tuple[str, str]]) -> None:
    predicted, wanted = map(list, zip(*rows, strict=True))
    task = own_task("mine", "classification", metrics=("f1", "precision", "recall"))
    scores = score(task, predicted, wanted)
    for name, measure in (
        ("f1", sklearn.f1_score),
        ("precision", sklearn.precision_score),
        ("recall", sklearn.recall_score),
    ):
        assert scores[name] == measure(wanted, predicted, average="macro", zero_division=0)


@given(pairs(FINITE))
def test_correlations_are_those_of_scipy(rows: list[tuple[float, float]]) -> None:
    predicted, wanted = np.array(rows).T
    scores = score(TASKS["sts-b"], predicted.tolist(), wanted.tolist())
    if np.ptp(predicted) == 0 or np.ptp(wanted) == 0:
        assert scores == {"pearson": 0, "spearman": 0}
        return
    assume(predicted.std() > 1e-3)
    assume(wanted.std() > 1e-3)
    assert scores["pearson"] == stats.pearsonr(predicted, wanted).statistic
    assert scores["spearman"] == stats.spearmanr(predicted, wanted).statistic


@settings(max_examples=60)
@given(st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=9), min_size=1, max_size=9))
def test_spans_are_scored_as_seqeval_does(sentences: list[list[tuple[str, str]]]) -> None:
    predicted = [[p for p, _ in words] for words in sentences]
    wanted = [[w for _, w in words] for words in sentences]
    scores = score(TASKS["ner"], predicted, wanted)
    assert scores["f1"] == seqeval.f1_score(wanted, predicted, zero_division=0)
    assert scores["precision"] == seqeval.precision_score(wanted, predicted, zero_division=0)
    assert scores["recall"] == seqeval.recall_score(wanted, predicted, zero_division=0)


def test_part_of_a_span_is_no_span() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert score(TASKS["ner"], [["B-PER", "O", "O", "B-LOC"]], wanted)["f1"] == 0.5
    assert score(TASKS["ner"], wanted, wanted) == {"f1": 1, "precision": 1, "recall": 1}
    assert score(TASKS["ner"], [["O"] * 4], wanted) == {"f1": 0, "precision": 0, "recall": 0}


def test_tags_that_mark_no_spans_are_scored_by_accuracy() -> None:
    task = own_task("pos", "tagging", metrics=("accuracy",))
    assert score(task, [["NN", "VB"]], [["NN", "NN"]]) == {"accuracy": 0.5}
    with pytest.raises(ValueError, match="tags of NER, such as 'NN', mark no spans"):
        score(TASKS["ner"], [["NN", "VB"]], [["NN", "NN"]])


def test_nearly_constant_numbers_give_no_warning() -> None:
    nearly = [1.0, 1.0 + 1e-15, 1.0]
    assert -1 <= score(TASKS["sts-b"], nearly, [1.0, 2.0, 3.0])["pearson"] <= 1


def test_one_class_alone_gives_no_warning() -> None:
    task = replace(TASKS["mrpc"], metrics=("f1", "accuracy", "matthews", "precision"))
    same = ["not_equivalent"] * 3
    assert score(task, same, same) == {"f1": 0, "accuracy": 1, "matthews": 0, "precision": 0}


@pytest.mark.parametrize(
    ("task", "predictions", "references", "message"),
    [
        ("sst-2", ["positive"], [], "1 predictions for 0 references"),
        ("sst-2", [], [], "0 predictions for 0 references"),
        ("sts-b", [float("nan"), 1.0], [1.0, 2.0], "not all finite"),
        ("ner", [["O"]], [["O", "O"]], "1 tags are predicted for 2 words in sentence 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    task: str, predictions: list[object], references: list[object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score(TASKS[task], predictions, references)
