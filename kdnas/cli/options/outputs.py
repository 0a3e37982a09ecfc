"""Where a command writes: checked before the work, and written after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kdnas.errors import ConflictError, RequestError, unknown_name


@contextmanager
def output_folder(output: Path | None) -> Iterator[None]:
    """Have the folder for a report, if there is to be one, for the time of a ``with`` block.

    It is made before the work, so that it is known that it can be; what was made and nothing was
    put into is gone afterwards.

    Raises:
        ConflictError: it cannot be made.
    """
    if output is None:
        yield
        return
    absent = [place for place in (output, *output.parents) if not place.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConflictError(
            f"output folder {output} cannot be made ({error.strerror}); name another with --output"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # something is in it
            for place in absent:
                place.rmdir()


def check_file(output: Path | None, endings: Collection[str] | None = None) -> None:
    """Refuse a file that could not be written after the work.

    Raises:
        RequestError: it has none of the endings, or its folder is not there.
    """
    if output is None:
        return
    if endings is not None and output.suffix not in endings:
        raise RequestError(unknown_name("file ending", output.suffix, endings))
    if not output.absolute().parent.is_dir():
        raise RequestError(f"the folder of {output} does not exist; make it, or name another file")


def write_report(folder: Path, name: str, texts: Mapping[str, str]) -> None:
    """Write a report in several formats, by the endings of their files; each appears whole."""
    from kdnas.artefact import write_atomically

    for ending, text in texts.items():
        write_atomically(folder / f"{name}.{ending}", text.encode())
