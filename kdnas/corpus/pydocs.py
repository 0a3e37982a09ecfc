"""Real English text without a network: the documentation strings of the installed packages.

Source files are parsed, never imported. The standard library comes first, whole, with the topics
of its ``help``; then the files of the installed packages in an order given by the hash of their
paths, so that the cap cuts a fair mix of packages instead of the end of the alphabet.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from pydoc_data.topics import topics

from kdnas.corpus.reading import ReadingReport, Sample

MAX_BYTES = 12_000_000
MIN_WORDS = 5
ENGLISH = "en"

_SKIPPED_FOLDERS = {"__pycache__", "test", "tests", "site-packages", "dist-packages"}
_CODE = (">>>", "...", "$ ", "#!", "|", "+-", "==", "--")
_WORD = re.compile(r"[A-Za-z]{2,}")
_WITH_DOCS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_pydocs(report: ReadingReport, max_bytes: int = MAX_BYTES) -> Iterator[Sample]:
    """Yield each distinct paragraph of prose once, in English, until ``max_bytes`` of text."""
    seen: set[bytes] = set()
    start = report.bytes_read
    for document in _documents(report):
        for paragraph in re.split(r"\n\s*\n", document):
            text = report.clean(paragraph)
            if not _is_prose(text):
                continue
            data = text.encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
            if digest in seen:
                continue
            seen.add(digest)
            if report.bytes_read + len(data) - start > max_bytes:
                return
            report.bytes_read += len(data)
            yield Sample(text, ENGLISH)


def environment() -> dict[str, str]:
    """What decides the text: the version of Python and of every installed distribution."""
    found = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    return {"python": platform.python_version(), **dict(sorted(found.items()))}


def _is_prose(text: str) -> bool:
    return not text.startswith(_CODE) and len(_WORD.findall(text)) >= MIN_WORDS


def _documents(report: ReadingReport) -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield from (topics[name] for name in sorted(topics))
    for path in sorted(_sources(Path(paths["stdlib"]))):
        yield from _docstrings(path, report)
    packages = {
        path.relative_to(root).as_posix(): path
        for root in sorted({Path(paths["purelib"]), Path(paths["platlib"])})
        for path in _sources(root)
    }
    for name in sorted(packages, key=lambda name: hashlib.sha256(name.encode()).digest()):
        yield from _docstrings(packages[name], report)


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in _SKIPPED_FOLDERS]
        yield from (Path(folder) / f for f in files if f.endswith(".py"))


def _docstrings(path: Path, report: ReadingReport) -> Iterator[str]:
    try:
        source = path.read_bytes()
    except OSError:
        return  # an editor's lock, a package that is just being removed, or not for us to read
    if b'"""' not in source and b"'''" not in source:
        return
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return  # a template or a file for another Python: no text of ours to read
    report.files += 1
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _WITH_DOCS):
            if docstring := ast.get_docstring(node, clean=False):
                yield inspect.cleandoc(docstring)
            pending.extend(reversed(node.body))


def _parse(source: bytes) -> ast.Module:
    """Parse with the garbage collector at rest: a tree has no cycles, and this halves the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            return ast.parse(source)
    finally:
        if collecting:
            gc.enable()
