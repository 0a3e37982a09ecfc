"""The pictures of the documentation: ``KDNAS_SCREENSHOTS=docs/images pytest tests/browser``."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import MakeService, OpenPage, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.testing import demo_data, demo_pipelines

FOLDER = os.environ.get("KDNAS_SCREENSHOTS")
LARGEST_BYTES = 200_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(FOLDER is None, reason="KDNAS_SCREENSHOTS names no folder for pictures"),
]

COMPARED = "model=/data/models/student-5-ms&suite=glue&against=bert-base-uncased"
PICTURES = [
    ("searches", "/searches", 1280, 620, "light"),
    ("search", "/searches/under-8-ms", 1280, 1080, "light"),
    ("search-dark", "/searches/distil-bert-week-09", 1280, 1080, "dark"),
    ("search-phone", "/searches/under-8-ms", 390, 844, "light"),
    ("start-search", "/searches/new", 1280, 1080, "light"),
    (
        "compare",
        "/compare?search=distil-bert-week-09&search=random-baseline&search=under-8-ms",
        1280,
        1000,
        "light",
    ),
    ("distillation", "/distillations/student-8-ms", 1280, 900, "light"),
    ("distillation-phone", "/distillations/student-8-ms", 390, 844, "dark"),
    ("latency", "/latency", 1280, 900, "light"),
    ("evaluations", f"/evaluations?{COMPARED}", 1280, 1000, "light"),
    ("evaluations-phone", f"/evaluations?{COMPARED}", 390, 844, "dark"),
    ("start-evaluation", "/evaluations/new", 1280, 1000, "light"),
]


PIPELINE_PICTURES = [
    ("pipeline", "/pipelines/glue-students", 1280, 920, "light"),
    ("pipeline-phone", "/pipelines/glue-students", 390, 844, "dark"),
    ("pipelines", "/pipelines", 1280, 620, "light"),
    ("launch-pipeline", "/pipelines/new", 1280, 1080, "light"),
]


@pytest.mark.parametrize(("name", "path", "width", "height", "scheme"), PICTURES)
def test_picture(
    open_page: OpenPage,
    service: Service,
    name: str,
    path: str,
    width: int,
    height: int,
    scheme: str,
) -> None:
    take(open_page(width, height, scheme), service.url + path, name)


@pytest.fixture(scope="module")
def pipelines(make_service: MakeService) -> Service:
    """A service with pipelines at several stages."""
    made = make_service()
    now = datetime.now(UTC)
    add = partial(demo_pipelines.add_pipeline, made.database)
    search = partial(demo_data.add_search, made.database, episodes=6)
    searched = search("glue-students", began=now - timedelta(hours=10))
    add("glue-students", searched, home=made.home, began=now - timedelta(hours=9))
    searched = search("under-8-ms", began=now - timedelta(hours=5))
    add("under-8-ms", searched, stage="distillation", began=now - timedelta(hours=4))
    searched = search("tiny-ones", finished_episodes=3, began=now - timedelta(minutes=21))
    add("tiny-ones", searched, stage="search")
    made.start()
    return made


@pytest.mark.parametrize(("name", "path", "width", "height", "scheme"), PIPELINE_PICTURES)
def test_picture_of_pipelines(
    open_page: OpenPage,
    pipelines: Service,
    name: str,
    path: str,
    width: int,
    height: int,
    scheme: str,
) -> None:
    take(open_page(width, height, scheme), pipelines.url + path, name)


def take(page: Page, url: str, name: str) -> None:
    """Open a page, and keep a picture of it once all of it is there."""
    page.goto(url)
    expect(page.locator("main .skeleton")).to_have_count(0)
    expect(page.locator("#live:not([hidden]), #form button")).not_to_have_count(0)
    page.wait_for_timeout(1000)  # the last chart settles
    assert FOLDER is not None
    target = Path(FOLDER) / f"dashboard-{name}.png"
    page.screenshot(path=target)
    assert target.stat().st_size < LARGEST_BYTES
