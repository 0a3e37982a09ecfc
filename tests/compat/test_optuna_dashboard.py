"""Optuna's own dashboard opens what a search is exported as.

It runs in an environment of its own, with the Optuna that it brings.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kdnas.testing.commands import Program

pytestmark = pytest.mark.compat

DASHBOARD = "optuna-dashboard==0.21.0"
START_SECONDS = 120


def test_an_exported_search_is_shown(tmp_path: Path) -> None:
    program = Program.make(tmp_path)
    for command in (
        ("search", "--config", "tiny.yaml", "--name", "mine"),
        ("searches", "export", "mine", "--format", "optuna", "--output", "study.db"),
    ):
        done = program.run(*command)
        assert done.code == 0, done.err
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", DASHBOARD], check=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = [python.with_name("optuna-dashboard"), "sqlite:///study.db", "--port", str(port)]
    with (tmp_path / "dashboard.log").open("wb") as log:
        shown = subprocess.Popen(server, cwd=tmp_path, stdout=log, stderr=log)
    try:
        (study,) = _answer(f"{url}/api/studies", shown)["study_summaries"]
        assert study["study_name"] == "mine"
        found = _answer(f"{url}/api/studies/{study['study_id']}?after=0", shown)
    finally:
        shown.terminate()
        shown.wait()
    assert [trial["state"] for trial in found["trials"]] == ["Complete"] * 12
    assert {p["name"] for p in found["trials"][0]["params"]} >= {"layers", "hidden"}
    assert len(found["best_trials"]) == 1


def _answer(url: str, server: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the dashboard answers, once it is there."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except OSError:
            assert server.poll() is None, "the dashboard has ended"
            assert time.monotonic() < deadline, "the dashboard does not answer"
            time.sleep(0.2)
