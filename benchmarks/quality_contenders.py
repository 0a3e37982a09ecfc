"""Who is compared in the study of students' quality, how each is read, and what was read so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from study_files import JsonLines

from kdnas.evaluation.finetuning.identity import METHOD

TEACHER, TEACHER_LAYERS = "minilm", 6
MAX_LENGTH = 64
TUNING_BATCH = 32
SEEDS = (0, 1, 2)
CHOICE = "choice of rate"
"""How the rows are read that a learning rate is chosen by, on held-out training examples."""
CHOSEN_ON = "SST-2"
"""The task whose training examples decide it."""
TASKS = ("SST-2", "STS-B", "CoLA", "RTE")


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
        seeds: with which it is made: one, where nothing is left to chance.
    """

    name: str
    words: str
    arch: str
    init: str
    distilled: bool
    seeds: Sequence[int] = SEEDS


TEACHER_ITSELF = Contender("teacher", "teacher", "", "", False, SEEDS[:1])
WORDS = Contender("words", "words and word pairs, no encoder", "", "", False, SEEDS[:1])


@dataclass(frozen=True)
class Study:
    """What is compared, and over how many steps.

    Attributes:
        student: its architecture.
        layers: of the teacher's cuts.
        steps: of each distillation.
        batch_size: sequences of its steps.
        tuning_steps: of each fine-tuning.
        tuning_rates: peak learning rates, of which each contender has its own best one; these are
            the two largest that Turc et al. 2019 choose from.
        last_weight: of the last layers' hidden states in each distillation; 1 is as published.
    """

    student: str = "3,12,288,768,gelu"
    layers: int = 3
    steps: int = 2000
    batch_size: int = 32
    tuning_steps: int = 500
    tuning_rates: tuple[float, ...] = (1e-4, 3e-4)
    last_weight: float = 1.0

    def tuning(self, rate: float) -> dict[str, Any]:
        """What of the published settings is changed, with a learning rate."""
        return {
            "learning_rate": rate,
            "batch_size": TUNING_BATCH,
            "epochs": 100.0,
            "max_steps": self.tuning_steps,
        }

    def to_json(self) -> dict[str, Any]:
        """What decides which models are compared."""
        values = asdict(self)
        told = {key: values[key] for key in ("student", "layers", "steps", "batch_size")}
        return told if self.last_weight == 1 else told | {"last_weight": self.last_weight}

    @property
    def student_itself(self) -> Contender:
        """The one that all others are set beside."""
        return self.contenders[0]

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All that is made."""
        own, cut = self.student, f"{self.layers},12,384,1536,gelu"
        chosen = [-(-i * TEACHER_LAYERS // self.layers) for i in range(1, self.layers + 1)]
        many = "s" if self.layers > 1 else ""
        even = f"teacher's layer{many} {', '.join(map(str, chosen))}"
        lowest = f"teacher's lowest {f'{self.layers} layers' if many else 'layer'}"
        return (
            Contender("student", "student, distilled", own, "teacher", True),
            Contender("student-0", "student, undistilled", own, "teacher", False),
            Contender("warm-0", "student, warm start, undistilled", own, "warm", False),
            Contender("even-0", f"{even}, undistilled", cut, "copy", False, SEEDS[:1]),
            Contender("lowest-0", f"{lowest}, undistilled", cut, "lowest", False, SEEDS[:1]),
            Contender("even", f"{even}, distilled", cut, "copy", True),
            Contender("lowest", f"{lowest}, distilled", cut, "lowest", True),
            Contender("warm", "student, warm start, distilled", own, "warm", True),
        )

    @property
    def everyone(self) -> tuple[Contender, ...]:
        """All that is scored."""
        return (TEACHER_ITSELF, *self.contenders, WORDS)


@dataclass(frozen=True)
class Choice:
    """Which part of a study is to be done.

    Attributes:
        study: which.
        contenders: names.
        seeds: of distillation and fine-tuning.
    """

    study: Study
    contenders: Sequence[str]
    seeds: Sequence[int]

    def __iter__(self) -> Iterator[tuple[Contender, int, int]]:
        """Each contender with the seed that makes it and the one to tune with, quick ones first."""
        chosen = [c for c in self.study.everyone if c.name in self.contenders]
        for seed in self.seeds:
            for contender in sorted(chosen, key=lambda c: c.distilled):
                # What has one model is tuned with every seed all the same.
                made = seed if len(contender.seeds) > 1 else contender.seeds[0]
                yield contender, made, seed


class Runs(JsonLines):
    """The file of scores, one JSON object a line."""

    def refuse_other_studies(self, study: Study) -> None:
        """Refuse a file with scores of another study's models, or that were read otherwise.

        Raises:
            SystemExit: there are such.
        """
        for row in self.rows:
            if row["study"] != study.to_json():
                raise SystemExit(
                    f"{self.path} has scores of {row['study']}, not of {study.to_json()}; name "
                    "another file with --results"
                )
            if row["method"] != METHOD:
                raise SystemExit(
                    f"{self.path} has scores by method {row['method']} of fine-tuning, and this is "
                    f"{METHOD}; name another file with --results"
                )

    def of(self, name: str, reading: Reading) -> list[dict[str, Any]]:
        """All runs of a contender that were read in a way."""
        return self.having(model=name, task=reading.task, how=reading.how)

    def choice(self, name: str, settings: dict[str, Any]) -> dict[str, Any] | None:
        """What is known of how well a contender learned with these settings, held out."""
        rows = self.having(model=name, task=CHOSEN_ON, how=CHOICE, settings=settings)
        return next(iter(rows), None)

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
