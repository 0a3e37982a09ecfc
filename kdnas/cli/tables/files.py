"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kdnas.errors import StoreError


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Have a draft written, and put it in the place of what may be there already.

    Args:
        path: of the file.
        write: writes to the path that it is given.

    Raises:
        StoreError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft-{os.getpid()}")
    try:
        write(draft)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(
            f"{path} could not be written ({error.strerror or error}); choose another --output"
        ) from None
