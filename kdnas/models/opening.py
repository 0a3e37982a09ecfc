"""Models of any kind: Transformers, and the students that are none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kdnas.errors import TeacherError
from kdnas.models.heads import kind_of_head, load_with_head
from kdnas.models.sequence.saved import SequenceHandle, sequence_at
from kdnas.models.teacher import TeacherHandle, load_teacher_model, teacher_at, with_layers
from kdnas.models.teacher_files import locate

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerFast

BYTES: Final = "ByteLevel"
"""What tokenizers call the part that cuts into words of bytes."""

ModelHandle = TeacherHandle | SequenceHandle
"""A model on this machine, not loaded yet. Both know their sizes and their longest sequence."""


def prepare_model(ref: str) -> ModelHandle:
    """Find a model that is used, not taught by: whatever ``config.json`` says it is.

    Args:
        ref: an alias, a local folder or a hub id.

    Raises:
        TeacherError: see :func:`kdnas.models.teacher.prepare_teacher`.
    """
    folder = locate(ref, None)
    return sequence_at(ref, folder) or teacher_at(ref, folder)


def prepare_cut_model(ref: str, keep_layers: int | None) -> ModelHandle:
    """Find a model, and leave out its upper layers.

    Args:
        ref: an alias, a local folder or a hub id.
        keep_layers: how many are kept; None keeps all.

    Raises:
        TeacherError: it is not there, has no more layers than these, or is no Transformer.
    """
    handle = prepare_model(ref)
    if keep_layers is None:
        return handle
    if isinstance(handle, SequenceHandle):
        raise TeacherError(
            f"model {ref!r} is a {handle.config.title}, whose head reads its last layer; leave out "
            f"`keep_layers: {keep_layers}`"
        )
    return with_layers(handle, keep_layers)


def load_model(handle: ModelHandle) -> nn.Module:
    """Load a model in float32, frozen and in eval mode: an encoder without pooler and heads.

    A student that is no Transformer has its head: there is nothing else that it is for.

    Raises:
        TeacherError: the weights do not load.
    """
    from kdnas.models.sequence.model import SequenceClassifier

    if isinstance(handle, TeacherHandle):
        return load_teacher_model(handle)
    return SequenceClassifier.from_pretrained(handle.folder, handle.ref).requires_grad_(False)


def load_served_model(handle: ModelHandle) -> nn.Module:
    """Load a model as it is served: as :func:`load_model` does, with its head where it has one.

    Raises:
        TeacherError: the weights do not load.
    """
    if isinstance(handle, TeacherHandle) and kind_of_head(handle.config) is not None:
        return load_with_head(handle)
    return load_model(handle)


def load_tokenizer(handle: ModelHandle, **options: Any) -> PreTrainedTokenizerFast:
    """Load a model's tokenizer; of a student that is no Transformer, as its teacher's family does.

    Args:
        handle: the model.
        options: of the tokenizer.

    Raises:
        TeacherError: it does not load.
    """
    from transformers import AutoConfig, AutoTokenizer

    if isinstance(handle, SequenceHandle):
        options["config"] = AutoConfig.for_model(handle.config.tokenizer_family)
    try:
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(
            handle.folder, trust_remote_code=False, **options
        )
    except Exception as error:  # noqa: BLE001 - told below; the library raises plain ones too
        reason = " ".join(str(error).split())[:160]
        raise TeacherError(
            f"the tokenizer of model {handle.ref!r} does not load ({reason}); save it again with "
            "tokenizer.save_pretrained"
        ) from None
    return tokenizer


def put_space_before_words(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Let a byte-level tokenizer put a space before each of words that come cut.

    Without it every word would be read as if it stood inside another one. The option
    ``add_prefix_space`` of transformers does so for some classes of tokenizers alone.

    Returns:
        Whether it is one; others have their own way, and are left alone.
    """
    splitter: Any = tokenizer.backend_tokenizer.pre_tokenizer
    if splitter is None:
        return False
    state = json.loads(splitter.__getstate__())
    parts = [part for part in (state, *state.get("pretokenizers", ())) if part["type"] == BYTES]
    for part in parts:
        part["add_prefix_space"] = True
    splitter.__setstate__(json.dumps(state).encode())
    tokenizer.backend_tokenizer.pre_tokenizer = splitter
    if parts:
        tokenizer.add_prefix_space = True
    return bool(parts)
