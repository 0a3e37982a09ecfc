"""Blanking secrets in what a process prints, before it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

BLANK: Final = "***"
LEAST_LENGTH: Final = 8
"""Shorter values are no secrets worth the name, and stand in too many innocent words."""

_NAMES = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|KEY)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^\s/@:'\"]*:)([^\s/'\"]+)(?=@)")
_HEADER = re.compile(
    r"(\bBearer\s+|\bAuthorization['\"]?\s*[:=]\s*['\"]?Basic\s+)[\w.~+/=-]{8,}", re.I
)


_TOKEN = re.compile(r"\bkdnas_[0-9a-z]{10}_[0-9a-f]{40}\b")


class Blanker:
    """Replaces secrets in a line by ``***``.

    Secrets are the values of variables whose names end in ``TOKEN``, ``SECRET``, ``PASSWORD`` or
    ``KEY``, and the passwords in URLs, as they are and as JSON, Python or a URL writes them; and
    whatever stands where a password stands in a URL, or after ``Bearer``, or is a user's token.

    Args:
        environment: variables of this process.
        secrets: more of them.
        urls: that may hold a password; what is no URL, such as a folder, is no secret either.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        secrets: Iterable[str | None] = (),
        urls: Iterable[str | None] = (),
    ) -> None:
        named = [value for name, value in environment.items() if _NAMES.search(name)]
        found = {
            text
            for value in filter(None, (*named, *secrets))
            for line in value.splitlines()  # a private key has many
            for text in _writings(line.strip())
        }
        for url in filter(None, (*environment.values(), *urls)):
            for match in _URL_PASSWORD.finditer(url):
                found |= set(_writings(match[2])) | set(_writings(unquote(match[2])))
        longest_first = sorted(found, key=lambda text: (-len(text), text))
        self.longest = max(map(len, found), default=0)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if found else None

    def __call__(self, line: str) -> str:
        """Return a line without secrets."""
        if self._known is not None:
            line = self._known.sub(BLANK, line)
        if "://" in line:
            line = _URL_PASSWORD.sub(rf"\1{BLANK}", line)
        if "kdnas_" in line:
            line = _TOKEN.sub(BLANK, line)
        return _HEADER.sub(rf"\1{BLANK}", line)


def _writings(secret: str) -> Iterator[str]:
    """How a secret may stand in a line."""
    if len(secret) >= LEAST_LENGTH:
        yield secret
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]
        yield repr(secret)[1:-1]
        yield quote(secret, safe="")
