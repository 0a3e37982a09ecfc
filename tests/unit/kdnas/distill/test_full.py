from __future__ import annotations

import json
import math
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from kdnas.distill.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from kdnas.distill.export import CardFacts, export_student, is_export_of, refuse_used_folder
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, remove_run_files
from kdnas.errors import ConflictError, StoreError, TrainingError
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "2,4,36,96,gelu"
FACTS = CardFacts("d-1", "c0ffee", 270, "float32", "cpu", "1.25 ms")


def distillation(
    lab: TinyLab, folder: Path, dtype: str = "float32", **training: Any
) -> FullDistillation:
    spec = lab.distillation(STUDENT, **{"checkpoint_every": 5, "dropout": 0.1, **training})
    return FullDistillation(spec, lab.teacher, lab.corpus, folder, "cpu", dtype)


def after(steps: int) -> Callable[[], bool]:
    """A should_stop that says yes when it is asked for the n-th time."""
    asked = count(1)
    return lambda: next(asked) >= steps


def weights(distilled: Distilled) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in distilled.student.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.fixture(scope="module")
def undisturbed(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    return distillation(lab, tmp_path_factory.mktemp("whole") / "run").run()


@pytest.mark.parametrize("stop", [1, 4, 5, 7, 11])
def test_stopping_and_resuming_changes_no_bit(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled, stop: int
) -> None:
    first = distillation(lab, tmp_path / "run").run(should_stop=after(stop))
    assert (first.steps, first.finished) == (stop, False)
    torch.manual_seed(77)
    second = distillation(lab, tmp_path / "run").run()
    assert (second.steps, second.finished) == (12, True)
    assert equal(weights(second), weights(undisturbed))
    assert second.curve == undisturbed.curve
    assert second.held_out == undisturbed.held_out


def test_it_may_be_stopped_at_every_step(lab: TinyLab, tmp_path: Path) -> None:
    whole = distillation(lab, tmp_path / "whole", "bfloat16", steps=4).run()
    for _ in range(4):
        pieces = distillation(lab, tmp_path / "run", "bfloat16", steps=4).run(should_stop=after(1))
    assert pieces.finished
    assert equal(weights(pieces), weights(whole))


def test_a_finished_run_gives_its_result_again(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled
) -> None:
    distillation(lab, tmp_path / "run").run()
    again = distillation(lab, tmp_path / "run")
    result = again.run()
    assert again.step_number == 12
    assert equal(weights(result), weights(undisturbed))
    remove_run_files(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_best_student_is_the_one_that_is_returned(lab: TinyLab, tmp_path: Path) -> None:
    """Too large a rate makes the held-out loss rise at the end; the best weights come back."""
    seen: dict[int, dict[str, torch.Tensor]] = {}
    run = distillation(lab, tmp_path / "run", checkpoint_every=1, learning_rate=0.1, dropout=0.0)

    def remember(progress: FullProgress) -> None:
        state = run._trainer.student.state_dict()
        seen[progress.step] = {k: v.clone() for k, v in state.items()}

    result = run.run(remember)
    losses = {point.step: point.losses.relative for point in result.held_out}
    assert list(losses) == list(range(1, 13))
    assert result.best.losses.relative == min(losses.values())
    assert result.best.step == min(losses, key=lambda step: losses[step])
    assert equal(weights(result), seen[result.best.step])
    assert len(list((tmp_path / "run").glob("best-*"))) == 1


def test_progress_tells_of_steps_and_readings(lab: TinyLab, tmp_path: Path) -> None:
    told: list[FullProgress] = []
    result = distillation(lab, tmp_path / "run").run(told.append)
    assert [p.step for p in told if p.held_out] == [5, 10, 12]
    assert tuple(p.held_out for p in told if p.held_out) == result.held_out
    assert all(p.total_steps == 12 and p.tokens_per_second > 0 for p in told)


def test_a_run_that_diverges_says_so(lab: TinyLab, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"diverged: .* learning_rate than 1e\+06"):
        distillation(lab, tmp_path / "run", learning_rate=1e6).run()
    with pytest.raises(TrainingError, match="held-out loss was nan"):
        distillation(lab, tmp_path / "last", learning_rate=1e30, steps=1).run()


def test_a_checkpoint_cut_off_in_mid_write_is_ignored(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    distillation(lab, tmp_path / "run").run(should_stop=after(6))
    (whole,) = checkpoints(folder)
    data = (whole / "state.pt").read_bytes()
    for name in (".draft-1", "step-000000009"):  # killed before the rename, or copied half
        (folder / name).mkdir()
        (folder / name / "state.pt").write_bytes(data[: len(data) // 2])
    assert checkpoints(folder) == [whole]
    result = distillation(lab, tmp_path / "run").run()
    assert equal(weights(result), weights(undisturbed))
    assert not (folder / ".draft-1").exists()


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, size: int) -> None:
    folder = save_checkpoint(tmp_path, {"weights": torch.randn(2000)}, 3)
    data = (folder / "state.pt").read_bytes()
    (folder / "state.pt").write_bytes(data[:size])
    with pytest.raises(StoreError, match=r"step-000000003 cannot be read .*remove that folder"):
        load_checkpoint(tmp_path)
    (folder / "state.pt").write_bytes(b"no archive at all")
    with pytest.raises(StoreError, match="cannot be read"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, {}, 3)
    (folder / "checkpoint.json").write_text('{"format": 99}')
    with pytest.raises(StoreError, match="has format 99"):
        load_checkpoint(tmp_path)
    (folder / "checkpoint.json").write_text("")
    with pytest.raises(StoreError, match="cannot be read"):
        load_checkpoint(tmp_path)


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "none") is None
    for step in (1, 2, 2, 10):
        save_checkpoint(tmp_path, {"step": step}, step)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000010"]
    assert load_checkpoint(tmp_path) == {"step": 10}


FULL_DISK = """
import resource, sys
from pathlib import Path
from kdnas.distill.checkpoint import save_checkpoint
from kdnas.errors import StoreError
import torch

folder = Path(sys.argv[1])
save_checkpoint(folder, {"weights": torch.zeros(1000)}, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    save_checkpoint(folder, {"weights": torch.zeros(100_000)}, 2)
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 100, 150_000])
def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, limit: int) -> None:
    """The limit on a file's size stands for the disk's: both end a write early."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"the checkpoint of step 2 could not be written to {tmp_path}")
    assert "free space there and resume" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000001"]
    state = load_checkpoint(tmp_path)
    assert state is not None
    assert torch.equal(state["weights"], torch.zeros(1000))


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Files may not grow beyond a few bytes, pytest's own output in a file included."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_best_weights_on_a_full_disk(lab: TinyLab, tmp_path: Path) -> None:
    run = distillation(lab, tmp_path / "run")
    sentence = r"best weights could not be written .* free space"
    with small_disk(1000), pytest.raises(StoreError, match=sentence):
        run.run()
    assert not list((tmp_path / "run").glob("best-*"))


@pytest.mark.parametrize("size", [100, 2000])
def test_an_export_on_a_full_disk_leaves_nothing(
    lab: TinyLab,
    tmp_path: Path,
    undisturbed: Distilled,
    size: int,
) -> None:
    spec = lab.distillation(STUDENT)
    sentence = r"could not be written .*full-distill --resume d-1"
    with small_disk(size), pytest.raises(StoreError, match=sentence):
        export_student(undisturbed, spec, lab.teacher, FACTS, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_exported_folder_is_an_ordinary_model(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled
) -> None:
    output = tmp_path / "deep" / "student"
    output.mkdir(parents=True)  # an empty folder will do
    export_student(undisturbed, lab.distillation(STUDENT), lab.teacher, FACTS, output)
    model, report = AutoModel.from_pretrained(
        output, add_pooling_layer=False, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert equal(model.state_dict(), weights(undisturbed))
    tokenizer = AutoTokenizer.from_pretrained(output)
    text = ["balan kosor", "mivek"]
    encoded = tokenizer(text, return_tensors="pt", padding=True)
    assert torch.equal(
        encoded["input_ids"],
        AutoTokenizer.from_pretrained(lab.teacher.folder)(text, return_tensors="pt", padding=True)[
            "input_ids"
        ],
    )
    with torch.no_grad():
        assert model(**encoded).last_hidden_state.shape[-1] == 36
    assert {p.name for p in output.iterdir()} >= {
        "README.md",
        "config.json",
        "distillation.json",
        "loss_curve.png",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
    }
    assert (output / "loss_curve.png").read_bytes().startswith(b"\x89PNG")
    assert equal(load_file(output / "model.safetensors"), weights(undisturbed))
    assert list(output.parent.iterdir()) == [output]


def test_the_card_and_the_files_beside_it_have_the_facts(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled
) -> None:
    spec = lab.distillation(STUDENT)
    export_student(undisturbed, spec, lab.teacher, FACTS, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    millions = sum(p.numel() for p in undisturbed.student.parameters()) / 1e6
    for fact in (
        STUDENT,
        f"{millions:.1f} M",
        lab.teacher.fingerprint,
        "bert, 4 layers of 48",
        "270 training sequences of at most 24 tokens, fingerprint `c0ffee`",
        "hs, layer mapping `kdnas`",
        "| start | warm |",
        "12 steps of 8 sequences, peak learning rate 0.002, seed 0, float32 on cpu",
        f"relative {undisturbed.best.losses.relative:.4f}",
        "1.25 ms",
        "`d-1`",
        "kdnas full-distill --config distillation.json",
        "library_name: transformers",
    ):
        assert fact in card, fact
    assert "(loss_curve.png)" in card
    request = DistillationSpec.read(
        json.loads((tmp_path / "out" / "distillation.json").read_text()), "distillation.json"
    )
    assert (request.teacher.fingerprint, request.corpus.fingerprint) == (None, None)
    assert (request.architecture, request.training) == (spec.architecture, spec.training)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (run["distillation_id"], run["step"]) == ("d-1", undisturbed.best.step)
    assert is_export_of(tmp_path / "out", "d-1")
    assert not is_export_of(tmp_path / "out", "d-2")
    assert not is_export_of(tmp_path / "nowhere", "d-1")
    lines = [json.loads(t) for t in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "training_loss" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "held_out_relative" in line] == [5, 10, 12]
    assert all(math.isfinite(v) for line in lines for v in line.values())
    without = replace(FACTS, latency=None)
    export_student(undisturbed, spec, lab.teacher, without, tmp_path / "other")
    assert "not measured" in (tmp_path / "other" / "README.md").read_text("utf-8")


def test_a_used_output_folder_is_refused(
    lab: TinyLab, tmp_path: Path, undisturbed: Distilled
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    refuse_used_folder(used)
    refuse_used_folder(tmp_path / "new")
    (used / "precious.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"used is not empty; name a new one with --output"):
        export_student(undisturbed, lab.distillation(STUDENT), lab.teacher, FACTS, used)
    assert (used / "precious.txt").read_text() == "mine"
    with pytest.raises(ConflictError, match="is a file"):
        refuse_used_folder(used / "precious.txt")
    shutil.rmtree(used)
