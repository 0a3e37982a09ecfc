"""What a service needs on this machine, checked one by one for ``kdnas doctor``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from api.http.readiness import check_cluster, check_disk
from api.http.security import check_address, check_tokens
from api.http.server import listen
from kdnas.db import migrate
from kdnas.db.engine import parse_url, shown
from kdnas.errors import KdnasError
from kdnas.settings import Settings
from kdnas.store import Store

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
        _port(settings, host, port),
    ]


def _disk(subject: str, folder: Path) -> Finding:
    check = check_disk(folder)
    return Finding(subject, "ok" if check.ok else "fail", check.detail or "")


def _database(settings: Settings) -> Finding:
    try:
        url = parse_url(settings.database_url)
        is_file = url.get_backend_name() == "sqlite"
        if is_file and not Path(url.database or "").exists():
            return Finding("database", "ok", f"{shown(url)} is made when it is first used")
        revision, needed = migrate.current(settings.database_url), migrate.head()
    except KdnasError as error:
        return Finding("database", "fail", str(error))
    if revision == needed:
        return Finding("database", "ok", f"{shown(url)} answers, at revision {needed}")
    state = f"is at revision {revision}, not {needed}" if revision else "is empty"
    if is_file or settings.auto_migrate:
        return Finding("database", "ok", f"{shown(url)} {state}; it is migrated at the start")
    return Finding("database", "fail", f"{shown(url)} {state}; run `kdnas db upgrade`")


def _store(settings: Settings) -> Finding:
    if "://" not in settings.store_url:
        return _disk("store", Path(settings.store_url))
    try:
        Store.from_settings(settings).has("teacher", "doctor")
    except (KdnasError, ImportError, OSError, ValueError) as error:
        text = f"{settings.store_url}: {error}; check KDNAS_STORE and its credentials"
        return Finding("store", "fail", text)
    return Finding("store", "ok", f"{settings.store_url} answers")


def _ray(settings: Settings) -> Finding:
    if settings.ray_address is not None:
        check = check_cluster(settings)
        return Finding("Ray", "ok" if check.ok else "fail", check.detail or "")
    version = _printed("import ray; print(ray.__version__)")
    if version is None:
        text = "cannot be imported; install kdnas again, or use the backend `local`"
        return Finding("Ray", "fail", text)
    return Finding("Ray", "ok", f"{version}; a local cluster is started for the work")


def _torch() -> Finding:
    code = (
        "import torch; n = torch.cuda.device_count(); print(torch.__version__, "
        "', '.join(torch.cuda.get_device_name(i) for i in range(n)), sep='|')"
    )
    told = _printed(code)
    if told is None:
        return Finding("devices", "fail", "torch cannot be imported; install kdnas again")
    version, _, devices = told.partition("|")
    if not devices:
        return Finding("devices", "ok", f"torch {version} sees no GPU: training runs on the CPU")
    return Finding("devices", "ok", f"torch {version}: {devices}")


def _machine() -> Finding:
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else 0
    free = psutil.virtual_memory().available
    threads = os.environ.get("OMP_NUM_THREADS")
    limited = f", OMP_NUM_THREADS={threads}" if threads else ""
    text = f"{cores or os.cpu_count()} cores, {free / 1024**3:.1f} GiB of memory free{limited}"
    if free < COMFORTABLE_BYTES:
        return Finding("machine", "warn", f"{text}; close something, or search with fewer workers")
    return Finding("machine", "ok", text)


def _data_roots(settings: Settings) -> Iterator[Finding]:
    if not settings.data_roots:
        text = "KDNAS_DATA_ROOTS is not set: requests may name hub ids, minilm and pydocs only"
        yield Finding("data roots", "ok", text)
    for root in settings.data_roots:
        folder = Path(root).expanduser()
        if "://" in root:
            yield Finding("data roots", "ok", f"{root} (a URL, not looked at)")
        elif not folder.is_dir():
            text = f"{root} is no folder; make it, or correct KDNAS_DATA_ROOTS"
            yield Finding("data roots", "fail", text)
        elif folder.resolve() == Path(folder.resolve().anchor):
            text = f"{root} lets requests name every file; take a folder that holds data only"
            yield Finding("data roots", "warn", text)
        elif not os.access(folder, os.R_OK | os.X_OK):
            text = f"{root} cannot be read by this user; change its permissions"
            yield Finding("data roots", "fail", text)
        else:
            yield Finding("data roots", "ok", root)


def _tokens(settings: Settings) -> Finding:
    try:
        check_tokens(settings)
    except KdnasError as error:
        return Finding("tokens", "fail", str(error))
    if settings.operator_token is None:
        return Finding("tokens", "ok", "none: the service listens on this machine's address only")
    viewers = "and viewers" if settings.viewer_token else "only"
    return Finding("tokens", "ok", f"set for operators {viewers}")


def _port(settings: Settings, host: str, port: int) -> Finding:
    try:
        check_address(host, settings)
        listen(host, port).close()
    except KdnasError as error:
        return Finding("address", "fail", str(error))
    return Finding("address", "ok", f"{host}:{port} is free")


def _printed(code: str) -> str | None:
    """What a program of one line prints, or None if it fails; keeps big imports out of here."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
