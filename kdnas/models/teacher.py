"""The teacher: found, checked, named by its content, loaded. Safetensors only, no remote code."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.artefact import MANIFEST, Manifest
from kdnas.errors import TeacherError
from kdnas.models.making import MAKING_MODELS
from kdnas.models.sentence import (
    sentence_folder,
    store_sentence_files,
    stored_sentence_folder,
)
from kdnas.models.teacher_files import (
    content_fingerprint,
    locate,
    named_folder,
    read_shape,
    refuse_broken_weights,
    teacher_files,
)
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import TeacherShape
from kdnas.specs.objective_registry import choice_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from transformers import PretrainedConfig

    from kdnas.specs.parts import ModelSpec
    from kdnas.store import Store

LM_HEAD_KIND = "lm-head"
"""Kind of fitted masked-LM heads in the store."""
_UNLOADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
"""What transformers raises over weights that do not load, and over a list of them that is none."""


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
        source: folder that ``folder`` was copied from, since others may write there.
    """

    ref: str
    folder: Path
    shape: TeacherShape
    fitted_head: Path | None = None
    keep_layers: int | None = None
    sentences: Path | None = None
    source: Path | None = None

    @property
    def fingerprint(self) -> str:
        """Name of the teacher by its content."""
        return self.shape.fingerprint

    @cached_property
    def config(self) -> PretrainedConfig:
        """The Hugging Face configuration."""
        from transformers import AutoConfig

        from kdnas.models.families import family_of

        try:
            config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
        except Exception as error:
            # Whatever a library makes of values that nobody else looks at.
            reason = " ".join(str(error).split())[:160]
            raise TeacherError(
                f"the config.json of model {self.ref!r} is not one that transformers reads "
                f"({reason}); save the model again with save_pretrained"
            ) from error
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


def prepare_teacher(
    spec: ModelSpec | str, store: Store | None = None, reach: Reach = ANYWHERE
) -> TeacherHandle:
    """Find a teacher, check that it can teach, and put it into the store.

    Args:
        spec: a spec, or just the reference: an alias, a local folder or a hub id.
        store: where workers fetch it from by fingerprint; None leaves it where it is.
        reach: how a local folder is opened. Where that is limited, a store is needed: all but its
            copy may change at any moment.

    Raises:
        RequestError: a local folder, or a file of it, is out of reach.
        TeacherError: not found, of an unsupported family, without safetensors weights, without a
            fast tokenizer, or with weights that are not finite.
    """
    ref, revision = (spec, None) if isinstance(spec, str) else (spec.ref, spec.revision)
    named = named_folder(ref) if reach.limited else None
    if named is None:
        return teacher_at(ref, locate(ref, revision), store)
    if store is None:
        raise ValueError("where not everything may be read, models are read from a store")
    from kdnas.models.brought_in import brought_in

    with brought_in(named, ref, reach, store) as own:
        return replace(teacher_at(ref, own, store), source=named)


def teacher_at(ref: str, folder: Path, store: Store | None = None) -> TeacherHandle:
    """Check the teacher in a folder, and put it into the store; see :func:`prepare_teacher`."""
    files = teacher_files(folder, ref)
    # Sizes are looked at before all weights are read.
    shape = replace(read_shape(folder, ref, ""), fingerprint=content_fingerprint(files))
    sentences = sentence_folder(folder)
    if store is None:
        refuse_broken_weights(files, ref)
        return TeacherHandle(ref, folder, shape, sentences=sentences)
    if not store.has("teacher", shape.fingerprint):
        refuse_broken_weights(files, ref)
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
    # What it was called where it was stored says more in a message than its fingerprint. Read from
    # what was fetched, so that a store that has gone since is not missed.
    manifest = Manifest.load((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))
    ref = str(manifest.metadata.get("ref", fingerprint))
    handle = TeacherHandle(
        ref,
        folder,
        read_shape(folder, ref, fingerprint),
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
            f"{handle.fingerprint}; leave lm_head out and give `objective.fit_lm_head`"
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
            "give `keep_layers` a smaller number, at least 1"
        )
    shape = replace(handle.shape, layers=count)
    return replace(handle, shape=shape, keep_layers=count)


def load_teacher_model(handle: TeacherHandle) -> nn.Module:
    """Load the encoder in float32, frozen and in eval mode, without a pooler.

    Raises:
        TeacherError: the weights do not load, or lack a part of the encoder.
    """
    from transformers import AutoModel

    from kdnas.models.families import family_of

    family = family_of(handle.shape.model_type)
    model, missing = load_weights(AutoModel, handle, **family.model_options())
    if missing:
        raise TeacherError(
            f"the weights of teacher {handle.ref!r} lack {len(missing)} tensors of the encoder, "
            f"{missing[0]} first; give a complete {family.title} checkpoint"
        )
    return model.eval().requires_grad_(False)


def load_weights(
    auto_class: Any, handle: TeacherHandle, **options: Any
) -> tuple[nn.Module, list[str]]:
    """Load a model by a class of transformers, in float32.

    Args:
        auto_class: such as ``AutoModel``.
        handle: of the model.
        options: of the model's constructor.

    Returns:
        The model, and the tensors that its files lack, by name.

    Raises:
        TeacherError: the weights do not load.
    """
    import torch
    from safetensors import SafetensorError

    try:
        with MAKING_MODELS, quiet_transformers():
            model, report = auto_class.from_pretrained(
                handle.folder,
                config=deepcopy(handle.config),  # loading writes into it
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
    except (*_UNLOADABLE, SafetensorError) as error:
        reason = " ".join(str(error).split())[:160]
        raise TeacherError(
            f"the weights of teacher {handle.ref!r} do not load ({reason}); save the model again "
            "with save_pretrained"
        ) from None
    return model, sorted(report["missing_keys"])


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
            f"needs; choose the objective {choice_of(lambda kind: not kind.needs_lm_head)}"
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
