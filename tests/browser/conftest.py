"""A headless Chromium, one app for all browser tests, and a page that fails its test on any error or outside request."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from served import served_app


@dataclass
class Watched:
    """A page and what it did that it should not."""

    page: object
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def app_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_app(tmp_path_factory.mktemp("app")) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium found; set CHROMIUM to its path")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def watched(chromium, app_url: str) -> Iterator[Watched]:
    """The page, opened in a fresh context and ready. The test fails if anything outside is asked for or an error logged."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    page = context.new_page()
    seen = Watched(page)
    page.on("request", lambda r: seen.outside.append(r.url) if not r.url.startswith((app_url, "data:", "blob:")) else None)
    page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: seen.errors.append(str(e)))
    page.goto(app_url)
    page.wait_for_selector("#model-chip .li-chip:not(.li-wait)", timeout=60_000)
    page.wait_for_timeout(500)  # Gradio closes its stream after the page's first events; a click just then may get no answer
    yield seen
    context.close()
    assert seen.outside == []
    assert seen.errors == []


@pytest.fixture
def page(watched: Watched):
    return watched.page


@pytest.fixture(scope="session")
def shots() -> Path | None:
    """Where screenshots go: $SCREENSHOTS, or nowhere."""
    place = os.environ.get("SCREENSHOTS")
    return Path(place) if place else None
