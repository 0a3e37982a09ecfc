"""Our own split of examples where a benchmark's is not at hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kdnas.errors import TaskDataError
from kdnas.evaluation.examples import Example, SpanExample, TaggedExample
from kdnas.evaluation.task import Task

HELD_OUT = 0.2


def split(
    task: Task, pool: Mapping[str, Sequence[Example]], seed: int
) -> tuple[list[Example], dict[str, list[Example]]]:
    """Cut off a fifth of the examples for scoring.

    Examples that share a context, or a first text of two, stay together, so that nothing asked
    about in training is scored. Where a task trains on one language, only that one is cut: in the
    others everything is scored, save what holds the same ids as the training examples if the task
    is parallel.

    Args:
        task: says which language is trained on.
        pool: what there is, by the names of the evaluations.
        seed: of the cut.

    Returns:
        Training examples, and those to score by the same names.

    Raises:
        TaskDataError: there are too few to cut.
    """
    if task.train_language is None:
        trained = list(pool)
    else:
        trained = [task.train_language if task.train_language in pool else next(iter(pool))]
    train: list[Example] = []
    evaluations: dict[str, list[Example]] = {}
    for name in trained:
        kept, evaluations[name] = _cut(task, pool[name], seed)
        train += kept
    trained_ids = {example.id for example in train} if task.parallel else set()
    for name in pool:
        if name not in trained:
            evaluations[name] = [e for e in pool[name] if e.id not in trained_ids]
    return train, {name: evaluations[name] for name in pool if evaluations[name]}


def _cut(task: Task, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    groups: dict[object, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(_group(example), []).append(number)
    if len(groups) < 2:
        raise TaskDataError(
            f"{len(examples)} examples of {task.name} about {len(groups)} text cannot be split for "
            "training and scoring; give more, or a file for each part"
        )
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    held_out: set[int] = set()
    for members in order[:-1]:
        if held_out and len(held_out) + len(members) > HELD_OUT * len(examples):
            break
        held_out.update(members)
    train = [e for n, e in enumerate(examples) if n not in held_out]
    return train, [e for n, e in enumerate(examples) if n in held_out]


def _group(example: Example) -> object:
    if isinstance(example, SpanExample):
        return example.context
    return example.tokens if isinstance(example, TaggedExample) else example.text
