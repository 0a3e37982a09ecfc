"""The page of the comparison with TextBrewer, made of its numbers.

    python benchmarks/task_throughput_page.py docs/results/task_throughput

writes the Markdown page anew beside the JSON that `task_throughput.py` has left there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Final

from study_files import publish
from task_throughput_rows import FIXED_LENGTH, TWO, rows_of

from kdnas.tabular.measures import Interval, median_interval, ratio_interval

BAR: Final = 3.0


def speeds(row: dict[str, Any], tokens: int, clock: str = "cpu") -> list[float]:
    """Real tokens a second of each round: of all students of the row, the examples' own."""
    students = len(row["methods"])
    return [students * tokens / r[clock] for r in row["rounds"]]


def said(interval: Interval, digits: int) -> str:
    """A median with its interval."""
    return f"{interval.median:.{digits}f} ({interval.low:.{digits}f}–{interval.high:.{digits}f})"


def table(part: dict[str, Any]) -> str:
    """The rows of one setting."""
    by_title = {row["title"]: row for row in part["rows"]}
    lines = [
        "| | real tokens / s | × TextBrewer, padded as ours | × TextBrewer, padded to "
        f"{FIXED_LENGTH} | by the clock |",
        "|---|---|---|---|---|",
    ]
    for row in part["rows"]:
        own = speeds(row, part["tokens"])
        name = row["title"].split(":")[0]
        ratios = []
        for of in ("padded as ours", f"padded to {FIXED_LENGTH} as in its examples"):
            peer = by_title.get(f"{name}: TextBrewer, {of}")
            if peer is None:
                ratios.append("")
                continue
            ratios.append(said(ratio_interval(own, speeds(peer, part["tokens"])), 2))
        wall = statistics.median(speeds(row, part["tokens"], "wall"))
        lines.append(
            f"| {row['title']} | {said(median_interval(own), 0)} | {ratios[0]} | {ratios[1]} | "
            f"{wall:.0f} |"
        )
    return "\n".join(lines)


def ratio(part: dict[str, Any], method: str, of: str, kept: bool = False) -> Interval:
    """How much faster ours is than TextBrewer in a setting."""
    name = rows_of(method)[0].title.split(":")[0]
    by_title = {row["title"]: row for row in part["rows"]}
    end = "ours, teacher outputs kept" if kept else "ours"
    ours, theirs = (by_title[f"{name}: {which}"] for which in (end, f"TextBrewer, {of}"))
    return ratio_interval(speeds(ours, part["tokens"]), speeds(theirs, part["tokens"]))


def savings(part: dict[str, Any]) -> str:
    """A line of what sharing and keeping save in a setting."""

    def seconds(title: str, which: str = "cpu") -> float:
        (row,) = (row for row in part["rows"] if row["title"] == title)
        return statistics.median(r[which] for r in row["rounds"])

    two, four = (f"{n} methods share the teacher's pass" for n in ("two", "four"))
    kept = seconds("four methods, teacher outputs kept")
    cells = [f"{part['task']}, {part['batch_size']}, {part['dtype']}"]
    alone = [seconds(f"{name}: ours") for name in ("vanilla KD", "hidden states")]
    share = seconds("vanilla KD: ours", "teacher") / alone[0]
    cells.append(f"{100 * share:.0f} %")
    cells.append(f"{100 * (1 - seconds(two) / sum(alone)):.0f} %")
    teacher = seconds(four, "teacher")
    each = seconds(four) + 3 * teacher  # as if each of the four had run it
    cells.append(f"{100 * (1 - seconds(four) / each):.0f} %")
    cells.append(
        f"{100 * (1 - seconds('vanilla KD: ours, teacher outputs kept') / alone[0]):.0f} %"
    )
    cells.append(f"{100 * (1 - kept / each):.0f} %")
    return f"| {' | '.join(cells)} |"


def verdicts(result: dict[str, Any]) -> str:
    """The bar, setting by setting."""
    fixed = f"padded to {FIXED_LENGTH} as in its examples"
    lines = [
        "| | vanilla KD | hidden states | vanilla KD, kept | hidden states, kept |",
        "|---|---|---|---|---|",
    ]
    for of in ("padded as ours", fixed):
        for part in result["settings"]:
            cells = []
            for kept in (False, True):
                for method in TWO:
                    found = ratio(part, method, of, kept)
                    word = "" if kept else (" met" if found.low >= BAR else " missed")
                    cells.append(f"{said(found, 2)}{word}")
            name = f"{part['task']}, {part['batch_size']}, {part['dtype']}"
            lines.append(f"| {name}; TextBrewer {of} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(result: dict[str, Any]) -> str:
    """Write the Markdown page."""
    sections = "\n\n".join(
        f"## {part['task']}, batches of {part['batch_size']}, {part['dtype']}\n\n{table(part)}"
        for part in result["settings"]
    )
    costs = "\n".join(
        f"| {name} | {cost['seconds']:.1f} s | {cost['tokens']} | {cost['bytes_of_outputs']} | "
        f"{cost['bytes_of_states']} |"
        for name, cost in result["keeping"].items()
    )
    same = result["same_gradients"]
    alike = "; ".join(
        f"{task} {', '.join(f'{method} {value:.0e}' for method, value in found.items())}"
        for task, found in same.items()
    )
    return f"""# Throughput of distillation for one task

TextBrewer 0.2.1 and ours: MiniLM (6 × 384) with a head as teacher, its first three layers as
student (dropout 0.1), {" and ".join(result["same_gradients"])}, on one thread of
{result["machine"]}. Figures are real tokens
of the training examples, padding not counted, a second of processor time, of all students of a row
together; medians of {result["rounds"]} rounds of {result["steps"]} steps in which rows take turns,
with 95 % bootstrap intervals; the last column is by the clock, which others on the machine disturb.
All rows see the same examples in the same batches, as our plan cuts them by length, evenly spaced
from short to long, and the same number format. Engine {result["engine_version"]}.

TextBrewer is used as documented: `GeneralDistiller`, gradients clipped to a norm of 1 in both,
AdamW with our rates and decay, no log, no checkpoint, no evaluation. Its loss of vanilla KD is the
cross entropy of the softened outputs, whose gradient is that of our KL; its hidden-state matching
here is its loss `pkd`, which is ours: squared distances of normalised [CLS] states of layers 1–2
and 2–4 beside the outputs, weighted by β. (Its other one, `hidden_mse`, compares all tokens and
takes longer.) Gradients of the same batch differ by this part of their norm: {alike}. Its bfloat16
is `torch.autocast`, which we put around its `train_on_batch`. Its examples for GLUE pad every text
to {FIXED_LENGTH} tokens (`max_length`); the rows "padded as ours" hand it our batches, padded to
their longest rounded up to a multiple of eight, which it does not do by itself.

## The bar: {BAR:g} × TextBrewer, teacher outputs not kept

{verdicts(result)}

It is met where the interval's lower end reaches the bar. Why it is not where it is not: with equal
padding and format most of a step is matrix products, and those of both run at the processor's
speed. TextBrewer multiplies for six layers of the teacher and, forward and backward, three of the
student: 6 + 3 · 3 = 15 layers' products. Of either network's last layer a head reads the first
token alone, which leaves a sixth of that layer, so that ours are 5⅙ + 3 · 2⅙ = 11⅔. Products alone
thus give 1.29 ×, and 2.31 × where the teacher's outputs are kept; what is more comes from all the
rest: padding that is not run, dropout, attention, word embeddings that no example reads, memory.

## What one pass of the teacher for several methods saves, and what keeping its outputs saves

| | its part of a step | two share it | four share it | kept, one | kept, four |
|---|---|---|---|---|---|
{chr(10).join(savings(part) for part in result["settings"])}

Processor time saved, of the time with a pass of the teacher for each method and batch. Keeping
costs one pass over all examples before the first step, whatever methods, seeds and epochs follow,
and memory:

| | the pass | real tokens | bytes an example: outputs | states, where needed |
|---|---|---|---|---|
{costs}

{sections}

Made with `python benchmarks/task_throughput.py --data-dir ./glue --output
docs/results/task_throughput {result["options"]}`.
"""


def main() -> None:
    """Write the page anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="path without ending of .md and .json")
    output = parser.parse_args().output
    numbers = json.loads(output.with_suffix(".json").read_text("utf-8"))
    publish(report(numbers), numbers, output)


if __name__ == "__main__":
    main()
