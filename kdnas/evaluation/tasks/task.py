"""What a task is: its kind, labels and metrics, and where its data lie."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kdnas.errors import SpecError, unknown_name
from kdnas.specs.evaluation import OWN_SUITE

Kind = Literal["classification", "multilabel", "regression", "tagging", "span", "retrieval"]
OwnKind = Literal[
    "classification", "multilabel", "regression", "tagging", "similarity", "retrieval"
]
Way = Literal["fine-tuning", "own head", "embeddings"]
"""How a model comes to its answers: with a head that is trained for them, with the one that it has,
or without one, by the cosine of sentence embeddings."""

ARROW_FILES = (".parquet", ".arrow")
RECORD_FILES = (".json", ".jsonl", ".ndjson", *ARROW_FILES)
"""Ends of files whose rows say themselves what they hold."""
TABLE_FILES = (".tsv", ".csv", ".txt", *RECORD_FILES)

CUTOFFS = (1, 3, 5, 10, 20, 50, 100, 1000)
"""Ranks down to which a retrieval is scored."""
_RANKED = {"map": "MAP", "mrr": "MRR", "ndcg": "nDCG", "precision": "precision", "recall": "recall"}

# Metrics as papers write them; the keys are those of ``scoring.metrics.score``.
METRIC_NAMES: Mapping[str, str] = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "ece": "ECE",
    "exact_match": "EM",
    "f1": "F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "f1_samples": "F1 by example",
    "f1_weighted": "weighted F1",
    "mae": "MAE",
    "matthews": "Matthews",
    "mse": "MSE",
    "pearson": "Pearson",
    "precision": "precision",
    "r2": "R²",
    "recall": "recall",
    "rmse": "RMSE",
    "spearman": "Spearman",
    "subset_accuracy": "subset accuracy",
    **{f"{key}_at_{k}": f"{name}@{k}" for key, name in _RANKED.items() for k in CUTOFFS},
}

RANKED = frozenset(f"{key}_at_{k}" for key in _RANKED for k in CUTOFFS)
"""Metrics of a retrieval, each the mean of what the queries score."""
CORRELATIONS = frozenset({"matthews", "pearson", "spearman"})
"""Metrics from -1 to 1."""
ERRORS = frozenset({"mae", "mse", "rmse"})
"""Metrics in the unit of what is predicted, or its square: not to be written per cent."""
SMALLER_IS_BETTER = ERRORS | {"ece"}
"""Metrics that models cannot be compared by, since of that more is better."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns that hold a task, in a header or a data set.

    Attributes:
        text: the first text, or the words of a tagging task.
        pair: the second text.
        label: class, number or tags; where a text may have several labels, of their list, or the
            columns that say yes or no to each, with commas.
        language: where one file holds several languages.
    """

    text: str
    pair: str | None
    label: str
    language: str | None = None

    def labels_in(self, there: Collection[str]) -> tuple[str, ...]:
        """Which columns hold the labels, of those there are, in lower case.

        That is one; of several labels a text it may be one for each, ``toxic,insult``.

        Returns:
            None of them if one is lacking.
        """
        one = self.label.lower()
        if one in there:
            return (one,)
        names = tuple(name.strip() for name in one.split(","))
        return names if len(names) > 1 and set(names) <= set(there) else ()


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which columns of a file of words and tags to take, counted from 1; None finds it out."""

    word: int | None = None
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class HubPart:
    """A split of a configuration of a hub data set."""

    config: str | None
    split: str


@dataclass(frozen=True, slots=True)
class HubSource:
    """A Parquet data set of the hub.

    Attributes:
        path: such as ``nyu-mll/glue``.
        revision: a commit, or a branch; a branch's commit of the day is kept with the data.
        columns: of its rows; a span task always has the columns of SQuAD.
        train: what is trained on; None where there is nothing.
        evaluations: what is scored, by the names of ``TaskData.evaluations``.
        converted: the revision is of the hub's own conversion to Parquet, a folder a split, since
            the repository itself holds a loading script.
    """

    path: str
    revision: str
    columns: Columns
    train: HubPart | None
    evaluations: Mapping[str, HubPart]
    converted: bool = False


@dataclass(frozen=True, slots=True)
class LocalLayout:
    """How the files of a task look when they are unpacked as they are published.

    Attributes:
        folders: names of its folder, in lower case without punctuation; a folder whose name
            begins with one is taken too.
        suffixes: ends of file names; an empty one stands for no suffix.
        examples: file names that are usual, for messages.
        columns: headers that are known.
        positions: columns of text, pair and label in a table without header.
        languages: codes or names in file names → code; empty for a task in one language.
        skip: file names that belong to another task of the same folder.
        together: names of files that make one part with others of the same part.
        advice: what to do about a table that lacks a column, for messages.
        choice: columns of words and tags that a user has named.
    """

    folders: tuple[str, ...]
    suffixes: tuple[str, ...]
    examples: tuple[str, ...]
    columns: tuple[Columns, ...] = ()
    positions: tuple[int, int | None, int] | None = None
    languages: Mapping[str, str] = field(default_factory=dict)
    skip: str | None = None
    together: str | None = None
    advice: str = ""
    choice: ColumnChoice = ColumnChoice()


@dataclass(frozen=True, slots=True)
class Task:
    """A task: what is predicted, how it is scored, where its data are.

    Attributes:
        name: as papers write it.
        suite: key of ``SUITES``; ``own`` for a user's.
        kind: what is predicted.
        labels: class names by the numbers that the files use; the second is the positive one of
            F1. None where they are found in the data, and for regression and spans.
        metrics: keys of ``METRIC_NAMES``.
        main_metric: the one that enters averages.
        layout: local files.
        hub: data set of the hub.
        train_language: the only language that is trained on; None for all there are.
        parallel: the languages hold the same examples under the same ids.
        train_from: the task whose training part is used where this one has none of its own.
        way: how a model comes to its answers.
    """

    name: str
    suite: str
    kind: Kind
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    main_metric: str
    layout: LocalLayout
    hub: HubSource | None = None
    train_language: str | None = None
    parallel: bool = False
    train_from: str | None = None
    way: Way = "fine-tuning"

    def __post_init__(self) -> None:
        unknown = [metric for metric in self.metrics if metric not in METRIC_NAMES]
        if unknown:
            raise SpecError(unknown_name("metric", unknown[0], METRIC_NAMES))
        if self.main_metric not in self.metrics:
            raise SpecError(
                f"main metric {self.main_metric!r} of {self.name} is not among its metrics "
                f"{', '.join(self.metrics)}; name one of these"
            )

    @property
    def fine_tuned(self) -> bool:
        """Whether a model is trained for it, and not scored as it is."""
        return self.way == "fine-tuning"

    @property
    def is_distilled_for(self) -> bool:
        """Whether students can be distilled for it: a class or a number is learned for a text."""
        return self.kind in ("classification", "regression") and self.fine_tuned


def simple(name: str) -> str:
    """A name in lower case, letters and digits only: ``SST-2`` is ``sst2``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_COLUMNS = (".txt", ".conll", ".conllu", ".iob", ".iob2", ".bio")
_OWN_METRICS: Mapping[OwnKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "classification": (
        ("accuracy", "f1"),
        (
            *("matthews", "precision", "recall", "f1_macro", "f1_micro", "f1_weighted"),
            *("balanced_accuracy", "auc", "ece"),
        ),
    ),
    "multilabel": (
        ("f1_micro", "f1_macro", "subset_accuracy"),
        ("f1_weighted", "f1_samples", "auc"),
    ),
    "regression": (("pearson", "spearman"), ("mse", "rmse", "mae", "r2")),
    "tagging": (("f1", "precision", "recall"), ("accuracy", "f1_macro", "f1_weighted")),
    "similarity": (("spearman", "pearson"), ()),
    "retrieval": (
        ("ndcg_at_10", "recall_at_10", "recall_at_100", "mrr_at_10"),
        tuple(f"{key}_at_{k}" for key in _RANKED for k in CUTOFFS),
    ),
}
"""Of each kind of a user's task the metrics that are usual, and the others that there are."""


def own_task(
    name: str,
    kind: OwnKind,
    *,
    text: str = "text",
    pair: str | None = None,
    label: str = "label",
    labels: tuple[str, ...] | None = None,
    metrics: tuple[str, ...] | None = None,
) -> Task:
    """A user's task in CSV, TSV, JSON Lines or Parquet: a file, or a folder with one a part.

    Args:
        name: what reports call it.
        kind: one of ``OwnKind``. A tagging task keeps lists of words and tags in JSON Lines or
            Parquet, or words and tags in columns. Similarity and retrieval are scored by sentence
            embeddings, and nothing is trained for them.
        text: column of the text, or of the words.
        pair: column of a second text.
        label: column of the class, the classes, the number, or the tags; of multilabel also a
            column for each class, with commas.
        labels: class names in order; found in the data where they are not given.
        metrics: keys of ``METRIC_NAMES``, the main one first.

    Raises:
        SpecError: the kind is ``span``, a metric is not one of the kind, or the main one is an
            error, which is smaller where a model is better.
    """
    if kind not in _OWN_METRICS:
        raise SpecError(
            f"a task of your own cannot be of kind {kind!r}; choose {', '.join(_OWN_METRICS)}, or "
            "put questions in SQuAD's JSON and evaluate them as SQuAD"
        )
    usual, others = _OWN_METRICS[kind]
    stray = next((metric for metric in metrics or () if metric not in usual + others), None)
    if stray is not None and kind == "retrieval":
        raise SpecError(
            f"unknown metric of a retrieval {stray!r}; give {', '.join(_RANKED)} down to a rank of "
            f"{', '.join(map(str, CUTOFFS))}, such as recall_at_10"
        )
    if stray is not None:
        raise SpecError(unknown_name(f"metric of a {kind}", stray, usual + others))
    if text in (pair, *(label or "").split(",")):
        raise SpecError(
            f"the column {text!r} cannot hold both texts and what is said of them; name another "
            "as `own.text`, `own.pair` or `own.label`"
        )
    chosen = metrics or usual
    if chosen[0] in SMALLER_IS_BETTER:
        raise SpecError(
            f"models are compared by the first metric, and {chosen[0]} is smaller where one is "
            f"better; name it behind another, such as {usual[0]},{chosen[0]}"
        )
    return Task(
        name=name,
        suite=OWN_SUITE,
        kind="regression" if kind == "similarity" else kind,
        labels=labels,
        metrics=tuple(dict.fromkeys(chosen)),
        main_metric=chosen[0],
        layout=LocalLayout(
            (simple(name),),
            tuple(dict.fromkeys(TABLE_FILES + (_COLUMNS if kind == "tagging" else ()))),
            ("train.csv", "dev.csv", "test.jsonl"),
            (Columns(text, pair, label),),
            advice="; name the columns as `own.text`, `own.pair` and `own.label`",
        ),
        way="embeddings" if kind in ("similarity", "retrieval") else "fine-tuning",
    )
