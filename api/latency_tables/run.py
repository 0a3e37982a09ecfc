"""One latency table that somebody asked the service for, built and stored."""

from __future__ import annotations

import time
from collections.abc import Callable

from api.inputs.preparation import build_space, check_length, ensure_latencies
from api.jobs.lease import held_lease, watched
from kdnas.db.engine import Database
from kdnas.db.models import LatencyBuild
from kdnas.db.repository import latencies, latency_builds
from kdnas.db.repository.leases import LeaseOwner
from kdnas.errors import ConflictError, DatabaseError, KdnasError
from kdnas.models.teacher import prepare_teacher
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.objectives import HiddenStateSpec
from kdnas.specs.parts import StudentSpec, TeacherSpec
from kdnas.specs.search import LatencySpec, SpaceSpec
from kdnas.store import Store

NOTED_SECONDS = 1.0


class _StoppedError(Exception):
    """The build is to stop."""


def run_stored_build(
    build_id: str,
    claim: str,
    database: Database,
    settings: Settings,
    should_stop: Callable[[], bool] = lambda: False,
) -> SearchStatus:
    """Build the table that a coordinator's claim is for; one that is there already is taken.

    Args:
        build_id: of a build that is running.
        claim: token of the coordinator's claim.
        database: where it is stored.
        settings: of this process.
        should_stop: asked while it measures; True leaves it running, for the next coordinator.

    Returns:
        The status that it has now.

    Raises:
        ConflictError: somebody else works on it.
        KdnasError: it failed; its status says why.
    """
    owner = LeaseOwner.of_this_process("service", claim)

    def status() -> SearchStatus:
        with database.read() as session:
            return latency_builds.get_build(session, build_id).status

    with (
        held_lease(database, LatencyBuild, build_id, owner) as lost,
        watched(lambda: status() != "running", f"watch-{build_id}") as unwanted,
    ):
        noted = 0.0

        def note(share: float, text: str) -> None:
            nonlocal noted
            if lost.is_set():
                raise ConflictError(f"another process took over latency build {build_id}")
            if should_stop() or unwanted.is_set():
                raise _StoppedError
            if time.monotonic() - noted >= NOTED_SECONDS:
                noted = time.monotonic()
                with database.write() as session:
                    latency_builds.note_build_share(session, build_id, share)

        def end(
            status: SearchStatus, error: str | None = None, profile_id: str | None = None
        ) -> None:
            """Write how it ended, unless it was paused or cancelled, or is another's by now."""
            with database.write() as session:
                present = latency_builds.locked_build(session, build_id).status
                if present == "running" and not lost.is_set():
                    latency_builds.set_build_status(
                        session, build_id, status, error, profile_id=profile_id
                    )

        try:
            if status() == "running":
                profile_id = _build(build_id, database, settings, note)
                end("succeeded", profile_id=profile_id)
        except _StoppedError:
            pass
        except (ConflictError, DatabaseError):
            raise
        except Exception as error:
            end("failed", str(error) if isinstance(error, KdnasError) else repr(error))
            raise
        return status()


def _build(
    build_id: str, database: Database, settings: Settings, note: Callable[[float, str], None]
) -> str:
    """Build and store the table; return the id of its profile."""
    with database.read() as session:
        request = dict(latency_builds.get_build(session, build_id).spec)
    what = f"latency build {build_id}"
    spec = LatencySpec.read(request.get("latency", {}), what)
    teacher = prepare_teacher(
        TeacherSpec.read(request["teacher"], what), Store.from_settings(settings), settings.reach
    )
    check_length("latency.length", spec.length, teacher)
    axes = SpaceSpec.read(request.get("space", {}), what)
    space = build_space(axes, teacher, HiddenStateSpec(), StudentSpec().init)
    table = ensure_latencies(
        database, spec, teacher, space, note, check=lambda: note(0.0, "waiting for the machine")
    )
    key = (table.profile.fingerprint, table.family, table.teacher_fingerprint)
    with database.read() as session:
        stored = latencies.list_latency_profiles(session)
    return next(
        found.id
        for found in stored
        if (found.profile.fingerprint, found.family, found.teacher_fingerprint) == key
    )
