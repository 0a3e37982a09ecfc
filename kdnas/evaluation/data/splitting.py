"""Our own split of examples where a benchmark's is not at hand, and one to tune on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kdnas.errors import TaskDataError
from kdnas.evaluation.tasks.examples import (
    Example,
    SpanExample,
    TaggedExample,
    TaskData,
    TextExample,
    places,
)
from kdnas.evaluation.tasks.task import Task

HELD_OUT = 0.2
TUNING_SHARE = 0.1
TUNING_SEED = 0
TUNING_SET = "tuning"
HELD_OUT_TENTH = "a held-out tenth of the training part"


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
    trained = _trained(task, pool)
    train: list[Example] = []
    evaluations: dict[str, list[Example]] = {}
    for name in trained:
        kept, evaluations[name] = _cut(task, pool[name], seed, HELD_OUT)
        train += kept
    trained_ids = {example.id for example in train} if task.parallel else set()
    for name in pool:
        if name not in trained:
            evaluations[name] = [e for e in pool[name] if e.id not in trained_ids]
    return train, {name: evaluations[name] for name in pool if evaluations[name]}


def share_kept(task: Task, pool: Mapping[str, Sequence[Example]], train: Sequence[Example]) -> str:
    """Say how much of what was cut is trained on, in per cent: texts that come often shift it."""
    return f"{100 * len(train) / sum(len(pool[name]) for name in _trained(task, pool)):.0f} %"


def _trained(task: Task, pool: Mapping[str, Sequence[Example]]) -> list[str]:
    """What of a pool is cut, and trained on."""
    if task.train_language is None:
        return list(pool)
    return [task.train_language if task.train_language in pool else next(iter(pool))]


def for_tuning(data: TaskData) -> TaskData:
    """Return what epochs and hyper-parameters are chosen by: nothing in it is scored in the end.

    That is the development part where the test part is scored. Elsewhere a tenth of the training
    part is held out, by a draw that is always the same; what shares a context or a first text
    stays on one side, unless that is everything, or so much that a tenth cannot be cut like this.

    Args:
        data: of the task.

    Returns:
        The same task with one evaluation set, ``tuning``, and what is left to train on.

    Raises:
        TaskDataError: there are too few examples to cut.
    """
    if data.tuning:
        return replace(data, evaluations={TUNING_SET: data.tuning})
    train, held_out = _cut(data.task, data.train, TUNING_SEED, TUNING_SHARE, alone=True)
    return replace(data, train=train, evaluations={TUNING_SET: held_out})


def tuned_on(data: TaskData) -> str:
    """Say in words what :func:`for_tuning` takes."""
    return "the development part" if data.tuning else HELD_OUT_TENTH


def _cut(
    task: Task, examples: Sequence[Example], seed: int, share: float, *, alone: bool = False
) -> tuple[list[Example], list[Example]]:
    groups: dict[object, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(_group(example), []).append(number)
    if len(groups) < 2 and alone:
        groups = {number: [number] for number in range(len(examples))}
    if len(groups) < 2:
        sentences = "part sentences by blank lines, " if task.kind == "tagging" else ""
        raise TaskDataError(
            f"{len(examples)} examples of {task.name} about {len(groups)} text{places(examples)}"
            f" cannot be split in two; {sentences}give more, or a file for each part"
        )
    held_out = _drawn(list(groups.values()), seed, share * len(examples), bounded=alone)
    if not held_out:
        held_out = _drawn([[n] for n in range(len(examples))], seed, share * len(examples))
    train = [e for n, e in enumerate(examples) if n not in held_out]
    return train, [e for n, e in enumerate(examples) if n in held_out]


def _drawn(groups: list[list[int]], seed: int, wanted: float, *, bounded: bool = False) -> set[int]:
    """Draw groups of examples up to a number of these, at least one and never all of them.

    Bounded, a first group of more than twice that number is passed over; there may be no other.
    """
    random.Random(seed).shuffle(groups)
    held_out: set[int] = set()
    for members in groups[:-1]:
        if not held_out and bounded and len(members) > 2 * wanted and len(members) > 1:
            continue
        if held_out and len(held_out) + len(members) > wanted:
            break
        held_out.update(members)
    return held_out


def _group(example: Example) -> object:
    if isinstance(example, SpanExample):
        return example.context
    if isinstance(example, TaggedExample):
        return example.tokens
    return example.text if isinstance(example, TextExample) else example.query
