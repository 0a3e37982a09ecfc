"""The page of the study of students' quality."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import linear_probe
import numpy as np
from numpy.typing import NDArray
from quality_contenders import (
    CHOSEN_ON,
    COSINE,
    FINE_TUNED,
    MAX_LENGTH,
    PROBES,
    READINGS,
    SEEDS,
    TEACHER,
    TUNING_BATCH,
    Reading,
    Runs,
    Study,
)
from scipy.stats import t as student_t

from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.scoring.tally import average, tally
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import METRIC_NAMES, Task

DRAWS = 1000


def resampled(task: Task, data: TaskData, rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """The mean score of a contender's runs on resampled examples: (DRAWS,).

    Examples are the same draws for all contenders.
    """
    truth = [e.label for e in next(iter(data.evaluations.values()))]  # type: ignore[union-attr]
    runs = average([tally(task.main_metric, row["predictions"], truth) for row in rows])
    size = len(truth)
    often = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), DRAWS)
    return runs.measure(often @ runs.parts)


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


def report(study: Study, runs: Runs, data_dir: Path, note: str = "") -> tuple[str, dict[str, Any]]:
    """The page and its numbers.

    Args:
        study: what is compared.
        runs: what was read.
        data_dir: GLUE.
        note: what else to know of the verdicts, such as what was tried where a bar is missed.
    """
    numbers: dict[str, Any] = {}
    first = study.student_itself.name
    for reading in READINGS:
        task = find_task(reading.task)
        data = load_task(task, data_dir)
        known = {c.name: rows for c in study.everyone if (rows := runs.of(c.name, reading))}
        draws = {name: resampled(task, data, rows) for name, rows in known.items()}
        best = [row["score"] for row in known.get(first, ())]
        for name, rows in known.items():
            scores = [row["score"] for row in rows]
            found: dict[str, Any] = {
                "runs": scores,
                "interval": interval(statistics.mean(scores), draws[name], scores),
            }
            if name != first and best:
                above = statistics.mean(best) - statistics.mean(scores)
                apart = draws[first] - draws[name]
                found["student_above"] = 100 * above
                found["student_above_interval"] = interval(above, apart, scores, best)
            numbers.setdefault(name, {})[str(reading)] = found
    formats = " or ".join(sorted({r["dtype"] for r in runs.rows if r["how"] == "fine-tuned"}))
    lines = [
        "# What a distilled student is worth on tasks",
        "",
        f"`{study.student}` from {TEACHER}, {study.steps} steps of {study.batch_size} sequences of "
        f"at most {MAX_LENGTH} tokens, objective `hs`, and what a user would have without it. Per "
        "cent, on GLUE's dev sets; mean ± deviation of the runs; in brackets how much the "
        "distilled student is above, with a 95 % interval over examples and, of several, runs.",
        "",
        "## Fine-tuned",
        "",
        f"All alike: {study.tuning_steps} steps of {TUNING_BATCH} in {formats}, on the official "
        f"training sets{rates(study)}. A run is a distillation and a fine-tuning; of what has a "
        "single model, a fine-tuning. Cosines are those of embeddings as they are, without "
        "fine-tuning.",
        "",
        *table(study, numbers, (*FINE_TUNED, COSINE)),
        "",
        *verdicts(study, numbers),
        "",
        *([note, ""] if note else []),
        "## Linear probe",
        "",
        "A linear model on the mean of a frozen encoder's last states, standardised: a logistic "
        f"regression, of numbers a ridge regression, on at most {linear_probe.LIMIT} training "
        f"examples; how much it is held back is chosen by {linear_probe.FOLDS}-fold "
        "cross-validation on them.",
        "",
        *table(study, numbers, PROBES),
        "",
    ]
    lines += choices(study, runs)
    for contender in study.contenders:
        rows = runs.of(contender.name, COSINE)
        losses = [r["about"]["relative"] for r in rows if r["about"].get("relative") is not None]
        if contender.distilled and losses:
            facts = rows[0]["about"]
            lines.append(
                f"- {contender.words}: held-out relative loss "
                + ", ".join(f"{loss:.3f}" for loss in losses)
                + f"; {', '.join(facts['corpus'])} (corpus `{facts['corpus_fingerprint']}`), peak "
                f"rate {facts['learning_rate']:g}"
            )
    lines += [
        "",
        f"Made with `python benchmarks/student_quality.py`; {len(runs.rows)} readings.",
        "",
    ]
    return "\n".join(lines), numbers


def rates(study: Study) -> str:
    """With which learning rate models are fine-tuned, in words."""
    tried = [f"{rate:g}" for rate in study.tuning_rates]
    if len(tried) == 1:
        return f", at {tried[0]}"
    return (
        f"; each at its better one of {' and '.join(tried)}, chosen for all tasks by how its "
        f"first model does on a held-out tenth of the training set of {CHOSEN_ON}"
    )


def choices(study: Study, runs: Runs) -> list[str]:
    """What the learning rates were chosen by, a row for each contender."""
    lines = []
    for contender in study.everyone:
        rows = [runs.choice(contender.name, study.tuning(rate)) for rate in study.tuning_rates]
        if any(rows):
            cells = [f"{100 * row['score']:.1f}" if row else "–" for row in rows]
            lines.append(f"| {contender.words} | {' | '.join(cells)} |")
    if not lines:
        return []
    return [
        "## What the learning rates were chosen by",
        "",
        f"The first model of each, on held-out training examples of {CHOSEN_ON}; one fine-tuning "
        "each.",
        "",
        "| model | " + " | ".join(f"{rate:g}" for rate in study.tuning_rates) + " |",
        "|---|" + "---|" * len(study.tuning_rates),
        *lines,
        "",
    ]


def heading(reading: Reading) -> str:
    """A task and what it is counted in."""
    return f"{reading.task}, {METRIC_NAMES[find_task(reading.task).main_metric]}"


def table(study: Study, numbers: dict[str, Any], readings: Sequence[Reading]) -> list[str]:
    """A row for each contender that was read in one of these ways at least."""
    lines = [
        "| model | " + " | ".join(map(heading, readings)) + " |",
        "|---|" + "---|" * len(readings),
    ]
    for contender in study.everyone:
        found = numbers.get(contender.name, {})
        if any(str(reading) in found for reading in readings):
            cells = [cell(found.get(str(reading))) for reading in readings]
            lines.append(f"| {contender.words} | {' | '.join(cells)} |")
    return lines


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


def verdicts(study: Study, numbers: dict[str, Any]) -> list[str]:
    """Say for each task with a bar whether it is met; the warm start is no rival if not scored.

    Distilled rivals, where there are any, are no bar: what is said of them comes last.
    """
    lines, beside = [], []
    for name in ("SST-2", "STS-B"):
        reading = Reading(name, "fine-tuned")
        rivals = {c.name: numbers.get(c.name, {}).get(str(reading)) for c in study.contenders}
        cuts = [r for r in (rivals["even-0"], rivals["lowest-0"]) if r]
        start, warm = rivals["student-0"], rivals["warm-0"]
        student = rivals[study.student_itself.name]
        if not (student and start and len(cuts) == 2):
            lines.append(f"- {name}: unfinished.")
            continue
        better = max(cuts, key=lambda r: statistics.mean(r["runs"]))
        size = f"{study.layers} layer{'s' if study.layers > 1 else ''}"
        for words, rival in (
            ("itself undistilled", start),
            ("the undistilled warm start", warm),
            (f"the better of the teacher's undistilled cuts to {size}", better),
        ):
            if rival is not None:
                few = min(len(rival["runs"]), len(student["runs"]))
                soon = "" if few == len(SEEDS) else f" so far, with {few} of {len(SEEDS)} runs"
                lines.append(f"- {name}, above {words}: {judged(rival, BAR_WORDS, soon)}.")
        beside += [
            f"- {name}, beside {c.words}, which is no bar: {judged(rivals[c.name], WORDS)}."
            for c in study.contenders
            if c.distilled and c != study.student_itself and rivals[c.name]
        ]
    return lines + beside


BAR_WORDS = ("met", "within the noise", "missed")
WORDS = ("ahead", "within the noise", "behind")


def judged(rival: dict[str, Any], words: tuple[str, str, str], soon: str = "") -> str:
    """How far the student is above a rival, and what that is called where it is sure, or not."""
    low, high = rival["student_above_interval"]
    above, unsure, below = words
    word = above if low > 0 else unsure if high > 0 else below
    return f"{rival['student_above']:+.1f} ({low:+.1f} … {high:+.1f}): **{word}{soon}**"
