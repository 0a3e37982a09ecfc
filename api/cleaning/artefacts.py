"""Artefacts that nothing needs any more, in a store on this machine, and copies of other stores'.

An artefact is needed if a job names it; if one names all that it was made of; or, of sentence
embeddings, as long as the model is there whose embeddings they are. What was used lately, or is
open in a living process, is left where it is in any case (``kdnas.in_use``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from api.cleaning.unneeded import Needs, Unneeded, delete, extent, remove_old
from kdnas.artefact import ABANDONED_AFTER_SECONDS, DRAFT_PREFIX, MANIFEST, Manifest
from kdnas.errors import StoreError
from kdnas.in_use import is_held, take_away
from kdnas.store import MADE_OF, Store

NAMED: Final = ("teacher", "corpus", "lm-head")
"""Kinds that jobs name by their fingerprint."""
MADE: Final = ("task-teacher", "teacher-states", "teacher-sentences", "task-start")
"""Kinds that are made of those and of each other, in an order in which they may be."""
SENTENCES: Final = "sentence-embedding"
"""Kind that stands by a teacher, under whose fingerprint it is noted."""
KINDS: Final = (*NAMED, *MADE, SENTENCES)
_REMAINS: Final = (*KINDS, *(f"{kind}-keys" for kind in KINDS), "incoming", "jobs", "checkpoints")
"""Folders of a store in which drafts may be, or what was taken away."""


def unneeded_artefacts(store: Store, needs: Needs, unused_since: float) -> Iterator[Unneeded]:
    """Find artefacts of a local store, teachers before what stands by them.

    Kinds that are not ours are left alone: nobody here knows what needs them.
    """
    kept = set(needs.words)
    for kind in (*NAMED, *MADE):
        for folder in store.folders(kind):
            manifest = _manifest(folder)
            is_needed = manifest is not None and _is_needed(manifest, kept, needs)
            num_bytes = None if is_needed else _unused(folder, unused_since)
            if num_bytes is None:
                kept.add(folder.name)
            else:
                yield Unneeded(kind, folder.name, num_bytes, partial(_take, folder, unused_since))
    teachers = {folder.name for folder in store.folders("teacher")} & kept
    of_teachers = {artefact for key, artefact in store.notes(SENTENCES).items() if key in teachers}
    for folder in store.folders(SENTENCES):
        if folder.name not in of_teachers:
            num_bytes = _unused(folder, unused_since)
            if num_bytes is not None:
                remove = partial(_take_sentences, store, folder, unused_since)
                yield Unneeded(SENTENCES, folder.name, num_bytes, remove)


def fetched_copies(store: Store, unused_since: float) -> Iterator[Unneeded]:
    """Find what was fetched from a store elsewhere, where it still is, and not used since."""
    for kind in KINDS:
        for folder in store.folders(kind):
            if (num_bytes := _unused(folder, unused_since)) is not None:
                name = f"{kind}/{folder.name}"
                yield Unneeded("cache", name, num_bytes, partial(_take, folder, unused_since))


def dangling_notes(store: Store, unused_since: float) -> Iterator[Unneeded]:
    """Find notes of a local store that lead to artefacts which are not there any more."""
    for kind in KINDS:
        there = {folder.name for folder in store.folders(kind)}
        for key, artefact in store.notes(kind).items():
            file = store.note_file(kind, key)
            if artefact not in there and extent(file)[1] <= unused_since:
                yield Unneeded(
                    "notes", f"{kind}-keys/{key}", 0, partial(remove_old, file, unused_since)
                )


def remains(store: Store) -> Iterator[Unneeded]:
    """Find drafts of processes that were killed, and what a killed removal left."""
    for kind in _REMAINS:
        for path in store.remains(kind):
            num_bytes, changed = extent(path)
            since = time.time() - ABANDONED_AFTER_SECONDS
            if not path.name.startswith(DRAFT_PREFIX):
                yield Unneeded("leftovers", f"{kind}/{path.name}", num_bytes, partial(delete, path))
            elif changed <= since:
                remove = partial(remove_old, path, since)
                yield Unneeded("leftovers", f"{kind}/{path.name}", num_bytes, remove)


def _manifest(folder: Path) -> Manifest | None:
    """What an artefact says of itself; None of one that is damaged, which nobody can read."""
    try:
        return Manifest.load((folder / MANIFEST).read_bytes(), str(folder))
    except (FileNotFoundError, StoreError):
        return None


def _is_needed(manifest: Manifest, kept: Collection[str], needs: Needs) -> bool:
    if manifest.fingerprint in kept:
        return True
    if manifest.kind in NAMED:
        return False
    made_of = manifest.metadata.get(MADE_OF)
    if not made_of:  # by an earlier version, which did not say
        return bool(needs.jobs)
    return all(name in kept for name in made_of)


def _unused(folder: Path, unused_since: float) -> int | None:
    """Bytes of an artefact that nobody has used since; None of another."""
    num_bytes, changed = extent(folder)
    is_old = 0 < changed <= unused_since
    return num_bytes if is_old and not is_held(folder / MANIFEST) else None


def _take(folder: Path, unused_since: float) -> int:
    if not (folder / MANIFEST).exists():  # damaged, so that nobody can use it
        return remove_old(folder, unused_since)
    try:
        aside = take_away(folder / MANIFEST, unused_since)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be removed: {error.strerror}; check who owns it and its folder"
        ) from error
    return 0 if aside is None else delete(aside)


def _take_sentences(store: Store, folder: Path, unused_since: float) -> int:
    """Remove them unless a teacher is there whose they are: it would embed in another way."""
    teachers = {found.name for found in store.folders("teacher")}
    if any(a == folder.name and key in teachers for key, a in store.notes(SENTENCES).items()):
        return 0
    return _take(folder, unused_since)
