"""What distillation from a teacher's pieces is worth on tasks: one student, and its rivals.

    python benchmarks/task_worth.py make --corpus TEXTS --models FOLDER
    python benchmarks/task_worth.py score --models FOLDER --data-dir GLUE --results RUNS
    python benchmarks/task_worth.py report --results RUNS --output docs/results/task_worth

``make`` distils with ``kdnas full-distill``, with three seeds: the student from the start that is
the default and from the warm one, and the teacher's own layers, the lowest three and every second
one, all over the same steps of the same text; and writes each of them undistilled. ``score``
fine-tunes each model on SST-2, CoLA, RTE and STS-B, all in the same way, and reads STS-B by the
cosine of embeddings as they are. Both can be stopped, and go on where they were; ``--seeds 0`` does
a third of the work, ``--contenders`` that of some. Nothing is chosen here: the settings are fixed
below, and the dev sets are only reported on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from named_corpus import source_name
from numpy.typing import NDArray
from scipy.stats import t as student_t

from kdnas import ENGINE_VERSION
from kdnas.distill.export import copy_tokenizer
from kdnas.evaluation.data import load_task
from kdnas.evaluation.examples import TaskData
from kdnas.evaluation.finetune import finetune
from kdnas.evaluation.metrics import score
from kdnas.evaluation.settings import FinetuneSettings, published_settings
from kdnas.evaluation.sts_cosine import score_by_cosine
from kdnas.evaluation.task import Task
from kdnas.evaluation.tasks import find_task
from kdnas.models.teacher import TeacherHandle, load_teacher_model, prepare_teacher, with_layers
from kdnas.records import fingerprint
from kdnas.settings import Settings
from kdnas.store import Store

TEACHER = "minilm"
STUDENT, CUT = "3,12,288,768,gelu", "3,12,384,1536,gelu"
LAYERS = 3
STEPS, BATCH_SIZE, MAX_LENGTH = 2000, 32, 64
SEEDS = (0, 1, 2)
TASKS = ("SST-2", "CoLA", "RTE", "STS-B")
COSINE = "STS-B cosine"
TUNING = {"learning_rate": 1e-4, "batch_size": 32, "epochs": 100.0, "max_steps": 500}
DRAWS = 2000


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


def folder_of(models: Path, contender: Contender, seed: int) -> Path:
    """Where a model lies."""
    return models / f"{contender.name}-seed{seed}"


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
        chosen = [c for c in (TEACHER_ITSELF, *CONTENDERS) if c.name in self.contenders]
        for seed in self.seeds:
            for contender in sorted(chosen, key=lambda c: c.distilled):
                # What has one model is tuned with every seed all the same.
                made = seed if len(contender.seeds) > 1 else contender.seeds[0]
                yield contender, made, seed


def make(models: Path, corpus: str, rate: float | None, choice: Choice) -> None:
    """Make all models that are not there yet."""
    models.mkdir(parents=True, exist_ok=True)
    lowest = models / "lowest"
    if not lowest.is_dir():
        cut_lowest(lowest)
    for contender, made, _ in choice:
        target = folder_of(models, contender, made)
        if contender is TEACHER_ITSELF or (target / "run.json").is_file():
            continue
        start = ["--init-from", str(lowest)] if contender.init == "lowest" else []
        start = start or ["--init", contender.init]
        steps = STEPS if contender.distilled else 0
        rated = ["--learning-rate", str(rate)] if rate and steps else []
        began = time.monotonic()
        options = [
            *("--teacher", TEACHER, "--corpus", corpus, "--max-length", str(MAX_LENGTH)),
            *("--arch", contender.arch, *start, "--objective", "hs", "--steps", str(steps)),
            *("--batch-size", str(BATCH_SIZE), *rated, "--seed", str(made)),
            *("--output", str(target)),
        ]
        # Whatever decides what is made is in the name: the same name means the same model.
        name = f"{target.name}-{fingerprint({'options': options, 'engine': ENGINE_VERSION})}"
        if not kdnas("full-distill", *options, "--name", name):
            kdnas("full-distill", "--resume", name)
        if not (target / "run.json").is_file():
            raise SystemExit(f"{name} could not be made; what kdnas said stands above")
        print(f"{target.name}: {time.monotonic() - began:.0f} s", flush=True)


def kdnas(*words: str) -> bool:
    """Run a command; tell whether it worked."""
    program = Path(sys.executable).with_name("kdnas")
    return not subprocess.run([program, *words], check=False).returncode


def cut_lowest(folder: Path) -> None:
    """Write the teacher's lowest layers as a model of their own."""
    whole = prepare_teacher(TEACHER, Store.from_settings(Settings.from_environment()))
    model: Any = load_teacher_model(with_layers(whole, LAYERS))
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        draft = Path(scratch) / folder.name
        model.save_pretrained(draft)
        copy_tokenizer(whole, draft)
        draft.rename(folder)


class Runs:
    """The file of scores, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]

    def of(self, name: str, task: str) -> list[dict[str, Any]]:
        """All runs of a contender on a task."""
        return [row for row in self.rows if (row["model"], row["task"]) == (name, task)]

    def has(self, row: dict[str, Any]) -> bool:
        """Whether a model was scored with a seed on a task.

        Raises:
            SystemExit: it was another model, or tuned otherwise: the two cannot be mixed.
        """
        place = ("model", "made_with_seed", "tuning_seed", "task")
        for known in self.of(row["model"], row["task"]):
            if all(known[key] == row[key] for key in place):
                for key in ("fingerprint", "settings"):
                    if known[key] != row[key]:
                        raise SystemExit(
                            f"{self.path} has {row['task']} of {row['model']} with another {key}; "
                            "begin another file with --results"
                        )
                return True
        return False

    def add(self, row: dict[str, Any]) -> None:
        """Append a run."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def model_of(models: Path, contender: Contender, made: int, store: Store) -> TeacherHandle | None:
    """A contender's model; None where it is not made yet."""
    if contender is TEACHER_ITSELF:
        return prepare_teacher(TEACHER, store)
    folder = folder_of(models, contender, made)
    return prepare_teacher(str(folder), store) if (folder / "run.json").is_file() else None


def score_all(models: Path, data_dir: Path, runs: Runs, choice: Choice) -> None:
    """Score what is there and was not scored yet."""
    data = {name: load_task(find_task(name), data_dir) for name in TASKS}
    cosine = load_task(find_task(COSINE), data_dir)
    store = Store.from_settings(Settings.from_environment())
    for contender, made, seed in choice:
        if (model := model_of(models, contender, made, store)) is None:
            continue
        for name in (*TASKS, COSINE):
            by_cosine = name == COSINE
            settings = tuned_as(cosine.task if by_cosine else data[name].task)
            row: dict[str, Any] = {
                "model": contender.name,
                "made_with_seed": made,
                "tuning_seed": seed,
                "task": name,
                "fingerprint": model.fingerprint,
                "settings": settings.to_json(),
                "about": about(folder_of(models, contender, made)),
            }
            if runs.has(row) or (by_cosine and seed != made):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                result = (
                    score_by_cosine(model, cosine, settings, threads=1)
                    if by_cosine
                    else finetune(model, data[name], settings, seed, Path(scratch), threads=1)
                )
            if result is None:
                raise SystemExit("stopped")
            said = next(iter(result.predictions.values()))
            row["score"] = result.main
            row["predictions"] = [p.prediction for p in said]
            runs.add(row)
            print(f"{contender.words}, {name}, seed {seed}: {100 * result.main:.1f}", flush=True)


def tuned_as(task: Task) -> FinetuneSettings:
    """How all are fine-tuned."""
    return replace(published_settings(task), **TUNING)


def about(folder: Path) -> dict[str, Any]:
    """What a distillation says of its student."""
    run, request = folder / "run.json", folder / "distillation.json"
    if not (run.is_file() and request.is_file()):
        return {}
    done, spec = json.loads(run.read_text("utf-8")), json.loads(request.read_text("utf-8"))
    return {
        "relative": (done.get("losses") or {}).get("relative"),
        "corpus": [source_name(source) for source in spec["corpus"]["source"]],
        "corpus_fingerprint": done.get("corpus_fingerprint"),
        "learning_rate": spec["training"]["learning_rate"],
        "steps": spec["training"]["steps"],
        "dtype": done.get("dtype"),
    }


def resampled(task: Task, data: TaskData, rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """The mean score of a contender's runs on resampled examples: (DRAWS,).

    Examples are the same draws for all contenders.
    """
    truth = np.array([e.label for e in next(iter(data.evaluations.values()))], dtype=object)  # type: ignore[union-attr]
    said = [np.array(row["predictions"], dtype=object) for row in rows]
    chance = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        drawn = chance.integers(len(truth), size=len(truth))
        labels = list(truth[drawn])
        scores = [score(task, list(run[drawn]), labels)[task.main_metric] for run in said]
        found.append(statistics.mean(scores))
    return np.array(found)


def interval(
    centre: float, draws: NDArray[np.float64], *runs: Sequence[float]
) -> tuple[float, float]:
    """The 95 % interval of a mean, or of a difference of means, in per cent.

    Chance has two hands in it: which examples there are, whose part is the variance over draws, and
    how each model's runs turned out, s²/n each. With few runs the second is known badly, so that
    the quantile is Student's, with Welch's degrees of freedom.

    Args:
        centre: of the interval.
        draws: the same on resampled examples.
        runs: scores of the runs of each model.
    """
    parts = [(float(draws.var()), len(draws) - 1)]
    parts += [(statistics.variance(r) / len(r), len(r) - 1) for r in runs if len(r) > 1]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 100 * centre, 100 * centre
    freedom = total**2 / sum(variance**2 / n for variance, n in parts)
    half = float(student_t.ppf(0.975, freedom)) * total**0.5
    return 100 * (centre - half), 100 * (centre + half)


def report(runs: Runs, data_dir: Path) -> tuple[str, dict[str, Any]]:
    """The page and its numbers."""
    numbers: dict[str, Any] = {}
    everyone = (TEACHER_ITSELF, *CONTENDERS)
    for name in (*TASKS, COSINE):
        task = find_task(name)
        data = load_task(task, data_dir)
        draws = {
            c.name: resampled(task, data, rows) for c in everyone if (rows := runs.of(c.name, name))
        }
        for contender in everyone:
            if contender.name not in draws:
                continue
            scores, best = (
                [row["score"] for row in runs.of(model.name, name)] for model in (contender, FIRST)
            )
            place = numbers.setdefault(contender.name, {})
            place[name] = {
                "runs": scores,
                "interval": interval(statistics.mean(scores), draws[contender.name], scores),
            }
            if contender is not FIRST and best:
                above = statistics.mean(best) - statistics.mean(scores)
                apart = draws[FIRST.name] - draws[contender.name]
                place[name]["student_above"] = 100 * above
                place[name]["student_above_interval"] = interval(above, apart, scores, best)
    lines = [
        "# What a distilled student is worth on tasks",
        "",
        f"`{STUDENT}` from {TEACHER}, {STEPS} steps of {BATCH_SIZE} sequences of at most "
        f"{MAX_LENGTH} tokens, objective `hs`, and what a user would have without it. All were "
        f"fine-tuned alike: {TUNING['max_steps']} steps of {TUNING['batch_size']} at "
        f"{TUNING['learning_rate']:g}, on the official training sets, scored on the dev sets. "
        f"{COSINE} is read without fine-tuning. Per cent; mean ± deviation of the runs (a "
        "distillation and a fine-tuning each; of one model, fine-tunings); in brackets how much "
        "the distilled student is above, with a 95 % interval over examples and runs.",
        "",
        "| model | " + " | ".join((*TASKS, COSINE)) + " |",
        "|---|" + "---|" * (len(TASKS) + 1),
    ]
    for contender in everyone:
        if contender.name in numbers:
            cells = [cell(numbers[contender.name].get(name)) for name in (*TASKS, COSINE)]
            lines.append(f"| {contender.words} | {' | '.join(cells)} |")
    lines += ["", *verdicts(numbers), ""]
    for contender in CONTENDERS:
        rows = runs.of(contender.name, TASKS[0])
        losses = [r["about"]["relative"] for r in rows if r["about"].get("relative") is not None]
        if contender.distilled and losses:
            facts = rows[0]["about"]
            lines.append(
                f"- {contender.words}: held-out relative loss "
                + ", ".join(f"{loss:.3f}" for loss in losses)
                + f"; {', '.join(facts['corpus'])} (corpus `{facts['corpus_fingerprint']}`), peak "
                f"rate {facts['learning_rate']:g}"
            )
    lines += ["", f"Made with `python benchmarks/task_worth.py`; {len(runs.rows)} runs.", ""]
    return "\n".join(lines), numbers


def cell(found: dict[str, Any] | None) -> str:
    """A contender's figures on a task."""
    if found is None:
        return "–"
    values = [100 * value for value in found["runs"]]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    text = f"{statistics.mean(values):.1f}{spread}"
    if "student_above" not in found:
        return text
    low, high = found["student_above_interval"]
    return f"{text} ({found['student_above']:+.1f}, {low:+.1f} … {high:+.1f})"


def verdicts(numbers: dict[str, Any]) -> list[str]:
    """Say for each task with a bar whether it is met."""
    lines = []
    for name in ("SST-2", "STS-B"):
        rivals = {c.name: numbers.get(c.name, {}).get(name) for c in CONTENDERS}
        cuts = [r for r in (rivals["even-0"], rivals["lowest-0"]) if r]
        if rivals[FIRST.name] is None or rivals["warm-0"] is None or len(cuts) < 2:
            lines.append(f"- {name}: unfinished.")
            continue
        better = max(cuts, key=lambda r: statistics.mean(r["runs"]))
        for words, rival in (
            ("the undistilled warm start", rivals["warm-0"]),
            ("the better of the teacher's undistilled cuts to three layers", better),
        ):
            low, high = rival["student_above_interval"]
            met = "met" if low > 0 else "within the noise" if high > 0 else "missed"
            lines.append(
                f"- {name}, above {words}: {rival['student_above']:+.1f} ({low:+.1f} … "
                f"{high:+.1f}): **{met}**."
            )
    return lines


def main() -> None:
    """Run a part of the study, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("make", "score", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument("--learning-rate", type=float, help="of the distillations")
    parser.add_argument("--models", type=Path, help="folder of the models")
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=SEEDS)
    everyone = [TEACHER_ITSELF.name, *(c.name for c in CONTENDERS)]
    parser.add_argument("--contenders", nargs="+", choices=everyone, default=everyone)
    parser.add_argument("--data-dir", type=Path, help="GLUE as it is published")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("docs/results/task_worth_runs.jsonl"),
        help="JSON lines",
    )
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    if arguments.part in ("make", "score") and arguments.models is None:
        parser.error("--models says where the models are")
    if arguments.part in ("score", "report") and arguments.data_dir is None:
        parser.error("--data-dir says where GLUE is")
    choice = Choice(arguments.contenders, arguments.seeds)
    if arguments.part == "make":
        make(arguments.models, arguments.corpus, arguments.learning_rate, choice)
        return
    runs = Runs(arguments.results)
    if arguments.part == "score":
        score_all(arguments.models, arguments.data_dir, runs, choice)
        return
    text, numbers = report(runs, arguments.data_dir)
    print(text)
    if arguments.output:
        arguments.output.with_suffix(".md").write_text(text, "utf-8")
        arguments.output.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
