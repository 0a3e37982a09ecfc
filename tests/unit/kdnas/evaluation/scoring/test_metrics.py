from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from seqeval import metrics as seqeval
from sklearn import metrics as sklearn

from kdnas.errors import SpecError
from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.tasks.registry import TASKS, Kind, own_task

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


EVERY_CLASS = ("f1_macro", "f1_micro", "f1_weighted", "balanced_accuracy", "accuracy")


@given(pairs(st.sampled_from("abcd")))
def test_averages_over_classes_are_those_of_scikit_learn(rows: list[tuple[str, str]]) -> None:
    predicted, wanted = map(list, zip(*rows, strict=True))
    scores = score(own_task("mine", "classification", metrics=EVERY_CLASS[::-1]), predicted, wanted)
    for average in ("macro", "micro", "weighted"):
        f1 = sklearn.f1_score(wanted, predicted, average=average, zero_division=0)
        assert scores[f"f1_{average}"] == f1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that are only said
        balanced = sklearn.balanced_accuracy_score(wanted, predicted)
    assert scores["balanced_accuracy"] == pytest.approx(balanced)


SETS = st.lists(st.sampled_from("abcd"), unique=True)


@given(pairs(SETS))
def test_sets_of_classes_are_scored_as_scikit_learn_does(
    rows: list[tuple[list[str], list[str]]],
) -> None:
    predicted, wanted = map(list, zip(*rows, strict=True))
    averages = ("micro", "macro", "weighted", "samples")
    names = ("subset_accuracy", *(f"f1_{average}" for average in averages))
    scores = score(own_task("mine", "multilabel", metrics=names), predicted, wanted)
    labels = sorted({label for row in rows for one in row for label in one})
    assume(len(labels) > 1)  # scikit-learn takes a single column for two classes
    said, right = (
        np.array([[label in one for label in labels] for one in sets])
        for sets in (predicted, wanted)
    )
    assert scores["subset_accuracy"] == sklearn.accuracy_score(right, said)
    for average in averages:
        none = 1.0 if average == "samples" else 0.0
        f1 = sklearn.f1_score(right, said, average=average, zero_division=none)
        assert scores[f"f1_{average}"] == pytest.approx(f1)


def test_where_no_example_has_a_class_saying_none_is_right() -> None:
    names = ("subset_accuracy", "f1_samples", "f1_micro")
    task = own_task("mine", "multilabel", metrics=names)
    assert score(task, [(), ()], [(), ()]) == {
        **{"subset_accuracy": 1.0, "f1_samples": 1.0, "f1_micro": 0.0}
    }


def test_auc_of_sets_of_classes_is_the_mean_of_each() -> None:
    task = own_task("mine", "multilabel", metrics=("f1_micro", "auc"))
    shares = [
        {"a": 0.9, "b": 0.2, "c": 0.1},
        {"a": 0.4, "b": 0.1, "c": 0.3},
        {"a": 0.6, "b": 0.7, "c": 0.2},
    ]
    wanted = [("a",), ("b",), ("a", "b")]
    found = score(task, [("a",)] * 3, wanted, shares)["auc"]
    right = np.array([[1, 0], [0, 1], [1, 1]])
    given_ = np.array([[one["a"], one["b"]] for one in shares])
    assert found == pytest.approx(sklearn.roc_auc_score(right, given_, average="macro"))


SHARES = st.lists(st.integers(1, 99), min_size=3, max_size=3)


def shares_of(weights: list[int], labels: str) -> dict[str, float]:
    return {label: weight / sum(weights) for label, weight in zip(labels, weights, strict=True)}


@given(st.lists(st.tuples(SHARES, st.sampled_from("abc")), min_size=3, max_size=40))
def test_auc_is_that_of_scikit_learn(rows: list[tuple[list[int], str]]) -> None:
    shares = [shares_of(weights, "abc") for weights, _ in rows]
    wanted = [label for _, label in rows]
    assume(len(set(wanted)) == 3)
    predicted = [max(one, key=lambda label: one[label]) for one in shares]
    task = own_task("mine", "classification", metrics=("auc",))
    known = sklearn.roc_auc_score(
        wanted, np.array([list(one.values()) for one in shares]), multi_class="ovr", labels=[*"abc"]
    )
    assert score(task, predicted, wanted, shares)["auc"] == pytest.approx(known)
    two = [{"a": one["a"] + one["b"], "c": one["c"]} for one in shares]
    sides = ["c" if label == "c" else "a" for label in wanted]
    known = sklearn.roc_auc_score([side == "c" for side in sides], [one["c"] for one in two])
    assert score(task, sides, sides, two)["auc"] == pytest.approx(known)


def test_auc_of_a_single_class_tells_nothing() -> None:
    task = own_task("mine", "classification", metrics=("auc",))
    shares = [{"a": 0.3, "b": 0.7}] * 2
    assert score(task, ["b", "b"], ["b", "b"], shares) == {"auc": 0.5}
    with pytest.raises(ValueError, match="need the probabilities of its classes"):
        score(task, ["b"], ["b"])


@given(st.lists(st.tuples(SHARES, st.sampled_from("abc")), min_size=1, max_size=60))
def test_calibration_is_the_gap_of_each_bin(rows: list[tuple[list[int], str]]) -> None:
    shares = [shares_of(weights, "abc") for weights, _ in rows]
    wanted = [label for _, label in rows]
    predicted = [max(one, key=lambda label: one[label]) for one in shares]
    task = own_task("mine", "classification", metrics=("accuracy", "ece"))
    gaps = 0.0
    for number in range(15):  # as the paper writes it, bin by bin
        inside = [
            (max(one.values()), p == w)
            for one, p, w in zip(shares, predicted, wanted, strict=True)
            if number / 15 < max(one.values()) <= (number + 1) / 15
        ]
        if inside:
            right = np.mean([hit for _, hit in inside])
            gaps += len(inside) * abs(right - np.mean([sure for sure, _ in inside]))
    assert score(task, predicted, wanted, shares)["ece"] == pytest.approx(gaps / len(rows))


@given(pairs(st.floats(-1e3, 1e3)))
def test_errors_of_numbers_are_those_of_scikit_learn(rows: list[tuple[float, float]]) -> None:
    predicted, wanted = (list(values) for values in zip(*rows, strict=True))
    task = own_task("mine", "regression", metrics=("r2", "mse", "rmse", "mae"))
    scores = score(task, predicted, wanted)
    assert scores["mse"] == pytest.approx(sklearn.mean_squared_error(wanted, predicted))
    assert scores["rmse"] == pytest.approx(sklearn.root_mean_squared_error(wanted, predicted))
    assert scores["mae"] == pytest.approx(sklearn.mean_absolute_error(wanted, predicted))
    if np.ptp(wanted) > 0:
        assert scores["r2"] == pytest.approx(sklearn.r2_score(wanted, predicted))
    else:
        assert scores["r2"] == (predicted == wanted)


@settings(max_examples=60)
@given(st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=9), min_size=1, max_size=9))
def test_types_of_spans_are_averaged_as_seqeval_does(
    sentences: list[list[tuple[str, str]]],
) -> None:
    predicted = [[p for p, _ in words] for words in sentences]
    wanted = [[w for _, w in words] for words in sentences]
    assume(any(tag != "O" for tags in (*predicted, *wanted) for tag in tags))
    task = own_task("mine", "tagging", metrics=("f1_macro", "f1_weighted"))
    scores = score(task, predicted, wanted)
    for average in ("macro", "weighted"):
        known = seqeval.f1_score(wanted, predicted, average=average, zero_division=0)
        assert scores[f"f1_{average}"] == known


@pytest.mark.parametrize(
    ("kind", "metric"), [("regression", "mse"), ("regression", "mae"), ("classification", "ece")]
)
def test_models_are_not_compared_by_errors(kind: Kind, metric: str) -> None:
    with pytest.raises(SpecError, match=f"{metric} is smaller where one is better; name it behind"):
        own_task("mine", kind, metrics=(metric,))
