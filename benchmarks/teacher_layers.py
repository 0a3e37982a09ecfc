"""What linear classifiers read from each layer of a teacher: as they are trained, and otherwise.

    python benchmarks/teacher_layers.py --data-dir ./glue --output docs/results/teacher_layers

The teacher's layers are asked as distillation for one task asks them: by a classifier on the vector
of the first token. They learn from some examples of the training part and are scored on others of
it, by the teacher as it is, before it has learned the task.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, matthews_corrcoef
from study_files import publish
from torch import Tensor

from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.finetuning.text import TextEncoding
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.teacher import prepare_teacher
from kdnas.specs.task_distillation import TaskTeacherSpec
from kdnas.taskspecific import pseudo_classifiers
from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.output_space import Classes
from kdnas.taskspecific.teacher_outputs import run_over, running_teacher
from workers.task.parts import Part, part_of
from workers.task.students import network_of

Predict = Callable[[Tensor, Examples, Tensor], NDArray[np.int64]]
"""States to learn from, their examples, states to be asked about → classes by layer (N, E)."""

LEARNED, ASKED, LENGTH, SEED = 2000, 400, 64, 0
SCORES: Final = {"SST-2": ("accuracy", accuracy_score), "CoLA": ("Matthews", matthews_corrcoef)}


def parts_of(task: str, data_dir: Path, teacher: str) -> tuple[Part, Part, Tensor, Tensor]:
    """Examples that are learned from and asked about, and the teacher's states of both."""
    model = prepare_teacher(teacher)
    data = load_task(find_task(task), data_dir / task)
    order = np.random.default_rng(SEED).permutation(len(data.train))
    loaded = load_task_model(model, data.task, data.labels, 0.0, SEED)
    encoding = TextEncoding(loaded, data.labels, LENGTH)
    network = running_teacher(network_of(loaded), "cpu", "float32")
    parts, states = [], []
    for rows in (order[:LEARNED], order[LEARNED : LEARNED + ASKED]):
        part = part_of([data.train[i] for i in rows], encoding, replace(data, train=()))
        with tempfile.TemporaryDirectory() as scratch:
            found = run_over(network, part.tokens, Path(scratch)).states
            assert found is not None
            states.append(found.clone())
        parts.append(part)
    return parts[0], parts[1], states[0], states[1]


def as_trained(
    states: Tensor, examples: Examples, asked: Tensor, *, standardised: bool = False
) -> NDArray[np.int64]:
    """By the teacher's pseudo-classifiers."""
    usual = TaskTeacherSpec()
    heads = pseudo_classifiers.warm_up(
        states,
        examples,
        Classes(int(examples.labels.max()) + 1),
        epochs=usual.warmup_epochs,
        learning_rate=usual.warmup_rate,
        seed=usual.seed,
        standardised=standardised,
    )
    return np.asarray(heads(asked).argmax(-1).T)


def by_regression(states: Tensor, examples: Examples, asked: Tensor) -> NDArray[np.int64]:
    """By logistic regression on standardised states."""
    mean, deviation = pseudo_classifiers.moments(states)
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        for layer in range(states.shape[1]):
            one = LogisticRegression(C=0.01, max_iter=500)
            one.fit((states[:, layer] - mean[layer]) / deviation[layer], examples.labels)
            said.append(one.predict((asked[:, layer] - mean[layer]) / deviation[layer]))
    return np.array(said)


WAYS: Final[Mapping[str, Predict]] = {
    "pseudo-classifiers, `raw`": as_trained,
    "`standardised`": partial(as_trained, standardised=True),
    "logistic regression (C = 0.01)": by_regression,
}


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of GLUE")
    parser.add_argument("--teacher", default="minilm")
    parser.add_argument("--output", type=Path, help="where the page goes, without its ending")
    given = parser.parse_args()
    lines = [
        "# What linear classifiers read from each layer of a teacher",
        "",
        f"By `benchmarks/teacher_layers.py`: `{given.teacher}` before it has learned the task, "
        f"{LEARNED} examples of the training part to learn from and {ASKED} others of it, drawn "
        "once. Scores in per cent.",
    ]
    numbers: dict[str, dict[str, list[float]]] = {}
    for task, (name, score) in SCORES.items():
        learned, asked, states, of_asked = parts_of(task, given.data_dir, given.teacher)
        right = asked.tokens.labels.numpy()
        spread = pseudo_classifiers.moments(states)[1].mean(-1)
        share = max(np.bincount(right)) / len(right)
        layers = range(1, states.shape[1] + 1)
        lines += [
            "",
            f"## {task}",
            "",
            f"{name}; the more frequent class are {100 * share:.1f} % of those asked about.",
            "",
            f"| | {' | '.join(f'layer {n}' for n in layers)} |",
            f"|---{'|---' * len(layers)}|",
            f"| deviation of a feature | {' | '.join(f'{float(x):.4f}' for x in spread)} |",
        ]
        numbers[task] = {}
        for way, predict in WAYS.items():
            said = predict(states, learned.tokens, of_asked)
            found = [100 * float(score(right, layer)) for layer in said]
            numbers[task][way] = found
            lines.append(f"| {way} | {' | '.join(f'{x:.1f}' for x in found)} |")
    publish("\n".join(lines) + "\n", numbers, given.output)


if __name__ == "__main__":
    main()
