"""What is removed, what never is, and what comes of several at once and of kills."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from api.cleaning import artefacts, unneeded
from api.cleaning.run import find_unneeded, remove
from api.cleaning.unneeded import Unneeded
from kdnas.artefact import MANIFEST, is_whole
from kdnas.db.engine import Database, parse_url
from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import jobs
from kdnas.errors import StoreError
from kdnas.in_use import REMOVED_PREFIX, note_use
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.store import MADE_OF, Store
from kdnas.testing.job_rows import make_job

HOURS: Final = 24.0
STATUSES: Final[tuple[SearchStatus, ...]] = (
    *("queued", "running", "paused", "failed", "cancelled", "succeeded"),
)


def age(path: Path, days: float = 3) -> None:
    """Let a file, or a folder with all in it, be of some days ago."""
    moment = time.time() - days * 24 * 3600
    for one in (path, *path.rglob("*")):
        os.utime(one, (moment, moment))


@dataclass
class Place:
    """A home with a store and a database, to be filled."""

    settings: Settings
    database: Database

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def store(self) -> Store:
        return Store.from_settings(self.settings)

    def artefact(
        self, kind: str, name: str, days: float = 3, made_of: Collection[str] | None = None
    ) -> Path:
        about = {} if made_of is None else {MADE_OF: list(made_of)}
        with self.store.create(kind) as draft:
            (draft.folder / "weights").write_text(f"of {name}", "utf-8")
            draft.publish(name, about)
        folder = self.home / "store" / kind / name
        age(folder, days)
        return folder

    def job(self, status: SearchStatus, *names: str, kind: str = "search") -> str:
        """A job that mentions some names, somewhere in its request."""
        job_id = make_job(self.database, kind, status)
        spec: dict[str, Any] = {"deep": [{"fingerprint": name} for name in names]}
        with self.database.write() as session:
            jobs.resolve(session, job_id, spec)
        return job_id

    def delete(self, job_id: str) -> None:
        with self.database.write() as session:
            jobs.set_status(session, job_id, "cancelled")
            jobs.delete_job(session, job_id)

    def file(self, name: str, days: float = 3) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 100, "utf-8")
        parts = name.split("/")
        age(self.home.joinpath(*parts[: 3 if parts[0] == "store" else 2]), days)
        return path

    def found(self, **more: Any) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in find_unneeded(self.settings, HOURS, **more):
            found.setdefault(one.category, set()).add(one.name)
        return found

    def clean(self) -> int:
        done = remove(find_unneeded(self.settings, HOURS))
        assert done.problems == []
        return done.count

    def tree(self) -> dict[str, float]:
        paths = [path for path in self.home.rglob("*") if not path.name.startswith("kdnas.db")]
        return {str(path.relative_to(self.home)): path.stat().st_mtime for path in paths}


@pytest.fixture
def place(database: Database, database_url: str, tmp_path: Path) -> Place:
    home = tmp_path / "place"
    environment = {"KDNAS_HOME": str(home), "KDNAS_DATABASE_URL": database_url}
    return Place(Settings.from_environment(environment), database)


def test_what_no_job_mentions_goes_and_nothing_else(place: Place) -> None:
    place.job("succeeded", "teacher-a", "corpus-a")
    place.job("paused", "head-a")
    gone = place.job("failed", "teacher-gone", "corpus-gone")
    place.delete(gone)
    kept = [
        place.artefact("teacher", "teacher-a"),
        place.artefact("corpus", "corpus-a"),
        place.artefact("lm-head", "head-a"),
        place.artefact("teacher-states", "states-a", made_of=["teacher-a", "corpus-a"]),
        place.artefact("task-teacher", "tuned-a", made_of=["teacher-a"]),
        place.artefact("task-start", "start-a", made_of=["tuned-a"]),
        place.artefact("teacher-states", "states-of-earlier-version"),
        place.artefact("corpus", "corpus-young", days=0.5),
        place.artefact("teacher-states", "states-young", made_of=["teacher-a", "corpus-young"]),
        place.artefact("of-a-package", "its-own"),
    ]
    place.artefact("teacher", "teacher-gone")
    place.artefact("corpus", "corpus-gone")
    place.artefact("teacher-states", "states-gone", made_of=["teacher-a", "corpus-gone"])
    place.artefact("task-teacher", "tuned-gone", made_of=["teacher-gone"])
    place.artefact("task-start", "start-gone", made_of=["tuned-gone"])
    assert place.found() == {
        "teacher": {"teacher-gone"},
        "corpus": {"corpus-gone"},
        "teacher-states": {"states-gone"},
        "task-teacher": {"tuned-gone"},
        "task-start": {"start-gone"},
    }
    assert place.clean() == 5
    assert all(map(is_whole, kept))
    assert place.found() == {}


def test_sentence_embeddings_stay_with_their_teacher(place: Place) -> None:
    place.job("succeeded", "teacher-a")
    for name in ("teacher-a", "teacher-b"):
        place.artefact("teacher", name)
        place.artefact("sentence-embedding", f"of-{name}")
        place.store.remember("sentence-embedding", name, f"of-{name}")
        age(place.home / "store" / "sentence-embedding-keys")
    found = find_unneeded(place.settings, HOURS)
    assert [one.name for one in found] == ["teacher-b", "of-teacher-b"]
    # The teacher was taken up in between: without its embeddings it would embed in another way.
    note_use(place.home / "store" / "teacher" / "teacher-b" / MANIFEST)
    assert remove(found).count == 0
    age(place.home / "store")
    assert place.clean() == 2
    assert place.found() == {"notes": {"sentence-embedding-keys/teacher-b"}}
    assert place.clean() == 1
    assert place.store.recall("sentence-embedding", "teacher-a") == "of-teacher-a"


def test_files_of_jobs_that_are_gone_or_over(place: Place) -> None:
    paused = place.job("paused", kind="distillation")
    over = place.job("succeeded", kind="distillation")
    held = place.job("cancelled", kind="distillation")
    owner = LeaseOwner.of_this_process("service")
    with place.database.write() as session:
        leases.acquire(session, Job, held, owner, 600)
    gone, mentioned = (place.job("failed", kind="evaluation") for _ in range(2))
    place.job("paused", f"/data/task-distillations/{mentioned}/kd-seed0/model")
    for job_id in (gone, mentioned):
        place.delete(job_id)
    for job_id in (paused, over, held, gone, mentioned):
        place.file(f"distillations/{job_id}/events/1")
        place.file(f"store/checkpoints/{job_id}/step-000000001/state.pt")
        place.file(f"jobs/{job_id}/log.txt")
        place.file(f"store/jobs/{job_id}/log.txt")
        place.file(f"evaluations/{job_id}/predictions.jsonl")
        place.file(f"task-distillations/{job_id}/kd-seed0/predictions.jsonl")
        place.file(f"students/{job_id}/config.json")
    young = place.file("jobs/0000000000000000/log.txt", days=0.1)
    assert place.found() == {
        "logs": {f"jobs/{gone}", f"jobs/{gone} in the store"},
        "checkpoints": {
            f"{folder}/{job}{where}"
            for folder, where in (("distillations", ""), ("checkpoints", " in the store"))
            for job in (over, gone)
        },
        "results": {f"evaluations/{gone}", f"task-distillations/{gone}"},
    }
    before = place.tree()
    count = place.clean()
    assert count == 8
    left = place.tree().keys()
    assert all(gone in name or over in name for name in before.keys() - left)
    assert not any(gone in name for name in left if not name.startswith("students/"))
    assert f"students/{gone}/config.json" in left
    assert young.exists()


def test_what_was_used_or_is_open_in_a_process_stays(place: Place) -> None:
    place.artefact("teacher", "used")
    held = place.artefact("corpus", "held")
    assert place.store.has("teacher", "used")
    assert place.store.fetch("corpus", "held") == held
    age(held)  # it was opened long ago, and still is
    assert place.found() == {}
    assert place.clean() == 0


def test_a_look_changes_nothing(place: Place) -> None:
    place.artefact("teacher", "gone", days=30)
    place.file("jobs/0000000000000000/log.txt")
    place.file(f"store/corpus/{REMOVED_PREFIX}abc/tokens")
    before = place.tree()
    assert set(place.found(keep_events_days=1)) == {"teacher", "logs", "leftovers"}
    assert place.tree() == before


def test_another_database_of_the_same_home_is_asked(
    place: Place, sqlite_template: Path, tmp_path: Path
) -> None:
    place.home.mkdir()
    own = Path(shutil.copy(sqlite_template, place.home / "kdnas.db"))
    other = Path(shutil.copy(sqlite_template, tmp_path / "other.db"))
    for name, path in (("teacher-own", own), ("teacher-other", other)):
        place.artefact("teacher", name)
        with Database(parse_url(f"sqlite:///{path}")) as database:
            Place(place.settings, database).job("paused", name)
    assert place.found() == {"teacher": {"teacher-other"}}
    assert place.found(also=[f"sqlite:///{other}"]) == {}


def test_old_events_and_answers_are_told_and_removed(place: Place) -> None:
    from sqlalchemy import text

    place.job("succeeded")
    with place.database.write() as session:
        session.execute(text("UPDATE events SET created_at = '2020-01-01 00:00:00'"))
    assert place.found() == {}
    found = find_unneeded(place.settings, HOURS, keep_events_days=7)
    assert [(one.category, one.count) for one in found] == [("events", 1)]
    assert remove(found).count == 1


@pytest.mark.databases("sqlite")
def test_a_store_elsewhere_loses_logs_and_local_copies_only(place: Place) -> None:
    settings = replace(place.settings, store_url=f"memory://{place.home.name}-{time.time_ns()}")
    far = Place(settings, place.database)
    with far.store.create("teacher") as draft:
        (draft.folder / "weights").write_text("w", "utf-8")
        draft.publish("teacher-a")
    copy = settings.home / "cache" / "teacher" / "teacher-a"
    age(copy)
    far.store.write_file("jobs", "0000000000000000", "log.txt", b"of a job that is gone")
    assert far.found() == {"cache": {"teacher/teacher-a"}}  # the log is young
    later = find_unneeded(settings, -1)
    assert {one.name for one in later} >= {"jobs/0000000000000000 in the store"}
    remove(later)
    assert not copy.exists()
    assert far.store.read_file("jobs", "0000000000000000", "log.txt") is None
    assert (far.store.fetch("teacher", "teacher-a") / "weights").read_text("utf-8") == "w"


@pytest.mark.databases("sqlite")
def test_what_cannot_be_removed_is_told_and_the_rest_goes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.artefact("teacher", "one")
    place.artefact("teacher", "two")
    taken = artefacts.take_away

    def refused(sign: Path, since: float) -> Path | None:
        if sign.parent.name == "one":
            raise PermissionError(13, "Permission denied")
        return taken(sign, since)

    monkeypatch.setattr(artefacts, "take_away", refused)
    done = remove(find_unneeded(place.settings, HOURS))
    assert done.count == 1
    (problem,) = done.problems
    assert problem.endswith(
        "one cannot be removed: Permission denied; check who owns it and its folder"
    )


@pytest.mark.databases("sqlite")
def test_two_at_once_remove_each_thing_once(place: Place) -> None:
    for number in range(30):
        place.artefact("corpus", f"corpus-{number}")
        place.file(f"jobs/{number:016}/log.txt")
        place.file(f"store/checkpoints/{number:016}/step-000000001/state.pt")
    found = find_unneeded(place.settings, HOURS)
    assert len(found) == 90
    begin, counts = threading.Barrier(3), []

    def work(things: list[Unneeded]) -> None:
        begin.wait()
        done = remove(things)
        assert done.problems == []
        counts.append(done.count)

    threads = [
        threading.Thread(target=work, args=(things,)) for things in (found, found, found[::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 3
    assert sum(counts) >= 90
    assert place.found() == {}
    assert not [name for name in place.tree() if REMOVED_PREFIX in name]


@pytest.mark.databases("sqlite")
def test_beside_one_who_uses_and_makes_artefacts(place: Place) -> None:
    """Whoever is told that an artefact is there gets all of it."""
    stop, lost, rounds = threading.Event(), [], []

    def use(name: str) -> None:
        while not stop.is_set():
            try:
                if place.store.has("corpus", name):
                    folder = place.store.fetch("corpus", name)
                    assert (folder / "weights").read_text("utf-8") == f"of {name}"
                    age(folder)
                else:
                    place.artefact("corpus", name)
                rounds.append(name)
            except (StoreError, AssertionError, OSError) as error:
                lost.append(error)
                return

    users = [threading.Thread(target=use, args=(f"corpus-{number}",)) for number in range(3)]
    for user in users:
        user.start()
    begun = time.monotonic()
    while time.monotonic() - begun < 3 and not lost:
        place.clean()
    stop.set()
    for user in users:
        user.join()
    assert lost == []
    assert len(rounds) > 10


KILLED = """
import os, signal, sys
from api.cleaning import artefacts, unneeded
from api.cleaning.run import find_unneeded, remove
from kdnas.settings import Settings

left = int(sys.argv[1])

def dying(path):
    global left
    left -= 1
    if not left:
        next(iter(path.glob("*"))).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return delete(path)

delete = unneeded.delete
unneeded.delete = artefacts.delete = dying
remove(find_unneeded(Settings.from_environment(), 24))
"""


@pytest.mark.databases("sqlite")
def test_a_removal_that_is_killed_leaves_nothing_that_looks_whole(place: Place) -> None:
    for number in range(4):
        place.artefact("corpus", f"corpus-{number}")
        place.file(f"jobs/{number:016}/log.txt")
    environment = {
        **os.environ,
        "KDNAS_HOME": str(place.home),
        "KDNAS_DATABASE_URL": place.settings.database_url,
    }
    for left in (2, 3):
        command = [sys.executable, "-c", KILLED, str(left)]
        done = subprocess.run(command, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
        folders = place.store.folders("corpus")
        assert all(map(is_whole, folders))
        assert [path for path in place.home.rglob(f"{REMOVED_PREFIX}*") if path.is_dir()]
        assert all(path.parent.name[0] != "." for path in place.home.glob("jobs/[!.]*/*"))
    assert place.clean() > 0
    assert place.found() == {}
    assert not [name for name in place.tree() if REMOVED_PREFIX in name]


@dataclass(frozen=True)
class World:
    """What is in a store, and who refers to it."""

    teachers: Mapping[str, float]
    corpora: Mapping[str, float]
    states: Mapping[str, tuple[str, str, float]]
    jobs: Collection[tuple[SearchStatus, bool, Collection[str]]]


def some(prefix: str) -> st.SearchStrategy[list[str]]:
    return st.just([f"{prefix}{number}" for number in range(4)])


AGES = st.sampled_from([0.01, 0.9, 1.1, 40.0])
NAMES = [f"{kind}{number}" for kind in ("teacher", "corpus") for number in range(4)]
WORLDS = st.builds(
    World,
    teachers=st.fixed_dictionaries({f"teacher{n}": AGES for n in range(4)}),
    corpora=st.fixed_dictionaries({f"corpus{n}": AGES for n in range(4)}),
    states=st.dictionaries(
        st.sampled_from([f"states{n}" for n in range(6)]),
        st.tuples(st.sampled_from(NAMES[:4]), st.sampled_from(NAMES[4:]), AGES),
    ),
    jobs=st.lists(
        st.tuples(st.sampled_from(STATUSES), st.booleans(), st.sets(st.sampled_from(NAMES))),
        max_size=5,
    ),
)


@pytest.mark.databases("sqlite")
@settings(max_examples=25)
@given(world=WORLDS)
def test_nothing_that_is_referred_to_is_removed(sqlite_template: Path, world: World) -> None:
    """And nothing young; and all else is, so that the property is not that of doing nothing."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{shutil.copy(sqlite_template, Path(folder, 'own.db'))}"
        environment = {"KDNAS_HOME": f"{folder}/home", "KDNAS_DATABASE_URL": url}
        with Database(parse_url(url)) as database:
            place = Place(Settings.from_environment(environment), database)
            _try_one(place, world)


def _try_one(place: Place, world: World) -> None:
    folders, ages = {}, {}
    for kind, made in (("teacher", world.teachers), ("corpus", world.corpora)):
        for name, days in made.items():
            folders[name], ages[name] = place.artefact(kind, name, days), days
    for name, (teacher, corpus, days) in world.states.items():
        folders[name] = place.artefact("teacher-states", name, days, [teacher, corpus])
        ages[name] = days
    referred: set[str] = set()
    files, gone_files = [], []
    for status, is_deleted, names in world.jobs:
        job_id = place.job(status, *names, kind="distillation")
        file = place.file(f"distillations/{job_id}/state")
        log = place.file(f"jobs/{job_id}/log.txt")
        if is_deleted:
            place.delete(job_id)
            gone_files += [file, log]
        else:
            referred |= set(names)
            files.append(log)
            (gone_files if status in {"succeeded", "cancelled"} else files).append(file)
    young = {name for name, days in ages.items() if days < 1}
    kept = referred | young
    kept |= {s for s, (t, c, _) in world.states.items() if {t, c} <= kept}
    place.clean()
    assert {name for name, folder in folders.items() if is_whole(folder)} == kept
    assert all(file.exists() for file in files)
    assert not any(file.exists() for file in gone_files)


@pytest.mark.databases("sqlite")
def test_locks_of_others_are_no_hindrance(place: Place) -> None:
    """A log that is being written is young, whoever holds its lock."""
    log = place.file("jobs/0000000000000000/log.txt", days=0)
    with FileLock(log.with_name("log.lock")):
        assert place.found() == {}


def test_sizes_and_times_are_of_all_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_text("12345", "utf-8")
    (tmp_path / "a" / "b" / "two").write_text("123", "utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    age(tmp_path / "a", 5)
    num_bytes, changed = unneeded.extent(tmp_path / "a")
    assert num_bytes == 8
    assert abs(time.time() - changed - 5 * 24 * 3600) < 60
    assert unneeded.extent(tmp_path / "missing") == (0, 0.0)
    assert unneeded.remove_old(tmp_path / "link", time.time() + 9) == 1
    assert (tmp_path / "a" / "one").exists()
