"""A service over a database that looks used, and a browser whose every complaint is a failure."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.settings import Settings
from kdnas.testing import demo_data

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page

START_SECONDS = 180.0  # machines that test are busy
PATIENCE_MS = 120_000
VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class Service:
    """``kdnas serve`` in a process of its own, without a coordinator: rows stay as they are."""

    home: Path
    port: int
    database: Database
    ids: demo_data.DemoIds | None = None
    environment: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "KDNAS_HOME": str(self.home), **self.environment}
        environment.pop("KDNAS_DATABASE_URL", None)
        program = Path(sys.executable).with_name("kdnas")
        command = [str(program), "serve", "--no-coordinator"]
        with (self.home / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)], env=environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                said = (self.home / "serve.log").read_text()[-2000:]
                pytest.fail(f"kdnas serve did not come up: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


MakeService = Callable[..., Service]


@pytest.fixture(scope="session")
def make_service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[MakeService]:
    """Start services over databases of their own."""
    services: list[Service] = []

    def make(template: Path = sqlite_template) -> Service:
        home = tmp_path_factory.mktemp("service")
        shutil.copy(template, home / "kdnas.db")
        settings = Settings.from_environment({"KDNAS_HOME": str(home)})
        database = open_database(settings).__enter__()
        service = Service(home, free_port(), database)
        services.append(service)
        return service

    yield make
    for service in services:
        service.kill()
        service.database.close()


@pytest.fixture(scope="session")
def service(make_service: MakeService, used_template: tuple[Path, demo_data.DemoIds]) -> Service:
    """A service that was used for a week."""
    template, ids = used_template
    made = make_service(template)
    made.ids = ids
    made.start()
    return made


@pytest.fixture(scope="session")
def ids(service: Service) -> demo_data.DemoIds:
    """What is in its database."""
    assert service.ids is not None
    return service.ids


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Chromium of the system, with a profile on disk.

    There alone it keeps the library of the charts, and what it has compiled it to: that costs each
    page three seconds otherwise.
    """
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    executable = next((path for path in found if path), None)
    if executable is None:
        pytest.skip("there is no Chromium here; apt-get install chromium brings one")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=executable,
            args=["--no-sandbox"],
            timezone_id="UTC",
        )
        launched.set_default_timeout(PATIENCE_MS)
        yield launched
        launched.close()


@dataclass
class Complaints:
    """What the browser's console said; ``expected`` are parts of what a test brings about."""

    said: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"{message.text} ({message.location.get('url', '')})")

    def unexpected(self) -> list[str]:
        return [text for text in self.said if not any(part in text for part in self.expected)]


@pytest.fixture
def complaints() -> Complaints:
    """What the console of the page said."""
    return Complaints()


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: BrowserContext, complaints: Complaints) -> Iterator[OpenPage]:
    """Open pages of any width and colour scheme; each complaint of theirs fails the test."""
    pages: list[Page] = []

    def opened(
        width: int = 1280, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Page:
        page = browser.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.add_init_script(VIOLATIONS)
        page.on("console", complaints.console)
        page.on("pageerror", lambda error: complaints.said.append(f"uncaught: {error}"))
        return page

    yield opened
    shown = [page.evaluate("document.body?.innerText ?? ''") for page in pages]
    for page in pages:
        page.close()
    assert [text for text in shown if "[object " in text] == []  # an element that was made a text
    assert complaints.unexpected() == []


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A page of a desk's width."""
    return open_page()
