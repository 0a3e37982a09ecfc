"""Modes of the files that safetensors writes."""

from __future__ import annotations

from pathlib import Path


def readable_like_others(folder: Path) -> None:
    """Give a folder's weights the mode of any new file: safetensors keeps others out.

    A store or a folder of students may be shared by several users of a machine or a volume.
    """
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777  # the umask cannot be read without setting it
    probe.unlink()
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)
