"""What a service needs on this machine, checked one by one for ``kdnas doctor``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, ParamSpec

import psutil

from api.http.readiness import check_cluster, check_disk
from api.http.security import check_address, check_tokens, is_loopback
from api.http.server import listen
from api.webhook.signing import ADVICE
from api.webhook.telling import read_settings
from kdnas.db import migrate
from kdnas.db.engine import Database, parse_url, shown
from kdnas.db.records import TokenRecord
from kdnas.db.repository.tokens import list_tokens
from kdnas.errors import KdnasError
from kdnas.paths import expanded
from kdnas.settings import Settings
from kdnas.store import Store

P = ParamSpec("P")
State = Literal["ok", "warn", "fail"]

IMPORT_SECONDS = 120
COMFORTABLE_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing stands; ``text`` says what to do unless it is ``ok``."""

    subject: str
    state: State
    text: str


def diagnose(settings: Settings, host: str, port: int) -> list[Finding]:
    """Check everything; nothing is created or changed.

    Args:
        settings: of the environment.
        host: address that the service is to listen on.
        port: its port.
    """
    return [
        _disk("home", settings.home),
        _database(settings),
        _store(settings),
        _disk("locks", settings.locks),
        _ray(settings),
        _torch(),
        _machine(),
        *_data_roots(settings),
        _tokens(settings),
        _webhook(settings),
        _port(settings, host, port),
    ]


Answer = tuple[State, str]


def _check(subject: str) -> Callable[[Callable[P, Answer]], Callable[P, Finding]]:
    """Make a finding of what a check answers; what it raises is a failure that says what to do."""

    def of(look: Callable[P, Answer]) -> Callable[P, Finding]:
        def looked(*args: P.args, **kwargs: P.kwargs) -> Finding:
            try:
                return Finding(subject, *look(*args, **kwargs))
            except KdnasError as error:
                return Finding(subject, "fail", str(error))

        return looked

    return of


def _disk(subject: str, folder: Path) -> Finding:
    check = check_disk(folder)
    return Finding(subject, "ok" if check.ok else "fail", check.detail or "")


@_check("database")
def _database(settings: Settings) -> Answer:
    url = parse_url(settings.database_url)
    is_file = url.get_backend_name() == "sqlite"
    if is_file and not Path(url.database or "").exists():
        return "ok", f"{shown(url)} is made when it is first used"
    revision, needed = migrate.current(settings.database_url), migrate.head()
    if revision == needed:
        return "ok", f"{shown(url)} answers, at revision {needed}"
    state = f"is at revision {revision}, not {needed}" if revision else "is empty"
    if is_file or settings.auto_migrate:
        return "ok", f"{shown(url)} {state}; it is migrated at the start"
    return "fail", f"{shown(url)} {state}; run `kdnas db upgrade`"


def _store(settings: Settings) -> Finding:
    url = settings.store_url
    if "://" not in url:
        return _disk("store", Path(url))
    try:
        Store.from_settings(settings).has("teacher", "doctor")
    except (KdnasError, ImportError, OSError, ValueError) as error:
        wrong = f"{url}: {error}; check KDNAS_STORE and its credentials"
        return Finding("store", "fail", wrong)
    return Finding("store", "ok", f"{url} answers")


@_check("Ray")
def _ray(settings: Settings) -> Answer:
    if settings.ray_address is not None:
        check = check_cluster(settings)
        return "ok" if check.ok else "fail", check.detail or ""
    version = _printed("import ray; print(ray.__version__)")
    if version is None:
        return "fail", "cannot be imported; install kdnas again, or use the backend `local`"
    return "ok", f"{version}; a local cluster is started for the work"


@_check("devices")
def _torch() -> Answer:
    told = _printed(
        "import torch; n = torch.cuda.device_count(); print(torch.__version__, "
        "', '.join(torch.cuda.get_device_name(i) for i in range(n)), sep='|')"
    )
    if told is None:
        return "fail", "torch cannot be imported; install kdnas again"
    version, _, devices = told.partition("|")
    return "ok", f"torch {version}" + (
        f": {devices}" if devices else " sees no GPU: training runs on the CPU"
    )


@_check("machine")
def _machine() -> Answer:
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else 0
    free, threads = psutil.virtual_memory().available, os.environ.get("OMP_NUM_THREADS")
    limited = f", OMP_NUM_THREADS={threads}" if threads else ""
    text = f"{cores or os.cpu_count()} cores, {free / 1024**3:.1f} GiB of memory free{limited}"
    if free < COMFORTABLE_BYTES:
        return "warn", f"{text}; close something, or search with fewer workers"
    return "ok", text


def _data_roots(settings: Settings) -> list[Finding]:
    if not settings.data_roots:
        text = "KDNAS_DATA_ROOTS is not set: requests may name hub ids, minilm and pydocs only"
        return [Finding("data roots", "ok", text)]
    return [_data_root(root) for root in settings.data_roots]


@_check("data roots")
def _data_root(root: str) -> Answer:
    folder = expanded(root)
    whole = folder.is_dir() and folder.resolve() == Path(folder.resolve().anchor)
    ways: tuple[tuple[bool, State, str], ...] = (
        ("://" in root, "ok", f"{root} (a URL, not looked at)"),
        (not folder.is_dir(), "fail", f"{root} is no folder; make it, or correct KDNAS_DATA_ROOTS"),
        (
            whole,
            "warn",
            f"{root} lets requests name every file; take a folder that holds data only",
        ),
        (
            not os.access(folder, os.R_OK | os.X_OK),
            "fail",
            f"{root} cannot be read by this user; change its permissions",
        ),
        (True, "ok", root),
    )
    return next((state, text) for holds, state, text in ways if holds)


@_check("tokens")
def _tokens(settings: Settings) -> Answer:
    check_tokens(settings)
    issued = _issued(settings)
    of_users = f"{len(issued)} of users" if issued else None
    if settings.operator_token is None:
        return "ok", of_users or "none: the service listens on this machine's address only"
    told = f"set for operators {'and viewers' if settings.viewer_token else 'only'}"
    return "ok", f"{told}, and {of_users}" if of_users else told


def _issued(settings: Settings) -> list[TokenRecord]:
    """The tokens of the database; none, if it is not there or not migrated yet."""
    url = parse_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return []
    if migrate.current(settings.database_url) != migrate.head():
        return []
    with Database(url) as database, database.read() as session:
        return list_tokens(session)


@_check("webhook")
def _webhook(settings: Settings) -> Answer:
    found = read_settings(settings)
    if found is None:
        return "ok", "none: nobody is told when work has ended"
    receiver, signer = found
    if signer.is_plain:
        return "warn", f"{receiver.shown}; KDNAS_WEBHOOK_SECRET is plain text: {ADVICE}"
    return "ok", f"{receiver.shown} is told when work has ended"


@_check("address")
def _port(settings: Settings, host: str, port: int) -> Answer:
    check_address(host, settings, () if is_loopback(host) else _issued(settings))
    listen(host, port).close()
    return "ok", f"{host}:{port} is free"


def _printed(code: str) -> str | None:
    """What a program of one line prints, or None if it fails; keeps big imports out of here."""
    command = [sys.executable, "-c", code]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=True
        ).stdout.strip()
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
