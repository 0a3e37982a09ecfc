"""The masked-LM head: from hidden states to scores over the vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.errors import TeacherError
from kdnas.models.families import Family, family_of
from kdnas.models.file_modes import readable_like_others
from kdnas.models.heads import kind_of_head
from kdnas.models.making import MAKING_MODELS
from kdnas.models.teacher import TeacherHandle, quiet_transformers
from kdnas.models.teacher_files import WEIGHT_FILES
from kdnas.specs.objective_registry import choice_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

HEAD_STD = 0.02
DEFAULT_EPS = 1e-12
FITTED_FILE = "lm_head.safetensors"


class MaskedLMHead(nn.Module):
    """Dense layer, activation, layer norm, and a decoder that is tied to the word embeddings.

    Every supported family has this head, under names of its own. The embeddings are given at each
    call, since they belong to the encoder, which may be training.

    Args:
        hidden: D, width of the hidden states.
        embedding: E, width of the word embeddings.
        vocab_size: V.
        seed: of the dense layer; the process's own random state stays as it was.
        activation: name that transformers has for it.
        layer_norm_eps: of the layer norm.
        absent: biases that the family's head lacks: they are zero and stay so.
        tied: False for a checkpoint whose decoder has weights of its own.
    """

    def __init__(
        self,
        hidden: int,
        embedding: int,
        vocab_size: int,
        *,
        seed: int = 0,
        activation: str = "gelu",
        layer_norm_eps: float = DEFAULT_EPS,
        absent: Collection[str] = (),
        tied: bool = True,
    ) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(embedding, hidden, generator=generator) * HEAD_STD
        self.dense_weight = nn.Parameter(weight)
        self.dense_bias = nn.Parameter(torch.zeros(embedding))
        self.norm_weight = nn.Parameter(torch.ones(embedding))
        self.norm_bias = nn.Parameter(torch.zeros(embedding))
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.decoder = None if tied else nn.Parameter(torch.zeros(vocab_size, embedding))
        for name in absent:
            self.get_parameter(name).requires_grad_(False)
        self.absent = frozenset(absent)
        self.activation = activation
        self._function = ACT2FN[activation]
        self._eps = layer_norm_eps

    @classmethod
    def of_config(
        cls, config: PretrainedConfig, *, seed: int = 0, tied: bool = True
    ) -> MaskedLMHead:
        """Make a fresh head as the family of this configuration has it."""
        family = family_of(config.model_type)
        names = family.lm_head
        hidden = getattr(config, family.config_keys["hidden"])
        return cls(
            hidden,
            config.embedding_size if family.factorised_embedding else hidden,
            config.vocab_size,
            seed=seed,
            activation=getattr(config, names.activation) if names.activation else "gelu",
            layer_norm_eps=(
                getattr(config, names.layer_norm_eps) if names.layer_norm_eps else DEFAULT_EPS
            ),
            absent=[name for name, key in names.optional.items() if not getattr(config, key)],
            tied=tied,
        )

    def for_student(
        self, architecture: Architecture, family: Family, seed: int, embedding: int | None = None
    ) -> MaskedLMHead:
        """Make a fresh tied head for a student of the family whose teacher has this head.

        It is the head that :meth:`of_config` makes from the student's configuration, so that an
        ordinary masked-LM model of the family holds it.

        Args:
            architecture: of the student.
            family: of both.
            seed: of the dense layer.
            embedding: width of its word embeddings; None where that is its layers'.
        """
        follows = family.lm_head.activation == family.config_keys["activation"]
        return MaskedLMHead(
            architecture.hidden,
            embedding or architecture.hidden,
            len(self.bias),
            seed=seed,
            activation=architecture.activation if follows else self.activation,
            layer_norm_eps=self._eps,
            absent=self.absent,
        )

    def transformed(self, hidden: Tensor) -> Tensor:
        """Return what the decoder multiplies with the word embeddings: (M, E) in float32."""
        active = self._function(F.linear(hidden, self.dense_weight, self.dense_bias))
        size = (len(self.norm_weight),)
        return F.layer_norm(active.float(), size, self.norm_weight, self.norm_bias, self._eps)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return scores (M, V) in float32 of hidden states (M, D), with embeddings (V, E)."""
        decoder = word_embeddings if self.decoder is None else self.decoder
        return F.linear(self.transformed(hidden), decoder, None).float() + self.bias


def has_lm_head(handle: TeacherHandle) -> bool:
    """Whether a teacher has a masked-LM head, fitted or in its checkpoint; reads headers only."""
    if handle.fitted_head is not None:
        return (handle.fitted_head / FITTED_FILE).is_file()
    return not _missing(handle, _head_tensors(handle, _tensor_files(handle.folder)))


def load_teacher_lm_head(handle: TeacherHandle) -> MaskedLMHead:
    """Load the teacher's masked-LM head: the fitted one if there is one, else the checkpoint's.

    A decoder that is not tied to the word embeddings, or differs from them, keeps its own weights.

    Returns:
        The head in float32, frozen.

    Raises:
        TeacherError: it has none, or its tensors do not fit the configuration.
    """
    if handle.fitted_head is not None:
        return load_lm_head(handle, handle.fitted_head)
    files = _tensor_files(handle.folder)
    names = _head_tensors(handle, files)
    if _missing(handle, names):
        raise TeacherError(
            f"teacher {handle.ref!r} has no masked-LM head, which the objective needs; train one "
            "on the corpus first with `objective.fit_lm_head`, or choose the objective "
            f"{choice_of(lambda kind: not kind.needs_lm_head)}"
        )
    tensors = {ours: _read(files[theirs], theirs) for ours, theirs in names.items()}
    if "decoder" in tensors and _is_tied(handle):
        words = f"{family_of(handle.shape.model_type).words}.weight"
        table = next(n for n in files if n == words or n.endswith(f".{words}"))
        if torch.equal(tensors["decoder"], _read(files[table], table)):
            del tensors["decoder"]
    return _filled(handle, tensors)


def tied_lm_head(origin: TeacherHandle) -> MaskedLMHead | None:
    """Load the masked-LM head that students go on from, if their origin has a tied one."""
    head = load_teacher_lm_head(origin) if has_lm_head(origin) else None
    return head if head is not None and head.decoder is None else None


def save_lm_head(head: MaskedLMHead, folder: Path) -> None:
    """Write a head into a folder, for :func:`load_lm_head`."""
    from safetensors.torch import save

    tensors = {name: t.detach().cpu().contiguous() for name, t in head.state_dict().items()}
    (folder / FITTED_FILE).write_bytes(save(tensors))  # unlike save_file says why it cannot


def load_lm_head(handle: TeacherHandle, folder: Path) -> MaskedLMHead:
    """Load a head that :func:`save_lm_head` wrote for this teacher, frozen.

    Raises:
        TeacherError: there is none in the folder, or it is another teacher's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(folder / FITTED_FILE)
    except (OSError, SafetensorError):
        raise TeacherError(
            f"the folder {folder} holds no masked-LM head that was fitted to teacher "
            f"{handle.ref!r}; fit one again with `objective.fit_lm_head`"
        ) from None
    return _filled(handle, tensors)


def save_masked_lm(student: nn.Module, head: MaskedLMHead, folder: Path) -> None:
    """Write encoder and head as one Hugging Face model.

    ``AutoModelForMaskedLM`` loads it with the same scores, ``AutoModel`` as the encoder alone.

    Args:
        student: an encoder as :func:`kdnas.models.student.build_student` makes it.
        head: its masked-LM head.
        folder: where to write configuration and weights; made if missing.

    Raises:
        OSError: the folder cannot be written.
    """
    from transformers import AutoModelForMaskedLM

    config: Any = deepcopy(student.config)
    config.tie_word_embeddings = head.decoder is None
    names = family_of(config.model_type).lm_head
    with MAKING_MODELS, torch.random.fork_rng(devices=[]), quiet_transformers():
        model = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
        getattr(model, model.base_model_prefix).load_state_dict(student.state_dict())
        parameters = dict(model.named_parameters(remove_duplicate=False))
        ours = {
            f"{names.dense}.weight": head.dense_weight,
            f"{names.dense}.bias": head.dense_bias,
            f"{names.norm}.weight": head.norm_weight,
            f"{names.norm}.bias": head.norm_bias,
            **dict.fromkeys(names.biases, head.bias),
        }
        if head.decoder is not None:
            ours[f"{names.decoder}.weight"] = head.decoder
        with torch.no_grad():
            for name, value in ours.items():
                if name in parameters:
                    parameters[name].copy_(value)
        model.save_pretrained(folder)
    readable_like_others(folder)


def _is_tied(handle: TeacherHandle) -> bool:
    return bool(getattr(handle.config, "tie_word_embeddings", True))


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor → file, of a checkpoint in one file or in several; headers only."""
    from safetensors import safe_open

    whole = folder / WEIGHT_FILES[0]
    found: dict[str, Path] = {}
    for file in [whole] if whole.is_file() else sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found |= dict.fromkeys(opened.keys(), file)
    return found


def _head_tensors(handle: TeacherHandle, present: Collection[str]) -> dict[str, str]:
    """Our name → the checkpoint's, for those parts of the head that it has."""
    names = family_of(handle.shape.model_type).lm_head
    known = {
        "dense_weight": (f"{names.dense}.weight",),
        "dense_bias": (f"{names.dense}.bias",),
        "norm_weight": (f"{names.norm}.weight", f"{names.norm}.gamma"),  # gamma, beta: old BERTs
        "norm_bias": (f"{names.norm}.bias", f"{names.norm}.beta"),
        "bias": names.biases,
        "decoder": (f"{names.decoder}.weight",),
    }
    first = {
        ours: next((t for t in theirs if t in present), None) for ours, theirs in known.items()
    }
    return {ours: theirs for ours, theirs in first.items() if theirs is not None}


def _missing(handle: TeacherHandle, found: Mapping[str, str]) -> set[str]:
    needed = {"dense_weight", "dense_bias", "norm_weight", "norm_bias", "bias"}
    optional = family_of(handle.shape.model_type).lm_head.optional
    needed -= {name for name, key in optional.items() if not getattr(handle.config, key)}
    if kind_of_head(handle.config) is not None:
        needed |= {"bias"}  # without it the head of a classifier may have all the names
    return (needed if _is_tied(handle) else needed | {"decoder"}) - found.keys()


def _read(file: Path, name: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        tensor: Tensor = opened.get_tensor(name)
    return tensor.float()


def _filled(handle: TeacherHandle, tensors: Mapping[str, Tensor]) -> MaskedLMHead:
    head = MaskedLMHead.of_config(handle.config, tied="decoder" not in tensors)
    own = head.state_dict()
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wanted = {n: tuple(t.shape) for n, t in own.items() if n in tensors or n not in head.absent}
    if wrong := sorted(n for n in found | wanted if found.get(n) != wanted.get(n)):
        raise TeacherError(
            f"the masked-LM head of teacher {handle.ref!r} has a {wrong[0]} of shape "
            f"{found.get(wrong[0])} where its configuration wants {wanted.get(wrong[0])}; "
            "save the model again, or fit a head with `objective.fit_lm_head`"
        )
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
    return head.requires_grad_(False)
