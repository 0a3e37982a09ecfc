"""Make ``.venv`` and install kdnas into it: ``python tools/set_up.py EXTRA…``.

Run in the project's folder by the Python that the environment is to have, as the Makefile does; it
needs nothing but the standard library. What is there already is left alone: a note in ``.venv``
says where the environment was made, with which extras and from which pins. Other pins, or one more
extra, are installed on top; an environment that was moved or lost its Python is made anew.

uv installs where it is on the path, else pip. What they print goes to ``.venv/install.log``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
NOTE = VENV / ".installed"
LOG = VENV / "install.log"
PINS = (Path("pyproject.toml"), Path("constraints.txt"))
LOOK_SECONDS = 0.5
LINES_OF_AN_ERROR = 12


class SetUpError(Exception):
    """What went wrong, and what to do."""


def set_up(extras: Sequence[str]) -> None:
    """Install kdnas with extras, unless that is done.

    Args:
        extras: names from ``pyproject.toml``; those that were installed before stay.

    Raises:
        SetUpError: no environment can be made here, or the installer failed.
    """
    began, uv = time.monotonic(), find_uv()
    usable = is_usable(uv)
    note = read_note() if usable else {}
    wanted = {
        "folder": os.fspath(Path.cwd()),
        "extras": sorted({*extras, *note.get("extras", [])}),
        "pins": hashlib.sha256(b"".join(path.read_bytes() for path in PINS)).hexdigest(),
    }
    if note == wanted:
        return
    said = f"setting up kdnas ({', '.join(wanted['extras'])}) in .venv"
    print(said if usable else f"{said}: a minute or two the first time", flush=True)
    if not usable:
        make_environment(uv)
    write_note({**wanted, "pins": None})  # what is half installed is gone on with
    install(f".[{','.join(wanted['extras'])}]", uv)
    write_note(wanted)
    print(f"set up in {time.monotonic() - began:.0f} s", flush=True)


def find_uv() -> str | None:
    """Where uv is, unless it lies in the environment itself and would go with it."""
    found = shutil.which("uv")
    inside = found is not None and Path(found).resolve().is_relative_to(VENV.resolve())
    return None if inside else found


def is_usable(uv: str | None) -> bool:
    """Whether ``.venv`` was made in this folder, and can be run and installed into."""
    if read_note().get("folder") != os.fspath(Path.cwd()) or not PYTHON.exists():
        return False
    needs = f"import sys{'' if uv else ', pip'}; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([PYTHON, "-c", needs], capture_output=True, check=False).returncode == 0


def read_note() -> dict[str, Any]:
    """Read what is noted of the environment; nothing if there is none, or one of another kind."""
    try:
        note = json.loads(NOTE.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(note: dict[str, Any]) -> None:
    """Note what the environment is, whole or not at all."""
    draft = NOTE.with_suffix(".draft")
    draft.write_text(json.dumps(note) + "\n", "utf-8")
    draft.replace(NOTE)


def make_environment(uv: str | None) -> None:
    """Make ``.venv`` anew; of one that is a link only the link goes."""
    # One that is active runs this, and goes: the Python that it was made by makes the next.
    python = getattr(sys, "_base_executable", sys.executable)
    if VENV.is_symlink():
        VENV.unlink()
    if uv is not None:
        run([uv, "venv", "--quiet", "--clear", "--python", python, VENV])
        return
    if find_spec("ensurepip") is None:
        raise SetUpError(
            f"{sys.executable} lacks its venv module; install it (on Debian the package "
            "python3-venv), or name another with make PYTHON=/path/to/python3.11"
        )
    run([python, "-m", "venv", "--clear", VENV])
    # What older Pythons bring along takes twice as long for the rest, and no more if it has to do.
    newer = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip>=25.3"]
    subprocess.run(newer, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def run(command: Sequence[str | os.PathLike[str]]) -> None:
    """Run what takes seconds.

    Raises:
        SetUpError: it failed; with the end of what it printed.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SetUpError(failure(command, done.stdout.decode("utf-8", "replace")))


def install(requirement: str, uv: str | None) -> None:
    """Install, with one line that says how far it is where somebody looks on.

    Bytecode is left to whoever imports a module: most of them are never imported.

    Raises:
        SetUpError: the installer failed.
    """
    pip = [PYTHON, "-m", "pip", "install", "--no-input", "--no-compile", "--progress-bar", "off"]
    installer = pip if uv is None else [uv, "pip", "install", "--python", PYTHON]
    command = [*installer, "-c", "constraints.txt", "-e", requirement]
    began = time.monotonic()
    with LOG.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while process.poll() is None:
                show(f"{time.monotonic() - began:4.0f} s  {stage()}")
                time.sleep(LOOK_SECONDS)
        finally:
            process.terminate()
            process.wait()
            show("")
    if process.returncode:
        printed = LOG.read_text("utf-8", "replace")
        raise SetUpError(f"{failure(command, printed)}\nall that it printed is in {LOG}")


def stage() -> str:
    """What the installer does at present, in words."""
    num_there = len([*VENV.glob("lib/python3*/site-packages/*.dist-info")])
    lines = LOG.read_text("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    names = last.removeprefix("Installing collected packages: ")
    if names != last:
        return f"{num_there} packages installed, of {len(names.split(', '))} new ones"
    return last


def show(line: str) -> None:
    """Write over the line that stands on the terminal; nothing where there is none."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{line[:width]}", end="", flush=True)


def failure(command: Sequence[str | os.PathLike[str]], printed: str) -> str:
    """Say that a command failed, with the end of what it printed."""
    end = "\n".join(f"  {line}" for line in printed.strip().splitlines()[-LINES_OF_AN_ERROR:])
    return f"this failed: {' '.join(map(str, command))}\n{end}"


if __name__ == "__main__":
    try:
        set_up(sys.argv[1:])
    except SetUpError as error:
        sys.exit(f"kdnas is not set up: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped; run the same again to go on")
