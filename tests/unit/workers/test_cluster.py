from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import ray

from kdnas.errors import BackendError, NotNowError, OutOfReachError
from workers.cluster import _quoted_python, cluster, environment


@pytest.mark.parametrize("address", [None, "auto", "127.0.0.1:6379", "ray://localhost:10001"])
def test_a_python_whose_path_has_a_space_is_quoted(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my work/.venv/bin/python")
    assert _quoted_python(address) == {"py_executable": "'/opt/my work/.venv/bin/python'"}
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert _quoted_python(address) is None


def test_other_machines_have_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my work/.venv/bin/python")
    assert _quoted_python("203.0.113.7:6379") is None


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_a_cluster_that_nobody_answers_for_may_come_back(address: str) -> None:
    with pytest.raises(OutOfReachError, match=f"'{address}' did not answer"), cluster(address):
        pass


def test_an_address_that_cannot_be_one_is_no_cluster_that_is_away() -> None:
    with pytest.raises(BackendError, match="an address is host:port") as caught, cluster("here"):
        pass
    assert not isinstance(caught.value, OutOfReachError)


def fail_to_start(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    """Let Ray fail; returns what is going to be asked of it, an address for each start."""
    starts: list[str] = []

    def init(**asked: Any) -> None:
        starts.append(asked["address"])
        raise error

    monkeypatch.setattr(ray, "init", init)
    return starts


def test_a_local_one_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is too busy for half a minute, which no test waits for, Ray says so."""
    late = Exception("The current node timed out\n during startup.")
    starts = fail_to_start(monkeypatch, late)
    said = (
        r"^a local Ray cluster did not start \(The current node timed out during startup\.\); try "
        "again when the machine is less busy, or do without a cluster: a search by "
        "`backend.name: local`, a distillation by one worker$"
    )
    with pytest.raises(NotNowError, match=said), cluster(None):
        pass
    assert starts == ["local"] * 2


def test_what_starting_again_does_not_mend_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = fail_to_start(monkeypatch, RuntimeError("the node's table is gone"))
    with pytest.raises(NotNowError, match="table is gone"), cluster(None):
        pass
    assert starts == ["local"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such option"),
        OSError("AF_UNIX path length cannot exceed 107 bytes"),
        PermissionError(13, "Permission denied", "/tmp/ray"),
    ],
)
def test_what_no_waiting_mends_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    starts = fail_to_start(monkeypatch, error)
    said = r"cannot be started \(.+\); mend that, or"
    with pytest.raises(BackendError, match=said) as caught, cluster(None):
        pass
    assert not isinstance(caught.value, NotNowError)
    assert starts == ["local"]


def test_a_node_that_does_not_answer_yet_may_be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_start(monkeypatch, ConnectionError("Could not find any running Ray instance"))
    with pytest.raises(NotNowError), cluster(None):
        pass


def test_variables_are_set_for_a_while_and_never_over_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KDNAS_TEST_MINE", "mine")
    with environment({"KDNAS_TEST_MINE": "theirs", "KDNAS_TEST_NEW": "1"}):
        assert (os.environ["KDNAS_TEST_MINE"], os.environ["KDNAS_TEST_NEW"]) == ("mine", "1")
    assert os.environ["KDNAS_TEST_MINE"] == "mine"
    assert "KDNAS_TEST_NEW" not in os.environ
