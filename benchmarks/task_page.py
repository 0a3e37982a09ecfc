"""The page of the study of distillation for one task.

    python benchmarks/task_page.py --data-dir ./glue \
        --results docs/results/task_specific_runs.jsonl --output docs/results/task_specific

How methods are compared is in ``task_comparison.py``.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from study_files import JsonLines, publish
from task_comparison import AGAINST, Difference, Looked, Runs, difference, looked_at
from task_study import PARTS, TEACHER_EPOCHS, TEACHER_RATE, Part, best_point, trials_of

from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import METRIC_NAMES
from kdnas.taskspecific.grid import GRID_SEED, TaskPoint, TaskTrial

LOOKED_AT: Final = (
    "Two things more were decided by what was seen: how `annealing-kd` reads a regression was "
    "written anew after its first run on STS-B, whose students learned little but the mean, so "
    "that what it has there with seed 0 was seen before; and that word embeddings of `bilstm` and "
    "`gated-cnn` are scaled, and how many epochs they learn, after fine-tuning alone had been "
    "tried on sentences of SST-2."
)
RAW_STATES: Final = (
    "Pseudo-classifiers of the teacher learned from states as they are, but for the part "
    "`STS-B-standardised`. The vector of [CLS] varies behind its lower layers by a hundredth or "
    "less of what it is, and of that they learned next to nothing: what they say there says "
    "nothing of the layers ([what these know](teacher_layers.md)), and what `mhkd`, `dih` and all "
    "`universal-kd-*` take from there was about the same for every example. In runs in bfloat16 "
    "that ended before the others (RTE, seed 0 of CoLA and STS-B, `universal-kd-ca`) students' own "
    "inner classifiers were rounded besides."
)
CUT: Final = (
    ": the first lines of SST-2's training part, phrases of sentences mostly (7 words in the "
    "median), while what is reported are sentences (19.5 words in the mean)"
)
LEFT_OUT: Final = (
    "Of seeds that a machine did not finish nothing is kept, whatever it came to: 5 runs on RTE "
    "and 9 on CoLA."
)


@cache
def truth_of(task: str, data_dir: Path) -> tuple[str | float | None, ...]:
    """Labels of the examples that are reported, in the order in which they are read."""
    data = load_task(find_task(task), data_dir / task)
    (examples,) = data.evaluations.values()
    return tuple(e.label for e in examples if isinstance(e, TextExample))


def method_table(runs: Runs) -> list[str]:
    """A row for each method."""
    name = METRIC_NAMES[runs.metric]
    lines = [
        f"| method | runs | {name} | deviation | to `{AGAINST}` | to `none` | held out |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, rows in runs.by_method.items():
        if not rows:
            lines.append(f"| `{method}` | 0 | | | | | |")
            continue
        mean, low, high = runs.mean(method)
        scores = runs.scores(method, runs.seeds(method))
        spread = f"{100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
        held = 100 * statistics.fmean(row["held_out"] for row in rows.values())
        lines.append(
            f"| `{method}` | {len(rows)} | {mean:.1f} ({low:.1f} to {high:.1f}) | {spread} | "
            f"{_difference(runs, method, AGAINST)} | {_difference(runs, method, 'none')} | "
            f"{held:.1f} |"
        )
    return lines


def _difference(runs: Runs, method: str, other: str) -> str:
    if method == other:
        return ""
    return shown(difference(runs, method, runs, other), len(runs.by_method[method]))


def shown(found: Difference | None, runs: int) -> str:
    """A difference with its interval, and of how many seeds it is, where those are not all.

    Args:
        found: None where there is none yet.
        runs: of the first of the two.
    """
    if found is None:
        return ""
    seeds = len(found.seeds)
    if seeds == 1:
        return f"{found}, one seed, examples alone"
    return f"{found}, {seeds} seeds" if seeds < runs else str(found)


def claim_table(looked: Sequence[Looked]) -> list[str]:
    """What the paper has, and what is here."""
    lines = [
        "| difference | where | task | in the paper | here | seeds | |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in looked:
        claim = one.claim
        where = "**mean of these**" if len(one.where) > 1 else one.where[0]
        printed = "" if one.printed is None else f"{one.printed:+.1f}"
        here = "{:+.1f} ({:+.1f} to {:+.1f})".format(*one.points)
        lines.append(
            f"| `{claim.first}` − `{claim.second}` | {claim.source} | {where} | {printed} | "
            f"{here} | {one.fewest} | {one.verdict} |"
        )
    return lines


def summary(looked: Sequence[Looked]) -> str:
    """How many of the differences are decided, and which way."""
    single = [one for one in looked if len(one.where) == 1]
    if all(one.verdict == "one seed" for one in single):
        return "No two seeds are done yet of anything, so nothing is decided."
    holding, reverse, undecided = (
        [
            f"`{one.claim.first}` − `{one.claim.second}` ({one.where[0]})"
            for one in single
            if one.verdict == verdict
        ]
        for verdict in ("holds", "the reverse", "not decided")
    )
    count = len(holding) + len(reverse) + len(undecided)
    return (
        f"Of {count} differences other than 0 that the paper prints of the pairs below, and that "
        f"have more than one seed here, {len(holding)} are as there "
        f"({', '.join(holding) or 'none'}), {len(reverse)} the other way "
        f"({', '.join(reverse) or 'none'}), and {len(undecided)} not decided. Of as many "
        f"intervals about {0.05 * count:.0f} would leave 0 out if there was nothing. (Rows of a "
        "mean are made of others, and not counted.)"
    )


def teacher_lines(runs: Runs) -> list[str]:
    """The teacher and its pseudo-classifiers; another on each machine."""
    rows = [row for rows in runs.by_method.values() for row in rows.values()]
    lines = []
    for fingerprint in dict.fromkeys(row["teacher"]["fingerprint"] for row in rows):
        mine = [row for row in rows if row["teacher"]["fingerprint"] == fingerprint]
        layers = ", ".join(f"{100 * one['main']:.1f}" for one in mine[0]["layers"])
        seeds = ", ".join(map(str, sorted({row["seed"] for row in mine})))
        dtypes = ", ".join(sorted({row["settings"]["dtype"] for row in mine}))
        lines.append(
            f"Teacher `{fingerprint}` (seeds {seeds}, {dtypes}; {len(mine)} runs): "
            f"{100 * mine[0]['teacher']['main']:.1f}; its pseudo-classifiers from the first layer "
            f"on {layers}."
        )
    return lines


def formats(rows: Sequence[dict[str, Any]]) -> str:
    """In what number formats runs have learned, and on what."""
    counts = Counter((row["settings"]["dtype"], row["machine"]) for row in rows)
    said = (f"{dtype} on {machine} ({count} runs)" for (dtype, machine), count in counts.items())
    return "Computed in " + ", ".join(said)


def beside_lines(parts: dict[str, Runs], name: str, beside: str, what: str) -> list[str]:
    """How the methods of a part do beside the same ones of another, seed by seed."""
    if beside not in parts:
        return []
    runs, other = parts[name], parts[beside]
    rows = [
        f"| `{method}` | {len(found.seeds)} | {found if found.draws.any() else THE_SAME} |"
        for method in runs.by_method
        if (found := difference(runs, method, other, method)) is not None
    ]
    if not rows:
        return [f"{what}: no seed has been taught by the same teacher in both.", ""]
    return [f"{what}:", "", "| method | seeds | difference |", "|---|---|---|", *rows, ""]


THE_SAME: Final = "the same settings, and so the same runs"
BESIDE: Final = {
    "STS-B-standardised": (
        "STS-B",
        "To runs with pseudo-classifiers that learned from states as they are, which are the part "
        "STS-B",
    ),
    "RTE-start": ("RTE", "To students of the teacher's first layers, which are the part RTE"),
    "RTE-grid": ("RTE", "To runs with the published settings, which are the part RTE"),
}


def grid_lines(
    part: Part,
    trials: dict[str, dict[TaskPoint, TaskTrial]],
    chosen: Sequence[dict[str, Any]] = (),
) -> list[str]:
    """What each point of a grid comes to on the held-out examples.

    Args:
        part: with the grid.
        trials: method → its trials.
        chosen: runs that are the trials that were taken.
    """
    lines = []
    for method, known in trials.items():
        if not known:
            continue
        whole = len(known) == len(part.points(method))
        best = best_point(method, known) if whole else None
        betas = sorted({point.beta for point in known}, key=lambda beta: beta or 0.0)
        heads = ["held out" if beta is None else f"β {beta:g}" for beta in betas]
        run = next((row for row in chosen if best and row["method"] == method), None)
        lines += [
            f"Trials of `{method}` with seed {GRID_SEED}, {len(known)} of "
            f"{len(part.points(method))}"
            + (f"; taken: {best}" if best else "")
            + (f", which has {100 * run['main']:.1f} on the development part:" if run else ":"),
            "",
            f"| batch | rate | {' | '.join(heads)} |",
            "|---" * (2 + len(betas)) + "|",
        ]
        for size, rate in sorted({(point.batch_size, point.learning_rate) for point in known}):
            cells = []
            for beta in betas:
                trial = known.get(TaskPoint(size, rate, beta))
                said = "" if trial is None else _held_out(trial)
                cells.append(f"**{said}**" if trial and trial.point == best else said)
            lines.append(f"| {size} | {rate:g} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def chosen_lines(runs: Runs) -> list[str]:
    """Say of a part with a grid what its runs with the grid's seed are left out of."""
    if not runs.chosen:
        return []
    points = " and ".join(f"{len(runs.part.points(m))} of `{m}`" for m in runs.part.methods)
    return [
        f"Runs of seed {GRID_SEED} are the trials that were taken, the best of {points} by their "
        "held-out scores, and are left out of what follows.",
        "",
    ]


def diverged_lines(runs: Runs) -> list[str]:
    """Name the runs that have come to nothing, which are in no mean."""
    if not runs.diverged:
        return []
    named = ", ".join(f"`{row['method']}` with seed {row['seed']}" for row in runs.diverged)
    return [f"Diverged, and so in no mean: {named}.", ""]


def _held_out(trial: TaskTrial) -> str:
    return "diverged" if trial.held_out is None else f"{100 * trial.held_out:.1f}"


def attention_lines(runs: Runs) -> list[str]:
    """Mean attention at the end of the first stage, over seeds."""
    lines = []
    for method, rows in runs.by_method.items():
        last = [row["attention"][-1] for row in rows.values() if row["attention"]]
        if not last:
            continue
        weights = np.mean([one["weights"] for one in last], axis=0)
        for layer, row in zip(last[0]["layers"], weights, strict=True):
            shown = " | ".join(f"{weight:.3f}" for weight in row)
            lines.append(f"| `{method}` | {layer} | {shown} |")
    if not lines:
        return []
    count = lines[0].count("|") - 3
    head = " | ".join(f"teacher {layer}" for layer in range(1, count + 1))
    return [f"| method | student layer | {head} |", "|---" * (count + 2) + "|", *lines]


def draw_samples(runs: Runs, path: Path) -> int | None:
    """The paper's Figure 3: label distances, attention in output space and in hidden space.

    Returns:
        The seed whose runs by either method are drawn; None if none has both, and nothing is drawn.
    """
    methods = ("universal-kd-il", "alp-kd")
    for seed in runs.paired(methods[0], runs, methods[1]):
        first, second = (runs.by_method[method][seed]["samples"] for method in methods)
        if first and second:
            break
    else:
        return None
    shown: list[tuple[str, list[list[float]]]] = [
        ("distance from the label", [sample["distances"] for sample in first]),
        (methods[0], [sample["weights"] for sample in first]),
        (methods[1], [sample["weights"] for sample in second]),
    ]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    largest = max(weight for _, values in shown[1:] for row in values for weight in row)
    for place, (title, values) in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        low, high = (0, largest) if place > 1 else (None, None)  # attention has one scale for all
        image = axes.imshow(values, aspect="auto", cmap="viridis", vmin=low, vmax=high)
        axes.set_xticks(range(len(values[0])), [str(i + 1) for i in range(len(values[0]))])
        axes.set(xlabel="teacher layer", ylabel="example", title=title)
        figure.colorbar(image, ax=axes)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return seed


def page(
    parts: dict[str, Runs],
    all_rows: list[dict[str, Any]],
    tried: dict[str, dict[str, dict[TaskPoint, TaskTrial]]],
    output: Path | None,
) -> str:
    """The page.

    Args:
        parts: that have runs.
        all_rows: of all runs that have come to their end.
        tried: part → method → trials of its grid.
        output: where it goes, for pictures beside it.
    """
    planned = sum(part.seeds * len(part.methods) for part in PARTS)
    steps = sum(row["steps"] for row in all_rows)
    looked = looked_at(parts)
    epochs = ", ".join(f"{count} ({task})" for task, count in TEACHER_EPOCHS.items())
    lines = [
        "# Distillation for one task: what each method is worth",
        "",
        "By `benchmarks/task_study.py` and `benchmarks/task_page.py`. "
        f"{len(all_rows)} of {planned} runs are done, {steps:,} steps of students. Scores "
        "are in per cent, on the development part; epochs (and of `RTE-grid` batch size, rate and "
        "β) are chosen on a held-out tenth of the training part. " + LOOKED_AT,
        "",
        RAW_STATES,
        "",
        "Intervals (95 %) hold for other examples and, of more than one seed, for other seeds; not "
        "for another held-out tenth, of which there is one, and not for another teacher: a part "
        "has one or two, which are named there, and what all methods owe to theirs is in no "
        "interval. A seed is whole on one machine, and each machine has a teacher of its own, some "
        "another number format: what these change between seeds is taken for chance of the seeds. "
        "Differences are between runs of the same seed and teacher "
        "on the same examples. What seeds do on some examples and not on others is counted with "
        "the examples and with the seeds, so that intervals are rather wide. " + LEFT_OUT,
        "",
        "The teacher is `minilm` (6 layers, 384 wide), fine-tuned with a rate of "
        f"{TEACHER_RATE:g}, for {epochs} epochs; Transformer students are its first 3 layers, or "
        "of their size. The paper's teachers have 12 and 24 layers and are many times larger, and "
        "its students have learned for 20 + 10 epochs (CoLA 50 + 10) with settings of a grid. Here "
        "epochs are "
        "fewer, and settings but those of `RTE-grid` are what Table 7 (of students that are no "
        "Transformers Table 9) has for Universal-KD, for all methods alike. Students of Tables 4 "
        "and 6 had a RoBERTa as their teacher and the settings of Table 8: β = 0.5, where it is "
        "0.2 on CoLA and STS-B here, and a rate of 2e-5 on CoLA, where it is 5e-5 here. The "
        "assistant of `takd` is the teacher's first 5 layers, half way rounded up. "
        f"{formats(all_rows)}.",
        "",
        "## What the paper predicts",
        "",
        "Differences are in points; one *holds* where its interval is on the side of 0 on which "
        "the paper's is.",
        "",
        summary(looked),
        "",
        *claim_table(looked),
        "",
    ]
    for name, runs in parts.items():
        part = runs.part
        student = next(row["student"] for row in all_rows if row["part"] == name)
        lines += [
            f"## {name}",
            "",
            f"{part.task}, {part.epochs} + {part.finetune_epochs} epochs"
            + (
                f", {part.examples} examples, a tenth of them held out{CUT}"
                if part.examples
                else ""
            )
            + f". Student: {student['start']}; {student['parameters'] / 1e6:.1f} M parameters, "
            f"{student['trainable'] / 1e6:.1f} M of them trained.",
            "",
            *teacher_lines(runs),
            "",
            *(grid_lines(part, trials, runs.chosen) if (trials := tried[name]) else []),
            *chosen_lines(runs),
            *diverged_lines(runs),
            *method_table(runs),
            "",
            *(beside_lines(parts, name, *BESIDE[name]) if name in BESIDE else []),
        ]
        attended = attention_lines(runs)
        if attended:
            lines += ["Mean attention at the end of the first stage:", "", *attended, ""]
        picture = None if output is None else output.with_name(f"{output.name}-attention.png")
        if name == "RTE" and picture and (seed := draw_samples(runs, picture)) is not None:
            lines += [
                f"As the paper's Figure 3, of seed {seed}: how far each teacher layer's answer "
                "is from the label, and what the last inner student layer attends to. Examples "
                "are of the held-out tenth, and students those at the end of the first stage, not "
                "those whose scores stand above.",
                "",
                f"![Label distance and attention by example]({picture.name})",
                "",
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of GLUE")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="where the page goes, without its ending")
    given = parser.parse_args()
    results = JsonLines(given.results)
    rows = results.having(tries=None)
    tried = {
        part.name: {m: trials_of(results, part, m) for m in part.methods if part.points(m)}
        for part in PARTS
    }
    parts = {
        part.name: Runs(part, found, truth_of(part.task, given.data_dir))
        for part in PARTS
        if (found := [row for row in rows if row["part"] == part.name])
        and any(row.get("error") is None for row in found)
    }
    numbers = {
        name: {
            method: dict(zip(("mean", "low", "high"), runs.mean(method), strict=True))
            for method, found in runs.by_method.items()
            if found
        }
        for name, runs in parts.items()
    }
    ended = [row for row in rows if row.get("error") is None]
    publish(page(parts, ended, tried, given.output), numbers, given.output)


if __name__ == "__main__":
    main()
