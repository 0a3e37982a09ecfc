"""URLs of stores, which logs, pages, jobs and errors name: so no password may be in one."""

from __future__ import annotations

import re

from kdnas.errors import SpecError

_PASSWORD = re.compile(r"://[^\s/@:]*:[^\s/@]*@")


def refuse_password(url: str, called: str) -> None:
    """Refuse a URL with a password, of whatever it leads through (``simplecache::ftp://…``).

    Args:
        url: of fsspec, or a path.
        called: the setting or the entry that it is of, for the message.

    Raises:
        SpecError: it has one, which is not said again.
    """
    if _PASSWORD.search(url):
        raise SpecError(
            f"{called} holds a password, which logs, pages and stored jobs would show; leave it "
            "out, and give it to fsspec by its configuration or a variable such as "
            "FSSPEC_WEBHDFS_PASSWORD"
        )
