"""Reading a job's log over REST: its last lines, what is new, and jobs that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from api.logs.job_log import JobLog
from kdnas.db.engine import Database
from kdnas.db.repository import jobs, pipelines, searches
from kdnas.settings import Settings

MakeClient = Callable[[Settings], TestClient]
LOG = b"=== run 1 began now on host, process 1 ===\n" + b"".join(
    b"line %d \xc3\xa9\n" % number for number in range(2000)
)


def queue(database: Database, name: str = "mine") -> str:
    with database.write() as session:
        return searches.create_search(session, {}, name=name, owner_kind="service").id


@pytest.fixture
def job_id(database: Database, settings: Settings) -> str:
    """A job with a log that another machine has published."""
    made = queue(database)
    JobLog.of(settings, made).publish(LOG)
    return made


def test_the_last_lines(client: TestClient, job_id: str) -> None:
    answer = client.get(f"/api/v1/jobs/{job_id}/log")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["Kdnas-Log-Offset"] == str(len(LOG))
    assert answer.text.splitlines() == LOG.decode().splitlines()[-1000:]
    by_name = client.get("/api/v1/jobs/mine/log?tail=2")
    assert by_name.text == "line 1998 é\nline 1999 é\n"
    assert client.get("/api/v1/jobs/mine/log?tail=10000").content == LOG


def test_following(client: TestClient, settings: Settings, job_id: str) -> None:
    path = f"/api/v1/jobs/{job_id}/log"
    first = client.get(path)
    following = {"after": first.headers["Kdnas-Log-Offset"]}
    assert client.get(path, params=following).text == ""
    JobLog.of(settings, job_id).publish(LOG + b"news\n")
    more = client.get(path, params=following)
    assert more.text == "news\n"
    assert more.headers["Kdnas-Log-Offset"] == str(len(LOG) + 5)
    ahead = client.get(path, params={"after": len(LOG) + 100})  # of a reader who knows more
    assert (ahead.text, ahead.headers["Kdnas-Log-Offset"]) == ("", str(len(LOG) + 100))
    assert client.get(path, params={"after": 0}).content == LOG + b"news\n"
    both = client.get(path, params={"after": 0, "tail": 2})
    assert both.text == "line 1999 é\nnews\n"
    assert both.headers["Kdnas-Log-Offset"] == str(len(LOG) + 5)


@pytest.mark.parametrize("query", ["tail=0", "tail=10001", "after=-1", "after=x"])
def test_wrong_questions(client: TestClient, job_id: str, query: str) -> None:
    answer = client.get(f"/api/v1/jobs/{job_id}/log?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_job_that_has_not_begun_has_an_empty_log(client: TestClient, database: Database) -> None:
    answer = client.get(f"/api/v1/jobs/{queue(database)}/log")
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["Kdnas-Log-Offset"] == "0"


def test_a_job_that_has_ended_without_one_says_so(client: TestClient, database: Database) -> None:
    made = queue(database)
    with database.write() as session:
        jobs.set_status(session, made, "cancelled")
    answer = client.get(f"/api/v1/jobs/{made}/log")
    assert answer.status_code == 404
    assert f"there is no log of job '{made}' in the store" in answer.json()["detail"]


def test_a_job_of_the_command_line_has_none(client: TestClient, database: Database) -> None:
    with database.write() as session:
        searches.create_search(session, {}, name="typed")
    answer = client.get("/api/v1/jobs/typed/log")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("search 'typed' was started on the command line")


def test_a_pipeline_names_its_parts(client: TestClient, database: Database) -> None:
    with database.write() as session:
        pipelines.create_pipeline(session, {}, name="whole", owner_kind="service")
    answer = client.get("/api/v1/jobs/whole/log")
    assert answer.status_code == 404
    assert "its parts have, the jobs with whole as parent" in answer.json()["detail"]


def test_an_unknown_job(client: TestClient) -> None:
    assert client.get("/api/v1/jobs/unknown/log").status_code == 404


def test_a_viewer_may_read_it(settings: Settings, make_client: MakeClient, job_id: str) -> None:
    operator, viewer = "operator-token-0123456789", "viewer-token-0123456789"
    client = make_client(replace(settings, operator_token=operator, viewer_token=viewer))
    path = f"/api/v1/jobs/{job_id}/log"
    assert client.get(path).status_code == 401
    answer = client.get(path, headers={"Authorization": f"Bearer {viewer}"})
    assert (answer.status_code, answer.text[-12:]) == (200, "line 1999 é\n")


@pytest.mark.databases("sqlite", "postgresql")
def test_a_deleted_job_leaves_no_log(
    client: TestClient, settings: Settings, database: Database, job_id: str
) -> None:
    with database.write() as session:
        jobs.set_status(session, job_id, "cancelled")
    assert client.delete(f"/api/v1/searches/{job_id}").status_code == 204
    assert JobLog.of(settings, job_id).read() is None


def test_it_is_described(client: TestClient) -> None:
    described = client.get("/api/v1/openapi.json").json()["paths"]["/api/v1/jobs/{job}/log"]["get"]
    answer = described["responses"]["200"]
    assert list(answer["content"]) == ["text/plain"]
    assert "Kdnas-Log-Offset" in answer["headers"]
    assert {parameter["name"] for parameter in described["parameters"]} == {"job", "tail", "after"}
