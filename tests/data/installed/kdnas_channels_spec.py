"""The entry of an objective that a package brings along: its settings, its needs, its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from kdnas.specs.objective_base import ObjectiveSpec, ObjectiveWords


class ChannelsSpec(ObjectiveSpec):
    """The first channels of the teacher's last hidden state."""

    called: ClassVar[str] = "some channels of the last hidden state"
    implementation: ClassVar[str] = "kdnas_channels_training:stages"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"laptop": {"objective": {"channels": 16}}}

    name: Literal["channels"] = "channels"
    channels: int = Field(
        8, ge=1, title="Number of channels", description="How many channels are learned."
    )

    def words(self) -> ObjectiveWords:
        """Of a model card."""
        return ObjectiveWords(
            f"the first {self.channels} channels of its teacher's last layer",
            "0 is a student that knows these channels, 1 one that ignores its input",
        )

    def doubts(self, learning_rate: float, *, from_scratch: bool = False) -> list[str]:
        """Say of a rate that it is odd."""
        return ["channels are learned slowly"] if learning_rate < 1e-6 else []
