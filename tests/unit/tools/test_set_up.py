"""The environment of a fresh checkout: made once, added to, gone on with, and made anew."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")

BACKEND = r'''
"""Builds nothing but the link to this folder: what installing needs, without a network."""
import zipfile

INFO = "tiny-1.0.dist-info"
METADATA = """Metadata-Version: 2.1
Name: tiny
Version: 1.0
Provides-Extra: demo
Provides-Extra: dev
"""
WHEEL = """Wheel-Version: 1.0
Root-Is-Purelib: true
Tag: py3-none-any
"""

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1.0-py3-none-any.whl"
    files = {"tiny.py": "# nothing", f"{INFO}/METADATA": METADATA, f"{INFO}/WHEEL": WHEEL}
    files[f"{INFO}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{INFO}/RECORD"])
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name

build_wheel = build_editable
'''
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tiny"
version = "1.0"
dependencies = []

[project.optional-dependencies]
demo = []
dev = []
"""


@dataclass(frozen=True)
class Checkout:
    """A tiny project that is set up as kdnas is."""

    folder: Path
    path: str

    @classmethod
    def make(cls, folder: Path, *on_the_path: Path) -> Checkout:
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(PROJECT)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "constraints.txt").write_text("")
        for name in ("Makefile", "tools"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        places = [
            place for place in os.environ["PATH"].split(":") if not (Path(place) / "uv").exists()
        ]
        return cls(folder, ":".join([*map(str, on_the_path), *places]))

    @property
    def environment(self) -> dict[str, str]:
        offline = {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_CACHE_DIR": str(self.folder / "uv")}
        return {**os.environ, **offline, "PATH": self.path, "PYTHON": sys.executable}

    def set_up(self, target: str = "setup", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", target],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def note(self) -> dict[str, object]:
        note = json.loads((self.folder / ".venv" / ".installed").read_text())
        assert isinstance(note, dict)
        return note

    def imports_it(self) -> bool:
        python = self.folder / ".venv" / "bin" / "python"
        return subprocess.run([python, "-c", "import tiny"], check=False).returncode == 0


@pytest.mark.slow
def test_an_environment_is_made_once_added_to_and_gone_on_with(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "a folder with spaces")
    first = checkout.set_up("setup-demo")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(
        "setting up kdnas (demo) in .venv: a minute or two the first time"
    )
    assert "set up in " in first.stdout
    assert len(first.stdout.splitlines()) == 2, "what the installer prints goes to its log"
    assert checkout.imports_it()
    assert checkout.note["extras"] == ["demo"]
    assert checkout.set_up("setup-demo").stdout == "", "it is there"

    more = checkout.set_up()
    assert more.stdout.startswith("setting up kdnas (demo, dev) in .venv\n")
    assert checkout.set_up("setup-demo").stdout == checkout.set_up().stdout == "", "all extras stay"

    marker = checkout.folder / ".venv" / "kept"
    marker.touch()
    (checkout.folder / "constraints.txt").write_text("# another\n")
    assert checkout.set_up("setup-demo").stdout.startswith(
        "setting up kdnas (demo, dev) in .venv\n"
    )
    assert marker.exists(), "other pins are installed on top"

    note = checkout.folder / ".venv" / ".installed"
    note.write_text(json.dumps({**checkout.note, "pins": None}))  # as one that was interrupted
    assert checkout.set_up().stdout.startswith("setting up kdnas (demo, dev) in .venv\n")
    assert marker.exists()

    moved = tmp_path / "moved"
    checkout.folder.rename(moved)
    there = Checkout(moved, checkout.path)
    assert "the first time" in there.set_up().stdout
    assert there.imports_it()
    assert not (moved / ".venv" / "kept").exists(), "one that was moved is made anew"

    linked = Checkout.make(tmp_path / "linked")
    (linked.folder / ".venv").symlink_to(moved / ".venv")
    assert linked.set_up().returncode == 0
    assert not (linked.folder / ".venv").is_symlink()
    assert there.imports_it(), "what the link led to stays"


@pytest.mark.slow
@pytest.mark.parametrize("with_uv", [False, True])
def test_what_cannot_be_installed_is_said_with_the_end_of_the_log(
    tmp_path: Path, with_uv: bool
) -> None:
    checkout = Checkout.make(tmp_path / "broken", *([UV.parent] if with_uv else []))
    project = PROJECT.replace("dependencies = []", 'dependencies = ["there-is-no-such-thing"]', 1)
    (checkout.folder / "pyproject.toml").write_text(project)
    (checkout.folder / "backend.py").write_text(
        BACKEND.replace("Name: tiny\n", "Name: tiny\nRequires-Dist: there-is-no-such-thing\n")
    )
    done = checkout.set_up()
    assert done.returncode == 2, "of make"
    assert "kdnas is not set up: this failed: " in done.stderr
    assert "there-is-no-such-thing" in done.stderr
    assert f"all that it printed is in {Path('.venv/install.log')}" in done.stderr
    assert "Traceback" not in done.stderr
    assert ("uv pip install" in done.stderr) == with_uv
    assert checkout.note["pins"] is None


@pytest.mark.slow
def test_uv_installs_where_it_is_on_the_path(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "quick", UV.parent)
    done = checkout.set_up()
    assert done.returncode == 0, done.stderr
    assert checkout.imports_it()
    assert not list((checkout.folder / ".venv" / "lib").glob("python3*/site-packages/pip"))
    slow = Checkout(checkout.folder, Checkout.make(tmp_path / "other").path)
    assert "the first time" in slow.set_up().stdout, "pip is not in it, and uv is gone"


@pytest.mark.slow
def test_an_environment_that_is_active_is_made_anew_by_the_python_that_made_it(
    tmp_path: Path,
) -> None:
    checkout = Checkout.make(tmp_path / "active", UV.parent)
    assert checkout.set_up().returncode == 0
    inside = checkout.folder / ".venv" / "bin"
    shutil.copy(UV, inside)
    (inside.parent / ".installed").unlink()
    active = Checkout(checkout.folder, f"{inside}:{Checkout.make(tmp_path / 'other').path}")
    again = active.set_up(PYTHON=str(inside / "python"))
    assert again.returncode == 0, again.stderr
    assert checkout.imports_it()


@pytest.mark.slow
def test_a_terminal_is_shown_one_line(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "seen", UV.parent)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["make", "setup"], cwd=checkout.folder, env=checkout.environment, stdout=follower
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0
    assert b"\r\033[K   0 s  " in shown
    assert shown.count(b"\n") == 2


def test_no_python_is_said_in_a_sentence(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "bare")
    done = subprocess.run(
        ["make", "setup", "PYTHON=/nowhere/python3"],
        cwd=checkout.folder, env=checkout.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert 'needs Python 3.11 or newer and found none as "/nowhere/python3"' in done.stderr
