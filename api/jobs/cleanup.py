"""What dead processes left behind: open attempts, and checkpoints of what has ended."""

from __future__ import annotations

import structlog

from api.jobs.files import (
    remove_abandoned_files,
    remove_evaluation_checkpoints,
    remove_run_files,
)
from kdnas.db.engine import Database
from kdnas.db.repository import candidates, claims
from kdnas.errors import ConflictError, RequestError, StoreError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec

log = structlog.get_logger("kdnas.coordinator")


class Cleanup:
    """Done now and then by a coordinator; doing it twice, or two at once, does no harm."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._removed: set[str] = set()

    def run(self) -> None:
        """Look for everything once.

        Raises:
            DatabaseError: the database is out of reach.
        """
        self._close_attempts()
        self._remove_checkpoints()

    def _close_attempts(self) -> None:
        """Close attempts of searches at rest; one that goes on closes its own."""
        with self._database.read() as session:
            found = claims.left_open(session)
        for search_id in found:
            try:
                with self._database.write() as session:
                    count = candidates.close_open_attempts(
                        session, search_id, "the process of the search was killed"
                    )
            except ConflictError:  # another coordinator was quicker
                continue
            log.info("closed attempts", search=search_id, count=count)

    def _remove_checkpoints(self) -> None:
        """Remove what a process would have removed at the end, had it not been killed there."""
        with self._database.read() as session:
            found = claims.ended_distillations(session)
        for record in found:
            if record.id in self._removed:
                continue
            spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
            own = record.owner_kind == "service"
            try:
                remove_run_files(
                    spec, self._settings.for_service() if own else self._settings, record.id
                )
            except (RequestError, StoreError) as error:
                log.error("checkpoints left", distillation=record.id, reason=str(error))
            self._removed.add(record.id)
        with self._database.read() as session:
            evaluations = claims.ended_evaluations(session)
        for evaluation_id in evaluations:
            remove_evaluation_checkpoints(self._settings, evaluation_id)
        for folder in remove_abandoned_files(self._settings):
            log.info("abandoned files removed", folder=str(folder))
