"""What distillation from a teacher's pieces is worth on tasks: one student, and its rivals.

    python benchmarks/student_quality.py make --corpus TEXTS --models FOLDER
    python benchmarks/student_quality.py score --models FOLDER --data-dir GLUE
    python benchmarks/student_quality.py report --data-dir GLUE --output PAGE

``make`` distils with ``kdnas full-distill``, with three seeds: the student from the start that is
the default and from the warm one, and the teacher's own layers, the lowest three and every second
one, all over the same steps of the same text; and writes each of them undistilled. ``score``
fine-tunes each model on SST-2, CoLA, RTE and STS-B, all in the same way, fits a linear probe to the
frozen model, and reads STS-B by the cosine of embeddings as they are. Both can be stopped, and go
on where they were; ``--seeds 0`` does a third of the work, ``--contenders`` that of some. What is
compared is set in quality_contenders. Of several ``--tuning-rates`` each contender takes for all
tasks what its first model does best with on a tenth of SST-2's training examples, which it does not
learn from; the dev sets are only reported on.
``--arch`` and ``--layers`` make it the same study of another student and other cuts, such as of
what a pipeline recommends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import linear_probe
from named_corpus import source_name
from quality_contenders import (
    CHOICE,
    CHOSEN_ON,
    COSINE,
    MAX_LENGTH,
    READINGS,
    SEEDS,
    TASKS,
    TEACHER,
    TEACHER_ITSELF,
    WORDS,
    Choice,
    Contender,
    Reading,
    Runs,
    Study,
)
from quality_page import report
from study_files import publish

from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.distill.export import copy_tokenizer
from kdnas.distill.numerics import choose_dtype, num_threads
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.grid import GRID_SEED
from kdnas.evaluation.finetuning.identity import METHOD
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.untrained.similarity import score_by_cosine
from kdnas.models.teacher import TeacherHandle, load_teacher_model, prepare_teacher, with_layers
from kdnas.records import fingerprint
from kdnas.settings import Settings
from kdnas.store import Store


def folder_of(models: Path, contender: Contender, seed: int) -> Path:
    """Where a model lies."""
    return models / f"{contender.name}-seed{seed}"


def make(models: Path, corpus: str, rate: float | None, choice: Choice) -> None:
    """Make all models that are not there yet."""
    study, lowest = choice.study, models / "lowest"
    keep_apart(models, study)
    if not lowest.is_dir():
        cut_lowest(lowest, study.layers)
    for contender, made, _ in choice:
        target = folder_of(models, contender, made)
        if contender not in study.contenders or (target / "run.json").is_file():
            continue
        start = ["--init-from", str(lowest)] if contender.init == "lowest" else []
        start = start or ["--init", contender.init]
        steps = study.steps if contender.distilled else 0
        rated = ["--learning-rate", str(rate)] if rate and steps else []
        began = time.monotonic()
        options = [
            *("--teacher", TEACHER, "--corpus", corpus, "--max-length", str(MAX_LENGTH)),
            *("--arch", contender.arch, *start, "--objective", "hs", "--steps", str(steps)),
            *("--last-weight", str(study.last_weight)),
            *("--batch-size", str(study.batch_size), *rated, "--seed", str(made)),
            *("--output", str(target)),
        ]
        # Whatever decides what is made is in the name: the same name means the same model.
        name = f"{target.name}-{fingerprint({'options': options, 'engine': ENGINE_VERSION})}"
        if not kdnas("full-distill", *options, "--name", name):
            kdnas("full-distill", "--resume", name)
        if not (target / "run.json").is_file():
            raise SystemExit(f"{name} could not be made; what kdnas said stands above")
        print(f"{target.name}: {time.monotonic() - began:.0f} s", flush=True)


def keep_apart(models: Path, study: Study) -> None:
    """Write down whose models a folder holds, or refuse those of another study."""
    models.mkdir(parents=True, exist_ok=True)
    note, own = models / "study.json", study.to_json()
    if not note.is_file():
        note.write_text(json.dumps(own) + "\n", "utf-8")
    elif (found := json.loads(note.read_text("utf-8"))) != own:
        raise SystemExit(f"{models} holds the models of {found}, not of {own}; give another folder")


def kdnas(*words: str) -> bool:
    """Run a command; tell whether it worked."""
    program = Path(sys.executable).with_name("kdnas")
    return not subprocess.run([program, *words], check=False).returncode


def cut_lowest(folder: Path, layers: int) -> None:
    """Write the teacher's lowest layers as a model of their own."""
    whole = prepare_teacher(TEACHER, Store.from_settings(Settings.from_environment()))
    model: Any = load_teacher_model(with_layers(whole, layers))
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        draft = Path(scratch) / folder.name
        model.save_pretrained(draft)
        copy_tokenizer(whole, draft)
        draft.rename(folder)


def model_of(models: Path, contender: Contender, made: int) -> TeacherHandle | None:
    """A contender's model where it lies, its own pooling with it; None where there is none yet."""
    if contender is TEACHER_ITSELF:
        return prepare_teacher(TEACHER)
    folder = folder_of(models, contender, made)
    return prepare_teacher(str(folder)) if (folder / "run.json").is_file() else None


def score_all(
    models: Path, data_dir: Path, runs: Runs, choice: Choice, tasks: Sequence[str] = TASKS
) -> None:
    """Score what is there and was not scored yet, on these tasks and by the cosine of STS-B."""
    keep_apart(models, choice.study)
    wanted = (*tasks, COSINE.task)
    data = {name: load_task(find_task(name), data_dir) for name in {*wanted, CHOSEN_ON}}
    dtype = choose_dtype("auto", "cpu")
    readings = [reading for reading in READINGS if reading.task in wanted]
    for reading, (contender, made, seed) in product(readings, list(choice)):
        model = model_of(models, contender, made)
        if model is None and (contender is not WORDS or reading.how != "probe"):
            continue
        if not reading.tuned and seed != made:
            continue  # chance has no second say in it
        tuning: dict[str, Any] = {}
        if reading.tuned:
            tuning = best_tuning(models, contender, data[CHOSEN_ON], runs, choice.study, dtype)
        row: dict[str, Any] = {
            "model": contender.name,
            "made_with_seed": made,
            "tuning_seed": seed,
            "task": reading.task,
            "how": reading.how,
            "study": choice.study.to_json(),
            "fingerprint": model.fingerprint if model else "",
            "settings": linear_probe.SETTINGS if reading.how == "probe" else tuning,
            "dtype": dtype if reading.tuned else "float32",
            "about": about(folder_of(models, contender, made)),
            "method": METHOD,
        }
        if runs.has(row):
            continue
        row["predictions"] = read(model, reading, data[reading.task], tuning, seed, dtype)
        row["score"] = judged(data[reading.task], row["predictions"])
        runs.add(row)
        points = f"{100 * row['score']:.1f}"
        print(f"{contender.words}, {reading}, seed {seed}: {points}", flush=True)


def best_tuning(
    models: Path,
    contender: Contender,
    data: TaskData,
    runs: Runs,
    study: Study,
    dtype: Literal["float32", "bfloat16"],
) -> dict[str, Any]:
    """The settings with which a contender's first model does best on held-out training examples.

    One task decides for all, since trials cost more than what is reported.
    """
    tried = [study.tuning(rate) for rate in study.tuning_rates]
    if len(tried) == 1:
        return tried[0]
    rows = [chosen_by(models, contender, data, runs, study, one, dtype) for one in tried]
    best: dict[str, Any] = max(rows, key=lambda row: row["score"])["settings"]
    return best


def chosen_by(
    models: Path,
    contender: Contender,
    data: TaskData,
    runs: Runs,
    study: Study,
    tuning: dict[str, Any],
    dtype: Literal["float32", "bfloat16"],
) -> dict[str, Any]:
    """How well a contender's first model learns a task with these settings, read or remembered."""
    model = model_of(models, contender, contender.seeds[0])
    name = data.task.name
    row = runs.choice(contender.name, tuning)
    if row is not None:
        # The model need not lie here any more: other seeds may be done on another machine.
        if model is not None and row["fingerprint"] != model.fingerprint:
            raise SystemExit(
                f"{runs.path} chose a rate for {name} of {contender.name} by another model; begin "
                "another file with --results"
            )
        return row
    if model is None:
        first = folder_of(models, contender, contender.seeds[0])
        raise SystemExit(f"rates are chosen with {first}, which is not there; make it first")
    apart = for_tuning(data)
    said = read(model, Reading(name, "fine-tuned"), apart, tuning, GRID_SEED, dtype)
    row = {
        "model": contender.name,
        "task": name,
        "how": CHOICE,
        "study": study.to_json(),
        "fingerprint": model.fingerprint,
        "settings": tuning,
        "dtype": dtype,
        "method": METHOD,
        "score": judged(apart, said),
    }
    runs.add(row)
    rate = f"{tuning['learning_rate']:g}"
    print(f"{contender.words}, {name} at {rate}, held out: {100 * row['score']:.1f}", flush=True)
    return row


def judged(data: TaskData, said: list[Any]) -> float:
    """The main score of what was said of the first evaluation set."""
    truth = [e.label for e in next(iter(data.evaluations.values()))]  # type: ignore[union-attr]
    return float(score(data.task, said, truth)[data.task.main_metric])


def read(
    model: TeacherHandle | None,
    reading: Reading,
    data: TaskData,
    tuning: dict[str, Any],
    seed: int,
    dtype: Literal["float32", "bfloat16"],
) -> list[Any]:
    """What a model says of the examples of a task's first evaluation set, numbers to 5 places."""
    if reading.how == "probe":
        with num_threads(1):
            return [rounded(said) for said in linear_probe.probe(model, data)]
    assert model is not None
    settings = published_settings(data.task)
    with tempfile.TemporaryDirectory() as scratch:
        if reading.tuned:
            settings = replace(settings, **tuning, dtype=dtype)
            result = finetune(model, data, settings, seed, Path(scratch), threads=1)
        else:
            result = score_by_cosine(model, data, settings, threads=1)
    if result is None:
        raise SystemExit("stopped")
    return [rounded(p.prediction) for p in next(iter(result.predictions.values()))]


def rounded(said: Any) -> Any:
    """Keep the file of results small."""
    return round(said, 5) if isinstance(said, float) else said


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
    }


def main() -> None:
    """Run a part of the study, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("make", "score", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument("--learning-rate", type=float, help="of the distillations")
    parser.add_argument("--models", type=Path, help="folder of the models")
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=SEEDS)
    usual = Study()
    parser.add_argument("--arch", default=usual.student, help="of the student")
    parser.add_argument("--layers", type=int, default=usual.layers, help="of the teacher's cuts")
    parser.add_argument("--steps", type=int, default=usual.steps, help="of a distillation")
    parser.add_argument("--batch-size", type=int, default=usual.batch_size, help="of its steps")
    parser.add_argument("--tuning-steps", type=int, default=usual.tuning_steps)
    parser.add_argument("--tuning-rates", type=float, nargs="+", default=usual.tuning_rates)
    parser.add_argument("--last-weight", type=float, default=usual.last_weight)
    everyone = [contender.name for contender in usual.everyone]
    parser.add_argument("--contenders", nargs="+", choices=everyone, default=everyone)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="to score")
    parser.add_argument("--data-dir", type=Path, help="GLUE as it is published")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("docs/results/student_quality_runs.jsonl"),
        help="JSON lines",
    )
    parser.add_argument("--note", default="", help="what else to know of the verdicts")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    if arguments.part in ("make", "score") and arguments.models is None:
        parser.error("--models says where the models are")
    if arguments.part in ("score", "report") and arguments.data_dir is None:
        parser.error("--data-dir says where GLUE is")
    study = Study(
        str(Architecture.parse(arguments.arch)),
        arguments.layers,
        arguments.steps,
        arguments.batch_size,
        arguments.tuning_steps,
        tuple(arguments.tuning_rates),
        arguments.last_weight,
    )
    choice = Choice(study, arguments.contenders, arguments.seeds)
    if arguments.part == "make":
        make(arguments.models, arguments.corpus, arguments.learning_rate, choice)
        return
    runs = Runs(arguments.results)
    runs.refuse_other_studies(study)
    if arguments.part == "score":
        score_all(arguments.models, arguments.data_dir, runs, choice, arguments.tasks)
        return
    text, numbers = report(study, runs, arguments.data_dir, arguments.note)
    publish(text, numbers, arguments.output)


if __name__ == "__main__":
    main()
