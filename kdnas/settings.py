"""Settings from the environment, and where a value came from."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kdnas.errors import SpecError
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.urls import refuse_password

DATABASE_PATIENCE_SECONDS: Final = 600.0
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_YES = {"1", "true", "yes"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says; see ``docs/settings.md``.

    Attributes:
        home: folder of everything kdnas keeps (``KDNAS_HOME``).
        database_url: ``KDNAS_DATABASE_URL``; the default is ``kdnas.db`` under ``home``.
        database_patience_seconds: how long work waits for a database that does not answer
            (``KDNAS_DATABASE_PATIENCE_SECONDS``).
        store_url: fsspec URL of the artefact store (``KDNAS_STORE``).
        ray_address: of a running cluster (``KDNAS_RAY_ADDRESS``).
        auto_migrate: migrate PostgreSQL without being asked (``KDNAS_AUTO_MIGRATE=1``).
        teacher: default teacher (``KDNAS_TEACHER``).
        corpus: default corpus (``KDNAS_CORPUS``).
        locks: folder of the locks that keep training and measuring apart on a machine
            (``KDNAS_LOCKS``); the default is one a user in the system's temporary folder.
        operator_token: lets a client of the service do everything (``KDNAS_OPERATOR_TOKEN``).
        viewer_token: lets a client of the service read (``KDNAS_VIEWER_TOKEN``).
        data_roots: folders and fsspec URLs that requests to the service may name
            (``KDNAS_DATA_ROOTS``, separated by ``:``).
        allow_custom_code: requests to the service may name ``package.module:Class``
            (``KDNAS_ALLOW_CUSTOM_CODE=1``).
        max_running: searches and distillations that a coordinator runs at a time
            (``KDNAS_MAX_RUNNING``); the default fits cores and memory.
        max_running_of_a_user: so many jobs of a user are at work at a time
            (``KDNAS_MAX_RUNNING_PER_USER``); None bounds nobody.
        trusted_proxies: networks of proxies whose word counts, for whom they ask
            (``KDNAS_TRUSTED_PROXIES``, addresses or networks separated by ``,``).
        keep_events_days: so long events of jobs that are over are kept
            (``KDNAS_KEEP_EVENTS_DAYS``); None keeps all.
        webhook_url: is told when a search or a distillation ends (``KDNAS_WEBHOOK_URL``).
        webhook_secret: signs what it is told (``KDNAS_WEBHOOK_SECRET``).
        webhook_allow_private: it may be at an address that is not globally reachable
            (``KDNAS_WEBHOOK_ALLOW_PRIVATE=1``).
        confined: this process works for the service, so that what its work names has to lie below
            ``data_roots``; no setting of the environment, which the command line reads as well.
    """

    home: Path
    database_url: str = field(repr=False)  # may hold a password
    store_url: str
    ray_address: str | None
    auto_migrate: bool
    teacher: str | None
    corpus: str | None
    locks: Path
    operator_token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    data_roots: tuple[str, ...] = ()
    allow_custom_code: bool = False
    max_running: int | None = None
    max_running_of_a_user: int | None = None
    trusted_proxies: tuple[Network, ...] = ()
    keep_events_days: int | None = None
    database_patience_seconds: float = DATABASE_PATIENCE_SECONDS
    webhook_url: str | None = field(default=None, repr=False)  # may hold a password
    webhook_secret: str | None = field(default=None, repr=False)
    webhook_allow_private: bool = False
    confined: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; nothing is created on disk."""
        env = os.environ if environ is None else environ
        home = expanded(env.get("KDNAS_HOME") or "~/.kdnas").absolute()
        return cls(
            home=home,
            database_url=env.get("KDNAS_DATABASE_URL") or f"sqlite:///{home / 'kdnas.db'}",
            store_url=_store(env.get("KDNAS_STORE") or str(home / "store")),
            ray_address=env.get("KDNAS_RAY_ADDRESS") or None,
            auto_migrate=env.get("KDNAS_AUTO_MIGRATE", "") in _YES,
            teacher=env.get("KDNAS_TEACHER") or None,
            corpus=env.get("KDNAS_CORPUS") or None,
            locks=expanded(
                env.get("KDNAS_LOCKS") or Path(tempfile.gettempdir()) / f"kdnas-locks-{os.getuid()}"
            ),
            operator_token=env.get("KDNAS_OPERATOR_TOKEN") or None,
            viewer_token=env.get("KDNAS_VIEWER_TOKEN") or None,
            data_roots=_roots(env.get("KDNAS_DATA_ROOTS", "")),
            allow_custom_code=env.get("KDNAS_ALLOW_CUSTOM_CODE", "") in _YES,
            max_running=_count("KDNAS_MAX_RUNNING", env.get("KDNAS_MAX_RUNNING") or None),
            max_running_of_a_user=_count(
                "KDNAS_MAX_RUNNING_PER_USER", env.get("KDNAS_MAX_RUNNING_PER_USER") or None
            ),
            trusted_proxies=_networks(
                "KDNAS_TRUSTED_PROXIES", env.get("KDNAS_TRUSTED_PROXIES", "")
            ),
            keep_events_days=_count(
                "KDNAS_KEEP_EVENTS_DAYS", env.get("KDNAS_KEEP_EVENTS_DAYS") or None
            ),
            webhook_url=env.get("KDNAS_WEBHOOK_URL") or None,
            webhook_secret=env.get("KDNAS_WEBHOOK_SECRET") or None,
            webhook_allow_private=env.get("KDNAS_WEBHOOK_ALLOW_PRIVATE", "") in _YES,
            database_patience_seconds=_seconds(
                "KDNAS_DATABASE_PATIENCE_SECONDS",
                env.get("KDNAS_DATABASE_PATIENCE_SECONDS") or None,
                DATABASE_PATIENCE_SECONDS,
            ),
        )

    def for_service(self) -> Settings:
        """Return them for work that was asked for through the service."""
        return replace(self, confined=True)

    @property
    def task_teachers(self) -> Path:
        """Where teachers that learn a task keep their files until they are in the store."""
        return self.home / "task-teachers"

    @property
    def reach(self) -> Reach:
        """How what a request names is opened: below the data roots, or anywhere.

        Earlier students, in ``students`` of ``home``, may be read as well, and new ones go there.
        What else is in ``home`` and in the store is trusted, so it may not even where it lies below
        a data root.
        """
        if not self.confined:
            return ANYWHERE
        folders = [*self.root_folders, self.home / "students"]
        return Reach.below(folders, self.kept_apart)

    @property
    def root_folders(self) -> list[Path]:
        """Those of the data roots that are folders."""
        return _folders_of(self.data_roots)

    @property
    def kept_apart(self) -> list[Path]:
        """Folders of which requests reach nothing."""
        return [self.home, *_folders_of([self.store_url])]


def _folders_of(places: Iterable[str]) -> list[Path]:
    named = [place.removeprefix("file://") for place in places]
    return [Path(place) for place in named if "://" not in place]


def _store(url: str) -> str:
    refuse_password(url, "KDNAS_STORE")
    return url


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isdecimal() and int(text) > 0):
        raise SpecError(f"{name} is {text!r}, which is no number above 0; correct it or unset it")
    return int(text)


def _seconds(name: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise SpecError(
            f"{name} is {text!r}, which is no number of seconds from 0; correct it or unset it"
        )
    return seconds


def _networks(name: str, text: str) -> tuple[Network, ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise SpecError(
                f"{name} has {part!r}, which is no address and no network ({error}); write such as "
                "10.0.0.5 or 10.0.0.0/24, separated by commas"
            ) from None
    return tuple(found)


def _roots(text: str) -> tuple[str, ...]:
    """Cut at colons, but not at the one of a URL's ``://``."""
    return tuple(part for part in re.split(r":(?!//)", text) if part)
