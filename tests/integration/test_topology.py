"""The service on a cluster whose nodes share nothing with it but database and store.

The processes of docker-compose.yml by hand: PostgreSQL, a head that offers no cores, a node with a
home of its own, and the service. The node comes last, so work has to wait for it.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from kdnas.db.migrate import upgrade
from kdnas.testing.commands import Program

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.ray]

END_SECONDS = 3.0
SMALL = "1,2,24,48,gelu"


class Topology:
    """Who runs where.

    Attributes:
        program: the service's side: its home, and the teacher and the corpus of the requests.
        node_home: ``KDNAS_HOME`` of the cluster's node.
        shared: the disk on which the store lies. Its URL is none of a plain folder, so that a node
            has to fetch what it needs, as from an object store.
    """

    def __init__(self, folder: Path, database_url: str, ray_home: Path) -> None:
        for name in ("driver", "node", "shared"):
            (folder / name).mkdir()
        self.program = Program.make(folder / "driver")
        self.node_home = folder / "node" / "home"
        self.shared = folder / "shared"
        self.address = f"127.0.0.1:{_free_port()}"
        self.url = ""
        self._folder, self._stack = folder, ExitStack()
        self._ray = {
            "HOME": str(ray_home),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "a-token-of-this-test-only-0123456789",
        }
        self._common = {"KDNAS_STORE": f"dir://store::file://{self.shared}", **self._ray}
        self._service = {"KDNAS_DATABASE_URL": database_url, "KDNAS_DATA_ROOTS": str(folder)}

    def __enter__(self) -> Topology:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_head(self) -> None:
        port = self.address.rpartition(":")[2]
        options = ("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
        temporary = self._stack.enter_context(_short_folder())
        self._start("head", *_ray_start(*options, f"--temp-dir={temporary}"), **self._ray)

    def start_node(self) -> None:
        options = (f"--address={self.address}", "--num-cpus=2")
        home = {"KDNAS_HOME": str(self.node_home)}
        self._start("node", *_ray_start(*options), **self._common, **home)

    def start_service(self) -> None:
        kdnas = (sys.executable, "-c", "from kdnas.cli.main import main; main()")
        options = ("serve", "--port", "0", "--ray-address", self.address)
        process = self._start("service", *kdnas, *options, **self._common, **self._service)
        found: list[str] = []

        def listens() -> bool:
            assert process.poll() is None, self.log("service")
            found.extend(re.findall(r"listens on (http://\S+)", self.log("service")))
            return bool(found)

        wait_for(listens, 60)
        self.url = found[0].rstrip("/") + "/api/v1"

    def _start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in self.program.environment.items() if not k.startswith("RAY_")}
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder / ("node" if name != "service" else "driver"),
                env=kept | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._stack.callback(_end, process)
        return process

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def get(self, path: str) -> Any:
        return self._ask(Request(self.url + path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        return self._ask(Request(self.url + path, json.dumps(body).encode(), headers))

    def _ask(self, request: Request) -> Any:
        try:
            with urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def events(self) -> str:
        """The stream of events so far, as it comes."""
        read = b""
        with (
            suppress(TimeoutError),
            urlopen(Request(f"{self.url}/events?since=0"), timeout=2) as stream,
        ):
            while line := stream.readline():
                read += line
        return read.decode()


def _ray_start(*options: str) -> tuple[str, ...]:
    ray = str(Path(sys.executable).with_name("ray"))
    memory = "--object-store-memory=100000000"
    return (ray, "start", *options, "--num-gpus=0", memory, "--disable-usage-stats", "--block")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _short_folder() -> Iterator[Path]:
    """For Ray's sockets, whose paths must not be long."""
    folder = Path(tempfile.mkdtemp(prefix="kdnas-ray-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started, however it takes it."""
    family = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    for left in family:
        with suppress(psutil.NoSuchProcess):
            left.kill()
    if process.poll() is None:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def search_spec(program: Program) -> dict[str, Any]:
    axes = {"layers": [1], "heads": [2], "hidden": [24, 48], "intermediate": [48]}
    return {
        "name": "far-away",
        "teacher": str(program.folder / "teacher"),
        "corpus": {"source": [str(program.folder / "corpus.txt")], "max_length": 16},
        "space": {"axes": axes},
        "proxy": {
            "steps": 6,
            "batch_size": 8,
            "learning_rate": 2e-2,
            "held_out": 16,
            "fraction": 0.5,
        },
        "controller": {"episodes": 1, "candidates": 2},
        "latency": {"length": 8, "budget_seconds": 1},
        "backend": {"name": "ray", "threads": 1},
    }


def distillation_spec(program: Program) -> dict[str, Any]:
    search = search_spec(program)
    return {
        "name": "far-away",
        "teacher": search["teacher"],
        "corpus": search["corpus"],
        "architecture": SMALL,
        "training": {
            "steps": 90,
            "batch_size": 8,
            "held_out": 16,
            "checkpoint_every": 30,
            "threads": 1,
        },
    }


@pytest.fixture
def topology(tmp_path: Path, postgres_url: str, ray_home: Path) -> Iterator[Topology]:
    upgrade(postgres_url)
    with Topology(tmp_path, postgres_url, ray_home) as made:
        try:
            yield made
        finally:
            lines = made.log("service").splitlines()
            print("\n".join(line for line in lines if '"event": "request"' not in line))


def test_work_goes_to_a_node_that_shares_only_the_store(topology: Topology) -> None:
    here = topology
    here.start_head()
    here.start_service()
    # The cluster has no cores yet: work waits, and does not fail.
    distillation_id = here.post("/distillations", distillation_spec(here.program))["id"]
    wait_for(lambda: "waiting for room: the Ray cluster at" in here.events())
    here.start_node()
    search_id = here.post("/searches", search_spec(here.program))["id"]
    search, distillation = f"/searches/{search_id}", f"/distillations/{distillation_id}"

    def read(path: str) -> Any:
        found = here.get(path)
        assert found["status"] in {"queued", "running", "succeeded"}, found
        return found

    # Once teacher and corpus are in the store, nobody needs what lies on the service's side.
    def pinned(path: str) -> tuple[str, str] | None:
        spec = read(path)["spec"]
        found = [spec[part].get("fingerprint") for part in ("teacher", "corpus")]
        return (found[0], found[1]) if all(found) else None

    wait_for(lambda: bool(pinned(search) and pinned(distillation)))
    inputs = pinned(distillation)
    assert inputs is not None
    assert pinned(search) == inputs
    shutil.rmtree(here.program.folder / "teacher")
    (here.program.folder / "corpus.txt").unlink()

    checkpoints = here.shared / "store" / "checkpoints" / distillation_id
    seen: set[str] = set()

    def ended(path: str) -> bool:
        seen.update(folder.name for folder in checkpoints.glob("step-*"))
        return bool(read(path)["status"] == "succeeded")

    wait_for(lambda: ended(distillation) and ended(search))
    assert seen
    wait_for(lambda: not checkpoints.exists())
    run_folder = here.program.folder / "home" / "distillations" / distillation_id
    wait_for(lambda: not run_folder.exists())
    for kind, fingerprint in zip(("teacher", "corpus"), inputs, strict=True):
        assert (here.node_home / "cache" / kind / fingerprint / "manifest.json").is_file()

    found = here.get(distillation)
    assert (found["done"], found["total"]) == (90, 90)
    place = f"dir://store/checkpoints::file://{here.shared}"
    assert found["spec"]["training"]["checkpoints"] == place
    rows = here.get(f"{search}/candidates")["items"]
    assert {row["status"] for row in rows} == {"succeeded"}
    assert len(rows) == 2
    told = ""

    def is_whole() -> bool:
        nonlocal told
        told = here.events()
        ends = r'event: (distillation|search)_status\ndata: [^\n]*"succeeded"'
        return len(re.findall(ends, told)) == 2

    wait_for(is_whole, 60)
    assert "waiting for room: the Ray cluster at" in told
    assert "_interrupted" not in told

    from transformers import AutoModel

    student = AutoModel.from_pretrained(found["output"])
    assert student.config.num_hidden_layers == 1
