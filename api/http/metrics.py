"""Figures for Prometheus: what this process served, and what the database holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.jobs.registry import kinds
from kdnas.db.engine import Database
from kdnas.db.models import STATUSES
from kdnas.db.repository.statistics import Statistics, read_statistics
from kdnas.errors import DatabaseError

COUNTED_ANEW_SECONDS = 10.0
"""Several who ask at once, or often, have everything counted once."""

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What ``/metrics`` tells; one for each application."""

    def __init__(
        self,
        database: Database,
        num_listeners: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "kdnas_http_request_seconds",
            "Time from a request to the end of its answer; event streams are left out.",
            ["method", "route", "status"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        followers = Gauge(
            "kdnas_event_clients", "Clients that follow the events.", registry=self._registry
        )
        followers.set_function(num_listeners)
        self._registry.register(_Stored(database, clock))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` is the path with its placeholders."""
        if not route.endswith("/events"):
            known = method if method in _METHODS else "other"
            self._seconds.labels(known, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)


_METHODS = {"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"}


class _Stored(Collector):
    """What the database holds, counted when somebody asks."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._counted: Statistics | None = None
        self._counted_at = 0.0

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name nothing beforehand, so that nothing is counted when this is made."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one gauge after the other."""
        try:
            found = self._statistics()
        except DatabaseError:
            yield _gauge("kdnas_database_up", "Whether the database answers.", 0)
            return
        yield _gauge("kdnas_database_up", "Whether the database answers.", 1)
        nothing = dict.fromkeys(STATUSES, 0)
        counted = {kind.plural: found.jobs.get(kind.name, nothing) for kind in kinds().values()}
        for name, counts in {**counted, "candidates": found.candidates}.items():
            text = f"Number of {name.replace('_', ' ')} by status."
            family = GaugeMetricFamily(f"kdnas_{name}", text, labels=["status"])
            for status, number in counts.items():
                family.add_metric([status], number)
            yield family
        for name, text, value in (
            (
                "episodes_finished",
                "Episodes finished in all searches.",
                found.num_episodes_finished,
            ),
            ("candidates_reused", "Candidates whose loss was looked up.", found.num_reused),
            ("candidates_in_training", "Candidates being trained.", found.num_in_training),
            ("workers_busy", "Workers that train candidates.", found.num_workers),
            (
                "students_per_hour",
                "Students trained by mini-KD in the last hour.",
                found.num_trained_last_hour,
            ),
            ("last_event_id", "Number of the newest event.", found.last_event_id),
        ):
            yield _gauge(f"kdnas_{name}", text, value)

    def _statistics(self) -> Statistics:
        with self._lock:
            now = self._clock()
            if self._counted is None or now - self._counted_at >= COUNTED_ANEW_SECONDS:
                with self._database.read() as session:
                    self._counted = read_statistics(session)
                self._counted_at = now
            return self._counted


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
