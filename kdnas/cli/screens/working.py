"""What the screens of work share: one bar at a time, and a latency table that is measured first."""

from __future__ import annotations

from typing import Self

from kdnas.cli.screens.console import Bar, say


class WorkScreen:
    """Lines on stderr, and a bar that goes when the block ends."""

    def __init__(self) -> None:
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _on_latency(self, share: float, text: str) -> None:
        if share >= 1.0:  # told several times at the end
            self._close_bar()
            return
        if self._bar is None:
            self._on_waiting("measuring the students")
            self._bar = Bar("latency", 1.0)
        self._bar.at(share, 1.0, text)

    def _on_waiting(self, text: str) -> None:
        say(f"latency    no table for this device yet; {text}")
