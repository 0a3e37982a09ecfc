"""The runner opens and writes what a request names below the data roots alone, when it comes to it.

Each request here was fine when it came in: what it names was absent then, or is changed since.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from api.distillations import run as distillation_run
from api.jobs import runner
from api.jobs.children import child_environment
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import LatencyBuild
from kdnas.db.queue import claims
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import DistillationRecord, EvaluationRecord
from kdnas.db.repository import distillations, evaluations, jobs
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

ARCHITECTURE = "1,4,24,48,gelu"
SECRET = "hiddenword"


def write_text(file: Path, words: tuple[str, ...] = WORDS) -> None:
    draw = Random(0)
    lines = (" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(120))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.fixture(scope="module")
def made_teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("teacher"), words=(*WORDS, SECRET))


class Service:
    """A data root with all that work needs, a folder outside it, and rows that are worked on."""

    def __init__(self, folder: Path, database: Database, settings: Settings) -> None:
        self.root, self.outside = folder / "data", folder / "outside"
        self.database, self.settings = database, settings

    def distil(self, **changes: Any) -> DistillationRecord:
        """Let the runner do a distillation."""
        request = {
            "architecture": ARCHITECTURE,
            "teacher": str(self.root / "teacher"),
            "corpus": {"source": str(self.root / "texts"), "max_length": 16},
            "student": "random",
            "training": {"steps": 2, "batch_size": 8, "held_out": 8, "threads": 1, "device": "cpu"},
        }
        spec = DistillationSpec.read(request | changes, "test")
        with self.database.write() as session:
            made = distillations.create_distillation(
                session, spec.to_json(), spec.arch, owner_kind="service"
            )
            owner = LeaseOwner.of_this_process("service", "claim")
            assert claims.claim_next(session, ["distillation"], owner, 60)
        self.code = runner.run(made.id, "claim", self.settings, lambda: False)
        with self.database.read() as session:
            return distillations.get_distillation(session, made.id)

    def evaluate(self, **changes: Any) -> EvaluationRecord:
        """Let the runner do an evaluation."""
        request = {
            "model": str(self.root / "teacher"),
            "suite": "glue",
            "tasks": ["SST-2"],
            "data_dir": str(self.root / "glue"),
            "seeds": [0],
            "max_steps": 2,
            "batch_size": 8,
            "device": "cpu",
            "dtype": "float32",
            "latency": None,
        }
        spec = EvaluationSpec.read(request | changes, "test")
        pair = NewEvaluation("glue", "SST-2", 0, spec.to_json())
        with self.database.write() as session:
            (row_id,) = evaluations.create_evaluations(session, [pair], model=spec.model.ref)
            owner = LeaseOwner.of_this_process("service", "claim")
            assert claims.claim_next(session, ["evaluation"], owner, 60)
        self.code = runner.run(row_id, "claim", self.settings, lambda: False)
        with self.database.read() as session:
            return evaluations.get_evaluation(session, row_id)

    def refused(self, record: DistillationRecord | EvaluationRecord, path: Path) -> None:
        """Work failed since a path leads out, and its error tells nothing of what lies there."""
        assert (self.code, record.status) == (2, "failed")
        error = record.error or ""
        assert error.startswith(f"'{path}' leads out of the folders that requests may name (")
        assert str(self.root) in error
        assert error.endswith("or start the service with another KDNAS_DATA_ROOTS")
        assert str(self.outside) not in error
        assert SECRET not in error


@pytest.fixture
def service(
    tmp_path: Path, sqlite_template: Path, made_teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    shutil.copytree(made_teacher, tmp_path / "data" / "teacher")
    write_text(tmp_path / "data" / "texts" / "a.txt")
    write_sst2(tmp_path / "data" / "glue")
    shutil.copytree(made_teacher, tmp_path / "outside" / "teacher")
    write_text(tmp_path / "outside" / "texts" / f"{SECRET}.txt", (SECRET, "film", "the"))
    write_sst2(tmp_path / "outside" / "glue")
    (tmp_path / "outside" / "empty").mkdir()
    (tmp_path / "home").mkdir()
    shutil.copy(sqlite_template, tmp_path / "home" / "kdnas.db")
    home = str(tmp_path / "home")
    served = Settings.from_environment(
        {"KDNAS_HOME": home, "KDNAS_DATA_ROOTS": f"{tmp_path / 'data'}:s3://bucket"}
    )
    # As the coordinator starts a runner: all that it knows is in its environment.
    monkeypatch.delenv("KDNAS_DATA_ROOTS", raising=False)
    settings = Settings.from_environment(child_environment(served))
    with open_database(settings) as database:
        yield Service(tmp_path, database, settings)


def test_usual_work_is_done_links_within_the_roots_included(service: Service) -> None:
    root = service.root
    (root / "newest").symlink_to("teacher")
    (root / "more" / "deep").mkdir(parents=True)
    (root / "more" / "deep" / "b.txt").symlink_to(root / "texts" / "a.txt")
    (root / "more" / "c.txt").symlink_to("../texts/a.txt")
    (root / "students").mkdir()
    (root / "out").symlink_to("students")
    checkpoints = root / "out" / "checkpoints"
    record = service.distil(
        teacher=str(root / "newest"),
        corpus={"source": [str(root / "more"), f"{root}/mo*/*.txt"], "max_length": 16},
        output=str(root / "out" / "one"),
        training={
            **{"steps": 2, "batch_size": 8, "held_out": 8, "threads": 1, "device": "cpu"},
            "checkpoints": str(checkpoints),
        },
    )
    assert (service.code, record.status, record.error) == (0, "succeeded", None)
    student = root / "students" / "one"
    assert (student / "model.safetensors").is_file()
    assert (student / "tensorboard").is_dir()
    assert sorted(p.name for p in student.parent.iterdir()) == ["checkpoints", "one"]
    assert list(checkpoints.iterdir()) == []  # they were there, and have been removed
    scored = service.evaluate(model=str(root / "out" / "one"))
    assert (service.code, scored.status, scored.error) == (0, "succeeded", None)
    assert "Scores over glue" in (student / "README.md").read_text("utf-8")
    assert not (student / "manifest.json").exists()


def test_a_student_of_the_default_place_is_evaluated(service: Service) -> None:
    record = service.distil()
    assert record.output_path == str(service.settings.home / "students" / record.id)
    scored = service.evaluate(model=record.output_path)
    assert (service.code, scored.status, scored.error) == (0, "succeeded", None)
    assert "Scores over glue" in Path(record.output_path, "README.md").read_text("utf-8")


def test_a_student_that_a_command_put_elsewhere_is_evaluated(service: Service) -> None:
    """Its run was named in the request; a folder that nobody has made so is out of reach."""
    folder = service.outside / "teacher"
    service.evaluate(model=str(folder))
    assert service.code == 2
    spec = DistillationSpec.read({"architecture": ARCHITECTURE}, "test")
    with service.database.write() as session:
        made = distillations.create_distillation(
            session, spec.to_json(), spec.arch, owner_kind="cli"
        )
        distillations.set_distillation_result(session, made.id, metrics={}, output_path=str(folder))
    assert service.evaluate(model=str(folder)).status == "succeeded"


def test_a_teacher_that_came_as_a_link(service: Service) -> None:
    path = service.root / "later"
    path.symlink_to(service.outside / "teacher")
    service.refused(service.distil(teacher=str(path)), path)
    service.refused(service.evaluate(model=str(path)), path)
    student = {"init": "random", "init_from": str(path)}
    service.refused(service.distil(student=student), path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_of_a_teacher_that_is_a_link(service: Service, name: str) -> None:
    path = service.root / "teacher" / name
    path.unlink()
    path.symlink_to(service.outside / "teacher" / name)
    service.refused(service.distil(), path)


def test_the_teacher_of_a_latency_table(service: Service) -> None:
    path = service.root / "later"
    path.symlink_to(service.outside / "teacher")
    with service.database.write() as session:
        build_id = jobs.add_job(
            session, LatencyBuild, {"teacher": {"ref": str(path)}}, stem="latency"
        ).id
        owner = LeaseOwner.of_this_process("service", "claim")
        assert claims.claim_next(session, ["latency_build"], owner, 60)
    assert runner.run(build_id, "claim", service.settings, lambda: False) == 2
    with service.database.read() as session:
        error = jobs.get_job(session, build_id, LatencyBuild).error or ""
    assert error.startswith(f"'{path}' leads out of the folders")


@pytest.mark.parametrize("source", ["later", "later/*.txt", "later/{secret}.txt"])
def test_a_corpus_that_came_as_a_link(service: Service, source: str) -> None:
    path = service.root / "later"
    path.symlink_to(service.outside / "texts")
    named = service.root / source.format(secret=SECRET)
    service.refused(service.distil(corpus={"source": str(named), "max_length": 16}), path)


def test_a_link_in_a_corpus_folder(service: Service) -> None:
    path = service.root / "texts" / "b.txt"
    path.symlink_to(service.outside / "texts" / f"{SECRET}.txt")
    service.refused(service.distil(), path)


def test_a_corpus_folder_that_is_swapped_while_it_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is so at any of the moments when something of it was looked up and is opened next."""
    folder, file = service.root / "texts", service.root / "texts" / f"{SECRET}.txt"
    (folder / "a.txt").rename(file)
    usual, seen = os.path.realpath, 0

    for moment in range(1, 8):
        seen = 0

        def realpath(path: Any, moment: int = moment, **options: Any) -> str:
            nonlocal seen
            found = str(usual(path, **options))
            if Path(path) == file:
                seen += 1
                if seen == moment:
                    folder.rename(service.root / "was")
                    folder.symlink_to(service.outside / "texts")
            return found

        with monkeypatch.context() as patched:
            patched.setattr(os.path, "realpath", realpath)
            record = service.distil(
                corpus={"source": str(folder), "max_length": 16, "seed": moment}
            )
        if not folder.is_symlink():
            assert record.status == "succeeded"
            break
        service.refused(record, folder)
        folder.unlink()
        (service.root / "was").rename(folder)
    assert moment > 4  # it is opened again and again


def test_a_folder_in_the_place_of_a_hub_data_set(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(service.outside.parent)
    record = service.distil(corpus={"source": "hub:outside/texts", "max_length": 16})
    assert (service.code, record.status) == (2, "failed")
    assert "'hub:outside/texts' is a folder where the service runs" in (record.error or "")


@pytest.mark.parametrize("name", ["glue", "glue/SST-2", "glue/SST-2/dev.tsv"])
def test_evaluation_data_that_are_a_link(service: Service, name: str) -> None:
    path = service.root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(service.outside / name)
    service.refused(service.evaluate(), path)
    service.refused(service.evaluate(tasks=[], data_dir=str(service.root / "glue")), path)


def test_evaluation_data_that_are_swapped_after_the_first_reading(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = service.root / "glue" / "SST-2", service.root / "glue" / "SST-2" / "train.tsv"
    usual, seen = os.path.realpath, 0

    def realpath(path: Any, **options: Any) -> str:
        nonlocal seen
        found = str(usual(path, **options))
        if Path(path) == file:
            seen += 1
            if seen == 2:
                folder.rename(service.root / "was")
                folder.symlink_to(service.outside / "glue" / "SST-2")
        return found

    monkeypatch.setattr(os.path, "realpath", realpath)
    service.refused(service.evaluate(), folder)
    assert seen >= 2


@pytest.mark.parametrize("output", ["later", "later/one"])
def test_an_output_folder_that_came_as_a_link(service: Service, output: str) -> None:
    path = service.root / "later"
    path.symlink_to(service.outside / "empty")
    service.refused(service.distil(output=str(service.root / output)), path)
    assert list((service.outside / "empty").iterdir()) == []


def test_an_output_folder_that_is_swapped_at_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A student takes hours, in which the folder above its place may become another one."""
    (service.root / "students").mkdir()
    train = distillation_run._run

    def trained(*arguments: Any) -> None:
        train(*arguments)
        (service.root / "students").rename(service.root / "was")
        (service.root / "students").symlink_to(service.outside / "empty")

    monkeypatch.setattr(distillation_run, "_run", trained)
    record = service.distil(output=str(service.root / "students" / "one"))
    service.refused(record, service.root / "students")
    assert list((service.outside / "empty").iterdir()) == []


def test_checkpoints_whose_folder_came_as_a_link(service: Service) -> None:
    path = service.root / "later"
    path.symlink_to(service.outside / "empty")
    training = {"steps": 2, "batch_size": 8, "held_out": 8, "checkpoints": str(path)}
    service.refused(service.distil(training=training), path)
    assert list((service.outside / "empty").iterdir()) == []


def test_a_card_that_is_a_link_is_neither_read_nor_written(service: Service) -> None:
    student, secret = service.root / "teacher", service.outside / "card.md"
    (student / "run.json").write_text(json.dumps({"distillation_id": "unknown"}))
    secret.write_text(f"{SECRET}\n## Use\n")
    (student / "README.md").symlink_to(secret)
    record = service.evaluate()
    assert (service.code, record.status) == (0, "succeeded")  # the scores are safe elsewhere
    assert (student / "README.md").is_symlink()
    assert secret.read_text() == f"{SECRET}\n## Use\n"
