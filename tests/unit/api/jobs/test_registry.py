"""Kinds of jobs: ours, those of packages, and that nobody else asks which kind a job is of."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import api
from api.jobs.registry import kind_named, kinds
from kdnas.errors import SpecError

ROOT = Path(api.__file__).parent.parent

COUNTING = '''
"""A kind of job that counts."""

from sqlalchemy.orm import Mapped

from api.jobs.kind import JobKind
from kdnas.db.models import Job
from kdnas.db.models.jobs import job_key


class Count(Job):
    __tablename__ = "counts"
    __mapper_args__ = {"polymorphic_identity": "count"}

    id: Mapped[str] = job_key()
    unit: Mapped[str]

    @property
    def outcome(self):
        return {**super().outcome, "unit": self.unit}


def run(context):
    for number in range(1, context.spec["to"] + 1):
        context.check()
        context.phase(f"counting: {number}")
        context.progress(number, context.spec["to"])
        context.event("counted", {"number": number})
    context.warn("that was all")


KIND = JobKind(table=Count, plural="counts", run=run)
'''

COUNTED = '''
"""Counts to three as the service does, and reads that over REST."""

import sys

from fastapi.testclient import TestClient

from api.http.app import create_app
from api.jobs import runner
from api.jobs.registry import kinds
from kdnas.db.migrate import open_database
from kdnas.db.models import Job
from kdnas.db.queue import claims
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository.jobs import add_job
from kdnas.settings import Settings

*ours, last = kinds()
assert last == "count" and "search" in ours, list(kinds())
table = kinds()["count"].table
settings = Settings.from_environment()
with open_database(settings) as database:
    with database.write() as session:
        table.__table__.create(session.connection())
        made = add_job(session, table, {"to": 3}, name="to-three", unit="sheep").id
    owner = LeaseOwner.of_this_process("service")
    with database.write() as session:
        assert claims.claim_next(session, ["count"], owner, 60).job_id == made
    assert runner.run(made, owner.token, settings, lambda: False) == 0
    with database.read() as session:
        assert session.get_one(Job, made).outcome == {
            "id": made, "name": "to-three", "unit": "sheep"
        }
    app = create_app(settings, database, coordinator=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        (found,) = client.get("/api/v1/jobs?kind=count").json()["items"]
        assert (found["status"], found["done"], found["total"]) == ("succeeded", 3, 3), found
        one = client.get("/api/v1/jobs/to-three").json()
        assert (one["requested"], one["href"]) == ({"to": 3}, f"/jobs/{made}")
        assert client.get("/api/v1/counts/to-three").json() == one
        assert client.patch("/api/v1/jobs/to-three", json={"note": "fine"}).status_code == 200
        assert client.delete("/api/v1/jobs/to-three").status_code == 204
    with database.read() as session:
        assert session.get(Job, made) is None
print("counted")
'''


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    kinds.cache_clear()
    yield
    kinds.cache_clear()


def install(folder: Path, entry: str, module: str = "") -> None:
    """What an installer leaves of a package with one entry point and one module."""
    about = folder / "kdnas_counting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kdnas-counting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[kdnas.job_kinds]\ncounting = {entry}\n")
    (folder / "kdnas_counting.py").write_text(module)


def test_ours_are_there() -> None:
    found = kinds()
    ours = ["search", "sweep", "distillation", "task_distillation", "evaluation"]
    assert list(found) == [*ours, "pipeline", "latency_build"]
    assert {kind.path for kind in found.values()} == {
        "searches",
        "sweeps",
        "distillations",
        "task-distillations",
        "evaluations",
        "pipelines",
        "latency-builds",
    }
    for name, kind in found.items():
        assert kind.name == name
        assert kind is kind_named(name)
        assert kind.routers
        assert (kind.run is None) == (name == "pipeline")


def test_an_unknown_kind_says_which_is_nearest() -> None:
    with pytest.raises(SpecError, match=r"unknown kind of job 'evaluatoin', did you mean 'evalu"):
        kind_named("evaluatoin")


def test_a_package_adds_a_kind_that_is_run_listed_and_deleted(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """In a process of its own, since a table once known to SQLAlchemy stays so."""
    install(tmp_path, "kdnas_counting:KIND", COUNTING)
    home = tmp_path / "home"
    home.mkdir()
    (home / "kdnas.db").write_bytes(sqlite_template.read_bytes())
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", COUNTED],
        env=os.environ | {"PYTHONPATH": path, "KDNAS_HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "counted"


@pytest.mark.parametrize(
    ("entry", "module", "said"),
    [
        ("kdnas_counting:KIND", "KIND = 'count'", "names no new kind of job"),
        (
            "kdnas_counting:KIND",
            "from api.searches.kind import KIND",  # a second search
            "names no new kind of job",
        ),
        ("kdnas_counting:KIND", "", "cannot be loaded: "),
        ("kdnas_counting:KIND", "import nothing_of_the_kind", "cannot be loaded: No module named"),
        ("nothing_of_the_kind:KIND", "", "cannot be loaded: No module named"),
    ],
)
def test_a_broken_package_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, module: str, said: str
) -> None:
    install(tmp_path, entry, module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kdnas_counting", raising=False)
    with pytest.raises(SpecError) as raised:
        kinds()
    assert str(raised.value).startswith(
        f"entry point 'counting' of kdnas.job_kinds ({entry}) {said}"
    )
    assert str(raised.value).endswith("; correct or remove its package")
    sys.modules.pop("kdnas_counting", None)


TABLES = frozenset(
    {
        *("Search", "Sweep", "Distillation", "Evaluation"),
        *("LatencyBuild", "Pipeline", "TaskDistillation"),
    }
)
RECORDS = frozenset({"SearchRecord", "DistillationRecord", "EvaluationRecord", "PipelineRecord"})
NAMES = frozenset(
    {
        *("search", "sweep", "distillation", "evaluation"),
        *("latency_build", "pipeline", "task_distillation"),
    }
)


def asked_for(tree: ast.AST) -> Iterator[str]:
    """Kinds that ``isinstance``, ``match`` or a comparison in some code asks for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"isinstance", "issubclass"}:
                yield from _kinds_in(node.args[1])
        elif isinstance(node, ast.Compare):
            for operand in (node.left, *node.comparators):
                if isinstance(operand, ast.Constant | ast.Name | ast.Tuple | ast.List | ast.Set):
                    yield from _kinds_in(operand)
                elif isinstance(operand, ast.Attribute) and operand.attr in TABLES:
                    yield operand.attr
        elif isinstance(node, ast.match_case):
            yield from _kinds_in(node.pattern)


def _kinds_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield str(node.value)
        elif isinstance(node, ast.Name) and node.id in TABLES | RECORDS:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in TABLES | RECORDS:
            yield node.attr


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("isinstance(row, Search)", ["Search"]),
        ("isinstance(row, (models.Search, Pipeline))", ["Pipeline", "Search"]),
        ("isinstance(row, Search | Pipeline)", ["Pipeline", "Search"]),
        ("type(row) is Evaluation", ["Evaluation"]),
        ("if row.kind == 'search': pass", ["search"]),
        ("if kind in {'search', 'pipeline'}: pass", ["pipeline", "search"]),
        ("match row:\n    case LatencyBuild(): pass", ["LatencyBuild"]),
        ("match row.kind:\n    case 'search' | 'pipeline': pass", ["pipeline", "search"]),
        ("select(Search).where(Search.status == 'queued')", []),
        ("jobs.get_job(session, reference, Search)", []),
    ],
)
def test_what_counts_as_asking(code: str, found: list[str]) -> None:
    assert sorted(asked_for(ast.parse(code))) == found


def test_nobody_asks_which_kind_a_job_is_of() -> None:
    """What differs between kinds stands in their :class:`JobKind` and their table."""
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in ("api", "kdnas/db", "kdnas/cli")
        for path in (ROOT / folder).rglob("*.py")
        for name in asked_for(ast.parse(path.read_text(encoding="utf-8")))
        if not _is_its_own(path.relative_to(ROOT), name)
    }
    assert found == set()


def _is_its_own(path: Path, name: str) -> bool:
    """Whether a file is of the room of a kind, or of its part of a folder for all kinds."""
    noun = name.removesuffix("Record").lower().replace("_", "").removesuffix("h")  # searc-h, -hes
    return any(part.replace("_", "").startswith(noun) for part in path.parts)
