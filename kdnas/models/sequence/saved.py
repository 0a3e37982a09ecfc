"""A Bi-LSTM or a gated CNN in its folder, not loaded yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kdnas.models.config_file import require_weights_of
from kdnas.models.sequence.config import SequenceConfig, read_config
from kdnas.models.teacher_files import bytes_of_weights, content_fingerprint, teacher_files


@dataclass(frozen=True)
class SequenceHandle:
    """Such a student on this machine; it answers what all models are asked.

    Attributes:
        ref: how the user named it.
        folder: its files.
        config: its sizes and classes.
        fingerprint: of configuration, weights and tokenizer.
    """

    ref: str
    folder: Path
    config: SequenceConfig
    fingerprint: str

    @property
    def shape(self) -> SequenceConfig:
        """Its sizes."""
        return self.config

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence that it was made for."""
        return self.config.max_length


def sequence_at(ref: str, folder: Path) -> SequenceHandle | None:
    """Return the student of a folder; None if the folder holds another model.

    Raises:
        TeacherError: it holds such a student, but not a whole one.
    """
    config = read_config(folder, ref)
    if config is None:
        return None
    files = teacher_files(folder, ref)
    require_weights_of(config.numbers, bytes_of_weights(files), ref)
    return SequenceHandle(ref, folder, config, content_fingerprint(files))
