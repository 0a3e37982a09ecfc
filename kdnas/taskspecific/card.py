"""The model card of a student of one task: scores, how it learned, what it attended to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kdnas import __version__
from kdnas.paths import elsewhere
from kdnas.records import TaskFacts, TaskRun
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.registry import method_named

CARD_FILE, RUN_FILE, REQUEST_FILE = "README.md", "task_run.json", "task_distillation.json"
STAGES_PICTURE, ATTENTION_PICTURE = "stages.png", "attention.png"
# Names of this machine, which mean nothing elsewhere.
_OF_THIS_MACHINE = ("name", "output", "data_dir", "threads", "device")


def write_card(folder: Path, spec: TaskDistillationSpec, facts: TaskFacts, run: TaskRun) -> None:
    """Write what goes with a student: card, pictures, numbers, and the request that makes it again.

    Args:
        folder: of the student.
        spec: the request.
        facts: what preparing it has found out.
        run: how the student learned.

    Raises:
        OSError: the disk is full or not writable.
    """
    draw_stages(run, facts.metric, folder / STAGES_PICTURE)
    if run.attention:
        draw_attention(run, folder / ATTENTION_PICTURE)
    _write_json(folder / RUN_FILE, run.to_json())
    _write_json(folder / REQUEST_FILE, portable_request(spec, run))
    (folder / CARD_FILE).write_text(task_card(spec, facts, run), "utf-8")


def portable_request(spec: TaskDistillationSpec, run: TaskRun) -> dict[str, Any]:
    """Return the request of one run, without what is of this machine alone.

    Folders are named as if they lay where the command is run.
    """
    request = {k: v for k, v in spec.to_json().items() if k not in _OF_THIS_MACHINE}
    teacher = {k: v for k, v in request["teacher"].items() if k != "fingerprint"}
    request["teacher"] = {**teacher, "ref": elsewhere(teacher["ref"])}
    for name in ("student", "assistant"):
        if request[name] is not None:
            request[name] = elsewhere(request[name])
    chosen = {k: run.chosen[k] for k in ("batch_size", "learning_rate", "beta") if k in run.chosen}
    return {**request, "methods": [run.method], "seeds": [run.seed], "grid": None, **chosen}


def _cell(text: str) -> str:
    """What stands in a cell of a table, whatever a user calls his task and his classes."""
    return " ".join(text.split()).replace("|", "\\|")


def task_card(spec: TaskDistillationSpec, facts: TaskFacts, run: TaskRun) -> str:
    """Write the model card in Markdown with the hub's metadata block."""
    teacher, student, chosen = facts.teacher, facts.student, run.chosen
    method = method_named(run.method)
    helps = student.get("assistant") if method.assisted else None
    here = [spec.teacher.ref, student["name"], *([helps["name"]] if helps else [])]
    taught, learns = without_paths(teacher["ref"], here), elsewhere(student["name"])
    about = (method.__doc__ or "").strip().split("\n")[0]
    whom = "the assistant" if method.assisted else "the teacher"
    source = whom if method.needs_teacher else "the labels"
    rows = {
        "task": f"{facts.task}: {facts.kind}"
        + (f", labels {', '.join(facts.labels)}" if facts.labels else ""),
        f"{facts.metric}": f"{_score(run.main)} on {_sets(run.metrics)}",
        "teacher": f"{taught}, {teacher['layers']} layers of {teacher['hidden']}, "
        f"{_millions(teacher['parameters'])}: {facts.metric} {_score(teacher['main'])}",
        "student": f"{learns}: {student['layers']} layers of {student['hidden']}, "
        f"{_millions(student['parameters'])}, of which {student['trainable']:,} are trained; "
        f"started as {without_paths(student['start'], here)}",
        **({"assistant": without_paths(helps["name"], here)} if helps else {}),
        "method": f"{run.method}: {about}",
        "trained with": f"batches of {chosen['batch_size']}, rate {chosen['learning_rate']:g}, "
        + ("" if chosen["beta"] is None else f"β {chosen['beta']:g}, ")
        + f"{_length(spec, facts, run, 1)} from {source} and {_length(spec, facts, run, 2)} "
        f"from the labels, seed {run.seed}, {_counted(run.steps, 'step')}",
        "chosen": f"epoch {chosen['epoch']} of stage {chosen['stage']}, by {facts.metric} "
        f"{_score(run.held_out)} on {facts.examples['held-out']} held-out examples; what is "
        "reported was not looked at",
        "made with": f"kdnas {__version__}",
    }
    table = "\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items())
    return f"""---
library_name: {"transformers" if student["kind"] == "transformer" else "kdnas"}
tags:
- knowledge-distillation
- kdnas
pipeline_tag: text-classification
---

# {facts.task} by {run.method}: {learns} of {taught}

| | |
|---|---|
{table}

## How it learned

{_stages(method)}

![Loss and held-out score by epoch]({STAGES_PICTURE})

| stage | epoch | loss | held-out {facts.metric} |
|---|---|---|---|
{_curve_rows(run)}
{_attention(run)}
## The teacher, layer by layer

What a pseudo-classifier behind each of its layers says, trained with the teacher frozen:

| layer | held-out {facts.metric} | {facts.metric} |
|---|---|---|
{_layer_rows(facts)}

## Use

```python
import kdnas

student = kdnas.load("this folder")
student(["A text."])  # of a task of pairs: student(["A text."], ["Another."])
```

## Make it again

```
kdnas task-distill --config {REQUEST_FILE} --data-dir DIR
```
{_folders(spec)}"""


def without_paths(words: str, refs: Iterable[str]) -> str:
    """Return words in which models are called what they are on another machine.

    Args:
        words: some of the references may be in them.
        refs: how models are named here.
    """
    longest_first = sorted({*refs}, key=len, reverse=True)  # one may be the beginning of another
    return re.sub("|".join(map(re.escape, longest_first)), lambda ref: elsewhere(ref[0]), words)


def _stages(method: type[Method]) -> str:
    """Say what the stages of a method learn from."""
    if not method.needs_teacher:
        return (
            "Both stages learn from the labels alone, as long as those of a student with a teacher."
        )
    first = (
        "the assistant, which has learned from the teacher in the same way"
        if method.assisted
        else "the teacher"
    )
    return f"Stage 1 learns from {first}, stage 2 from the labels alone (Wu et al. 2021, §4.2)."


def _folders(spec: TaskDistillationSpec) -> str:
    """Which folders have to lie beside, if any."""
    named = (spec.student, spec.assistant, spec.teacher.ref)
    beside = [f"`{elsewhere(ref)}`" for ref in named if ref and elsewhere(ref) != ref]
    return f"\nIt needs {' and '.join(beside)}, of which it began.\n" if beside else ""


def draw_stages(run: TaskRun, metric: str, path: Path) -> None:
    """Draw mean loss and held-out score by epoch, both stages side by side."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    for place, stage in enumerate((1, 2), 1):
        points = [point for point in run.curve if point["stage"] == stage]
        epochs = [point["epoch"] for point in points]
        left = figure.add_subplot(1, 2, place)
        # Around the other's: of a single epoch both stand in the middle of their axes.
        around: dict[str, Any] = {"marker": "s", "markersize": 8, "markerfacecolor": "none"}
        left.plot(epochs, [point["loss"] for point in points], color="C0", **around)
        left.set(xlabel="epoch", title=f"stage {stage}")
        left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        left.set_ylabel("training loss", color="C0")
        right = left.twinx()
        held_out = [point["held_out"] for point in points]
        right.plot(epochs, held_out, color="C1", marker="o", markersize=5)
        right.set_ylabel(f"held-out {metric}", color="C1")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def draw_attention(run: TaskRun, path: Path) -> None:
    """Draw heat maps: by epoch for each attending layer, and by example with label distances.

    Weights have one scale, from 0 on, so that what hardly differs looks alike.
    """
    from matplotlib.figure import Figure

    layers = run.attention[-1]["layers"]
    maps: list[tuple[str, str, list[Any], list[list[float]]]] = [
        (
            f"student layer {layer}",
            "epoch",
            [entry["epoch"] for entry in run.attention],
            [entry["weights"][place] for entry in run.attention],
        )
        for place, layer in enumerate(layers)
    ]
    numbers = list(range(1, len(run.samples) + 1))
    if run.samples:
        weights = [sample["weights"] for sample in run.samples]
        maps.append((f"student layer {layers[-1]}, by example", "example", numbers, weights))
    largest = max(weight for *_, values in maps for row in values for weight in row)
    scales = [largest] * len(maps)
    if run.samples:
        distances = [sample["distances"] for sample in run.samples]
        maps.append(("distance from the label", "example", numbers, distances))
        scales.append(max(map(max, distances)))
    figure = Figure(figsize=(3.2 * len(maps) + 0.6, 3.6), layout="constrained")
    panels = [figure.add_subplot(1, len(maps), place) for place in range(1, len(maps) + 1)]
    images = []
    for axes, (title, down, names, values), high in zip(panels, maps, scales, strict=True):
        images.append(axes.imshow(values, aspect="auto", cmap="viridis", vmin=0, vmax=high))
        teacher_layers = range(1, len(values[0]) + 1)
        axes.set_xticks(range(len(values[0])), [str(layer) for layer in teacher_layers])
        axes.set_yticks(range(len(names)), [str(name) for name in names])
        axes.set(xlabel="teacher layer", ylabel=down, title=title)
    of_weights = panels[: len(panels) - bool(run.samples)]
    figure.colorbar(images[0], ax=of_weights, shrink=0.8, pad=0.01)
    if run.samples:
        figure.colorbar(images[-1], ax=panels[-1], shrink=0.8)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _attention(run: TaskRun) -> str:
    if not run.attention:
        return ""
    last = run.attention[-1]
    width = len(last["weights"][0])
    head = " | ".join(str(layer) for layer in range(1, width + 1))
    rows = "\n".join(
        f"| {layer} | " + " | ".join(f"{weight:.3f}" for weight in weights) + " |"
        for layer, weights in zip(last["layers"], last["weights"], strict=True)
    )
    return f"""
## What it attended to

![Attention of student layers over teacher layers]({ATTENTION_PICTURE})

Mean weights over the held-out examples after epoch {last["epoch"]} of stage 1, a teacher layer a
column; `{RUN_FILE}` has those of each epoch, and some examples one by one with the distance of
each teacher layer's answer from the label.

| student layer | {head} |
|---|{"---|" * width}
{rows}
"""


def _length(spec: TaskDistillationSpec, facts: TaskFacts, run: TaskRun, stage: int) -> str:
    """How long a stage was: its epochs, or its steps where no more were allowed."""
    steps = max((point["step"] for point in run.curve if point["stage"] == stage), default=0)
    if steps == spec.max_steps:
        return _counted(steps, "step")
    return _counted(facts.settings["epochs" if stage == 1 else "finetune_epochs"], "epoch")


def _counted(count: float, what: str) -> str:
    return f"{count:.10g} {what}{'' if count == 1 else 's'}"


def _curve_rows(run: TaskRun) -> str:
    return "\n".join(
        f"| {point['stage']} | {point['epoch']} | {point['loss']:.4f} | {point['held_out']:.4f} |"
        for point in run.curve
    )


def _layer_rows(facts: TaskFacts) -> str:
    rows = [
        f"| {one['layer']} | {_score(one['held_out'])} | {_score(one['main'])} |"
        for one in facts.layers
    ]
    teacher = facts.teacher
    own = f"| itself | {_score(teacher['held_out'])} | {_score(teacher['main'])} |"
    return "\n".join([*rows, own])


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _sets(metrics: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(
        f"{name} ({', '.join(f'{key} {value:.4f}' for key, value in values.items())})"
        for name, values in metrics.items()
    )


def _millions(count: float) -> str:
    return f"{count / 1e6:.1f} M parameters"


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
