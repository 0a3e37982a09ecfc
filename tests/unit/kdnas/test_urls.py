"""URLs of stores."""

from __future__ import annotations

import pytest

from kdnas.errors import SpecError
from kdnas.urls import refuse_password


@pytest.mark.parametrize(
    "url",
    [
        "ftp://user:pa55word@host/kdnas",
        "memory://:pa55word@bucket",
        "simplecache::ftp://user:pa55word@host/kdnas",
        "webhdfs://user:pa55%40word@host:9870/kdnas",
    ],
)
def test_a_password_is_refused_and_not_said_again(url: str) -> None:
    with pytest.raises(
        SpecError, match=r"^the place holds a password, which logs, pages"
    ) as raised:
        refuse_password(url, "the place")
    assert "pa55" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "/a folder/with:colons@here",
        "relative:path",
        "s3://bucket/runs:1/user@host",
        "ftp://user@host:2121/kdnas",
        "http://[::1]:9000/kdnas",
        "simplecache::s3://bucket/kdnas",
    ],
)
def test_all_else_is_not(url: str) -> None:
    refuse_password(url, "the place")
