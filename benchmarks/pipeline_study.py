"""Is it worth it, what ``kdnas launch`` recommends? Its page: three distillations, then the report.

    kdnas launch --name study --tasks SST-2,STS-B --corpus TEXTS --data-dir GLUE
    kdnas launch --resume study > SHOWN; kdnas launch --resume study --json > SHOWN.json
    python benchmarks/pipeline_study.py --shown SHOWN
    python benchmarks/student_quality.py make … && python benchmarks/student_quality.py score …
    python benchmarks/pipeline_study.py --shown SHOWN --results RUNS --data-dir GLUE --output PAGE

Without ``--results`` it says what to make and score: the student that is recommended, itself
undistilled, and the teacher's cuts with the fewest layers that are not faster, all with three
seeds of distillation and fine-tuning. With them the page begins with what they show; the runs of
the page that is published are in docs/results/pipeline_runs.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from quality_contenders import CHOSEN_ON, FINE_TUNED, TEACHER_LAYERS, Runs, Study
from quality_page import report, table, verdicts
from study_files import publish

COMPARED = ("student", "student-0", "even-0", "lowest-0")
TITLE = "# A pipeline from nothing to its report"


def recommended(shown: dict[str, Any]) -> dict[str, Any]:
    """The model that the pipeline's answer names first."""
    report = shown["report"]
    name = report["picks"][0]["name"]
    found: dict[str, Any] = next(m for m in report["models"] if m["name"] == name)
    return found


def smallest_cut(shown: dict[str, Any]) -> int:
    """Fewest of the teacher's layers that take no less time than what is recommended.

    The pipeline scores that cut for each of its students.
    """
    wanted = recommended(shown)["latency_ms"]
    cuts = [m for m in shown["report"]["models"] if m["kept_layers"]]
    return min(
        (m["kept_layers"] for m in cuts if m["latency_ms"] >= wanted), default=TEACHER_LAYERS
    )


def study_of(shown: dict[str, Any]) -> Study:
    """What is to be made and scored, as the pipeline did it.

    But each contender is fine-tuned at its own better rate: the pipeline's one is small for cuts.
    """
    spec = shown["spec"]
    training, evaluation = spec["distillation"]["training"], spec["evaluation"]
    return Study(
        recommended(shown)["architecture"],
        smallest_cut(shown),
        training["steps"],
        training["batch_size"],
        evaluation["max_steps"],
        last_weight=spec["search"]["objective"].get("last_weight", 1.0),
    )


def to_do(shown: dict[str, Any]) -> str:
    """The commands that make and score it."""
    study, rate = study_of(shown), shown["spec"]["distillation"]["training"]["learning_rate"]
    about = (
        f"--arch {study.student} --layers {study.layers} --steps {study.steps} --batch-size "
        f"{study.batch_size} --last-weight {study.last_weight:g} --tuning-steps "
        f"{study.tuning_steps} --models MODELS --contenders {' '.join(COMPARED)}"
    )
    tasks = " ".join(shown["spec"]["evaluation"]["tasks"])
    return (
        f"python benchmarks/student_quality.py make {about} --corpus TEXTS --learning-rate {rate:g}"
        f"\npython benchmarks/student_quality.py score {about} --tasks {tasks} --data-dir GLUE "
        "--results RUNS"
    )


def without_folders(text: str) -> str:
    """Leave out the folders of the machine that a report was made on."""
    return re.sub(r"(?<![\w.])/(?:[\w.-]+/)+(?=[\w.-]+)", "./", text)


def page_of(
    shown: dict[str, Any], written: str, runs: Runs, data_dir: Path, note: str
) -> tuple[str, Any]:
    """The page and its numbers.

    Args:
        shown: the pipeline as JSON.
        written: its report as Markdown.
        runs: of the three seeds.
        data_dir: GLUE.
        note: a sentence or two for the head of the page.
    """
    study = study_of(shown)
    runs.refuse_other_studies(study)
    numbers = report(study, runs, data_dir)[1]
    model, corpus = recommended(shown), shown["spec"]["search"]["corpus"]["source"]
    tasks = ",".join(shown["spec"]["evaluation"]["tasks"])
    lines = [
        TITLE,
        "",
        "```",
        f"kdnas launch --name {shown['name']} --teacher minilm --corpus "
        f"{' '.join(Path(source).name for source in corpus)} --tasks {tasks} --data-dir ./glue",
        "```",
        "",
        "with an empty `KDNAS_HOME` and the preset `laptop`.",
        *(["", note] if note else []),
        "",
        "## Over three distillations",
        "",
        f"It recommends `{model['architecture']}`, which takes {model['latency_ms']:.3g} ms, "
        f"{model['latency_ratio']:.2f} of its teacher's. The same distillation with three seeds, "
        f"beside itself undistilled and the teacher's cuts to {study.layers} layers, the fewest "
        f"that are not faster. Each is fine-tuned for {study.tuning_steps} steps at its better one "
        f"of {' and '.join(f'{rate:g}' for rate in study.tuning_rates)}, chosen on a tenth of "
        f"{CHOSEN_ON}'s training examples; in brackets how much the student is above, with a 95 % "
        "interval over examples and runs:",
        "",
        *table(study, numbers, FINE_TUNED[:2]),
        "",
        *verdicts(study, numbers),
        "",
        "## The report as it was written",
        "",
        re.sub(r"^#", "##", written, flags=re.MULTILINE).strip(),
        "",
    ]
    return "\n".join(lines), {"seeds": numbers, "shown": shown, "written": written}


def main() -> None:
    """Say what is to be done, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shown", type=Path, required=True, help="what `launch` printed")
    parser.add_argument("--results", type=Path, help="JSON lines of student_quality.py")
    parser.add_argument("--data-dir", type=Path, help="GLUE as it is published")
    parser.add_argument("--note", default="", help="what else to know before reading it")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    shown = json.loads(without_folders(Path(f"{arguments.shown}.json").read_text("utf-8")))
    if arguments.results is None:
        print(to_do(shown))
        return
    if arguments.data_dir is None:
        parser.error("--data-dir says where GLUE is")
    text = without_folders(arguments.shown.read_text("utf-8"))
    written = text[text.index("# Pipeline ") :]
    runs = Runs(arguments.results)
    page = page_of(shown, written, runs, arguments.data_dir, arguments.note)
    publish(*page, arguments.output)


if __name__ == "__main__":
    main()
