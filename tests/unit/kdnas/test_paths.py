from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.errors import RequestError
from kdnas.paths import elsewhere, expanded


def test_homes_stand_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/somebody")
    assert expanded("~/models/a") == Path("/data/somebody/models/a")
    assert expanded(Path("a/~b")) == Path("a/~b")


def test_a_user_who_is_not_known_is_told_in_a_sentence() -> None:
    with pytest.raises(RequestError, match=r"'~no-such-user/a' begins with .* \(~no-such-user\); "):
        expanded("~no-such-user/a")


def test_elsewhere_a_folder_has_its_name_alone() -> None:
    assert elsewhere("/data/somebody/bert") == "./bert"
    for ref in ("minilm", "owner/name", "first-layers:3", "./bert"):
        assert elsewhere(ref) == ref
