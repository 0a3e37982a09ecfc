"""What a frozen encoder tells of a task: a linear model on its pooled states, or on words alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from transformers import AutoTokenizer

from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.task import Task
from kdnas.models.pooling import Pooling
from kdnas.models.teacher import TeacherHandle, load_teacher_model

LIMIT, BATCH_SIZE, MAX_LENGTH = 10_000, 64, 128
CHOICES_OF_C = (0.01, 0.1, 1.0, 10.0)
CHOICES_OF_ALPHA = tuple(10.0**power for power in range(0, 6))
FOLDS, SEED = 3, 0
SETTINGS = {
    "limit": LIMIT,
    "max_length": MAX_LENGTH,
    "c": list(CHOICES_OF_C),
    "alpha": list(CHOICES_OF_ALPHA),
    "folds": FOLDS,
}


def probe(model: TeacherHandle | None, data: TaskData) -> list[str] | list[float]:
    """Fit a linear model to the training part; return what it says of the first evaluation set.

    Features of an encoder are the mean of the last states over the tokens of a text, or of a pair
    read together, standardised. Classes take a logistic regression, numbers a ridge regression,
    how much they are held back chosen by cross-validation on the training part, of which a fixed
    seed draws at most ``LIMIT`` examples.

    Args:
        model: whose states are read; None counts words and pairs of words instead.
        data: a task of texts.
    """
    order = np.random.default_rng(SEED).permutation(len(data.train))[:LIMIT]
    train: list[Any] = [data.train[place] for place in order]
    test: list[Any] = list(next(iter(data.evaluations.values())))
    if model is None:
        counts = CountVectorizer(ngram_range=(1, 2), min_df=2, binary=True)
        known = counts.fit_transform(joined(train)).astype(np.float64)
        asked = counts.transform(joined(test)).astype(np.float64)
        scaler: Any = MaxAbsScaler()
    else:
        known, asked = (features(model, part) for part in (train, test))
        scaler = StandardScaler()
    labels = [example.label for example in train]
    fitted = make_pipeline(scaler, linear_model(data.task)).fit(known, labels)
    found: list[Any] = fitted.predict(asked).tolist()
    return found


def linear_model(task: Task) -> Any:
    """A linear model that chooses how much it is held back."""
    if task.kind == "regression":
        return RidgeCV(CHOICES_OF_ALPHA)

    def scored(model: Any, known: Any, labels: Any) -> float:
        return score(task, list(model.predict(known)), list(labels))[task.main_metric]

    return GridSearchCV(
        LogisticRegression(max_iter=2000, tol=1e-3),
        {"C": CHOICES_OF_C},
        scoring=scored,
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=SEED),
    )


def joined(examples: Sequence[TextExample]) -> list[str]:
    """The text of each example, with that of its pair behind it."""
    return [" ".join(filter(None, (example.text, example.pair))) for example in examples]


def features(model: TeacherHandle, examples: Sequence[TextExample]) -> NDArray[np.float32]:
    """The mean of the last states of each example: (n, d), in evaluation mode and float32."""
    encoder = load_teacher_model(model)
    tokenizer = AutoTokenizer.from_pretrained(model.folder, trust_remote_code=False)
    pooling = Pooling()
    found: dict[int, NDArray[np.float32]] = {}
    by_length = sorted(range(len(examples)), key=lambda n: len(joined([examples[n]])[0]))
    for start in range(0, len(by_length), BATCH_SIZE):
        places = by_length[start : start + BATCH_SIZE]
        texts = [examples[place].text for place in places]
        pairs = [examples[place].pair for place in places]
        encoded = tokenizer(
            texts,
            pairs if pairs[0] is not None else None,
            truncation=True,
            max_length=MAX_LENGTH,
            padding=True,
            return_tensors="pt",
        )
        mask = encoded["attention_mask"]
        with torch.inference_mode():
            states = encoder(input_ids=encoded["input_ids"], attention_mask=mask)
        pooled = pooling(states["last_hidden_state"], mask).numpy()
        found.update(zip(places, pooled, strict=True))
    return np.stack([found[place] for place in range(len(examples))])
