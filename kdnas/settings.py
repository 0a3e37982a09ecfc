"""Settings from the environment, and where a value came from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says; see ``docs/settings.md``.

    Attributes:
        home: folder of everything kdnas keeps (``KDNAS_HOME``).
        database_url: ``KDNAS_DATABASE_URL``; the default is ``kdnas.db`` under ``home``.
        store_url: fsspec URL of the artefact store (``KDNAS_STORE``).
        ray_address: of a running cluster (``KDNAS_RAY_ADDRESS``).
        auto_migrate: migrate PostgreSQL without being asked (``KDNAS_AUTO_MIGRATE=1``).
        teacher: default teacher (``KDNAS_TEACHER``).
        corpus: default corpus (``KDNAS_CORPUS``).
        locks: folder of the locks that keep training and measuring apart on a machine
            (``KDNAS_LOCKS``); the default is one a user in the system's temporary folder.
    """

    home: Path
    database_url: str
    store_url: str
    ray_address: str | None
    auto_migrate: bool
    teacher: str | None
    corpus: str | None
    locks: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; nothing is created on disk."""
        env = os.environ if environ is None else environ
        home = Path(env.get("KDNAS_HOME") or "~/.kdnas").expanduser().absolute()
        return cls(
            home=home,
            database_url=env.get("KDNAS_DATABASE_URL") or f"sqlite:///{home / 'kdnas.db'}",
            store_url=env.get("KDNAS_STORE") or str(home / "store"),
            ray_address=env.get("KDNAS_RAY_ADDRESS") or None,
            auto_migrate=env.get("KDNAS_AUTO_MIGRATE", "") in {"1", "true", "yes"},
            teacher=env.get("KDNAS_TEACHER") or None,
            corpus=env.get("KDNAS_CORPUS") or None,
            locks=Path(
                env.get("KDNAS_LOCKS") or Path(tempfile.gettempdir()) / f"kdnas-locks-{os.getuid()}"
            ).expanduser(),
        )
