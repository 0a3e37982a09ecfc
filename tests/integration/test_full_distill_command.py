"""`kdnas full-distill` from the outside: to the end, killed and resumed, and what it leaves."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from kdnas.testing.commands import Finished, Program
from kdnas.testing.standing import stand_after_checkpoint
from kdnas.testing.stub_hub import FORBIDDEN_OWNER, TOKEN, running_stub_hub

ARCHITECTURE = "2,4,24,48,silu"
DISTIL = (
    "full-distill", "--arch", ARCHITECTURE, "--steps", "40", "--checkpoint-every", "5",
    "--batch-size", "8", "--max-length", "16", "--threads", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    made = Program.make(tmp_path_factory.mktemp("a folder with spaces"))
    # Teacher and corpus of the working folder, for commands that name neither.
    (made.folder / "kdnas.yaml").write_text("teacher: teacher\ncorpus: corpus.txt\n", "utf-8")
    return made


@pytest.fixture(scope="module")
def finished(program: Program) -> Finished:
    result = program.run(*DISTIL, "--output", "student", "--name", "undisturbed", "--json")
    assert result.code == 0, result.err
    return result


def files(folder: Path) -> dict[str, bytes]:
    """What the hub shows of a folder: everything but TensorBoard's events and hidden files."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_it_says_what_it_took_and_how_it_goes(finished: Finished) -> None:
    assert "teacher    teacher  (from kdnas.yaml)" in finished.err
    assert "corpus     corpus.txt  (from kdnas.yaml)" in finished.err
    assert "objective  hs  (default" in finished.err
    assert "held-out relative" in finished.err
    assert finished.json["status"] == "succeeded"
    assert finished.json["done"] == finished.json["total"] == 40
    assert 0 < finished.json["losses"]["relative"] < 1.5


def test_the_folder_is_an_ordinary_model(program: Program, finished: Finished) -> None:
    folder = program.folder / "student"
    model = AutoModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["old tree sings", "river"], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    assert states.last_hidden_state.shape[2] == 24
    assert model.config.num_hidden_layers == 2
    assert model.config.hidden_act == "silu"
    card = (folder / "README.md").read_text("utf-8")
    for fact in (ARCHITECTURE, "loss_curve.png", "corpus.txt", "kdnas full-distill --config"):
        assert fact in card
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "held_out_relative" in line]
    assert steps == list(range(0, 41, 5))


def test_the_request_in_the_folder_makes_the_student_again(
    program: Program, finished: Finished
) -> None:
    again = program.run(
        "full-distill", "--config", "student/distillation.json", "--output", "again"
    )
    assert again.code == 0, again.err
    one, other = weights(program.folder / "student"), weights(program.folder / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_kill_just_after_the_export_loses_nothing(program: Program, finished: Finished) -> None:
    with sqlite3.connect(program.folder / "home" / "kdnas.db") as connection:
        connection.execute("update jobs set status = 'running' where name = 'undisturbed'")
    before = (program.folder / "student" / "run.json").stat().st_mtime_ns
    resumed = program.run("full-distill", "--resume", "undisturbed", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["status"] == "succeeded"
    assert resumed.json["losses"] == finished.json["losses"]
    assert (program.folder / "student" / "run.json").stat().st_mtime_ns == before


def test_a_used_output_folder_is_refused(program: Program, finished: Finished) -> None:
    before = (program.folder / "student" / "README.md").read_text()
    again = program.run(*DISTIL, "--output", "student")
    assert again.code == 2
    assert "is not empty" in again.err
    assert (program.folder / "student" / "README.md").read_text() == before


def test_default_output_is_named_by_the_run_and_a_large_student_is_warned_about(
    program: Program,
) -> None:
    result = program.run(
        "full-distill", "--arch", "2,4,96,192,gelu", "--steps", "3", "--batch-size", "8", "--json"
    )
    assert result.code == 0, result.err
    assert "is larger than its teacher" in result.err
    folder = Path(result.json["output"])
    assert folder == program.folder / "home" / "students" / result.json["id"]
    assert (folder / "model.safetensors").is_file()


def test_a_student_that_has_not_learned_is_one_with_a_warning(
    program: Program, finished: Finished
) -> None:
    """One that begins with nothing: of a good start the start itself would come out."""
    poor = ("--init", "random", "--learning-rate", "0.9", "--output", "ruined", "--json")
    ruined = program.run(*DISTIL, *poor)
    assert ruined.code == 0, ruined.err
    assert ruined.json["losses"]["output"] >= 1
    said = f"has not learned: its held-out output loss is {ruined.json['losses']['output']:.4g}"
    assert f"warning: {ARCHITECTURE} {said}" in ruined.err
    assert "a smaller training.learning_rate than 0.9" in ruined.err
    assert f"**It {said}" in (program.folder / "ruined" / "README.md").read_text("utf-8")
    assert "not learned" not in finished.err


def test_a_student_goes_to_the_hub_when_it_is_done(program: Program) -> None:
    """A wrong token is refused before the work; a hub that says no afterwards loses nothing."""
    short = ("full-distill", "--arch", ARCHITECTURE, "--steps", "3", "--batch-size", "8")
    with running_stub_hub() as hub:
        online = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
        to_team = ("--push-to-hub", "team/student", "--output", "pushed", "--json")
        refused = program.run(*short, *to_team, **online | {"HF_TOKEN": "hf_wrong"})
        assert refused.code == 2
        assert not (program.folder / "pushed").exists()
        done = program.run(*short, *to_team, **online)
        assert done.code == 0, done.err
        assert hub.files == {"team/student": files(program.folder / "pushed")}
        elsewhere = f"{FORBIDDEN_OWNER}/student"
        late = program.run(*short, "--push-to-hub", elsewhere, "--output", "kept", **online)
        assert late.code == 2
        assert f"kdnas export '{program.folder / 'kept'}' --push-to-hub {elsewhere}" in late.err
        assert files(program.folder / "kept").keys() == files(program.folder / "pushed").keys()
    assert f"hub        {hub.url}/team/student\n" in done.err


def test_an_objective_that_needs_a_head_has_one_fitted(program: Program) -> None:
    """The last line of errors names the option; with it the student is a masked-LM model."""
    asked = (*DISTIL, "--objective", "hs+od", "--steps", "10")
    refused = program.run(*asked, "--output", "with-head")
    assert refused.code == 2
    assert "has no masked-LM head" in refused.err
    assert "--fit-lm-head" in refused.err
    done = program.run(*asked, "--fit-lm-head", "5", "--output", "with-head", "--json")
    assert done.code == 0, done.err
    assert "fitting the teacher's masked-LM head" in done.err
    config = json.loads((program.folder / "with-head" / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    AutoModelForMaskedLM.from_pretrained(program.folder / "with-head")


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_weights(program: Program, finished: Finished) -> None:
    runs = program.folder / "home" / "distillations"

    def at_step_ten() -> bool:
        return any(runs.glob("*/checkpoints/step-000000010/checkpoint.json"))

    standing = replace(program, first=partial(stand_after_checkpoint, 10))
    standing.interrupt_when(at_step_ten, *DISTIL, "--output", "resumed", "--name", "killed")
    assert not (program.folder / "resumed").exists()
    resumed = program.run("full-distill", "--resume", "killed", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["losses"] == finished.json["losses"]
    one, other = weights(program.folder / "student"), weights(program.folder / "resumed")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any(runs.iterdir())
    again = program.run("full-distill", "--resume", "killed")
    assert again.code == 0
    assert "it is finished" in again.err


def test_no_steps_write_the_student_as_it_starts(program: Program, finished: Finished) -> None:
    asked = ["0" if word == "40" else word for word in DISTIL]
    result = program.run(*asked, "--output", "start", "--name", "start", "--json")
    assert result.code == 0, result.err
    assert result.json["status"] == "succeeded"
    assert (result.json["done"], result.json["total"]) == (0, 0)
    assert "as it starts, undistilled" in result.err
    assert "tokens/s" not in result.err
    card = (program.folder / "start" / "README.md").read_text("utf-8")
    assert "no step was trained" in card
    start, end = weights(program.folder / "start"), weights(program.folder / "student")
    assert start.keys() == end.keys()
    assert not all(torch.equal(start[name], end[name]) for name in start)
    shown = program.run("distillations", "show", "start")
    assert "none, undistilled" in shown.out
    resumed = program.run("full-distill", "--resume", "start")
    assert resumed.code == 0
    assert "it is finished" in resumed.err
