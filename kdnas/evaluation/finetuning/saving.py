"""Fine-tuned models on disk: ordinary Hugging Face folders, head and tokenizer included."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError

from kdnas import __version__
from kdnas.distill.export import copy_tokenizer
from kdnas.errors import StoreError
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import SpanExample, TaskData, TextExample
from kdnas.json_files import read_object
from kdnas.models.file_modes import readable_like_others
from kdnas.models.opening import put_space_before_words
from kdnas.models.teacher import TeacherHandle, quiet_transformers
from kdnas.reach import ANYWHERE, Reach

TASK_FILE = "task.json"
"""What a folder was made from, and what its answers mean."""


@dataclass(frozen=True, slots=True)
class SavedTask:
    """What a fine-tuned model does, and what it was made from.

    Attributes:
        task: its name.
        suite: that it belongs to.
        kind: what is predicted.
        max_length: tokens of an example, or of a window of a context.
        stride: tokens that neighbouring windows share.
        may_deny: whether it has learned that a question may have no answer.
        model: what was fine-tuned, as the user named it.
        fingerprint: of that model.
        seed: of the fine-tuning.
        settings: its hyper-parameters.
        sources: files or data sets that it learned from.
        made_with: version of the program.
        paired: whether it learned from pairs of texts; None where that was not noted, or of
            another kind than texts.
    """

    task: str
    suite: str
    kind: str
    max_length: Annotated[int, Field(ge=1)]
    stride: Annotated[int, Field(ge=0)]
    may_deny: bool
    model: str
    fingerprint: str
    seed: int
    settings: dict[str, Any]
    sources: tuple[str, ...]
    made_with: str
    paired: bool | None = None


def save_task_model(
    folder: Path,
    task_model: TaskModel,
    handle: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    seed: int,
    beside: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write a fine-tuned model where ``from_pretrained`` loads it; all of it or nothing.

    Args:
        folder: is replaced if it exists.
        task_model: after the fine-tuning.
        handle: of the model before it.
        data: of the task.
        settings: of the fine-tuning.
        seed: of it.
        beside: writes what else belongs into the folder.

    Raises:
        StoreError: the disk is full or not writable.
    """
    about = SavedTask(
        task=data.task.name,
        suite=data.task.suite,
        kind=data.task.kind,
        max_length=min(settings.max_length, task_model.max_length),
        stride=settings.stride,
        may_deny=may_deny(data.train),
        model=handle.ref,
        fingerprint=handle.fingerprint,
        seed=seed,
        settings=settings.to_json(),
        sources=data.sources,
        made_with=f"kdnas {__version__}",
        paired=_paired(data.train),
    )
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        with quiet_transformers():
            task_model.model.save_pretrained(draft)  # type: ignore[operator]
        readable_like_others(draft)
        copy_tokenizer(handle, draft)
        if data.task.kind == "tagging" and put_space_before_words(task_model.tokenizer):
            task_model.tokenizer.backend_tokenizer.no_truncation()
            task_model.tokenizer.backend_tokenizer.no_padding()
            task_model.tokenizer.save_pretrained(draft)  # reads words as they were learned
        (draft / TASK_FILE).write_text(json.dumps(asdict(about), indent=2) + "\n", "utf-8")
        beside(draft)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise StoreError(
            f"the fine-tuned model could not be written to {folder} ({reason}); free space there, "
            "or set KDNAS_HOME to another disk"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_saved_task(folder: Path, reach: Reach = ANYWHERE) -> SavedTask | None:
    """Read what a folder was made from; None of a model that others have fine-tuned.

    Raises:
        RequestError: its file is out of reach.
    """
    values = read_object(folder / TASK_FILE, reach)
    try:
        return None if values is None else TypeAdapter(SavedTask).validate_python(values)
    except ValidationError:
        return None


def _paired(examples: Sequence[Any]) -> bool | None:
    texts = [example for example in examples if isinstance(example, TextExample)]
    return any(text.pair is not None for text in texts) if texts else None


def may_deny(examples: Sequence[Any]) -> bool:
    """Whether any question has no answer, so that a model learns to say so."""
    return any(isinstance(e, SpanExample) and e.impossible for e in examples)
