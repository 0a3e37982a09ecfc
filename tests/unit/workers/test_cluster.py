from __future__ import annotations

import sys

import pytest

from workers.cluster import _quoted_python


@pytest.mark.parametrize("address", [None, "auto", "127.0.0.1:6379", "ray://localhost:10001"])
def test_a_python_whose_path_has_a_space_is_quoted(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my work/.venv/bin/python")
    assert _quoted_python(address) == {"py_executable": "'/opt/my work/.venv/bin/python'"}
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert _quoted_python(address) is None


def test_other_machines_have_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my work/.venv/bin/python")
    assert _quoted_python("203.0.113.7:6379") is None
