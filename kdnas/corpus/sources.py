"""From a corpus spec to samples: which files and data sets are meant, and in which order."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kdnas.corpus.globs import matches, split_glob
from kdnas.corpus.pydocs import MAX_BYTES, environment, read_pydocs
from kdnas.corpus.readers import read_file, read_hub
from kdnas.corpus.reading import (
    JSONL_SUFFIXES,
    PARQUET_SUFFIXES,
    TEXT_SUFFIXES,
    ReadingReport,
    Sample,
    kind_of,
)
from kdnas.errors import CorpusError
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.parts import CorpusSpec

PYDOCS = "pydocs"
HUB_PREFIX = "hub:"
FOLDER_SUFFIXES = TEXT_SUFFIXES | JSONL_SUFFIXES - {".json"} | PARQUET_SUFFIXES


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a spec, found: the documentation strings, a hub data set, or files."""

    kind: Literal["pydocs", "hub", "files"]
    name: str
    files: tuple[Path, ...] = ()
    reach: Reach = ANYWHERE

    @property
    def num_bytes(self) -> int | None:
        """Size of what there is to read, or None where only reading can tell."""
        if self.kind == "hub":
            return None
        return (
            MAX_BYTES
            if self.kind == "pydocs"
            else sum(self.reach.stat(f).st_size for f in self.files)
        )

    def refuse_unreadable(self) -> None:
        """Refuse a source of which a file cannot be read, without reading any.

        Raises:
            CorpusError: names the first such file.
        """
        closed = next((path for path in self.files if not os.access(path, os.R_OK)), None)
        if closed is not None:
            raise CorpusError(f"cannot read {closed}: {os.strerror(errno.EACCES)}; check the path")

    def state(self) -> dict[str, Any]:
        """What changes if the text may have changed, found without reading it.

        A hub data set is known by name, configuration, split and revision only, so that a corpus
        can be taken up again without network; a moving revision is not looked up again.
        """
        if self.kind == "pydocs":
            return {"kind": self.kind, "environment": environment()}
        files = self.files or _all_files(Path(self.name), self.reach)
        stats = [(str(f.absolute()), self.reach.stat(f)) for f in files]
        listed = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]
        return {"kind": self.kind, "name": self.name, "files": listed}


def find_sources(spec: CorpusSpec, reach: Reach = ANYWHERE) -> list[Source]:
    """Find what the spec names; files of a folder or glob are sorted by path.

    Args:
        spec: the text.
        reach: how its files are opened, now and later.

    Raises:
        RequestError: something is out of reach; names it.
        CorpusError: something is not there, or holds no file that can be read; names it.
    """
    return [_find(name, reach) for name in spec.source]


def iterate_samples(
    spec: CorpusSpec, sources: list[Source], report: ReadingReport
) -> Iterator[Sample]:
    """Yield every sample of the sources in order, duplicates included; counts go to the report.

    Raises:
        CorpusError: something cannot be read; names file and line.
    """
    sizes = [source.num_bytes for source in sources]
    report.bytes_total = None if None in sizes else sum(size for size in sizes if size)
    for source in sources:
        if source.kind == "pydocs":
            yield from read_pydocs(report)
        elif source.kind == "hub":
            yield from read_hub(source.name, spec, report)
        else:
            for path in source.files:
                yield from read_file(path, spec, report)


def _find(name: str, reach: Reach) -> Source:
    if name == PYDOCS:
        return Source("pydocs", name)
    if name.startswith(HUB_PREFIX):
        return _on_the_hub(name.removeprefix(HUB_PREFIX), reach)
    path = expanded(name)
    if path.is_file():
        reach.require(path)
        return Source("files", name, (path,), reach)
    if path.is_dir():
        files = [f for f in _all_files(path, reach) if kind_of(f) in FOLDER_SUFFIXES]
        if not files:
            raise CorpusError(
                f"no text found in {name}: no file below it ends in "
                f"{', '.join(sorted(FOLDER_SUFFIXES))} (or .gz of these); check the folder"
            )
        return Source("files", name, tuple(files), reach)
    if glob.has_magic(name):
        reach.require(split_glob(path)[0])  # before any name in it is told
        found = [match for match in matches(path, name) if match.is_file()]
        for file in found:
            reach.require(file)
        if not found:
            raise CorpusError(f"no file matches the glob {name!r}; check the pattern")
        return Source("files", name, tuple(found), reach)
    raise CorpusError(
        f"corpus source {name!r} is not there; give a file, a folder, a glob, pydocs or "
        "hub:owner/name"
    )


def _on_the_hub(name: str, reach: Reach) -> Source:
    """Take a data set of the hub; a folder of its name would be loaded in its stead.

    Raises:
        CorpusError: there is one, and not everything may be read; or it is a way to a folder.
    """
    if ".." in Path(name).parts:
        raise CorpusError(
            f"corpus source '{HUB_PREFIX}{name}' is no data set of the hub; write "
            f"{HUB_PREFIX}owner/name, or a folder without {HUB_PREFIX}"
        )
    if reach.limited and Path(name).exists():
        raise CorpusError(
            f"corpus source '{HUB_PREFIX}{name}' is a folder where the service runs, not a data "
            "set of the hub; start the service in another folder"
        )
    return Source("hub", name, reach=reach)


def _all_files(folder: Path, reach: Reach) -> list[Path]:
    """Files below a folder, sorted, without hidden ones; none if there is no such folder."""
    try:
        files = reach.files_below(folder)
    except OSError:
        return []
    return [
        path
        for path in files
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
