"""Who is compared in the study of students' quality, how each is read, and what was read so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from study_files import JsonLines

TEACHER = "minilm"
STUDENT, CUT = "3,12,288,768,gelu", "3,12,384,1536,gelu"
LAYERS = 3
STEPS, BATCH_SIZE, MAX_LENGTH = 2000, 32, 64
SEEDS = (0, 1, 2)
TASKS = ("SST-2", "STS-B", "CoLA", "RTE")
TUNING = {"learning_rate": 1e-4, "batch_size": 32, "epochs": 100.0, "max_steps": 500}


@dataclass(frozen=True)
class Reading:
    """A way to score a model on a task.

    Attributes:
        task: GLUE's name, or that of STS-B's cosines.
        how: ``fine-tuned``, ``probe``, or ``cosine`` of embeddings as they are.
    """

    task: str
    how: str

    def __str__(self) -> str:
        return self.task if self.how == "cosine" else f"{self.task}, {self.how}"

    @property
    def tuned(self) -> bool:
        """Whether a seed of its own has a hand in it."""
        return self.how == "fine-tuned"


FINE_TUNED = tuple(Reading(task, "fine-tuned") for task in TASKS)
PROBES = tuple(Reading(task, "probe") for task in TASKS)
COSINE = Reading("STS-B cosine", "cosine")
READINGS = (COSINE, *FINE_TUNED[:2], *PROBES, *FINE_TUNED[2:])
"""In the order of reading: first what a bar is set for."""


@dataclass(frozen=True)
class Contender:
    """A way to come by a model.

    Attributes:
        name: of its folders.
        words: what the page calls it.
        arch: architecture.
        init: how it starts; ``lowest`` are the lowest layers of the teacher.
        distilled: whether it is distilled then.
    """

    name: str
    words: str
    arch: str
    init: str
    distilled: bool

    @property
    def seeds(self) -> Sequence[int]:
        """Seeds with which it is made: one, where nothing is left to chance."""
        return SEEDS if self.distilled or self.arch == STUDENT else SEEDS[:1]


CONTENDERS = (
    Contender("student", "student, distilled", STUDENT, "teacher", True),
    Contender("student-0", "student, undistilled", STUDENT, "teacher", False),
    Contender("warm-0", "student, warm start, undistilled", STUDENT, "warm", False),
    Contender("even-0", "teacher's layers 2, 4, 6, undistilled", CUT, "copy", False),
    Contender("lowest-0", "teacher's lowest 3 layers, undistilled", CUT, "lowest", False),
    Contender("even", "teacher's layers 2, 4, 6, distilled", CUT, "copy", True),
    Contender("lowest", "teacher's lowest 3 layers, distilled", CUT, "lowest", True),
    Contender("warm", "student, warm start, distilled", STUDENT, "warm", True),
)
FIRST = CONTENDERS[0]
TEACHER_ITSELF = Contender("teacher", "teacher", "", "", False)
WORDS = Contender("words", "words and word pairs, no encoder", "", "", False)
EVERYONE = (TEACHER_ITSELF, *CONTENDERS, WORDS)


@dataclass(frozen=True)
class Choice:
    """Which part of the study is to be done.

    Attributes:
        contenders: names.
        seeds: of distillation and fine-tuning.
    """

    contenders: Sequence[str]
    seeds: Sequence[int]

    def __iter__(self) -> Iterator[tuple[Contender, int, int]]:
        """Each contender with the seed that makes it and the one to tune with, quick ones first."""
        chosen = [c for c in EVERYONE if c.name in self.contenders]
        for seed in self.seeds:
            for contender in sorted(chosen, key=lambda c: c.distilled):
                # What has one model is tuned with every seed all the same.
                made = seed if len(contender.seeds) > 1 else contender.seeds[0]
                yield contender, made, seed


class Runs(JsonLines):
    """The file of scores, one JSON object a line."""

    def of(self, name: str, reading: Reading) -> list[dict[str, Any]]:
        """All runs of a contender that were read in a way."""
        wanted = {"model": name, "task": reading.task, "how": reading.how}
        return [row for row in self.rows if all(row[key] == v for key, v in wanted.items())]

    def has(self, row: dict[str, Any]) -> bool:
        """Whether a model was scored with a seed on a task.

        Raises:
            SystemExit: it was another model, or tuned otherwise: the two cannot be mixed.
        """
        place = ("made_with_seed", "tuning_seed")
        for known in self.of(row["model"], Reading(row["task"], row["how"])):
            if all(known[key] == row[key] for key in place):
                for key in ("fingerprint", "settings"):
                    if known[key] != row[key]:
                        raise SystemExit(
                            f"{self.path} has {row['task']} of {row['model']} with another {key}; "
                            "begin another file with --results"
                        )
                return True
        return False
