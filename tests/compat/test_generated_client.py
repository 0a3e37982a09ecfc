"""A client that others generate from the OpenAPI document runs a search; nothing of it is missing.

It is generated in an environment of its own, since its dependencies are not ours.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from kdnas.specs.search import SearchSpec
from kdnas.testing.commands import Program

pytestmark = pytest.mark.compat

GENERATOR = "openapi-python-client==0.29.1"
SEARCH = """
import json, sys, time
from kdnas_client import Client
from kdnas_client.api.jobs import list_jobs, change_job
from kdnas_client.api.searches import create_search, list_candidates, read_search
from kdnas_client.models import JobChange, SearchSpec

url, request = sys.argv[1], json.load(open(sys.argv[2]))
client = Client(base_url=url, raise_on_unexpected_status=True)
made = create_search.sync(client=client, body=SearchSpec.from_dict(request))
change_job.sync(made.id, client=client, body=JobChange(labels=["generated"]))
deadline = time.monotonic() + 240
while True:
    found = read_search.sync(made.id, client=client)
    if found.status in {"succeeded", "failed", "cancelled"}:
        break
    assert time.monotonic() < deadline, found
    time.sleep(0.5)
(job,) = list_jobs.sync(client=client, label=["generated"]).items
candidates = list_candidates.sync(made.id, client=client, limit=100).items
print(json.dumps([found.status, job.name, len(candidates), found.best.architecture]))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program.make(tmp_path_factory.mktemp("generated"))


def test_a_generated_client_is_complete_and_runs_a_search(program: Program, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", GENERATOR, "ruff"], check=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    service = program.start("serve", "--port", str(port), KDNAS_DATA_ROOTS=str(program.folder))
    try:
        document = _document(url)
        (tmp_path / "openapi.json").write_text(json.dumps(document), "utf-8")
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        generator = python.with_name("openapi-python-client")
        generated = subprocess.run(
            [generator, "generate", "--path", "openapi.json", "--output-path", "client"],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "WARNING" not in generated.stdout + generated.stderr
        assert "Unable" not in generated.stdout + generated.stderr
        modules = {file.stem for file in (tmp_path / "client").rglob("api/*/*.py")}
        methods = [m for item in document["paths"].values() for m in item.values()]
        assert {method["operationId"] for method in methods} <= modules
        spec = yaml.safe_load((program.folder / "tiny.yaml").read_text("utf-8"))
        spec |= {"name": "by-a-client", "teacher": str(program.folder / "teacher")}
        spec["corpus"]["source"] = str(program.folder / "corpus.txt")
        request = tmp_path / "request.json"
        request.write_text(json.dumps(SearchSpec.read(spec, "test").to_json()), "utf-8")
        done = subprocess.run(
            [python, "-c", SEARCH, url, str(request)],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "client")},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        service.terminate()
        printed = service.communicate(timeout=30)
    assert done.returncode == 0, (done.stderr, printed)
    status, name, num_candidates, best = json.loads(done.stdout)
    assert (status, name, num_candidates) == ("succeeded", "by-a-client", 12)
    assert best.count(",") == 4


def _document(url: str) -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}/api/v1/openapi.json", timeout=5) as answer:
                document: dict[str, dict[str, dict[str, dict[str, str]]]] = json.load(answer)
                return document
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
