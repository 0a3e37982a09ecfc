"""Secrets are blanked however they are written, and nothing else is."""

from __future__ import annotations

import json

import pytest

from api.logs.blanking import Blanker

TOKEN = 'hf_"quoted"\\and/more+é'
ENVIRONMENT = {
    "HF_TOKEN": TOKEN,
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "PGPASSWORD": "correct horse",
    "SIGNING_KEY": "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----",
    "SHORT_TOKEN": "abc",
    "PATH": "/usr/bin:/bin",
    "BROKER": "redis://:broker-pass%2Fword@cache:6379/0",
}


@pytest.fixture
def blank() -> Blanker:
    return Blanker(
        ENVIRONMENT,
        ("operator-token-0123", None),
        ("postgresql://kdnas:database-secret@db/kdnas", "file:///s", None, "/srv/kdnas/store"),
    )


@pytest.mark.parametrize(
    "line",
    [
        TOKEN,
        json.dumps({"event": TOKEN}),
        json.dumps({"event": TOKEN}, ensure_ascii=False),
        repr({"token": TOKEN}),
        "https://host/?t=hf_%22quoted%22%5Cand%2Fmore%2B%C3%A9&x=1",
        "key=wJalrXUtnFEMI/K7MDENG!",
        "password 'correct horse' is wrong",
        "  MIIEvQIBADANBg",
        "operator-token-0123 and database-secret",
        "the broker says broker-pass/word, that is broker-pass%2Fword",
    ],
)
def test_known_secrets_are_blanked(blank: Blanker, line: str) -> None:
    blanked = blank(line)
    assert "***" in blanked
    for part in ("quoted", "wJalr", "horse", "MIIE", "operator-token", "database-secret", "-pass"):
        assert part not in blanked


@pytest.mark.parametrize(
    ("line", "blanked"),
    [
        ("connect to postgresql://me:a@b%c@db:5432/x", "connect to postgresql://me:***@db:5432/x"),
        ("s3://key:pw@bucket and redis://:p@h", "s3://key:***@bucket and redis://:***@h"),
        ("Authorization: Bearer abc.DEF-123456", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': 'Basic ***'}"),
        (f"gave kdnas_anna000001_{'0a' * 20}, and went", "gave ***, and went"),
        ("kdnas_test_database and kdnas_anna000001_short stay", None),
        ("http://host:8080/path?mail=a@b", "http://host:8080/path?mail=a@b"),
        ("abc of /usr/bin, a basic education, the bearer of news", None),
        ("file:///s and db/kdnas stay", None),
        ("cannot write to /srv/kdnas/store/teacher: No space left on device", None),
    ],
)
def test_what_stands_where_a_secret_stands_is_blanked(
    blank: Blanker, line: str, blanked: str | None
) -> None:
    assert blank(line) == (blanked or line)


def test_without_secrets_lines_stay_as_they_are() -> None:
    blank = Blanker({})
    assert blank("anything at all") == "anything at all"
    assert blank.longest == 0
