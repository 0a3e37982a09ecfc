"""``--push-to-hub``, of every command that leaves a model folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from kdnas.cli.screens.console import say
from kdnas.errors import KdnasError, RequestError


def check_push_options(repo_id: str | None, private: bool) -> None:
    """Refuse what cannot work, before hours are spent.

    Raises:
        RequestError: ``--private`` alone, a malformed name, no token, or the hub refuses it.
        StoreError: the hub cannot be reached.
    """
    if repo_id is None:
        if private:
            raise RequestError("--private is for --push-to-hub OWNER/NAME; add it, or leave it out")
        return
    from kdnas.distill.hub import check_push

    check_push(repo_id)


def push(folder: Path, repo_id: str, private: bool) -> str:
    """Push a folder, on the screen; return its address.

    Raises:
        KdnasError: it was not pushed; the message says how to try again.
    """
    from kdnas.distill.hub import push_folder

    say(f"pushing    {folder} to {repo_id}")
    try:
        return push_folder(folder, repo_id, private)
    except KdnasError:
        again = ["kdnas", "export", str(folder), "--push-to-hub", repo_id]
        say(f"not pushed; try again with: {shlex.join(again + ['--private'] * private)}")
        raise
