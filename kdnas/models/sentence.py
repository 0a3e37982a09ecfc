"""How a model makes sentence embeddings, in the files that sentence-transformers keeps of it.

``modules.json`` lists the modules of a pipeline, by default a Transformer at the top of the folder,
``1_Pooling`` and ``2_Normalize``, each with a ``config.json`` if it has settings. A student has one
more, ``2_Dense``: the linear map from its own space to its teacher's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.errors import TeacherError
from kdnas.json_files import read_json, read_object
from kdnas.models.file_modes import readable_like_others

if TYPE_CHECKING:
    from torch import Tensor

    from kdnas.store import Store

MODULES_FILE = "modules.json"
TEXT_FILE, PROMPT_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
"""Beside it: the longest text; prompts, and how embeddings are compared."""
SENTENCE_FILES = (TEXT_FILE, PROMPT_FILE)
SENTENCE_KIND = "sentence-embedding"
"""Kind of these files in the store, by the fingerprint of the model."""
KEPT_MODULES = ("Transformer", "Pooling", "Normalize")
"""Modules that a student takes over. A Dense layer of the teacher's is not among them: where it is
a linear map, the student's own leads to what is behind it."""
MOST_BESIDE = 1 << 29
"""Bytes of a file beside a model's weights; tokenizers of 250,000 words have a thirtieth."""
DENSE, DENSE_WEIGHTS = "Dense", "model.safetensors"
DENSE_TYPE = "sentence_transformers.models.Dense"
"""As all versions of sentence-transformers know it."""
LINEAR_WEIGHT = "linear.weight"
IDENTITY = "torch.nn.modules.linear.Identity"
"""What a Dense module calls no activation at all."""
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")
_PLAIN_NAME = re.compile(r"[\w-]*")


@dataclass(frozen=True, slots=True)
class SentenceModules:
    """How a student embeds sentences.

    Attributes:
        pooling: names of the ways in which states of tokens become one vector.
        projection: folder of the map to the teacher's space, below the student's; None without.
        normalised: whether vectors have length 1.
    """

    pooling: tuple[str, ...]
    projection: str | None
    normalised: bool


def sentence_folder(folder: Path) -> Path | None:
    """Return a model's folder if it says how sentences are embedded."""
    return folder if (folder / MODULES_FILE).is_file() else None


def linear_pooling(teacher: Path) -> str | None:
    """Name how a teacher pools, if a linear map of its tokens is the same map of its embeddings.

    That is so of a mean and of a single token; the largest value of each channel (``max``) is
    another one behind a map. Vectors of several ways that are joined would take a map of each.

    Raises:
        TeacherError: the teacher's files cannot be read.
    """
    modules = _taken_over(teacher)
    modes = modes_of(teacher, modules[1]) if modules else ()
    return modes[0] if len(modes) == 1 and modes[0] != "max" else None


def write_student_modules(
    teacher: Path, hidden: int, folder: Path, projection: Tensor | None = None
) -> SentenceModules | None:
    """Let a student make sentence embeddings as its teacher does.

    Args:
        teacher: folder with the teacher's files.
        hidden: width of the student, which is that of its token vectors.
        folder: of the student.
        projection: (d, D) map of the student's vectors to where the teacher's are, which becomes
            a Dense module behind the pooling; left out where that is not linear
            (:func:`linear_pooling`).

    Returns:
        What was written; None, and nothing, where the teacher pools in no known way.

    Raises:
        TeacherError: the teacher's files cannot be read.
    """
    modules = _taken_over(teacher)
    if not modules:
        return None
    dense = None
    if projection is not None and linear_pooling(teacher):
        dense = f"2_{DENSE}"
        modules.insert(2, {"path": dense, "type": DENSE_TYPE})
    kept = []
    for place, module in enumerate(modules):
        path = module["path"] and f"{place}_{module_kind(module)}"
        kept.append({**module, "idx": place, "name": str(place), "path": path})
        if not path:
            continue
        (folder / path).mkdir()
        if projection is not None and path == dense:
            _write_dense(projection, folder / path)
            continue
        source = teacher / module["path"] / "config.json"
        if source.is_file():
            config = read_settings(source)
            widths = {key: hidden for key in _WIDTHS if key in config}
            if module_kind(module) == "Pooling" and not widths:
                widths = {_WIDTHS[0]: hidden}
            _write(folder / path / "config.json", {**config, **widths})
    _write(folder / MODULES_FILE, kept)
    for name in SENTENCE_FILES:
        if (teacher / name).is_file():
            shutil.copyfile(teacher / name, folder / name)
    normalised = any(module_kind(module) == "Normalize" for module in modules)
    return SentenceModules(modes_of(teacher, modules[1]), dense, normalised)


def copy_sentence_files(folder: Path, to: Path) -> None:
    """Copy how a model embeds sentences, the weights of its modules included, if it says so.

    Raises:
        TeacherError: the files cannot be read.
    """
    if sentence_folder(folder) is None:
        return
    paths = {module["path"] for module in read_modules(folder)} - {""}
    for name in (MODULES_FILE, *SENTENCE_FILES):
        if (folder / name).is_file():
            refuse_huge(folder / name, (folder / name).stat().st_size)
            shutil.copyfile(folder / name, to / name)
    for path in paths:
        (to / path).mkdir()
        for name in ("config.json", DENSE_WEIGHTS):
            if (folder / path / name).is_file():
                refuse_huge(folder / path / name, (folder / path / name).stat().st_size)
                shutil.copyfile(folder / path / name, to / path / name)


def dense_behind_pooling(teacher: Path) -> Tensor | None:
    """Read the linear map that a teacher has right behind its pooling: (D, E).

    Returns:
        None if it has none there, or one that is no plain linear map.

    Raises:
        TeacherError: its files cannot be read.
    """
    modules = read_modules(teacher)
    if [module_kind(module) for module in modules][:3] != ["Transformer", "Pooling", DENSE]:
        return None
    folder = teacher / modules[2]["path"]
    return read_dense(folder) if (folder / DENSE_WEIGHTS).is_file() else None


def read_dense(folder: Path) -> Tensor | None:
    """Read the map of a Dense module: (d, D), or None if it is no plain linear map.

    Raises:
        TeacherError: its files are missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = read_settings(folder / "config.json")
    wanted = {"bias": False, "activation_function": IDENTITY, "use_residual": False}
    if any(config.get(key, False) != value for key, value in wanted.items()):
        return None
    try:
        refuse_huge(folder / DENSE_WEIGHTS, (folder / DENSE_WEIGHTS).stat().st_size)
        weight: Tensor = load_file(folder / DENSE_WEIGHTS)[LINEAR_WEIGHT].float()
        good = weight.ndim == 2 and bool(weight.isfinite().all())
    except (OSError, SafetensorError, KeyError):
        good = False
    if not good:
        raise TeacherError(
            f"{folder / DENSE_WEIGHTS} cannot be read as the weights of a Dense module, finite "
            "numbers in a matrix; copy the model again"
        )
    return weight.T


def refuse_huge(file: Path, size: int) -> None:
    """Refuse a file beside a model's weights that is far larger than any.

    Raises:
        TeacherError: it has more than ``MOST_BESIDE`` bytes.
    """
    if size > MOST_BESIDE:
        raise TeacherError(
            f"{file} has {size} bytes, and no file beside a model's weights more than "
            f"{MOST_BESIDE >> 20} MiB; copy the model again"
        )


def pooling_modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Read from a pooling's settings one name or several, or the flags of older versions."""
    named = config.get("pooling_mode")
    if named is not None:
        return tuple(named) if isinstance(named, list) else (named,)
    flags = (key for key, on in config.items() if key.startswith("pooling_mode_") and on)
    return tuple(
        key.removeprefix("pooling_mode_").replace("cls_token", "cls").replace("_tokens", "")
        if "sqrt" not in key
        else "mean_sqrt_len_tokens"
        for key in flags
    )


def store_sentence_files(folder: Path, fingerprint: str, store: Store) -> Path:
    """Put the files of a model that has some into the store, for those who fetch the model there.

    Returns:
        The folder that the store keeps them in, on this machine.

    Raises:
        TeacherError: they cannot be read.
        StoreError: they cannot be written.
    """
    with store.create(SENTENCE_KIND) as draft:
        copy_sentence_files(folder, draft.folder)
        artefact = draft.publish()
    if store.recall(SENTENCE_KIND, fingerprint) != artefact:
        store.remember(SENTENCE_KIND, fingerprint, artefact)
    return store.fetch(SENTENCE_KIND, artefact)


def stored_sentence_folder(fingerprint: str, store: Store) -> Path | None:
    """Bring the files that were stored for a model to this machine; None if there are none."""
    artefact = store.recall(SENTENCE_KIND, fingerprint)
    return None if artefact is None else store.fetch(SENTENCE_KIND, artefact)


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """Read ``modules.json``: each module has a type and a plain path below the folder.

    Raises:
        TeacherError: it cannot be read so.
    """
    file = folder / MODULES_FILE
    try:
        modules: list[dict[str, Any]] = read_json(file)
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


def read_settings(file: Path) -> dict[str, Any]:
    """Read the settings of a module, or of all.

    Raises:
        TeacherError: the file holds no JSON object.
    """
    value = read_object(file)
    if value is None:
        raise TeacherError(f"{file} cannot be read as a JSON object; copy the model again")
    return value


def module_kind(module: Mapping[str, Any]) -> str:
    """Name of a module's class."""
    return str(module["type"]).rpartition(".")[2]


def modes_of(folder: Path, pooling: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the ways in which a Pooling module pools; by the mean if it has no settings.

    Raises:
        TeacherError: its settings cannot be read.
    """
    file = folder / pooling["path"] / "config.json"
    modes = pooling_modes(read_settings(file)) if file.is_file() else ("mean",)
    if not all(isinstance(mode, str) for mode in modes):
        raise TeacherError(
            f"pooling_mode in {file} must be a name or a list of names, not {list(modes)!r}; copy "
            "the model again"
        )
    return modes


def _taken_over(teacher: Path) -> list[dict[str, Any]]:
    """Return the modules that students take over; none where no pooling follows the encoder."""
    modules = [m for m in read_modules(teacher) if module_kind(m) in KEPT_MODULES]
    known = [module_kind(m) for m in modules][:2] == ["Transformer", "Pooling"]
    return modules if known else []


def _write_dense(projection: Tensor, folder: Path) -> None:
    """Write a linear map without bias or activation as sentence-transformers does."""
    from safetensors.torch import save_file

    fan_in, fan_out = projection.shape
    config = {
        "in_features": fan_in,
        "out_features": fan_out,
        "bias": False,
        "activation_function": IDENTITY,
    }
    _write(folder / "config.json", config)
    weight = projection.detach().cpu().float().T.contiguous()  # (out, in), as nn.Linear has it
    save_file({LINEAR_WEIGHT: weight}, folder / DENSE_WEIGHTS)
    readable_like_others(folder)


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
