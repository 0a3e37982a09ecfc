"""docker-compose.yml and Dockerfile, as far as they can be checked without an engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SECRETS = ("KDNAS_DB_PASSWORD", "KDNAS_OPERATOR_TOKEN", "KDNAS_RAY_TOKEN")


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """The command of the program, whichever of the two is here."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    ):
        return ["docker", "compose"]
    pytest.skip("neither docker-compose nor docker compose is installed")


def config(
    compose: list[str], *profiles: str, without: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {name: f"{name}-value" for name in SECRETS if name != without}
    chosen = [part for profile in profiles for part in ("--profile", profile)]
    return subprocess.run(
        [*compose, "--file", "docker-compose.yml", *chosen, "config"],
        cwd=ROOT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return found


def test_the_program_takes_it(compose: list[str], written: dict[str, Any]) -> None:
    done = config(compose, "gpu")
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(written["services"])
    profiles = {name: s["profiles"] for name, s in written["services"].items() if "profiles" in s}
    assert profiles == {"ray-worker-gpu": ["gpu"]}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_missing_secret_is_refused_in_words(compose: list[str], secret: str) -> None:
    done = config(compose, without=secret)
    assert done.returncode != 0
    assert f"set {secret} to a long random value in .env" in done.stderr


def test_the_database_is_reached_by_nobody_who_does_not_need_it(written: dict[str, Any]) -> None:
    services = written["services"]
    assert written["networks"]["data"] == {"internal": True}
    assert {name for name, service in services.items() if "data" in service["networks"]} == {
        *("db", "migrate", "api")
    }
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
    assert services["api"]["ports"] == ["${KDNAS_BIND:-127.0.0.1}:${KDNAS_PORT:-8000}:8000"]


def test_who_trains_and_who_measures_share_their_locks(written: dict[str, Any]) -> None:
    image = (ROOT / "Dockerfile").read_text("utf-8")
    for name in ("api", "ray-worker", "ray-worker-gpu"):
        service = written["services"][name]
        folder = service["environment"]["KDNAS_LOCKS"]
        assert f"locks:{folder}" in service["volumes"]
        assert f" {folder}\n" in image  # which makes it the user's


def test_who_waits_for_whom(written: dict[str, Any]) -> None:
    services = written["services"]
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert services["api"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "ray-head": {"condition": "service_healthy"},
    }
    for name in ("db", "api", "ray-head"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"


def test_the_image_has_no_root_and_all_that_the_package_is_made_of(written: dict[str, Any]) -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    stages = text.split("\nFROM ")
    assert len(stages) == 3  # the head comment, the stage that builds, the one that is kept
    assert re.findall(r"^USER (\w+)$", stages[-1], re.MULTILINE) == ["kdnas"]
    assert "pip install" not in stages[-1]
    allowed = (ROOT / ".dockerignore").read_text("utf-8")
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists()
            assert f"!{name}\n" in allowed


def test_the_example_names_every_variable(written: dict[str, Any]) -> None:
    example = (ROOT / ".env.example").read_text("utf-8")
    used = set(re.findall(r"\$\{(\w+)", json.dumps(written)))
    assert used - {"KDNAS_STORE"} == set(re.findall(r"^(\w+)=", example, re.MULTILINE))
