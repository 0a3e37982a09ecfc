"""Everything that distillations for a task need, in miniature: an encoder, and tasks to learn."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from kdnas.evaluation.finetuning.saving import TASK_FILE, SavedTask
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.models.making import MAKING_MODELS
from kdnas.models.teacher import quiet_transformers
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.store import Store
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

LABELS = ("negative", "positive")
"""Of SST-2, in the order of its files."""
TUNING = {"learning_rate": 2e-3, "epochs": 1, "batch_size": 16, "warmup_epochs": 2}
LEARNING = {"epochs": 2, "finetune_epochs": 1, "batch_size": 8, "learning_rate": 1e-3}
MACHINE = {"max_length": 16, "threads": 1, "device": "cpu", "dtype": "float32"}


@dataclass(frozen=True)
class TinyTaskLab:
    """A folder of its own, and what lies in it.

    Attributes:
        folder: holds the home, ``encoder``, ``glue`` and ``numbers.jsonl``.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, layers: int = 6) -> TinyTaskLab:
        """Make an encoder that has learned nothing, a classification and a regression."""
        lab = cls(folder)
        make_tiny_teacher(
            lab.encoder, layers=layers, hidden=24, heads=2, intermediate=48, words=WORDS
        )
        write_sst2(lab.glue)
        write_numbers(lab.numbers)
        return lab

    @property
    def encoder(self) -> Path:
        """A BERT of six layers, 24 wide."""
        return self.folder / "encoder"

    @property
    def glue(self) -> Path:
        """SST-2: what has ``good`` in it is positive."""
        return self.folder / "glue"

    @property
    def numbers(self) -> Path:
        """How often ``good`` is in a text."""
        return self.folder / "numbers.jsonl"

    def settings(self, home: Path | None = None) -> Settings:
        """Settings with a home of their own, by default in the lab's folder."""
        place = home or self.folder / "home"
        return Settings.from_environment(
            {"KDNAS_HOME": str(place), "KDNAS_LOCKS": str(self.folder / "locks")}
        )

    def store(self, home: Path | None = None) -> Store:
        """The store of such a home."""
        return Store.from_settings(self.settings(home))

    def classification(self, **changes: Any) -> TaskDistillationSpec:
        """A request for SST-2; ``teacher`` is a folder or the entries of a teacher's spec."""
        return self._spec({"task": "SST-2", "data_dir": str(self.glue)}, changes)

    def regression(self, **changes: Any) -> TaskDistillationSpec:
        """A request for numbers."""
        own = {"kind": "regression"}
        return self._spec({"task": "goods", "data_dir": str(self.numbers), "own": own}, changes)

    def _spec(self, task: dict[str, Any], changes: dict[str, Any]) -> TaskDistillationSpec:
        named = changes.pop("teacher", self.encoder)
        teacher = named if isinstance(named, dict) else {"ref": str(named)}
        request = {"student": "first-layers:2", **task, **LEARNING, **MACHINE, **changes}
        return TaskDistillationSpec.model_validate(
            request | {"teacher": {"ref": str(self.encoder), **TUNING, **teacher}}
        )

    def learned(
        self,
        name: str,
        labels: tuple[str, ...] | None = LABELS,
        *,
        task: str | None = None,
        seed: int = 0,
    ) -> Path:
        """Save the encoder with a head at random, as others save what has learned a task.

        Args:
            name: of its folder.
            labels: of the head, in its order; None is the one number of a regression.
            task: that it says it was fine-tuned on, as kdnas notes it; None notes nothing.
            seed: of the head.
        """
        folder = self.folder / name
        if folder.exists():
            return folder
        shutil.copytree(self.encoder, folder)
        config = AutoConfig.from_pretrained(folder)
        if labels is None:
            config.num_labels = 1
        else:
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: i for i, label in enumerate(labels)}
        with MAKING_MODELS, torch.random.fork_rng(devices=[]), quiet_transformers():
            torch.manual_seed(seed)
            model = AutoModelForSequenceClassification.from_pretrained(folder, config=config)
            model.classifier.weight.data.mul_(20)
            model.save_pretrained(folder)
        if task is not None:
            about = SavedTask(
                task, "glue", "classification", 16, 0, False, "tiny", "0" * 32, 0, {}, (), "kdnas"
            )
            (folder / TASK_FILE).write_text(json.dumps(asdict(about)), "utf-8")
        return folder

    def reversed(self, learned: Path, name: str) -> Path:
        """Save a model that says the same with its labels in the other order."""
        folder = self.folder / name
        shutil.copytree(learned, folder)
        with quiet_transformers():
            model = AutoModelForSequenceClassification.from_pretrained(folder)
        labels = [model.config.id2label[i] for i in reversed(range(model.config.num_labels))]
        model.config.id2label = dict(enumerate(labels))
        model.config.label2id = {label: i for i, label in enumerate(labels)}
        head = model.classifier
        head.weight.data, head.bias.data = head.weight.data.flip(0), head.bias.data.flip(0)
        model.save_pretrained(folder)
        return folder


def write_numbers(file: Path, count: int = 80) -> Path:
    """Write a regression: texts, and how often ``good`` is in them."""
    draw = random.Random(1)
    texts = [" ".join(draw.choice(WORDS[:4]) for _ in range(6)) for _ in range(count)]
    rows = [{"text": text, "label": float(text.count("good"))} for text in texts]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return file


def write_own(file: Path, labels: list[Any]) -> Path:
    """Write a task of one's own: texts that differ, with these labels."""
    rows = [
        {"text": f"{WORDS[i % len(WORDS)]} {WORDS[i // len(WORDS) % len(WORDS)]}", "label": label}
        for i, label in enumerate(labels)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return file


def texts_of(data: TaskData) -> list[TextExample]:
    """The examples that scores of a task are reported on."""
    (part,) = data.evaluations.values()
    return [example for example in part if isinstance(example, TextExample)]


def transformers_says(folder: Path, examples: Sequence[Any], length: int = 16) -> list[Any]:
    """What transformers reads off a folder: labels, or numbers."""
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    said: list[Any] = []
    for example in examples:
        inputs = tokenizer(
            example.text, example.pair, truncation=True, max_length=length, return_tensors="pt"
        )
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        one = model.config.num_labels == 1
        said.append(float(logits) if one else model.config.id2label[int(logits.argmax())])
    return said
