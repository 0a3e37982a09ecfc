"""Trainings for a task that take a second: networks of a few numbers, texts of a few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from kdnas.distill.checkpoint import Checkpoints
from kdnas.models.families import family_of
from kdnas.models.making import MAKING_MODELS
from kdnas.models.sequence.config import SequenceConfig
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.taskspecific.examples import Examples, TaskBatch
from kdnas.taskspecific.methods.base import Setting
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.networks import (
    LayeredNetwork,
    SequenceNetwork,
    TaskStudent,
    TransformerNetwork,
)
from kdnas.taskspecific.output_space import Classes, Numbers, OutputSpace
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.pseudo_classifiers import warm_up
from kdnas.taskspecific.stages import Hyperparameters
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import (
    KeptTeacher,
    RunningTeacher,
    TeacherOutputs,
    run_over,
)
from kdnas.taskspecific.training import HeldOut, Training

VOCABULARY, FIRST, LAST, TOLD_BY = 30, 1, 2, 7
"""Tokens, the special ones among them, and the one that labels go by."""
HYPER = Hyperparameters(
    epochs=2, finetune_epochs=1, batch_size=8, learning_rate=1e-2, beta=0.5, dropout=0.1
)


def tiny_examples(count: int = 40, seed: int = 0, *, numbers: bool = False) -> Examples:
    """Texts of uneven length, labelled by whether, or how often, one token is in them."""
    draw = np.random.default_rng(seed)
    ids = []
    for _ in range(count):
        inner = draw.integers(3, VOCABULARY, draw.integers(2, 15))
        inner[inner == TOLD_BY] = TOLD_BY + 1
        if draw.random() < 0.5:
            inner[draw.integers(len(inner))] = TOLD_BY
        ids.append(np.array([FIRST, *inner, LAST], np.int64))
    found = [int((row == TOLD_BY).sum()) for row in ids]
    types = [(np.arange(len(row)) > len(row) // 2).astype(np.int64) for row in ids]
    labels = torch.tensor(found, dtype=torch.float32 if numbers else torch.int64)
    return Examples(ids, types, labels, pad_id=0, max_length=64)


def tiny_space(examples: Examples) -> OutputSpace:
    """Two classes, or numbers of the examples' own deviation."""
    if examples.labels.dtype == torch.int64:
        return Classes(2)
    labels = examples.labels
    return Numbers(float(labels.std(unbiased=False)), float(labels.mean()))


def tiny_transformer(
    layers: int = 2, hidden: int = 16, outputs: int = 2, *, dropout: float = 0.1, seed: int = 0
) -> TransformerNetwork:
    """A BERT with a head, its weights at random."""
    config = AutoConfig.for_model(
        "bert",
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=outputs,
        initializer_range=0.2,
    )
    with MAKING_MODELS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config)
    taken = {"input_ids", "attention_mask", "token_type_ids"}
    return TransformerNetwork(model, family_of("bert"), taken)


def tiny_sequence_network(
    kind: str, hidden: int = 12, outputs: int = 2, *, dropout: float = 0.1, seed: int = 0
) -> SequenceNetwork:
    """A Bi-LSTM or a gated CNN over words at random."""
    config = SequenceConfig(
        kind=kind,
        layers=3,
        embedding_size=8,
        vocab_size=VOCABULARY,
        pad_token_id=0,
        hidden=hidden,
        dropout=dropout,
        labels=("no", "yes") if outputs == 2 else (),
    )
    table = torch.randn(VOCABULARY, 8, generator=torch.Generator().manual_seed(5))
    return SequenceNetwork(SequenceClassifier.from_teacher(config, table, seed))


def tiny_network(kind: str, outputs: int = 2, *, seed: int = 0) -> LayeredNetwork:
    """``bert``, ``bilstm`` or ``gated-cnn``."""
    if kind == "bert":
        return tiny_transformer(outputs=outputs, seed=seed)
    return tiny_sequence_network(kind, outputs=outputs, seed=seed)


def kept_teacher(teacher: RunningTeacher, examples: Examples, folder: Any = "") -> KeptTeacher:
    """What a teacher says of examples, with pseudo-classifiers that were trained on them."""
    kept = run_over(teacher, examples, folder)
    states = kept.states
    assert states is not None
    space = tiny_space(examples)
    return kept.with_layers(warm_up(states, examples, space, epochs=2, learning_rate=1e-2, seed=0))


def tiny_teacher_network(outputs: int = 2) -> RunningTeacher:
    """A BERT of four layers, frozen."""
    network = tiny_transformer(4, 24, outputs, dropout=0.0, seed=9)
    network.model.eval().requires_grad_(False)
    return RunningTeacher(network, "cpu", "float32")


@dataclass
class Counted:
    """A teacher that counts how often it is asked."""

    teacher: TeacherOutputs
    asked: int = 0

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """Count, and ask it."""
        self.asked += 1
        return self.teacher.of(batch)


@dataclass
class TinyTask:
    """A task whose teacher is ready.

    Attributes:
        train: examples to learn from.
        held_out: examples to choose by.
        teacher: what it says of the former.
        seen: what it says of the latter.
        shape: of the teacher.
        score: of logits of the held-out ones.
    """

    train: Examples
    held_out: Examples
    teacher: TeacherOutputs
    seen: KeptTeacher
    running: RunningTeacher
    score: Callable[[Tensor], float] = field(init=False)

    def __post_init__(self) -> None:
        labels = self.held_out.labels
        if labels.dtype == torch.int64:
            self.score = lambda logits: float((logits.argmax(1) == labels).float().mean())
        else:
            self.score = lambda logits: -float((logits[:, 0] - labels).square().mean())

    @classmethod
    def make(cls, *, numbers: bool = False) -> TinyTask:
        """A classification, or a regression."""
        train = tiny_examples(numbers=numbers)
        held_out = tiny_examples(16, seed=1, numbers=numbers)
        running = tiny_teacher_network(tiny_space(train).size)
        return cls(
            train, held_out, kept_teacher(running, train), kept_teacher(running, held_out), running
        )

    def run(
        self,
        method: str,
        kind: str = "bert",
        seed: int = 0,
        dtype: str = "float32",
        **hyper: Any,
    ) -> StudentRun:
        """A student at its start."""
        space, wanted = tiny_space(self.train), replace(HYPER, **hyper)
        network, made = tiny_network(kind, space.size, seed=seed), method_named(method)
        student = TaskStudent(
            network,
            space.size,
            classifies_layers=made.needs_student_layers,
            reads_states=made.needs_teacher_states,
            seed=seed,
        )
        setting = Setting(space, network.shape, self.running.network.shape, wanted.beta, seed=seed)
        return StudentRun(student, made(setting), self.teacher, wanted, seed, "cpu", dtype)

    def training(
        self,
        runs: Sequence[StudentRun],
        checkpoints: Checkpoints | None = None,
        *,
        score: Callable[[Tensor], float] | None = None,
        keeps_end: bool = False,
    ) -> Training:
        """A training of these."""
        held_out = HeldOut(
            self.held_out,
            [f"example {i}" for i in range(len(self.held_out))],
            score or self.score,
            self.seen,
        )
        return Training(runs, self.train, held_out, 0, "cpu", checkpoints, keeps_end=keeps_end)


def all_of(run: StudentRun) -> dict[str, Any]:
    """What a run has come to: weights, what was learned beside, what was seen, what was best."""
    return run.state_dict()


def equal_to_the_bit(one: Any, other: Any) -> bool:
    """Whether two states are the same, tensors and all."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            equal_to_the_bit(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal_to_the_bit, one, other))
    return bool(one == other)
