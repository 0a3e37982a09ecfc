"""A model's ``config.json``, looked at before anything is built from what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kdnas.errors import TeacherError
from kdnas.json_files import read_object
from kdnas.specs.wording import shown

if TYPE_CHECKING:
    from kdnas.models.families import Family
    from kdnas.records import TeacherShape

CONFIG_FILE: Final = "config.json"
MOST: Final[Mapping[str, int]] = {
    "layers": 1 << 10,
    "heads": 1 << 10,
    "hidden": 1 << 16,
    "intermediate": 1 << 18,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 24,
    "type_vocab_size": 1 << 16,
    "embedding_size": 1 << 16,
    "num_labels": 1 << 20,
    "pad_token_id": 1 << 24,
    "chunk_size_feed_forward": 1 << 20,
}
"""Size → a number that no encoder comes near."""
_RATES = ("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout")
_SMALL = ("layer_norm_eps", "norm_eps", "initializer_range")
_YES_OR_NO = ("is_decoder", "add_cross_attention", "tie_word_embeddings", "return_dict")
_DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")
_WEIGHT_SLACK: Final = 1 << 30
_MOST_BYTES_A_NUMBER: Final = 16
"""Of weights: twice float64, for heads that the configuration does not count."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a ``config.json`` says, whose values are of the kinds and sizes that they must be.

    Attributes:
        values: of the file.
        defaults: of its family, for what the file leaves out.
        family: that it is of.
        ref: how the user named the model.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    family: Family
    ref: str

    def value(self, key: str) -> Any:
        """What it says of a key, or else what the family does."""
        return self.values.get(key, self.defaults.get(key))

    def size(self, name: str, least: int = 1) -> int:
        """Return a whole number; 0 of what a family has not, where that is allowed.

        Args:
            name: of an axis, or else its key.
            least: that it may be.

        Raises:
            TeacherError: it is none, or out of bounds.
        """
        key = self._key(name)
        number = self.value(key)
        if number is None and not least:
            return 0
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise self.refusal(key, f"must be a whole number of at least {least}")
        if number > MOST[name]:
            raise self.refusal(key, f"must not be above {MOST[name]}")
        return number

    @property
    def activation(self) -> str:
        """Name of the activation.

        Raises:
            TeacherError: there is none of this name.
        """
        from transformers.activations import ACT2FN

        key = self._key("activation")
        name = self.value(key)
        if not isinstance(name, str) or name not in ACT2FN:
            raise self.refusal(key, "must name an activation")
        return name

    def _key(self, name: str) -> str:
        return self.family.config_keys.get(name, name)

    def refusal(self, key: str, must: str) -> TeacherError:
        """What to tell of a value.

        Args:
            key: of it.
            must: what it must be, in words.
        """
        return TeacherError(
            f"{key} in the config.json of model {self.ref!r} {must}, not {shown(self.value(key))}; "
            "save the model again with save_pretrained"
        )

    def check(self) -> None:
        """Look at all values that a model is built from.

        Raises:
            TeacherError: one is of another kind than it must be, or out of bounds.
        """
        heads = self.size("heads")
        if self.size("hidden") % heads:
            raise self.refusal(self._key("hidden"), f"must be a multiple of {heads} heads")
        _ = self.activation
        if self.value("pad_token_id") is not None:
            padding = self.size("pad_token_id", least=0)
            if padding >= self.size("vocab_size"):
                raise self.refusal("pad_token_id", "must be the id of a token")
        self.size("chunk_size_feed_forward", least=0)
        classes = self.value("architectures")
        if classes is not None and not _are_texts(classes):
            raise self.refusal("architectures", "must be a list of names")
        self._check_dtype()
        self._check_numbers()
        self._check_labels()

    def _check_dtype(self) -> None:
        for key in ("dtype", "torch_dtype"):
            name = self.values.get(key)
            if name is not None and not (isinstance(name, str) and name in _DTYPES):
                raise self.refusal(key, f"must be one of {', '.join(_DTYPES)}")

    def _check_numbers(self) -> None:
        for key in {*_RATES, *self.family.dropout_keys, *self.family.head_dropout_keys}:
            rate = self.value(key)
            if rate is not None and not (_is_number(rate) and 0 <= rate <= 1):
                raise self.refusal(key, "must be a number from 0 to 1")
        for key in _SMALL:
            small = self.value(key)
            if small is not None and not (_is_number(small) and 0 <= small <= 1):
                raise self.refusal(key, "must be a small number")
        for key in _YES_OR_NO:
            if not isinstance(self.values.get(key, False), bool):
                raise self.refusal(key, "must be true or false")

    def _check_labels(self) -> None:
        if self.values.get("num_labels") is not None:
            self.size("num_labels", least=0)
        names = self.values.get("id2label")
        if names is None:
            return
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise self.refusal("id2label", "must be an object with a name for each number")
        if set(names) != {str(number) for number in range(len(names))}:
            raise self.refusal("id2label", "must name each number from 0 without a gap")


def read_config(folder: Path, ref: str) -> dict[str, Any]:
    """Read a model's ``config.json``.

    Args:
        folder: of the model.
        ref: how the user named it.

    Raises:
        TeacherError: it is not there, too large, no JSON object, or says no ``model_type``.
    """
    content = read_object(folder / CONFIG_FILE)
    if content is None or not isinstance(content.get("model_type"), str):
        raise TeacherError(
            f"teacher {ref!r} has no readable config.json with a model_type in {folder}; save it "
            "again with save_pretrained"
        )
    return content


def numbers_of(shape: TeacherShape) -> int:
    """Numbers that a configuration describes, roughly: matrices of layers, and embeddings."""
    d, f = shape.hidden, shape.intermediate
    return shape.layers * (4 * d * d + 2 * d * f) + shape.vocab_size * (shape.embedding_size or d)


def require_weights_of(described: int, held: int, ref: str) -> None:
    """Refuse a configuration of far more, or far fewer, numbers than the weights hold.

    Args:
        described: numbers, by the configuration.
        held: bytes of the weights; none are no reason to refuse.
        ref: how the user named the model.

    Raises:
        TeacherError: there are more numbers than bytes, or many times the bytes that these take.
    """
    if held and described > held:
        raise TeacherError(
            f"the config.json of model {ref!r} describes {described} numbers, and its weights have "
            f"{held} bytes; copy both from one place again"
        )
    if held > _MOST_BYTES_A_NUMBER * described + _WEIGHT_SLACK:
        raise TeacherError(
            f"the weights of model {ref!r} have {held} bytes, and its config.json describes "
            f"{described} numbers; copy both from one place again"
        )


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
