"""A student architecture: five numbers and names, no weights."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.errors import ArchitectureError, unknown_name

ACTIVATIONS = ("gelu", "relu", "silu")
MOST_LAYERS = 1000
MOST_CHANNELS = 2**18
"""Widths and layers beyond these are no encoder's: a slip of the hand, or an attempt to fill the
memory."""


@dataclass(frozen=True, slots=True, order=True)
class Architecture:
    """One point of a search space, written ``layers,heads,hidden,intermediate,activation``.

    The order and the notation are those of Trivedi et al. 2023, Table 2.

    Attributes:
        layers: number of transformer layers, L^S.
        heads: attention heads of a layer, A_h; must divide ``hidden``.
        hidden: hidden size, d_h.
        intermediate: inner size of the feed-forward block, d_f.
        activation: one of ``gelu``, ``relu``, ``silu``.

    Raises:
        ArchitectureError: a number below 1 or beyond all encoders, heads that do not divide the
            hidden size, or an unknown activation.
    """

    layers: int
    heads: int
    hidden: int
    intermediate: int
    activation: str = "gelu"

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "hidden", "intermediate"):
            value = getattr(self, name)
            most = MOST_LAYERS if name == "layers" else MOST_CHANNELS
            if not 1 <= value <= most:
                raise ArchitectureError(f"{name} must be from 1 to {most}, not {value}")
        if self.hidden % self.heads:
            raise ArchitectureError(
                f"num_heads ({self.heads}) must divide hidden ({self.hidden}); "
                f"choose one of {', '.join(map(str, _divisors(self.hidden)))}"
            )
        if self.activation not in ACTIVATIONS:
            raise ArchitectureError(unknown_name("activation", self.activation, ACTIVATIONS))

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``4,12,576,768,gelu``; spaces around the parts are allowed.

        Raises:
            ArchitectureError: the text has not five parts, or a part is no whole number.
        """
        parts = [part.strip() for part in text.strip().strip("[]()").split(",")]
        shown = repr(text if len(text) <= 60 else f"{text[:60]}…")
        if len(parts) != 5:
            raise ArchitectureError(
                f"architecture {shown} has {len(parts)} parts instead of 5; "
                "write layers,heads,hidden,intermediate,activation, such as 4,12,576,768,gelu"
            )
        numbers: list[int] = []
        for name, part in zip(
            ("layers", "heads", "hidden", "intermediate"), parts[:4], strict=True
        ):
            if not (part.isascii() and part.isdigit() and len(part) < 10):
                raise ArchitectureError(
                    f"{name} in architecture {shown} must be a whole number of at most "
                    f"9 digits, not {part[:20]!r}"
                )
            numbers.append(int(part))
        layers, heads, hidden, intermediate = numbers
        return cls(layers, heads, hidden, intermediate, parts[4].strip("'\"").lower())

    def __str__(self) -> str:
        """Write the architecture the way :meth:`parse` reads it."""
        return f"{self.layers},{self.heads},{self.hidden},{self.intermediate},{self.activation}"

    @property
    def head_size(self) -> int:
        """Width of one attention head, d_h / A_h."""
        return self.hidden // self.heads


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, min(number, 64) + 1) if number % d == 0]
