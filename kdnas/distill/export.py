"""The output of a full distillation: an ordinary Hugging Face folder with a model card."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from kdnas import __version__
from kdnas.distill.full import Distilled
from kdnas.errors import ConflictError, StoreError
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.models.teacher import TOKENIZER_FILES, TeacherHandle, quiet_transformers

if TYPE_CHECKING:
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.objectives import ObjectiveSpec


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the model card says beside the distillation itself.

    Attributes:
        run_id: id of the distillation in the database.
        corpus_fingerprint: of the tokenised corpus.
        corpus_sequences: training sequences.
        dtype: format of the forward passes.
        device: where it ran.
        latency: a sentence with the measured latency, or None if it was not measured.
    """

    run_id: str
    corpus_fingerprint: str
    corpus_sequences: int
    dtype: str
    device: str
    latency: str | None


SPEC_FILE, RUN_FILE = "distillation.json", "run.json"
_OF_THIS_MACHINE = ("output", "name")


def refuse_used_folder(output: Path) -> None:
    """Refuse an output folder that holds something or cannot be made, before hours are spent.

    Raises:
        ConflictError: it is a file, a folder that is not empty, or out of reach.
    """
    if output.is_file():
        raise ConflictError(f"output {output} is a file; name a new folder with --output")
    try:
        if output.is_dir() and any(output.iterdir()):
            raise ConflictError(
                f"output folder {output} is not empty; name a new one with --output, or empty it"
            )
        probe = output.parent / f".{output.name}.probe-{os.getpid()}"
        probe.mkdir(parents=True)
        probe.rmdir()
    except OSError as error:
        raise ConflictError(
            f"output folder {output} cannot be made ({error.strerror}); name another with --output"
        ) from None


def is_export_of(output: Path, run_id: str) -> bool:
    """Whether a folder holds the whole student of this run; it appears whole or not at all."""
    try:
        about = json.loads((output / RUN_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("distillation_id") == run_id


def portable_request(spec: DistillationSpec) -> dict[str, Any]:
    """Return a request that makes the student again elsewhere: nothing pinned to this machine."""
    request = {k: v for k, v in spec.to_json().items() if k not in _OF_THIS_MACHINE}
    for part in ("teacher", "corpus"):
        request[part] = {k: v for k, v in request[part].items() if k != "fingerprint"}
    return request


def export_student(
    distilled: Distilled,
    spec: DistillationSpec,
    teacher: TeacherHandle,
    facts: CardFacts,
    output: Path,
) -> None:
    """Write the student where ``AutoModel`` and ``AutoTokenizer`` load it; all of it or nothing.

    The folder holds weights (safetensors), configuration, the teacher's tokenizer, ``README.md``
    (the model card), ``loss_curve.png``, ``metrics.jsonl``, ``distillation.json`` (the request) and
    ``run.json`` (which run made it, and its best losses).

    Raises:
        ConflictError: the output folder is not empty.
        StoreError: the disk is full or not writable.
    """
    refuse_used_folder(output)
    draft = output.parent / f".{output.name}.draft-{facts.run_id}"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        with quiet_transformers():
            distilled.student.save_pretrained(draft)  # type: ignore[operator]
        for name in TOKENIZER_FILES:
            if (teacher.folder / name).is_file():
                shutil.copyfile(teacher.folder / name, draft / name)
        _write_json(draft / SPEC_FILE, portable_request(spec))
        _write_json(draft / RUN_FILE, {"distillation_id": facts.run_id, **asdict(distilled.best)})
        (draft / "metrics.jsonl").write_text("".join(_metric_lines(distilled)))
        _draw_curve(distilled, draft / "loss_curve.png")
        (draft / "README.md").write_text(model_card(distilled, spec, teacher, facts), "utf-8")
        if output.is_dir():
            output.rmdir()
        draft.rename(output)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise StoreError(
            f"the student could not be written to {output} ({reason}); free space there and run: "
            f"kdnas full-distill --resume {facts.run_id}"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _metric_lines(distilled: Distilled) -> list[str]:
    lines = [
        {"step": p.step, "training_loss": p.loss, "lr": p.learning_rate} for p in distilled.curve
    ]
    held_out = [
        {"step": p.step, **{f"held_out_{k}": v for k, v in asdict(p.losses).items()}}
        for p in distilled.held_out
    ]
    ordered = sorted([*lines, *held_out], key=lambda line: line["step"])
    return [json.dumps(line) + "\n" for line in ordered]


def _draw_curve(distilled: Distilled, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    left.plot([p.step for p in distilled.curve], [p.loss for p in distilled.curve], color="C0")
    left.set(xlabel="step", ylabel="training loss")
    right = left.twinx()
    right.plot(
        [p.step for p in distilled.held_out],
        [p.losses.relative for p in distilled.held_out],
        "o-",
        color="C1",
        markersize=4,
    )
    right.set(ylabel="held-out relative loss (0 perfect, 1 useless)", ylim=(0, None))
    left.yaxis.label.set_color("C0")
    right.yaxis.label.set_color("C1")
    figure.savefig(path, dpi=120)


def _objective_line(objective: ObjectiveSpec) -> str:
    options = {k: v for k, v in objective.to_json().items() if k != "name" and v is not None}
    said = ", ".join(f"{key.replace('_', ' ')} `{value}`" for key, value in options.items())
    return f"{objective.name}: {said}"


def model_card(
    distilled: Distilled, spec: DistillationSpec, teacher: TeacherHandle, facts: CardFacts
) -> str:
    """Write the model card in Markdown with the hub's metadata block."""
    architecture, shape, best = spec.arch, teacher.shape, distilled.best
    embedding = EmbeddingShape.of(shape)
    millions = count_parameters(architecture, embedding) / 1e6
    training = spec.training
    rows = {
        "architecture": f"`{architecture}` (layers, heads, hidden, intermediate, activation)",
        "parameters": f"{millions:.1f} M, embeddings included",
        "teacher": f"{spec.teacher.ref}: {shape.model_type}, {shape.layers} layers of "
        f"{shape.hidden}, fingerprint `{shape.fingerprint}`",
        "corpus": f"{', '.join(spec.corpus.source)}: {facts.corpus_sequences} training sequences "
        f"of at most {spec.corpus.max_length} tokens, fingerprint `{facts.corpus_fingerprint}`",
        "objective": _objective_line(spec.objective),
        "start": spec.student.init,
        "training": f"{distilled.steps} steps of {training.batch_size} sequences, peak learning "
        f"rate {training.learning_rate:g}, seed {training.seed}, {facts.dtype} on {facts.device}",
        "held-out loss": f"relative {best.losses.relative:.4f}, output {best.losses.output:.4f}, "
        f"mean {best.losses.mean:.4f} (step {best.step}, the best one read)",
        "latency": facts.latency or "not measured",
        "made with": f"kdnas {__version__}, distillation `{facts.run_id}`",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""---
library_name: transformers
tags:
- knowledge-distillation
- kdnas
pipeline_tag: feature-extraction
---

# {architecture} student of {spec.teacher.ref}

A general-purpose encoder, distilled task-agnostically from its teacher's hidden states. Fine-tune
it like any other encoder of its family.

| | |
|---|---|
{table}

Relative loss: 0 is a student whose projected hidden states equal the teacher's, 1 one that
ignores its input.

![Loss curve](loss_curve.png)

## Use

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModel.from_pretrained("path/to/this/folder")
```

## Make it again

```
kdnas full-distill --config {SPEC_FILE}
```
"""
