"""Whether the head of a fine-tuned model is for a task, and what it calls the task's labels."""

from __future__ import annotations

from collections.abc import Sequence

from kdnas.errors import RequestError
from kdnas.evaluation.data.converting import found_labels
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.models.heads import kind_of_head
from kdnas.models.teacher import TeacherHandle

_MOST_NAMED = 10


def labels_of_head(
    model: TeacherHandle, data: TaskData
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the model's labels as the data call them, and what a reader should know of that.

    Names are the same but for case, blanks and underlines. A model that only numbers its classes,
    as ``LABEL_0``, has those of the data in their order, if they are as many, or are numbers.

    Args:
        model: on this machine.
        data: of the task.

    Returns:
        Labels in the order of the model's outputs, None of a task without; and notes.

    Raises:
        RequestError: the model has no head, or one for something else, or does not know a label
            that is right somewhere.
    """
    kind = kind_of_head(model.config)
    if kind is None:
        raise RequestError(
            f"model {model.ref!r} has no head, so that it answers nothing as it is; leave out "
            "`training: false` to fine-tune it"
        )
    if kind != data.task.kind:
        raise RequestError(
            f"model {model.ref!r} has a head for {kind}, but {data.task.name} is of kind "
            f"{data.task.kind}; name another model or task, or leave out `training: false`"
        )
    if data.labels is None:
        return None, ()
    own = [str(model.config.id2label[i]) for i in range(model.config.num_labels)]
    known = {simple_name(label): label for label in data.labels}
    named = tuple(known.get(simple_name(label), label) for label in own)
    right = _right_somewhere(data)
    lacking = [label for label in right if label not in named]
    if not lacking:
        return named, ()
    numbers = tuple(map(str, range(len(own))))
    if all(simple_name(label) in (f"label{i}", i) for i, label in zip(numbers, own, strict=True)):
        if set(right) <= set(numbers):
            return numbers, ()
        if len(own) == len(data.labels):
            return data.labels, (only_numbered(own, data.labels),)
    more = ", …" if len(own) > _MOST_NAMED else ""
    raise RequestError(
        f"{data.task.name} has the label {lacking[0]!r}, which model {model.ref!r} does not know; "
        f"it has {', '.join(own[:_MOST_NAMED])}{more}: write the labels as it does, or leave out "
        "`training: false`"
    )


def _right_somewhere(data: TaskData) -> Sequence[str]:
    """Labels of what is scored."""
    if data.task.labels is not None:
        return data.task.labels
    examples = [example for part in data.evaluations.values() for example in part]
    return found_labels(data.task, examples) or ()


def only_numbered(own: Sequence[str], taken: Sequence[str]) -> str:
    """Say what the classes of a head were taken for that has no names of its own for them."""
    pairs = ", ".join(f"{a} is {b}" for a, b in zip(own, taken, strict=True))
    return f"the model only numbers its classes; taken was that {pairs}"


def simple_name(label: str) -> str:
    """A label without what writers differ in: case, blanks and underlines."""
    return label.lower().replace("_", "").replace(" ", "")
