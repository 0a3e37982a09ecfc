"""The README's pictures of the dashboard, from a service that has done real work.

    kdnas serve                      # in another terminal, with a pipeline whose students are made
    python benchmarks/dashboard_pictures.py http://127.0.0.1:8000 --output docs/images

They show its newest pipeline: that, its search, its recommended student's distillation and scores,
and the list of all jobs. Chromium is found where the system has it, or named by CHROMIUM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from playwright.sync_api import BrowserContext, expect, sync_playwright

DESK, PHONE = 1280, 390
LARGEST_BYTES = 200_000
PATIENCE_MS = 30_000
SETTLING_MS = 1500
"""The last chart is drawn by then."""

Scheme = Literal["light", "dark"]
Picture = tuple[str, str, int, int, Scheme]
"""Name, path, width and height in pixels, colour scheme."""


def pictures(url: str) -> list[Picture]:
    """What is to be shown of a service.

    Raises:
        SystemExit: it has no pipeline.
    """
    done = _get(url, "pipelines?limit=1")["items"]
    if not done:
        sys.exit(f"{url} has no pipeline; launch one there")
    pipeline = _get(url, f"pipelines/{done[0]['id']}")
    chosen = next(one for one in pipeline["members"] if one["role"] == "chosen")
    student = chosen["distillation"]
    scores = urlencode({"model": student["output"], "suite": chosen["evaluations"][0]["suite"]})
    return [
        ("pipeline", f"/pipelines/{pipeline['id']}", DESK, 920, "light"),
        ("search", f"/searches/{pipeline['search_id']}", DESK, 1080, "light"),
        ("jobs", "/jobs", DESK, 620, "light"),
        ("search-phone", f"/searches/{pipeline['search_id']}", PHONE, 844, "light"),
        ("distillation-phone", f"/distillations/{student['id']}", PHONE, 844, "dark"),
        ("evaluations-phone", f"/evaluations?{scores}", PHONE, 844, "dark"),
    ]


def take(browser: BrowserContext, url: str, picture: Picture, output: Path) -> Path:
    """Open a page, and keep a picture of it once all of it is there."""
    name, path, width, height, scheme = picture
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{url}{path}")
    expect(page.locator("main .skeleton")).to_have_count(0, timeout=PATIENCE_MS)
    page.wait_for_timeout(SETTLING_MS)
    target = output / f"dashboard-{name}.png"
    page.screenshot(path=target)
    page.close()
    if target.stat().st_size > LARGEST_BYTES:
        sys.exit(f"{target} has {target.stat().st_size} bytes, more than {LARGEST_BYTES}")
    return target


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="of a service without tokens, such as http://127.0.0.1:8000")
    parser.add_argument("--output", type=Path, required=True, help="folder of the pictures")
    arguments = parser.parse_args()
    url = arguments.url.rstrip("/")
    wanted = pictures(url)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(timezone_id="UTC")
        for picture in wanted:
            print(take(context, url, picture, arguments.output))
        browser.close()


def _get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}") as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
