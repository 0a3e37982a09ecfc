"""A model's files, copied from where others may write: what is checked is what is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdnas.errors import KdnasError, TeacherError
from kdnas.models.config_file import CONFIG_FILE, numbers_of, require_weights_of
from kdnas.models.sentence import (
    DENSE_WEIGHTS,
    MODULES_FILE,
    SENTENCE_FILES,
    read_modules,
    refuse_huge,
)
from kdnas.models.teacher_files import TOKENIZER_FILES, WEIGHT_FILES, read_shape
from kdnas.reach import Reach
from kdnas.store import Store

_WANTED = {CONFIG_FILE, WEIGHT_FILES[1], *TOKENIZER_FILES, MODULES_FILE, *SENTENCE_FILES}
_NAMED_ALONE = re.compile(r".*\.(bin|pt)")
"""Files that a message names and nobody reads."""


@contextmanager
def brought_in(folder: Path, ref: str, reach: Reach, store: Store) -> Iterator[Path]:
    """Copy what is read of a model to where nobody else writes, for the time of a ``with`` block.

    Weights are copied last, and only as many as the configuration describes.

    Args:
        folder: that was named.
        ref: how its user named it.
        reach: how it is opened.
        store: where the copy lies meanwhile.

    Yields:
        The copy; errors of the block name the folder in its stead.

    Raises:
        RequestError: the folder, or a file of it, is out of reach.
        TeacherError: a file is far too large, or the configuration describes no model.
        StoreError: the copy cannot be written.
    """
    with store.create("incoming") as draft:
        own = draft.folder
        try:
            _copy_beside(folder, reach, own)
            if (own / CONFIG_FILE).is_file():  # or else it is refused before weights are missed
                _copy_weights(folder, ref, reach, own)
            yield own
        except KdnasError as error:
            raise type(error)(str(error).replace(str(own), str(folder))) from None


def _copy_weights(folder: Path, ref: str, reach: Reach, own: Path) -> None:
    weights = [file for file in reach.children(folder) if file.suffix == ".safetensors"]
    sizes = {file: size for file in weights if (size := _size(file, reach)) is not None}
    require_weights_of(numbers_of(read_shape(own, ref, "")), sum(sizes.values()), ref)
    for file in sizes:
        reach.copy(file, own / file.name)


def _copy_beside(folder: Path, reach: Reach, own: Path) -> None:
    for file in reach.children(folder):
        name = file.name
        if name in _WANTED:
            _copy_if_there(file, reach, own / name)
        elif _NAMED_ALONE.fullmatch(name):
            (own / name).touch()
    if not (own / MODULES_FILE).is_file():
        return
    for module in {module["path"] for module in read_modules(own)} - {""}:
        (own / module).mkdir()
        for name in (CONFIG_FILE, DENSE_WEIGHTS):
            _copy_if_there(folder / module / name, reach, own / module / name)


def _copy_if_there(file: Path, reach: Reach, to: Path) -> None:
    """Copy a file; what is missing is for the reader to say, who knows whether he needs it."""
    size = _size(file, reach)
    if size is not None:
        refuse_huge(file, size)
        reach.copy(file, to)


def _size(file: Path, reach: Reach) -> int | None:
    """Bytes of a file; None of one that is missing, or a link to nothing."""
    try:
        return reach.stat(file).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TeacherError(
            f"{file} cannot be read as a part of a model ({error.strerror}); take it out, or copy "
            "the model again"
        ) from None
