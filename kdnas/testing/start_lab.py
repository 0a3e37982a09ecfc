"""A tiny teacher and what it makes of some text, for tests of students that are cut from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.models.batch import Batch
from kdnas.models.families import Family, family_of
from kdnas.models.start.copied import copy_layers
from kdnas.models.start.states import TeacherStates, collect_states
from kdnas.models.start.teacher_start import start_from_teacher
from kdnas.models.start.warm import EmbeddingBasis, start_warm
from kdnas.models.student import build_student
from kdnas.models.teacher import TeacherHandle, load_teacher_model, prepare_teacher
from kdnas.search_space import PAPER_HEADS, PAPER_INTERMEDIATE, PAPER_LAYERS, SearchSpace
from kdnas.specs.parts import Start
from kdnas.store import Store
from kdnas.testing.tiny_teacher import make_tiny_teacher

PAD, CLS, SEP, FIRST_WORD = 0, 2, 3, 5
LONGEST = 20
TINY_SPACE = SearchSpace(
    PAPER_LAYERS, PAPER_HEADS, (24, 48, 72, 96), tuple(f // 24 for f in PAPER_INTERMEDIATE)
)
"""As many states as the paper's, deeper, shallower, wider and narrower than the tiny teachers; all
heads have an even width, as ModernBERT wants."""


@dataclass(frozen=True)
class StartLab:
    """A teacher with its states on random text.

    Attributes:
        handle: the teacher in a store of its own.
        model: its encoder.
        family: of the teacher.
        states: on the text.
    """

    handle: TeacherHandle
    model: nn.Module
    family: Family
    states: TeacherStates

    @property
    def own(self) -> Architecture:
        """The teacher's architecture."""
        shape = self.handle.shape
        return Architecture(
            shape.layers, shape.heads, shape.hidden, shape.intermediate, shape.activation
        )

    def built(self, architecture: Architecture | str, seed: int = 0) -> nn.Module:
        """Build a student, in eval mode."""
        if isinstance(architecture, str):
            architecture = Architecture.parse(architecture)
        return build_student(self.handle.config, architecture, seed=seed).eval()

    def student(
        self, architecture: Architecture | str, seed: int = 0, init: Start = "teacher"
    ) -> nn.Module:
        """Build a student and give it its start."""
        if isinstance(architecture, str):
            architecture = Architecture.parse(architecture)
        student = self.built(architecture, seed)
        if init == "teacher":
            start_from_teacher(student, self.model, self.family, architecture, self.states, seed)
        elif init == "warm":
            basis = EmbeddingBasis.of(self.model, self.family)
            start_warm(student, self.model, self.family, basis)
        elif init == "copy":
            copy_layers(student, self.model, self.family)
        return student

    def outputs(self, model: nn.Module) -> Tensor:
        """What an encoder makes of the text: (N, D)."""
        found = []
        with torch.no_grad():
            for batch in self.states.batches(PAD, "cpu"):
                seen = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
                found.append(seen.last_hidden_state.flatten(0, 1)[batch.real_rows])
        return torch.cat(found)

    def states_of(self, model: nn.Module, folder: Path) -> TeacherStates:
        """Collect what another model of the family makes of the same text."""
        folder.mkdir(parents=True)
        batches, longest = self.states.batches(PAD, "cpu"), self.handle.longest_sequence
        collect_states(model, self.family, batches, folder, "student", longest=longest)
        return TeacherStates(folder)


def assert_finite(lab: StartLab, architecture: Architecture | str) -> None:
    """A student that starts from the teacher has finite weights, and tells tokens apart.

    Raises:
        AssertionError: it does not.
    """
    student = lab.student(architecture)
    broken = [name for name, value in student.state_dict().items() if not value.isfinite().all()]
    assert not broken, f"{architecture}: {broken}"
    output = lab.outputs(student)
    assert output.isfinite().all(), f"{architecture}"
    assert output.std(0).min() > 0, f"{architecture} says the same of all tokens"


def make_start_lab(
    folder: Path, model_type: str = "bert", tokens: int = 600, **teacher: Any
) -> StartLab:
    """Make a teacher and watch it on random sentences.

    Args:
        folder: for everything; made if missing.
        model_type: family of the teacher.
        tokens: of the text, or a few more.
        teacher: sizes and other arguments of :func:`make_tiny_teacher`.
    """
    made = make_tiny_teacher(folder / "teacher", model_type, **teacher)
    return watch_teacher(str(made), folder, tokens)


def watch_teacher(ref: str, folder: Path, tokens: int) -> StartLab:
    """Watch any teacher on random sentences; ``folder`` is for its store and its states."""
    handle = prepare_teacher(ref, Store(str(folder / "store"), folder / "cache"))
    model, family = load_teacher_model(handle), family_of(handle.shape.model_type)
    states = folder / "states"
    states.mkdir()
    batches = random_batches(tokens, handle.shape.vocab_size)
    longest = handle.longest_sequence
    collect_states(model, family, batches, states, handle.ref, longest=longest)
    return StartLab(handle, model, family, TeacherStates(states))


def random_batches(tokens: int, vocabulary: int, seed: int = 0) -> Iterator[Batch]:
    """Draw sentences in which a word says something of the next, shortest first, in batches."""
    random = Random(seed)
    sentences: list[list[int]] = []
    while sum(map(len, sentences)) < tokens:
        length, word = random.randint(1, LONGEST - 2), random.randrange(FIRST_WORD, vocabulary)
        sentence = [CLS]
        for _ in range(length):
            sentence.append(word)
            step = random.choice((1, 7, random.randrange(vocabulary)))
            word = FIRST_WORD + (word + step) % (vocabulary - FIRST_WORD)
        sentences.append([*sentence, SEP])
    sentences.sort(key=len)
    for first in range(0, len(sentences), 16):
        part = sentences[first : first + 16]
        longest = len(part[-1])
        ids = torch.tensor([s + [PAD] * (longest - len(s)) for s in part])
        real = torch.tensor([[i < len(s) for i in range(longest)] for s in part])
        yield Batch.of(ids, real.long(), device="cpu")
