"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

from kdnas.errors import RequestError


def expanded(path: str | Path) -> Path:
    """Return a path with the home of a user in place of ``~`` or ``~name``.

    Raises:
        RequestError: there is no such user, or he has no home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0]
        raise RequestError(
            f"{str(path)!r} begins with the home of a user that is not known here ({user}); write "
            f"the path in full, or ./{path} if that is a folder's name"
        ) from None


def elsewhere(ref: str) -> str:
    """Return what a model is called on another machine: of a whole path only the folder's name."""
    return f"./{Path(ref).name}" if Path(ref).is_absolute() else ref
