"""What a Bi-LSTM or a gated CNN is made of, and the ``config.json`` of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.errors import SpecError, TeacherError, unknown_name
from kdnas.json_files import read_object
from kdnas.models.config_file import CONFIG_FILE, MOST
from kdnas.models.families import family_of
from kdnas.specs.wording import shown

if TYPE_CHECKING:
    from kdnas.models.teacher import TeacherHandle

VERSION = 1
"""Of what stands in ``config.json``; raised when an older program would misread it."""


@dataclass(frozen=True, slots=True)
class SequenceKind:
    """One of the architectures.

    Attributes:
        title: its usual name, for messages.
        model_type: what its ``config.json`` says, as those of transformers do.
        architecture: likewise; the end says what its outputs are.
        layers: as published.
    """

    title: str
    model_type: str
    architecture: str
    layers: int


KINDS: Mapping[str, SequenceKind] = {
    "bilstm": SequenceKind(
        "Bi-LSTM", "kdnas-bilstm", "KdnasBiLSTMForSequenceClassification", layers=3
    ),
    "gated-cnn": SequenceKind(
        "gated CNN", "kdnas-gated-cnn", "KdnasGatedCNNForSequenceClassification", layers=4
    ),
}
"""Name, as users write it → the architecture."""
HIDDEN = 768
"""Width as published."""
_MOST = {
    **{name: MOST[name] for name in ("layers", "hidden", "embedding_size", "vocab_size")},
    "kernel": 1 << 10,
    "max_length": MOST["max_position_embeddings"],
}
"""Size → a number that no such student comes near."""
_OF_TYPE = {kind.model_type: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceConfig:
    """Sizes and classes of a Bi-LSTM or a gated CNN.

    Attributes:
        kind: ``bilstm`` or ``gated-cnn``.
        layers: M; 3 and 4 as published.
        hidden: H, width of every layer's states.
        embedding_size: E, width of the teacher's word embeddings.
        vocab_size: V, of the teacher's tokenizer.
        pad_token_id: of it.
        kernel: tokens that a convolution sees, an odd number; of a gated CNN alone.
        dropout: share of a layer's states that is dropped on the way to what reads them.
        labels: names of the classes, in the order of the outputs; none of a regression.
        max_length: tokens of the longest sequence that the teacher takes. The student has no
            positions and would take any.
        tokenizer_family: model type of the teacher, by which its tokenizer is loaded.

    Raises:
        SpecError: a value that makes no such model.
        TeacherError: the teacher's family is not supported.
    """

    kind: str
    layers: int
    embedding_size: int
    vocab_size: int
    pad_token_id: int
    hidden: int = HIDDEN
    kernel: int = 5
    dropout: float = 0.0
    labels: tuple[str, ...] = ()
    max_length: int = 512
    tokenizer_family: str = "bert"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SpecError(unknown_name("kind of student", self.kind, KINDS))
        for name in ("layers", "hidden", "embedding_size", "vocab_size", "kernel", "max_length"):
            value = getattr(self, name)
            if not _is_whole(value) or not 1 <= value <= _MOST[name]:
                raise SpecError(
                    f"{name} must be a whole number from 1 to {_MOST[name]}, not {shown(value)}"
                )
        if self.kernel % 2 == 0:
            raise SpecError(
                f"kernel must be odd, so that a token has as many on either side, not {self.kernel}"
            )
        if not _is_whole(self.pad_token_id) or not 0 <= self.pad_token_id < self.vocab_size:
            raise SpecError(
                f"pad_token_id ({self.pad_token_id!r}) must be one of the {self.vocab_size} ids of "
                "the vocabulary"
            )
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise SpecError(f"dropout must be at least 0 and below 1, not {self.dropout!r}")
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise SpecError(
                "labels must be at least two that differ, or none for a regression, not "
                f"{', '.join(self.labels)}"
            )
        family_of(self.tokenizer_family)

    @classmethod
    def for_teacher(
        cls,
        kind: str,
        teacher: TeacherHandle,
        labels: tuple[str, ...],
        *,
        layers: int | None = None,
        hidden: int = HIDDEN,
        kernel: int = 5,
        dropout: float = 0.0,
    ) -> SequenceConfig:
        """Return the configuration of a student that reads its teacher's tokens.

        Args:
            kind: ``bilstm`` or ``gated-cnn``.
            teacher: whose word embeddings and tokenizer the student has.
            labels: names of the classes; none of a regression.
            layers: None takes as many as published.
            hidden: width of the states.
            kernel: tokens that a convolution sees.
            dropout: see the class.

        Raises:
            SpecError: a value that makes no such model.
        """
        if kind not in KINDS:
            raise SpecError(unknown_name("kind of student", kind, KINDS))
        shape = teacher.shape
        return cls(
            kind=kind,
            layers=KINDS[kind].layers if layers is None else layers,
            embedding_size=shape.embedding_size or shape.hidden,
            vocab_size=shape.vocab_size,
            pad_token_id=int(teacher.config.pad_token_id or 0),
            hidden=hidden,
            kernel=kernel,
            dropout=dropout,
            labels=labels,
            max_length=teacher.longest_sequence,
            tokenizer_family=shape.model_type,
        )

    @property
    def numbers(self) -> int:
        """Numbers of the weights, roughly: matrices of layers, and word embeddings."""
        e, h = self.embedding_size, self.hidden
        k = 8 if self.kind == "bilstm" else self.kernel  # four gates in either direction
        return self.vocab_size * e + k * h * (e + (self.layers - 1) * h)

    @property
    def title(self) -> str:
        """Usual name of the architecture."""
        return KINDS[self.kind].title

    @property
    def model_type(self) -> str:
        """The architecture as ``config.json`` has it."""
        return KINDS[self.kind].model_type

    @property
    def architectures(self) -> tuple[str, ...]:
        """What transformers' configurations call the class of the model."""
        return (KINDS[self.kind].architecture,)

    @property
    def num_labels(self) -> int:
        """K, numbers that the head gives: one of each class, or the one of a regression."""
        return len(self.labels) or 1

    @property
    def id2label(self) -> dict[int, str]:
        """Place of an output → its class."""
        return dict(enumerate(self.labels))

    def to_json(self) -> dict[str, Any]:
        """Return what ``config.json`` holds; :meth:`from_json` takes it back.

        Beside our own names stand those by which other programs recognise a classifier.
        """
        regression = not self.labels
        return {
            "model_type": self.model_type,
            "architectures": list(self.architectures),
            "version": VERSION,
            "problem_type": "regression" if regression else "single_label_classification",
            "num_labels": self.num_labels,
            **({} if regression else {"id2label": {str(i): n for i, n in self.id2label.items()}}),
            **asdict(self),
            "labels": list(self.labels),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], ref: str) -> SequenceConfig:
        """Read back what :meth:`to_json` gave.

        Args:
            values: of the file.
            ref: how the user named the model.

        Raises:
            TeacherError: it is of a newer program, lacks a value, or has one that makes no model.
        """
        version = values.get("version")
        if version != VERSION:
            raise TeacherError(
                f"the config.json of model {ref!r} has version {version!r}, and this kdnas reads "
                f"{VERSION}; install the version of kdnas that wrote it"
            )
        try:
            own = {name: values[name] for name in cls.__dataclass_fields__}
            return cls(**own | {"labels": tuple(str(label) for label in own["labels"])})
        except (KeyError, TypeError, SpecError, TeacherError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise TeacherError(
                f"the config.json of model {ref!r} describes no model ({reason}); copy the "
                "folder again"
            ) from None


def sequence_kind(model_type: object) -> SequenceKind | None:
    """Return the architecture that a ``model_type`` names; None if it is another model."""
    name = _OF_TYPE.get(model_type) if isinstance(model_type, str) else None
    return None if name is None else KINDS[name]


def read_config(folder: Path, ref: str) -> SequenceConfig | None:
    """Read what a folder holds: the one place that tells these students from other models.

    Returns:
        The configuration; None if ``config.json`` is missing, unreadable, or of another model.

    Raises:
        TeacherError: it says that it is such a student, but not a whole one.
    """
    values = read_object(folder / CONFIG_FILE)
    if values is None or sequence_kind(values.get("model_type")) is None:
        return None
    return SequenceConfig.from_json(values, ref)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
