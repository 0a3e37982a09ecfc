"""The output of a full distillation: an ordinary Hugging Face folder with a model card."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from kdnas.distill.full import Distilled
from kdnas.distill.model_card import CardFacts, model_card
from kdnas.distill.stages import plan_stages
from kdnas.distill.tensorboard import write_student_events
from kdnas.errors import OutputError, StoreError
from kdnas.json_files import read_object
from kdnas.models.file_modes import readable_like_others
from kdnas.models.lm_head import save_masked_lm
from kdnas.models.opening import ModelHandle
from kdnas.models.sentence import write_student_modules
from kdnas.models.teacher import TeacherHandle, quiet_transformers
from kdnas.models.teacher_files import TOKENIZER_FILES
from kdnas.objectives.registry import build_stages
from kdnas.reach import ANYWHERE, Reach

if TYPE_CHECKING:
    from kdnas.specs.distillation import DistillationSpec

__all__ = [
    "CardFacts",
    "export_student",
    "is_export_of",
    "portable_request",
    "refuse_used_folder",
]

SPEC_FILE, RUN_FILE = "distillation.json", "run.json"
# Names of this machine or of its store, which mean nothing elsewhere.
_OF_THIS_MACHINE: dict[str, tuple[str, ...]] = {
    "teacher": ("fingerprint",),
    "corpus": ("fingerprint",),
    "objective": ("lm_head",),
    "training": ("checkpoints", "address"),
}


def refuse_used_folder(output: Path, reach: Reach = ANYWHERE, *, is_stored: bool = False) -> None:
    """Refuse an output folder that holds something or cannot be made, before hours are spent.

    Args:
        output: the folder.
        reach: how it is opened.
        is_stored: whether the request is stored by now, so that it cannot name another folder.

    Raises:
        RequestError: it is out of reach.
        OutputError: it is a file, a folder that is not empty, or out of reach.
    """
    reach.require(output)
    if output.is_file():
        way = "move it away and go on" if is_stored else "name a new folder with --output"
        raise OutputError(f"output {output} is a file; {way}")
    if output.is_mount():  # what is written beside it could not be moved there
        way = "unmount it and go on" if is_stored else "name a new folder in it with --output"
        raise OutputError(f"output {output} is a mount point; {way}")
    try:
        if output.is_dir() and reach.children(output):
            way = "empty it and go on" if is_stored else "name a new one with --output, or empty it"
            raise OutputError(f"output folder {output} is not empty; {way}")
        probe = f".{output.name}.probe-{os.getpid()}"
        with reach.folder(output.parent, create=True) as parent:
            os.mkdir(probe, dir_fd=parent)
            os.rmdir(probe, dir_fd=parent)
    except OSError as error:
        way = "make room for it and go on" if is_stored else "name another with --output"
        raise OutputError(
            f"output folder {output} cannot be made ({error.strerror}); {way}"
        ) from None


def is_export_of(output: Path, run_id: str, reach: Reach = ANYWHERE) -> bool:
    """Whether a folder holds the whole student of this run; it appears whole or not at all.

    Raises:
        RequestError: it is out of reach.
    """
    about = read_object(output / RUN_FILE, reach) or {}
    return about.get("distillation_id") == run_id


def portable_request(spec: DistillationSpec) -> dict[str, Any]:
    """Return a request that makes the student again elsewhere: nothing of this machine's store."""
    request = {k: v for k, v in spec.to_json().items() if k not in {"output", "name"}}
    for part, keys in _OF_THIS_MACHINE.items():
        request[part] = {k: v for k, v in request[part].items() if k not in keys}
    origin = request["student"].get("init_from")
    if origin is not None:
        request["student"]["init_from"] = {k: v for k, v in origin.items() if k != "fingerprint"}
    return request


def export_student(
    distilled: Distilled,
    spec: DistillationSpec,
    teacher: TeacherHandle,
    facts: CardFacts,
    output: Path,
    events: Path | None = None,
    reach: Reach = ANYWHERE,
    workshop: Path | None = None,
) -> None:
    """Write the student where ``AutoModel`` and ``AutoTokenizer`` load it; all of it or nothing.

    The folder holds weights (safetensors), configuration, the teacher's tokenizer and its way of
    embedding sentences, if it has one, with the map to the teacher's space behind the pooling, so
    that sentence-transformers loads it too, ``README.md``
    (the model card), ``loss_curve.png`` unless it is undistilled, ``metrics.jsonl``,
    ``tensorboard/``, ``distillation.json`` (the request) and ``run.json`` (which run made it, on
    which text, and its best losses).

    Args:
        distilled: the student and how it got there.
        spec: the request.
        teacher: the teacher.
        facts: what else the card says.
        output: an empty or new folder.
        events: folder of the run's TensorBoard events, which know its speed and its times.
        reach: how the output folder is opened.
        workshop: folder where the student is put together, before it is copied to the output;
            None does it beside the output, where that is not limited: others may write there.

    Raises:
        RequestError: the output folder is out of reach.
        OutputError: the output folder is not empty.
        StoreError: the disk is full or not writable.
    """
    if reach.limited and workshop is None:
        raise ValueError("where not everything may be written, a student needs a workshop")
    refuse_used_folder(output, reach, is_stored=True)
    name = f".{output.name}.draft-{facts.run_id}"
    draft = (workshop or output.parent) / name
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _save_model(distilled, draft)
        copy_tokenizer(teacher, draft)
        if teacher.sentences is not None:
            modules = write_student_modules(
                teacher.sentences, spec.arch.hidden, draft, distilled.projection
            )
            facts = replace(facts, sentences=modules)
        _write_json(draft / SPEC_FILE, portable_request(spec))
        run = {
            "distillation_id": facts.run_id,
            "corpus_fingerprint": facts.corpus_fingerprint,
            "corpus_training_sequences": facts.corpus_sequences,
            **asdict(distilled.best),
        }
        _write_json(draft / RUN_FILE, run)
        (draft / "metrics.jsonl").write_text("".join(_metric_lines(distilled, spec)))
        write_student_events(distilled, events, draft / "tensorboard")
        if not distilled.undistilled:
            _draw_curve(distilled, draft / "loss_curve.png")
        (draft / "README.md").write_text(model_card(distilled, spec, teacher, facts), "utf-8")
        if workshop is not None:
            reach.put(draft, output, name)
        else:
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


def _save_model(distilled: Distilled, folder: Path) -> None:
    """Save the encoder, with the masked-LM head if one was trained: AutoModel loads either."""
    if distilled.lm_head is not None:
        save_masked_lm(distilled.student, distilled.lm_head, folder)
        return
    with quiet_transformers():
        distilled.student.save_pretrained(folder)  # type: ignore[operator]
    readable_like_others(folder)


def copy_tokenizer(model: ModelHandle, folder: Path) -> None:
    """Copy the files of a model's tokenizer."""
    for name in TOKENIZER_FILES:
        if (model.folder / name).is_file():
            shutil.copyfile(model.folder / name, folder / name)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _metric_lines(distilled: Distilled, spec: DistillationSpec) -> list[str]:
    """Training curve and held-out readings by step, with the objective where it changes."""
    training = [
        {"step": p.step, "training_loss": p.loss, "lr": p.learning_rate} for p in distilled.curve
    ]
    held_out = [
        {"step": p.step, **{f"held_out_{k}": v for k, v in asdict(p.losses).items()}}
        for p in distilled.held_out
    ]
    lines: list[dict[str, Any]] = sorted([*training, *held_out], key=lambda line: line["step"])
    stages = plan_stages(build_stages(spec.objective), distilled.total_steps)
    if len(stages) > 1:
        for line in lines:
            stage = next(s for s in stages if line["step"] <= s.end)
            line["objective"] = stage.objective.name
    return [json.dumps(line) + "\n" for line in lines]


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
