"""Processes killed and stopped at random moments, and what has to be true of their work afterwards.

A :class:`Ground` is a folder in which every kind of work is done in miniature, on one database.
Each :class:`Work` is done undisturbed, which says what it comes to. An attack does it again, hits
one process of a kind (:data:`TARGETS`) a few times, goes on as a user would, and says what was
amiss: another outcome, something trained twice, or a process that was left behind.

Processes that lose their parent become children of this one, so that none is overlooked.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

import httpx2 as httpx
import psutil
import yaml

from kdnas.db.engine import Database, Session
from kdnas.db.exploration import candidates
from kdnas.db.migrate import open_database
from kdnas.db.models import Attempt, Evaluation, Job
from kdnas.db.repository import jobs, pipelines, sweeps, task_distillations
from kdnas.settings import Settings
from kdnas.testing.commands import WORDS, Program
from kdnas.testing.forked import Forked
from kdnas.testing.forked_runners import RUNNER
from kdnas.testing.postgres import OwnServer
from kdnas.testing.tiny_tasks import WORDS as TASK_WORDS
from kdnas.testing.tiny_tasks import write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

Target = Literal["command", "service", "runner", "ray worker", "raylet", "postgres"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)
Outcome = Any
"""What a job came to, as JSON; equal whenever the same is done."""

LONGEST_SECONDS = 300.0
STOPPED_SECONDS = 3.0
DIED = "its process died 3 times without any progress"
"""Why the service gives a job up, until somebody resumes it."""
LEFT_SECONDS = 15.0
"""A process that outlives its job's by this counts as left behind."""
SHARE_STOPPED = 0.2
"""Of the hits; all others kill."""
SHARE_COLD = 0.2
"""Of the attacks: all that was prepared before is removed first."""
_SET_CHILD_SUBREAPER: Final = 36  # of prctl(2)


@dataclass(frozen=True)
class Work:
    """A job in miniature.

    Attributes:
        kind: of the job.
        command: that does it, of a file with the request, or with all that it needs.
        path: where it is asked for over REST.
        request: its spec.
        outcome: says what a job of it came to.
    """

    kind: str
    command: str | tuple[str, ...]
    path: str
    request: Mapping[str, Any]
    outcome: Callable[[Session, Job], Outcome]

    @property
    def on_ray(self) -> bool:
        """Whether it trains on a Ray cluster."""
        return bool(self.request.get("backend", {}).get("name") == "ray")

    @property
    def label(self) -> str:
        """What it is called in results."""
        return f"{self.kind} on Ray" if self.on_ray else self.kind


@dataclass
class Struck:
    """What became of a job that was disturbed.

    Attributes:
        work: label of the job.
        target: kind of process that was hit.
        kills: how often it was killed.
        stops: how often it was stopped for :data:`STOPPED_SECONDS` and went on.
        seconds: from its beginning to its end.
        amiss: sentences; empty if all is as it should be.
    """

    work: str
    target: Target
    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    amiss: list[str] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """How often a process was hit."""
        return self.kills + self.stops


def requests(folder: Path) -> list[Work]:
    """Every kind of work, in miniature; the folder is that of :meth:`Program.make` with tasks."""
    tiny = yaml.safe_load((folder / "tiny.yaml").read_text("utf-8"))
    inputs = {
        "teacher": {"ref": str(folder / "teacher")},
        "corpus": {**tiny["corpus"], "source": str(folder / "corpus.txt")},
    }
    search = {**tiny, **inputs, "proxy": {**tiny["proxy"], "steps": 24, "reuse": False}}
    sweep = {key: search[key] for key in search if key not in {"goal", "controller"}}
    sweep |= {"steps": [0, 12], "states": 10}
    on_ray = {"backend": {"name": "ray", "threads": 1, "group_size": 2, "num_workers": 1}}
    training = {"batch_size": 8, "held_out": 16, "threads": 1}
    data = {"data_dir": str(folder / "glue"), "device": "cpu", "batch_size": 8}
    scored = {"suite": "glue", **data, "latency": None, "threads": 1}
    return [
        Work("search", "search", "searches", search, _search),
        Work("search", "search", "searches", {**search, **on_ray}, _search),
        Work("sweep", "sweep", "sweeps", sweep, _sweep),
        Work("sweep", "sweep", "sweeps", {**sweep, **on_ray}, _sweep),
        Work(
            "distillation",
            "full-distill",
            "distillations",
            {
                **inputs,
                "architecture": "2,4,24,48,silu",
                "training": {**training, "steps": 150, "checkpoint_every": 20},
            },
            _weights,
        ),
        Work(
            "task_distillation",
            "task-distill",
            "task-distillations",
            {
                **{**data, "threads": 1, "max_length": 16, "max_steps": 60},
                "teacher": {**inputs["teacher"], "epochs": 1, "warmup_epochs": 1},
                "task": "SST-2",
                "student": "first-layers:1",
                "methods": ["none", "vanilla-kd"],
                "epochs": 10,
                "finetune_epochs": 10,
            },
            _task_runs,
        ),
        Work(
            "evaluation",
            (
                *("evaluate", "teacher", "--suite", "glue", "--tasks", "SST-2", "--seeds", "1"),
                *("--data-dir", "glue", "--max-steps", "120", "--batch-size", "8"),
                *("--device", "cpu", "--threads", "1"),
            ),
            "evaluations",
            {
                **scored,
                "model": inputs["teacher"]["ref"],
                "tasks": ["SST-2"],
                "seeds": [0],
                "max_steps": 120,
            },
            _score,
        ),
        Work(
            "pipeline",
            "launch",
            "pipelines",
            {
                "search": {
                    **search,
                    "controller": {**tiny["controller"], "episodes": 1, "candidates": 2},
                },
                "choose": 1,
                "distillation": {"training": {**training, "steps": 60, "checkpoint_every": 20}},
                "baselines": {
                    "proportions": [],
                    "random": 0,
                    "smallest_cuts": False,
                    "variants": [],
                },
                "evaluation": {**scored, "seeds": 1, "max_steps": 20},
            },
            _pipeline,
        ),
    ]


def _search(session: Session, job: Job) -> Outcome:
    return [
        [
            *(episode.number, one.position, str(one.architecture), one.status, one.reward),
            one.losses and one.losses.relative,
        ]
        for episode in candidates.list_episodes(session, job.id)
        for one in episode.candidates
    ]


def _sweep(session: Session, job: Job) -> Outcome:
    return [
        [state.index, state.seed, [[r.step, r.losses.relative] for r in state.readings]]
        for state in sweeps.swept_states(session, job.id)
    ]


def _weights(session: Session, job: Job) -> Outcome:
    output = Path(str(job.spec["output"]))
    return {
        str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*.safetensors"))
    }


def _task_runs(session: Session, job: Job) -> Outcome:
    runs = task_distillations.task_runs(session, job.id)
    return [sorted([run.method, run.seed, run.main] for run in runs), _weights(session, job)]


def _score(session: Session, job: Job) -> Outcome:
    row = session.get_one(Evaluation, job.id)
    return [row.task, row.seed, row.metrics["main"]]


def _pipeline(session: Session, job: Job) -> Outcome:
    record = pipelines.get_pipeline(session, job.id)
    members = [
        [
            *(member.role, str(member.architecture)),
            member.distillation and member.distillation.metrics["relative"],
            sorted([one.task, one.seed, one.metrics["main"]] for one in member.evaluations),
        ]
        for member in pipelines.list_members(session, job.id)
    ]
    return [_search(session, session.get_one(Job, record.search_id or "")), members]


class Ground:
    """A folder with all that every kind of work needs, and a database.

    Args:
        folder: empty.
        url: of a migrated database.
        seed: of all moments and choices.
        server: of the database, if it is to be hit as well.
        more: variables of the environment.
    """

    def __init__(
        self, folder: Path, url: str, seed: int, server: OwnServer | None = None, **more: str
    ) -> None:
        adopt_orphans()
        self.program = Program.make(folder)
        make_tiny_teacher(folder / "teacher", words=(*WORDS, *TASK_WORDS))
        write_sst2(folder / "glue")
        self.settings = Settings.from_environment(
            self.program.environment | {"KDNAS_DATABASE_URL": url} | more
        )
        self.database: Database = open_database(self.settings)
        self.works = requests(folder)
        self.draw = random.Random(seed)
        self.server = server
        self._url, self._more = url, more
        self._number = 0
        self._expected: dict[tuple[str, str, bool], tuple[Outcome, float]] = {}

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self.database.close()

    @property
    def environment(self) -> dict[str, str]:
        """What every process has beside what the program gives it."""
        return {
            "KDNAS_DATABASE_URL": self._url,
            "KDNAS_MAX_RUNNING": "2",
            "HOME": str(self.program.folder),
            **self._more,
        }

    def expected(self, work: Work, by_command: bool) -> tuple[Outcome, float]:
        """What a work comes to undisturbed, and in how many seconds: done twice, and kept.

        Raises:
            AssertionError: it came to two things.
        """
        # A command lays its preset under the request.
        key = (repr(work.command), json.dumps(work.request, sort_keys=True), by_command)
        if key not in self._expected:
            outcomes = []
            for _ in range(2):  # the first one prepares what all have
                target: Target = "command" if by_command else "service"
                struck, began = Struck(work.label, target), time.monotonic()
                do = self._by_command if by_command else self._by_service
                job_id = do(work, self.new_name(work), target, 0, 0.0, struck)
                seconds = time.monotonic() - began
                outcomes.append(self.outcome(work, job_id))
            assert outcomes[0] == outcomes[1], f"undisturbed it came to {outcomes}"
            self._expected[key] = (outcomes[0], seconds)
        return self._expected[key]

    def outcome(self, work: Work, job_id: str) -> Outcome:
        """What a job came to, as JSON; an evaluation is then deleted, or the next takes it over."""
        with self.database.read() as session:
            found = json.loads(json.dumps(work.outcome(session, session.get_one(Job, job_id))))
        with self.database.write() as session:
            for row in session.query(Evaluation.id).all():
                jobs.delete_job(session, row.id)
        return found

    def attack(self, work: Work, target: Target, hits: int = 1) -> Struck:
        """Do a work, hit a process of a kind at random moments, and see what came of it."""
        expected, seconds = self.expected(work, target == "command")
        struck, began = Struck(work.label, target), time.monotonic()
        if self.draw.random() < SHARE_COLD:  # what was prepared before is prepared anew
            shutil.rmtree(self.settings.home / "store", ignore_errors=True)
            shutil.rmtree(self.settings.home / "cache", ignore_errors=True)
        before = {process.pid for process in descendants()}
        name = self.new_name(work)
        try:
            strike = self._by_command if target == "command" else self._by_service
            job_id = strike(work, name, target, hits, seconds, struck)
            struck.amiss += self._differences(work, job_id, expected)
        except AssertionError as error:
            struck.amiss.append(str(error))
        struck.amiss += [f"left behind: {one}" for one in left_behind(before)]
        struck.seconds = time.monotonic() - began
        return struck

    def _differences(self, work: Work, job_id: str, expected: Outcome) -> Iterator[str]:
        with self.database.read() as session:
            twice = trained_twice(session)
        if twice:
            yield f"{twice} candidates were trained twice"
        found = self.outcome(work, job_id)
        if found != expected:
            yield f"came to {found}, and undisturbed to {expected}"

    def _by_command(
        self, work: Work, name: str, target: Target, hits: int, seconds: float, struck: Struck
    ) -> str:
        while True:
            process = self.program.fork(*self.command(work, name), **self.environment)
            if struck.hits < hits:
                itself = [psutil.Process(process.pid)]
                self._hit(
                    partial(list, itself), seconds, struck, partial(getattr, process, "has_ended")
                )
            try:
                ended = process.wait(LONGEST_SECONDS)
            except TimeoutError as error:
                raise AssertionError(f"it hangs: {error}") from error
            if ended.code == 0:
                job_id = self.find(work, name)
                assert job_id is not None
                return job_id
            assert ended.code == -signal.SIGKILL, f"exit {ended.code}: {ended.err[-1500:]}"

    def _by_service(
        self, work: Work, name: str, target: Target, hits: int, seconds: float, struck: Struck
    ) -> str:
        job_id: str | None = None
        while True:
            with self.service() as service:
                job_id = job_id or service.ask(work, name)
                find, is_over = partial(service.victims, target), partial(service.is_over, job_id)
                is_killed = False
                while struck.hits < hits and not is_killed:
                    did = self._hit(find, seconds, struck, is_over)
                    if did is None:
                        break
                    is_killed = did == "killed" and target == "service"
                if not is_killed:
                    service.wait_for_end(job_id)
                    return job_id
            _, alive = psutil.wait_procs(service.known, LEFT_SECONDS)
            assert not alive, f"left behind by the service: {[words(one) for one in alive]}"

    def _hit(
        self,
        find: Callable[[], list[psutil.Process]],
        seconds: float,
        struck: Struck,
        is_over: Callable[[], bool],
    ) -> str | None:
        """Kill a process, or stop it for a while, at a random moment; None if it is too late."""
        moment = time.monotonic() + self.draw.uniform(0.0, seconds)
        while time.monotonic() < moment or not find():
            if is_over():
                return None
            late = time.monotonic() - moment
            assert late < LONGEST_SECONDS, f"it hangs: nothing to hit for {late:.0f} seconds"
            time.sleep(0.02)
        with suppress(psutil.NoSuchProcess, IndexError):
            victim = self.draw.choice(find())
            if self.draw.random() < SHARE_STOPPED:
                victim.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                victim.send_signal(signal.SIGCONT)
                struck.stops += 1
                return "stopped"
            if victim.name() == "postgres" and self.server is not None:
                self.server.kill()
                time.sleep(STOPPED_SECONDS)
                self.server.start()
            else:
                victim.kill()
            struck.kills += 1
            return "killed"
        return None

    @contextmanager
    def service(self) -> Iterator[Service]:
        """The service, in processes of its own; ends in good order if it has not been killed."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = self.program.fork("serve", "--port", str(port), **self.environment)
        service = Service(process, port, self)
        try:
            service.wait_until_it_answers()
            yield service
        finally:
            service.close()
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def new_name(self, work: Work) -> str:
        """A name that no job has yet."""
        self._number += 1
        return f"{work.kind.replace('_', '-')}-{self._number}"

    def command(self, work: Work, name: str) -> tuple[str, ...]:
        """The command that begins a work, or the one that goes on with it."""
        if not isinstance(work.command, str):
            return work.command
        if self.find(work, name) is not None:
            return (work.command, "--resume", name)
        config = self.program.folder / f"{name}.json"
        config.write_text(json.dumps({**work.request, "name": name}), "utf-8")
        return (work.command, "--config", str(config), *self._output(work, name))

    def request(self, work: Work, name: str) -> dict[str, Any]:
        """What the service is asked for a work; one whose result is a folder says where."""
        request = {**work.request}
        if work.kind != "evaluation":  # which have no names
            request["name"] = name
        if work.kind in {"distillation", "task_distillation"}:
            request["output"] = self._folder(name)
        return request

    def _output(self, work: Work, name: str) -> tuple[str, ...]:
        has_output = work.kind in {"distillation", "task_distillation", "pipeline"}
        return ("--output", self._folder(name)) if has_output else ()

    def _folder(self, name: str) -> str:
        return str(self.program.folder / "made" / name)

    def find(self, work: Work, name: str) -> str | None:
        """Id of a work's job, if there is one yet."""
        with self.database.read() as session:
            query = session.query(Job.id).filter(Job.kind == work.kind)
            if work.kind != "evaluation":  # which have no names; those before are deleted
                query = query.filter(Job.name == name)
            found: str | None = query.scalar()
        return found


class Service:
    """A service that runs; ``known`` are the processes below it when they were last looked at."""

    def __init__(self, process: Forked, port: int, ground: Ground) -> None:
        self._process, self._ground = process, ground
        self.known: list[psutil.Process] = []
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def close(self) -> None:
        """Close connections to it."""
        self._client.close()

    def wait_until_it_answers(self) -> None:
        """Wait until the service is ready.

        Raises:
            AssertionError: it ended.
        """
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            assert not self._process.has_ended, self._process.wait(0).err[-1500:]
            assert time.monotonic() < deadline, "the service does not answer"
            with suppress(httpx.TransportError):
                if self._client.get("/healthz").status_code == 200:
                    return
            time.sleep(0.05)

    def ask(self, work: Work, name: str) -> str:
        """Ask for a work; returns the id of its job."""
        answer = self._client.post(f"/api/v1/{work.path}", json=self._ground.request(work, name))
        assert answer.status_code == 202, answer.text
        made = answer.json()
        return str(made["items"][0]["id"] if "items" in made else made["id"])

    def status(self, job_id: str) -> dict[str, Any]:
        """What the service says of a job."""
        found: dict[str, Any] = self._client.get(f"/api/v1/jobs/{job_id}").json()
        return found

    def wait_until_over(self, job_id: str) -> str:
        """Wait until a job has come to an end; returns why it failed, empty if it succeeded."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while (job := self.status(job_id))["status"] not in {"succeeded", "failed"}:
            assert time.monotonic() < deadline, f"it hangs: {job['standing']}"
            time.sleep(0.05)
        return job["error"] or ""

    def resume(self, job_id: str) -> None:
        """Have a job gone on with that failed."""
        answer = self._client.patch(f"/api/v1/jobs/{job_id}", json={"action": "resume"})
        assert answer.status_code == 200, answer.text

    def is_over(self, job_id: str) -> bool:
        """Whether a job has succeeded.

        Raises:
            AssertionError: it came to something else.
        """
        job = self.status(job_id)
        if job["status"] == "failed" and DIED in job["error"]:
            self.resume(job_id)  # as it says itself: three kills at one place are one too many
            return False
        assert job["status"] in {"queued", "running", "succeeded"}, (
            f"{job['status']}: {job['error']}"
        )
        return bool(job["status"] == "succeeded")

    def wait_for_end(self, job_id: str) -> None:
        """Wait until a job has succeeded, and nothing of it runs any more."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while not self.is_over(job_id) or self.victims("runner"):
            assert time.monotonic() < deadline, f"it hangs: {self.status(job_id)['standing']}"
            time.sleep(0.05)

    def victims(self, target: Target) -> list[psutil.Process]:
        """Processes of a kind that live; notes which there are below the service, whatever kind."""
        itself = psutil.Process(self._process.pid)
        below = itself.children(recursive=True)
        self.known = below
        if target == "service":
            return [itself]
        if target == "postgres" and self._ground.server is not None:
            return [self._ground.server.process]
        beginning = {"runner": RUNNER, "ray worker": "ray::", "raylet": "raylet"}[target]
        return [one for one in below if words(one).startswith(beginning)]


def adopt_orphans() -> None:
    """Have processes below this one that lose their parent become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl was refused")


def descendants() -> list[psutil.Process]:
    """All processes below this one that live, but for those of PostgreSQL."""
    below = psutil.Process().children(recursive=True)
    return [one for one in below if words(one) and "postgres" not in words(one)]


def left_behind(before: set[int]) -> list[str]:
    """Words of processes below this one that are new, and do not end by themselves."""
    new = [one for one in descendants() if one.pid not in before]
    _, alive = psutil.wait_procs(new, LEFT_SECONDS)
    found = [words(one) for one in alive if words(one)]
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    return found


def words(process: psutil.Process) -> str:
    """What a process is called: its name, or its words on the command line; empty if it is dead."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        name, line = process.name(), process.cmdline()
    except psutil.Error:
        return ""
    return name if name in {RUNNER[:15], RUNNER, "raylet"} else " ".join(line)


def trained_twice(session: Session) -> int:
    """Candidates with more than one training that came to its end."""
    done = session.query(Attempt.candidate_id).filter(Attempt.outcome == "succeeded")
    return sum(number > 1 for number in Counter(row.candidate_id for row in done).values())
