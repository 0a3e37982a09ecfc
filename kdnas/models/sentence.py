"""How a model makes sentence embeddings, in the files that sentence-transformers keeps of it.

``modules.json`` lists the modules of a pipeline, by default a Transformer at the top of the folder,
``1_Pooling`` and ``2_Normalize``, each with a ``config.json`` if it has settings.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.errors import TeacherError

if TYPE_CHECKING:
    from kdnas.store import Store

MODULES_FILE = "modules.json"
SENTENCE_FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")
"""Beside it: the longest text; prompts, and how embeddings are compared."""
SENTENCE_KIND = "sentence-embedding"
"""Kind of these files in the store, by the fingerprint of the model."""
KEPT_MODULES = ("Transformer", "Pooling", "Normalize")
"""Modules that a student takes over. A Dense layer is not among them: it was trained on the
teacher's vectors, and a student's lie in a space of its own even where they are as wide."""
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")
_PLAIN_NAME = re.compile(r"[\w-]*")


def sentence_folder(folder: Path) -> Path | None:
    """Return a model's folder if it says how sentences are embedded."""
    return folder if (folder / MODULES_FILE).is_file() else None


def write_student_modules(teacher: Path, hidden: int, folder: Path) -> bool:
    """Let a student make sentence embeddings as its teacher does.

    Args:
        teacher: folder with the teacher's files.
        hidden: width of the student, which is that of its token vectors.
        folder: of the student.

    Returns:
        Whether anything was written; not where the teacher pools in no known way.

    Raises:
        TeacherError: the teacher's files cannot be read.
    """
    modules = [m for m in _modules(teacher) if _kind(m) in KEPT_MODULES]
    if [_kind(m) for m in modules][:2] != ["Transformer", "Pooling"]:
        return False
    kept = []
    for place, module in enumerate(modules):
        path = module["path"] and f"{place}_{_kind(module)}"
        kept.append({**module, "idx": place, "name": str(place), "path": path})
        source = teacher / module["path"] / "config.json"
        if not path:
            continue
        (folder / path).mkdir()
        if source.is_file():
            config = _read_object(source)
            widths = {key: hidden for key in _WIDTHS if key in config}
            if _kind(module) == "Pooling" and not widths:
                widths = {_WIDTHS[0]: hidden}
            _write(folder / path / "config.json", {**config, **widths})
    _write(folder / MODULES_FILE, kept)
    for name in SENTENCE_FILES:
        if (teacher / name).is_file():
            shutil.copyfile(teacher / name, folder / name)
    return True


def store_sentence_files(folder: Path, fingerprint: str, store: Store) -> Path:
    """Put the files of a model that has some into the store, for those who fetch the model there.

    Returns:
        The folder that the store keeps them in, on this machine.

    Raises:
        TeacherError: they cannot be read.
        StoreError: they cannot be written.
    """
    modules = _modules(folder)
    with store.create(SENTENCE_KIND) as draft:
        for name in (MODULES_FILE, *SENTENCE_FILES):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, draft.folder / name)
        for path in {module["path"] for module in modules} - {""}:
            if (folder / path / "config.json").is_file():
                (draft.folder / path).mkdir()
                shutil.copyfile(folder / path / "config.json", draft.folder / path / "config.json")
        artefact = draft.publish()
    if store.recall(SENTENCE_KIND, fingerprint) != artefact:
        store.remember(SENTENCE_KIND, fingerprint, artefact)
    return store.fetch(SENTENCE_KIND, artefact)


def stored_sentence_folder(fingerprint: str, store: Store) -> Path | None:
    """Bring the files that were stored for a model to this machine; None if there are none."""
    artefact = store.recall(SENTENCE_KIND, fingerprint)
    return None if artefact is None else store.fetch(SENTENCE_KIND, artefact)


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Read ``modules.json``: each module has a type and a plain path below the folder."""
    file = folder / MODULES_FILE
    try:
        modules: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        good = isinstance(modules, list) and all(
            isinstance(m["type"], str) and _PLAIN_NAME.fullmatch(m["path"]) for m in modules
        )
    except (OSError, ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise TeacherError(
            f"{file} is not as sentence-transformers writes it; copy the model again, or remove "
            "the file if sentence embeddings do not matter"
        )
    return modules


def _kind(module: dict[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _read_object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise TeacherError(f"{file} cannot be read as a JSON object; copy the model again")
    return value


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
