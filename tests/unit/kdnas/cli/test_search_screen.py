"""What a search shows where no table of latencies is there yet and the machine is taken."""

from __future__ import annotations

import pytest

from kdnas.cli.search_screen import SearchScreen


def test_it_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchScreen() as screen:
        screen.watchers.waiting("waiting for trainings on this machine to end")
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.split(maxsplit=1) == [
        "latency",
        "no table for this device yet; waiting for trainings on this machine to end\n",
    ]
