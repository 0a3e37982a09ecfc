"""The card of a student of one task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from kdnas.records import TaskRun
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.card import (
    ATTENTION_PICTURE,
    CARD_FILE,
    REQUEST_FILE,
    RUN_FILE,
    STAGES_PICTURE,
    draw_attention,
    draw_stages,
    without_paths,
    write_card,
)
from kdnas.testing.demo_tasks import task_facts, task_run

SPEC = TaskDistillationSpec.model_validate(
    {
        "name": "mine",
        "task": "rte",
        "data_dir": "somewhere",
        "output": "elsewhere",
        "threads": 3,
        "teacher": {"ref": "bert-base-uncased", "fingerprint": "made-up-teacher"},
        "methods": ["none", "universal-kd-il"],
        "seeds": 5,
        "grid": {},
    }
)


def written(
    folder: Path, method: str, spec: TaskDistillationSpec = SPEC, **changes: Any
) -> tuple[TaskRun, str]:
    run = replace(task_run(method, 2), **changes)
    write_card(folder, spec, task_facts(), run)
    return run, (folder / CARD_FILE).read_text("utf-8")


@pytest.mark.parametrize("method", ["none", "universal-kd-il"])
def test_it_says_how_the_student_came_about(method: str, tmp_path: Path) -> None:
    run, text = written(tmp_path, method)
    assert f"# RTE by {method}: first-layers:3 of bert-base-uncased" in text
    assert f"{run.main:.4f} on dev" in text
    assert "on 249 held-out examples; what is reported was not looked at" in text
    for point in run.curve:
        assert f"| {point['stage']} | {point['epoch']} | {point['loss']:.4f} |" in text
    for layer in range(1, 13):
        assert f"\n| {layer} | 0." in text
    attends = method != "none"
    assert ("## What it attended to" in text) == attends
    assert (tmp_path / ATTENTION_PICTURE).exists() == attends
    assert (tmp_path / STAGES_PICTURE).read_bytes()[:4] == b"\x89PNG"


def test_classes_of_any_name_stand_in_one_cell(tmp_path: Path) -> None:
    facts = replace(task_facts(), task="a|b", labels=("yes|no", "of two\nlines"))
    write_card(tmp_path, SPEC, facts, task_run("none", 2))
    text = (tmp_path / CARD_FILE).read_text("utf-8")
    assert f"| task | a\\|b: {facts.kind}, labels yes\\|no, of two lines |" in text


def test_a_stage_that_was_cut_is_as_long_as_its_steps(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"max_steps": 3})
    point = {"epoch": 1, "loss": 0.7, "held_out": 0.5}
    cut = ({**point, "stage": 1, "step": 3}, {**point, "stage": 2, "step": 3})
    _, text = written(tmp_path, "universal-kd-il", spec, curve=cut, steps=6)
    assert "3 steps from the teacher and 3 steps from the labels, seed 2, 6 steps |" in text
    _, text = written(tmp_path, "universal-kd-il", spec.model_copy(update={"max_steps": 10**4}))
    assert "20 epochs from the teacher and 10 epochs from the labels, seed 2, 1680 steps |" in text


def test_beta_stands_where_it_counts(tmp_path: Path) -> None:
    _, text = written(tmp_path, "universal-kd-il")
    assert "rate 2e-05, β 0.5, 20 epochs" in text
    _, text = written(tmp_path, "vanilla-kd")
    assert "rate 2e-05, 20 epochs" in text


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Pictures in place of their files."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    return figures


def test_of_a_single_epoch_loss_and_score_are_seen(drawn: list[Figure]) -> None:
    draw_stages(task_run("universal-kd-il", 0, epochs=1), "accuracy", Path())
    for loss, score in (drawn[0].axes[:2], drawn[0].axes[2:]):
        (below,), (above,) = loss.lines, score.lines
        assert below.get_marker() not in ("", "None", None)
        assert below.get_markersize() > above.get_markersize() + 2
        low, high = loss.get_xlim()
        assert [tick for tick in loss.get_xticks() if low <= tick <= high] == [1]


@pytest.mark.parametrize("epochs", [2, 3, 8, 20])
def test_epochs_are_whole(epochs: int, drawn: list[Figure]) -> None:
    draw_stages(task_run("none", 0, epochs=epochs), "accuracy", Path())
    assert all(tick == int(tick) for tick in drawn[0].axes[2].get_xticks())


def test_attention_has_one_scale_from_nothing_on(drawn: list[Figure]) -> None:
    run = task_run("universal-kd-il", 0)
    draw_attention(run, Path())
    *weighing, distances = (axes.images[0] for axes in drawn[0].axes if axes.images)
    every = [w for entry in run.attention for row in entry["weights"] for w in row]
    largest = max(every + [w for sample in run.samples for w in sample["weights"]])
    assert [image.get_clim() for image in weighing] == [(0, largest)] * 4
    assert distances.get_clim() == (0, max(d for one in run.samples for d in one["distances"]))


def test_numbers_lie_beside(tmp_path: Path) -> None:
    run, _ = written(tmp_path, "universal-kd-il")
    stored = json.loads((tmp_path / RUN_FILE).read_text("utf-8"))
    assert stored == json.loads(json.dumps(run.to_json()))


def test_the_request_makes_the_student_again_on_another_machine(tmp_path: Path) -> None:
    """That of one run: what a grid chose is written out, and where things lay is not."""
    run, text = written(tmp_path, "universal-kd-il")
    assert f"kdnas task-distill --config {REQUEST_FILE} --data-dir DIR" in text
    stored = json.loads((tmp_path / REQUEST_FILE).read_text("utf-8"))
    assert not {"data_dir", "output", "threads", "name", "device"} & stored.keys()
    read = TaskDistillationSpec.read({**stored, "data_dir": "there"}, "task-distill")
    assert (read.methods, read.seeds, read.grid) == (("universal-kd-il",), (2,), None)
    assert read.teacher.fingerprint is None
    for name in ("batch_size", "learning_rate", "beta"):
        assert getattr(read, name) == run.chosen[name]


def test_it_says_what_each_stage_learns_from(tmp_path: Path) -> None:
    _, text = written(tmp_path, "none")
    assert "20 epochs from the labels and 10 epochs from the labels, seed 2" in text
    assert "Both stages learn from the labels alone, as long as those of a student with" in text
    facts = task_facts()
    helper = {"name": "/data/helper one", "fingerprint": "made-up"}
    facts = replace(facts, student={**facts.student, "assistant": helper})
    write_card(tmp_path, SPEC, facts, task_run("takd", 2))
    text = (tmp_path / CARD_FILE).read_text("utf-8")
    assert "20 epochs from the assistant and 10 epochs from the labels" in text
    assert "| assistant | ./helper one |" in text
    assert "Stage 1 learns from the assistant, which has learned from the teacher in the" in text
    write_card(tmp_path, SPEC, facts, task_run("vanilla-kd", 2))
    text = (tmp_path / CARD_FILE).read_text("utf-8")
    assert "20 epochs from the teacher and" in text
    assert "assistant" not in text


def test_names_with_blanks_and_slashes_are_whole(tmp_path: Path) -> None:
    folder, bert = "/data/anna/my students/x", "/models/bert"
    teacher = SPEC.teacher.model_copy(update={"ref": bert})
    facts = task_facts()
    facts = replace(
        facts,
        task="odd / one",
        teacher={**facts.teacher, "ref": f"{bert} fine-tuned on odd / one"},
        student={**facts.student, "name": folder, "start": f"folder {folder}"},
    )
    spec = SPEC.model_copy(update={"student": folder, "teacher": teacher})
    write_card(tmp_path, spec, facts, task_run("universal-kd-il", 2))
    text = (tmp_path / CARD_FILE).read_text("utf-8")
    assert "# odd / one by universal-kd-il: ./x of ./bert fine-tuned on odd / one" in text
    assert "started as folder ./x |" in text
    assert "anna" not in text
    assert without_paths("folder /data/bert of /bert", ["/bert", "/data/bert", "/bert"]) == (
        "folder ./bert of ./bert"
    )


def test_folders_of_this_machine_are_named_as_they_may_lie_elsewhere(tmp_path: Path) -> None:
    folder, bert = "/data/somebody/students/taught-1", "/models/my-bert"
    spec = SPEC.model_copy(
        update={
            "student": folder,
            "assistant": "/data/somebody/helper",
            "teacher": SPEC.teacher.model_copy(update={"ref": bert}),
        }
    )
    facts = task_facts()
    facts = replace(
        facts,
        teacher={**facts.teacher, "ref": bert},
        student={**facts.student, "name": folder, "start": f"folder {folder}"},
    )
    write_card(tmp_path, spec, facts, task_run("universal-kd-il", 2))
    text = (tmp_path / CARD_FILE).read_text("utf-8")
    request = json.loads((tmp_path / REQUEST_FILE).read_text("utf-8"))
    assert "# RTE by universal-kd-il: ./taught-1 of ./my-bert" in text
    assert "It needs `./taught-1` and `./helper` and `./my-bert`, of which it began." in text
    assert "started as folder ./taught-1" in text
    assert (request["student"], request["assistant"]) == ("./taught-1", "./helper")
    assert request["teacher"]["ref"] == "./my-bert"
    for place in ("/data", "/models"):
        assert place not in text + json.dumps(request)
