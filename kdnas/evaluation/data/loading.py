"""The examples of a task: from files found in a folder, or from the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.converting import found_labels
from kdnas.evaluation.data.doubts import (
    check_labels,
    check_numbers,
    check_spans,
    doubtful,
    hardly_different,
    learned_from,
    new_classes,
    single_types,
)
from kdnas.evaluation.data.finding import find_files
from kdnas.evaluation.data.parts import Examples, Parts, read_folder, read_hub, usual_part
from kdnas.evaluation.data.recognising import OtherDataError, is_named
from kdnas.evaluation.data.retrieval import load_retrieval
from kdnas.evaluation.data.sizes import not_as_published, without_the_first
from kdnas.evaluation.data.splitting import share_kept, split
from kdnas.evaluation.tasks.examples import (
    Example,
    TaskData,
)
from kdnas.evaluation.tasks.task import Task
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.evaluation import OWN_SUITE


def load_task(
    task: Task, data_dir: Path | None, seed: int = 0, reach: Reach = ANYWHERE
) -> TaskData:
    """Load what a task is trained on and scored on.

    A part that is published without labels is not used. Scored is the development part where the
    labels of the test part are secret (GLUE, SQuAD, TyDiQA), elsewhere the test part; or the other
    one, if that alone has labels or it has more languages. Where there is no training part, the
    development part is trained on if the test part is scored. Otherwise, and where there is nothing
    labelled beside the training part, a fifth of what there is is held out by a seeded draw. In
    either case ``official_split`` is False. A task whose models are taken as they are needs no
    training part.

    Args:
        task: the task.
        data_dir: a folder with the task's files as they are published, or a folder above it; a
            single file; None for the hub's data set.
        seed: of the split of our own, where one is needed.
        reach: how the folder's files are opened.

    Raises:
        RequestError: one of them is out of reach.
        TaskDataError: nothing is found (lists what was looked for), nothing has labels, or
            something cannot be read; names file and line.
    """
    if task.kind == "retrieval" and data_dir is not None:
        return load_retrieval(task, data_dir, reach)
    found = read_hub(task) if data_dir is None else read_folder(task, data_dir, reach)
    train = _training_part(task, found.parts.get("train", {}), found.notes)
    name, scored, why = _scored_part(task, found)
    if why and any(reading.part != "all" for reading in found.readings):
        found.notes.append(f"scored on the {name} part: {why}")
    if not train and not scored:
        raise TaskDataError(
            f"no labelled examples of {task.name}: {'; '.join(found.unlabelled)}; labels are "
            "needed for training and scoring"
        )
    dev: Sequence[Example] = ()
    if scored and name == "test":
        dev = _tuning_part(task, found)
    official = bool(train) and bool(scored) and not found.is_cut
    learned = "train"
    if train and scored:
        evaluations = _named(scored, name)
    elif not task.fine_tuned:
        evaluations = _named(scored or found.parts["train"], name if scored else "train")
        official = bool(scored) and not found.is_cut
    elif dev:
        train, evaluations, learned, dev = [*dev], _named(scored, name), "dev", ()
        found.notes.append(
            "not the official split: there is no training part, so that the dev part is trained on"
        )
    else:
        pool = _named(scored or found.parts["train"], "dev")
        train, evaluations = split(task, pool, seed)
        lacking = "labelled part to score" if not scored else "training part"
        found.notes.append(
            f"not the official split: there is no {lacking}, so that "
            f"{share_kept(task, pool, train)} of the labelled examples are trained on and others "
            f"scored (seed {seed})"
        )
    if official:
        differ = not_as_published(task, name, train if task.fine_tuned else (), evaluations)
        differ += without_the_first(task, evaluations)
        official = not differ
        found.notes += differ
    scored_examples = [e for examples in evaluations.values() for e in examples]
    every = [*train, *scored_examples]
    labels = found_labels(task, every)
    check_labels(task, labels, train, every)
    check_numbers(task, every)
    if not task.labels and task.fine_tuned:
        found.notes += new_classes(task, train, scored_examples)
    found.notes += doubtful(task, labels, every)
    if task.suite == OWN_SUITE and task.fine_tuned:
        found.notes += learned_from(train, scored_examples)
    found.notes += check_spans(task, train, scored_examples)
    if task.kind == "tagging":
        types = {tag.partition("-")[2] for tag in labels or () if tag != "O"}
        found.notes += hardly_different(sorted(types), "types of spans")
        found.notes += single_types(task, every)
    elif task.suite == OWN_SUITE:
        found.notes += hardly_different(labels or (), "classes")
    return TaskData(
        task=task,
        train=train,
        evaluations=evaluations,
        labels=labels,
        official_split=official,
        sources=tuple(dict.fromkeys(found.sources.get(learned, []) + found.sources.get(name, []))),
        notes=tuple(dict.fromkeys(found.notes)),
        tuning=dev,
        readings=tuple(found.readings),
    )


def without_plain(tasks: Sequence[Task]) -> list[Task]:
    """Leave out plain ``NER``, which any columns are, where they are those of another task."""
    return [task for task in tasks if task.layout.folders] or list(tasks)


def left_out(read: Sequence[Task], errors: Mapping[str, TaskDataError]) -> dict[str, TaskDataError]:
    """Those errors of a suite that its user wants to know of, where some of its tasks can be read.

    Of files that are read as plain ``NER`` that says enough, unless they are called otherwise.

    Args:
        read: the tasks that can be.
        errors: task → what came of reading it; of the others.
    """
    if all(task.layout.folders for task in read):
        return dict(errors)
    return {n: e for n, e in errors.items() if not isinstance(e, OtherDataError) or e.is_named}


def what_is_amiss(tasks: Sequence[Task], errors: Mapping[str, TaskDataError]) -> TaskDataError:
    """Return what to tell where none of a suite's tasks can be read.

    Of files that any folder may hold it is what the plainest task says, unless that finds none.

    Args:
        tasks: of the suite.
        errors: task → what came of reading it; of each of them.
    """
    plain = [errors[task.name] for task in tasks if not task.layout.folders]
    every = [*plain, *errors.values()]
    told = [error for error in every if not str(error).startswith("no data of")]
    return next(iter([*told, *errors.values()]))


def available_tasks(tasks: Iterable[Task], data_dir: Path, reach: Reach = ANYWHERE) -> list[Task]:
    """Those tasks whose files are found in a folder, by their names; nothing is read.

    Plain ``NER`` is one only if no other is.

    Raises:
        RequestError: a folder is out of reach.
        TaskDataError: none is found; lists what was looked for.
    """
    tasks, found, why = list(tasks), [], []
    for task in tasks:
        try:
            files = find_files(task, data_dir, reach)
        except TaskDataError as error:
            why.append(str(error))
        else:
            if is_named(task, files):
                found.append(task)
            else:
                why.append(f"nothing in {data_dir} is called {task.name}")
    if not found:
        raise TaskDataError("; ".join(why))
    return without_plain(found)


def _training_part(task: Task, train: Examples, notes: list[str]) -> list[Example]:
    """Examples to train on: those of the task's language, or of all there are."""
    if task.train_language in train:
        return train[task.train_language]
    if task.train_language and set(train) - {""}:
        notes.append(f"no training part in {task.train_language}: {', '.join(train)} taken")
    return [example for examples in train.values() for example in examples]


def _tuning_part(task: Task, found: Parts) -> list[Example]:
    """The development part in the language of training: others are to be new to the model."""
    return _training_part(task, found.parts.get("dev", {}), [])


def _scored_part(task: Task, found: Parts) -> tuple[str, Examples, str]:
    """Name and examples of the part that is scored, and why it is another than usual.

    There are no examples where no part has labels.
    """
    usual = usual_part(task)
    other = "test" if usual == "dev" else "dev"
    first, second = found.parts.get(usual, {}), found.parts.get(other, {})
    if len(second) <= len(first):
        unused = f"the {other} part has labels, and is not scored: papers report the {usual} part"
        if first and second and usual == "dev":
            found.notes.append(unused)
        return usual, first, ""
    why = f"the {usual} part has fewer languages" if first else f"no {usual} part has labels"
    return other, second, why


def _named(examples: Mapping[str, list[Example]], name: str) -> Examples:
    """Examples whose file names neither language nor variant go by the part's name."""
    return {key or name: values for key, values in examples.items()}
