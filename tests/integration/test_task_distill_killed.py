"""`kdnas task-distill` killed inside either stage of a run, with a checkpoint to go on from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kdnas.distill.checkpoint import Checkpoints
from kdnas.testing.commands import Program
from kdnas.testing.saving_often import save_every_step
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

pytestmark = pytest.mark.slow

STEPS = 40
"""Of each stage."""
DISTIL = (
    "task-distill", "--task", "sst-2", "--data-dir", "glue", "--teacher", "teacher",
    "--epochs", "20", "--finetune-epochs", "20", "--max-steps", str(STEPS), "--batch-size", "8",
    "--teacher-epochs", "1", "--warmup-epochs", "1", "--max-length", "16",
    "--dtype", "float32", "--device", "cpu", "--threads", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("a folder with spaces")
    make_tiny_teacher(folder / "teacher", layers=4, hidden=24, heads=2, words=WORDS)
    write_sst2(folder / "glue")
    return Program(folder, save_every_step)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("student", "methods", "options"),
    [
        ("first-layers:2", ("vanilla-kd", "universal-kd-il"), ("--cache", "never")),
        ("bilstm", ("universal-kd-ca",), ()),
    ],
    ids=["beside each other", "alone"],
)
def test_killed_in_each_stage_it_comes_to_the_same_weights_to_the_bit(
    student: str, methods: tuple[str, ...], options: tuple[str, ...], program: Program
) -> None:
    asked = (*DISTIL, "--student", student, "--method", ",".join(methods), *options)
    whole, killed = (f"{kind}-{student.partition(':')[0]}" for kind in ("whole", "killed"))
    undisturbed = program.run(*asked, "--name", whole, "--output", whole, "--json")
    assert undisturbed.code == 0, undisturbed.err
    jobs = program.folder / "home" / "task-distillations"
    known = set(jobs.iterdir())

    def checkpoints() -> Checkpoints:
        (own,) = set(jobs.iterdir()) - known
        shared = "+".join(["checkpoints", *methods[1:]])
        return Checkpoints(str(own / f"{methods[0]}-seed0" / shared))

    def has_made(steps: int) -> bool:
        found = set(jobs.iterdir()) - known
        return bool(found) and any(step >= steps for step in checkpoints().steps())

    resumed = ("task-distill", "--resume", killed)
    first = (*asked, "--name", killed, "--output", killed)
    for command, steps, stage in ((first, 6, 1), (resumed, STEPS + 6, 2)):
        standing = replace(program, first=partial(save_every_step, steps))
        ended = standing.interrupt_when(lambda steps=steps: has_made(steps), *command)
        assert ended.code < 0
        state = checkpoints().load()
        assert state is not None
        assert state["stage"] == stage
        assert state["done"] == 6
        assert not (program.folder / killed).exists()
    done = program.run(*resumed, "--json")
    assert done.code == 0, done.err
    for method in methods:
        one, other = (
            weights(_made(program.folder / name, methods, method)) for name in (whole, killed)
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    means = [[row["mean"] for row in one.json["report"]["rows"]] for one in (undisturbed, done)]
    assert means[0] == means[1]


def _made(output: Path, methods: tuple[str, ...], method: str) -> Path:
    """The folder of a method's student; of one method that of the output."""
    return output if len(methods) == 1 else output / method
