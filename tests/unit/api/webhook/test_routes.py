"""Who is told and what came of it, as the REST API says it."""

from __future__ import annotations

from dataclasses import replace

from fastapi.testclient import TestClient

from api.http.schemas import Page
from api.webhook.schemas import WebhookDeliveryDetail, WebhookDeliveryShape
from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.queue import coordinators
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import NewDelivery
from kdnas.db.repository import events, tokens, webhook_deliveries
from kdnas.settings import Settings
from kdnas.testing.job_rows import make_job

PATH = "/api/v1/webhook-deliveries"
URL = "https://example.org/hook"


def add(database: Database, job_id: str, event_id: int, detail: str | None = None) -> None:
    """Write a message; one with a detail is given up."""
    new = NewDelivery(
        event_id=event_id,
        type="search_status",
        kind="search",
        job_id=job_id,
        job_name=f"search-{event_id}",
        job_status="succeeded",
        body=f'{{"event": {event_id}}}',
        created_at=utc_now(),
    )
    with database.write() as session:
        webhook_deliveries.add_deliveries(session, [new], URL)
        if detail is not None:
            claimed = webhook_deliveries.claim_next(session, URL, 60.0)
            assert claimed is not None
            webhook_deliveries.settle(session, claimed, "given_up", detail, 0.0)


def test_who_is_told(client: TestClient, database: Database) -> None:
    assert client.get("/api/v1/webhook").json() == {"urls": []}
    with database.write() as session:
        owner = LeaseOwner.of_this_process("service")
        coordinators.note_alive(session, owner, 1, 0, webhook_url=URL)
    assert client.get("/api/v1/webhook").json() == {"urls": [URL]}


def test_messages_are_listed_and_read(client: TestClient, database: Database) -> None:
    assert client.get(PATH).json() == {"items": [], "next_cursor": None}
    job = make_job(database, name="there", status="failed")
    add(database, job, 1, "the receiver answered 410")
    add(database, "gone", 2)
    answer = client.get(PATH)
    page = Page[WebhookDeliveryShape].model_validate_json(answer.text)
    assert set(answer.json()["items"][0]) == set(WebhookDeliveryShape.model_fields)
    second, first = page.items
    assert (first.job_name, first.job_deleted, first.status) == ("there", False, "given_up")
    assert (first.detail, first.num_attempts) == ("the receiver answered 410", 1)
    assert (second.job_name, second.job_deleted, second.status) == ("search-2", True, "pending")
    for query, numbers in {
        "status=given_up": [1],
        "status=given_up&status=pending": [2, 1],
        "job=there": [1],
        "job=gone": [2],
        "job=nobody": [],
        "sort=created_at": [1, 2],
    }.items():
        items = client.get(f"{PATH}?{query}").json()["items"]
        assert [item["event_id"] for item in items] == numbers, query
    for wrong in ("status=lost", "sort=body", "colour=blue", "cursor=x"):
        assert client.get(f"{PATH}?{wrong}").status_code == 422, wrong
    read = WebhookDeliveryDetail.model_validate_json(client.get(f"{PATH}/{first.id}").text)
    assert read.message == {"event": 1}
    assert client.get(f"{PATH}/nobody").status_code == 404


def test_what_was_given_up_is_tried_again(client: TestClient, database: Database) -> None:
    add(database, "job", 1, "the receiver answered 410")
    (given_up,) = client.get(PATH).json()["items"]
    path = f"{PATH}/{given_up['id']}/retry"
    answer = client.post(path, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["finished_at"]) == ("pending", None)
    assert client.post(path).status_code == 409
    again = client.post(path, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")
    assert client.post(f"{PATH}/nobody/retry").status_code == 404
    with database.read() as session:
        assert webhook_deliveries.is_due(session)
        told = [e for e in events.events_since(session) if e.type == "webhook_retried"]
    (said,) = (event.payload for event in told)
    assert (said["delivery"], said["event"]) == (given_up["id"], 1)


def test_viewers_see_and_do_not_send(
    make_client: object, settings: Settings, database: Database
) -> None:
    assert callable(make_client)
    add(database, "job", 1, "the receiver answered 410")
    operator, viewer = "operator-token-123", "viewer-token-45678"
    client = make_client(replace(settings, operator_token=operator, viewer_token=viewer))
    headers = {"Authorization": f"Bearer {viewer}"}
    (item,) = client.get(PATH, headers=headers).json()["items"]
    path = f"{PATH}/{item['id']}/retry"
    assert client.post(path, headers=headers).status_code == 403
    assert client.get(PATH).status_code == 401
    with database.write() as session:
        _, token = tokens.create_token(session, "anna", "operator")
    assert client.post(path, headers={"Authorization": f"Bearer {token}"}).status_code == 202
    with database.read() as session:
        told = [e for e in events.events_since(session) if e.type == "webhook_retried"]
    assert [event.payload["by"] for event in told] == ["anna"]
