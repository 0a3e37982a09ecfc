"""A fine-tuned model at work: examples in, answers out, in their order and a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kdnas.distill.numerics import Device, choose_device, num_threads
from kdnas.errors import RequestError, unknown_name
from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.model import TaskModel, load_sequence_model, load_task_model
from kdnas.evaluation.finetuning.saving import TASK_FILE, SavedTask, read_saved_task
from kdnas.evaluation.finetuning.span import SpanEncoding
from kdnas.evaluation.finetuning.tagging import TaggingEncoding
from kdnas.evaluation.finetuning.text import TextEncoding, said_of
from kdnas.evaluation.prediction.inputs import PAIR_BY_OPTIONS
from kdnas.evaluation.scoring.answers import apply_threshold
from kdnas.evaluation.tasks.examples import Example, SpanExample, TaggedExample, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import Task, own_task
from kdnas.models.heads import kind_of_head
from kdnas.models.opening import ModelHandle, prepare_model
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.models.teacher import quiet_transformers
from kdnas.paths import expanded

CHUNK = 1024
"""Examples in memory at a time; within a chunk the longest are done first."""
_LIKE = {
    "classification": find_task("SST-2"),
    "multilabel": own_task("any", "multilabel"),
    "regression": find_task("STS-B"),
    "tagging": find_task("WNUT-17"),
    "span": find_task("SQuAD 2.0"),
}
"""Of each kind a task whose head is the same."""
USUAL_LENGTH, USUAL_STRIDE = 128, 128
SPAN_LENGTH = 384


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says about one example.

    Attributes:
        example: what it was asked about.
        value: label, labels of a text that may have several, number, tags of the words, or text of
            the answer, empty where there is none.
        probability: of the label; None of other kinds.
        probabilities: label → how likely it is, the likeliest first; None of other kinds. Of
            several labels each is for itself, and those above one half are the value.
    """

    example: Example
    value: str | float | tuple[str, ...]
    probability: float | None = None
    probabilities: Mapping[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        said = {"id": self.example.id, **self.example.asked(), "prediction": self.value}
        if self.probability is not None:
            said["probability"] = self.probability
        if self.probabilities is not None:
            said["probabilities"] = dict(self.probabilities)
        return said

    def to_text(self) -> str:
        """Return it as lines for a person: tags as columns, with a blank line after a sentence."""
        if isinstance(self.example, TaggedExample) and isinstance(self.value, tuple):
            pairs = zip(self.example.tokens, self.value, strict=True)
            return "".join(f"{word}\t{tag}\n" for word, tag in pairs)
        if isinstance(self.value, tuple):
            shares = self.probabilities or {}
            likely = ", ".join(f"{shares[label]:.4f}" for label in self.value)
            return f"{', '.join(self.value)}\t{likely}" if self.value else "no label"
        if isinstance(self.value, float):
            return f"{self.value:.4f}"
        probability = "" if self.probability is None else f"\t{self.probability:.4f}"
        return f"{self.value}{probability}"


def find_saved(reference: str, task: str | None) -> str:
    """Return the model that is meant: a folder of several tasks needs the name of one.

    Args:
        reference: a model, or the folder of ``kdnas evaluate --save-models``.
        task: by its name, as users write it.

    Raises:
        RequestError: the folder has several tasks and none is named, or not the one that is; or
            a task is named of a model that is of another, or says of none.
    """
    folder = expanded(reference)
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{TASK_FILE}"))}
    if (folder / "config.json").is_file() or not found:
        if task is not None:
            _check_task(reference, read_saved_task(folder), task)
        return reference
    if task is None:
        if len(found) == 1:
            return str(next(iter(found.values())))
        raise RequestError(
            f"{folder} has models of several tasks; name one with --task: {', '.join(found)}"
        )
    wanted = _plain(task)
    for name, place in found.items():
        about = read_saved_task(place)
        if wanted in (_plain(name), _plain(about.task) if about and "-seed" not in name else None):
            return str(place)
    raise RequestError(unknown_name(f"task of {folder}", task, found))


def _check_task(reference: str, saved: SavedTask | None, task: str) -> None:
    if saved is None:
        raise RequestError(
            f"model {reference!r} does not say what task it is for; leave out --task"
        )
    if _plain(saved.task) != _plain(task):
        raise RequestError(
            f"model {reference!r} is fine-tuned on {saved.task}, not on {task!r}; leave out "
            "--task, or name another model"
        )


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


class Predictor:
    """A fine-tuned model that answers.

    Args:
        model: a folder of ``--save-models``, any other model with a head, or a hub id; or what was
            found there already.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        batch_size: examples, or windows of contexts, of a forward pass.
        pair_by: how who asks gives second texts, for messages.

    Raises:
        TeacherError: the model is not found or does not load.
        RequestError: it has no head.

    Attributes:
        kind: what is predicted.
        labels: of a classification or a tagging task, else None.
        max_length: tokens of an example, or of a window of a context.
        task_model: model and tokenizer.
    """

    def __init__(
        self,
        model: str | ModelHandle,
        device: str = "auto",
        threads: int | None = None,
        batch_size: int = 64,
        pair_by: str = PAIR_BY_OPTIONS,
    ) -> None:
        handle = prepare_model(model) if isinstance(model, str) else model
        saved = read_saved_task(handle.folder)
        self.kind = _kind_of(handle)
        tells_apart = self.kind in ("classification", "multilabel", "tagging")
        self.labels = _labels_of(handle.config) if tells_apart else None
        self.task_model = _loaded(handle, _LIKE[self.kind], self.labels)
        self._device: Device = choose_device(device)
        self.task_model.model.to(self._device).eval()
        self._threads, self._batch_size = threads, batch_size
        usual = SPAN_LENGTH if self.kind == "span" else USUAL_LENGTH
        self.max_length = min(saved.max_length if saved else usual, self.task_model.max_length)
        stride = min(saved.stride if saved else USUAL_STRIDE, self.max_length // 3)
        self._denies = saved.may_deny if saved else False
        self._pair_by = pair_by
        self._paired = saved.paired if saved else None
        self._encoding = _encoding(
            self.kind, self.task_model, self.labels, self.max_length, stride, self._denies
        )

    def __call__(self, examples: Iterable[Example]) -> Iterator[Answer]:
        """Answer examples, in their order; not more than a chunk of them is in memory."""
        stream = iter(examples)
        while chunk := list(islice(stream, CHUNK)):
            with ExitStack() as machine:
                if self._threads is not None:
                    machine.enter_context(num_threads(self._threads))
                machine.enter_context(quiet_transformers())
                answers = self._answers(chunk)
            yield from answers

    def _answers(self, chunk: Sequence[Any]) -> list[Answer]:
        forward = Forward(self.task_model.model, self._device, "float32", self._batch_size)
        encoding = self._encoding
        if isinstance(encoding, TextEncoding):
            rows = encoding.logits(_alike(chunk, self._paired, self._pair_by), forward)
            return [self._answer(e, row) for e, row in zip(chunk, rows, strict=True)]
        if isinstance(encoding, TaggingEncoding):
            found = encoding.predict(chunk, forward)
            return [Answer(e, p.prediction) for e, p in zip(chunk, found, strict=True)]
        found = encoding.predict(_numbered(chunk), forward)
        spans = {p.id: str(p.prediction) for p in found}
        denials = {p.id: p.denial for p in found if p.denial is not None}
        given = apply_threshold(spans, denials if self._denies else None)
        return [Answer(e, given[str(i)]) for i, e in enumerate(chunk)]

    def _answer(self, example: TextExample, logits: Any) -> Answer:
        if self.labels is None:
            return Answer(example, float(logits.squeeze()))
        several = self.kind == "multilabel"
        shares = (logits.sigmoid() if several else logits.softmax(-1)).tolist()
        ranked = sorted(zip(self.labels, shares, strict=True), key=lambda one: -one[1])
        if several:
            return Answer(example, said_of(dict(ranked)), None, dict(ranked))
        label, probability = ranked[0]
        return Answer(example, label, probability, dict(ranked))


def _loaded(handle: ModelHandle, task: Task, labels: Sequence[str] | None) -> TaskModel:
    if isinstance(handle, SequenceHandle):
        return load_sequence_model(handle)
    return load_task_model(handle, task, labels, 0.0, 0, needs_head=True)


def _alike(
    chunk: Sequence[TextExample], paired: bool | None, pair_by: str
) -> Sequence[TextExample]:
    """Check that examples are pairs where the model learned from pairs, and else are not.

    Args:
        chunk: of examples.
        paired: whether the model learned from pairs; None where nobody knows, and all or none
            have to be, since a batch cannot mix them.
        pair_by: how who asks gives second texts.

    Raises:
        RequestError: one is not like that.
    """
    expected = any(example.pair is not None for example in chunk) if paired is None else paired
    odd = next((e for e in chunk if (e.pair is not None) != expected), None)
    if odd is None:
        return chunk
    if paired is None:
        raise RequestError(f"example {odd.id} has no second text, but others have; give all one")
    if paired:
        raise RequestError(
            f"example {odd.id} has no second text, but the model learned from pairs; give it with "
            f"{pair_by}"
        )
    raise RequestError(
        f"example {odd.id} has a second text, but the model learned from single ones; leave it out"
    )


def _numbered(chunk: Sequence[SpanExample]) -> list[SpanExample]:
    """Give questions ids that differ, by which their windows find them again."""
    return [
        SpanExample(str(i), e.question, e.context, (), (), impossible=False)
        for i, e in enumerate(chunk)
    ]


def _kind_of(handle: ModelHandle) -> str:
    kind = kind_of_head(handle.config)
    if kind is None:
        raise RequestError(
            f"model {handle.ref!r} has no head that answers anything; fine-tune it and keep the "
            f"model: kdnas evaluate {handle.ref} --suite SUITE --save-models DIR"
        )
    return kind


def _labels_of(config: Any) -> tuple[str, ...]:
    return tuple(str(config.id2label[i]) for i in range(config.num_labels))


def _encoding(
    kind: str,
    model: TaskModel,
    labels: Sequence[str] | None,
    length: int,
    stride: int,
    denies: bool,
) -> TextEncoding | TaggingEncoding | SpanEncoding:
    if kind == "span":
        return SpanEncoding(model, length, stride, may_deny=denies)
    if kind == "tagging":
        return TaggingEncoding(model, labels or (), length)
    return TextEncoding(model, labels, length)
