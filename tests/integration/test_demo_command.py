"""`kdnas demo` from the outside, in miniature."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoModel

from kdnas.testing.commands import Program


def test_demo_leaves_a_plot_numbers_and_a_student_twice_in_a_row(tmp_path: Path) -> None:
    program = Program.make(tmp_path)
    # The demo asks for students of at most 0.6 of their teacher's latency: here that is too few.
    tiny = (tmp_path / "tiny.yaml").read_text()
    (tmp_path / "demo.yaml").write_text(tiny + "limits: {max_latency_ratio: 9.0}\n")
    command = ("demo", "--config", "demo.yaml", "--distill-steps", "12")
    first = program.run(*command)
    assert first.code == 0, first.err
    assert "the winner is" in first.err
    assert "12 trained, 0 looked up" in first.out
    folder = tmp_path / "demo-output"
    assert (folder / "loss_latency.png").read_bytes().startswith(b"\x89PNG")
    winner = json.loads((folder / "search.json").read_text())["best"][0]["architecture"]
    model = AutoModel.from_pretrained(folder / "student-1")
    assert model.config.num_hidden_layers == int(winner.split(",")[0])
    again = program.run(*command)
    assert again.code == 0, again.err
    assert "0 trained, 12 looked up" in again.out
    assert (folder / "student-2" / "model.safetensors").is_file()
