"""One browser of each kind for the whole suite, one tab of each page in it; the site is served from a sub-path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.pages import WANTED, Editor, wait_for_function
from tabtorch.cli import browsers
from tabtorch.cli.site import find_site, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site on a plain server, below a path of its own."""
    try:
        site = find_site()
    except browsers.Missing as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("served")
    (root / "some" / "where").mkdir(parents=True)
    (root / "some" / "where" / "tabtorch").symlink_to(site, target_is_directory=True)
    with serving(root) as url:
        yield f"{url}/some/where/tabtorch/"


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        patch.setattr(sync_api.Page, "wait_for_function", wait_for_function)
        yield playwright


@pytest.fixture(scope="session", params=browsers.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Which browser."""
    wanted: str = request.param
    if wanted not in WANTED:
        pytest.skip(f"{wanted} was not asked for")
    lack = browsers.missing(wanted)
    if lack:
        pytest.skip(lack)
    return wanted


@pytest.fixture(scope="session")
def running(playwright: Any, name: str) -> Iterator[Any]:
    """The browser `name`."""
    with browsers.launch(playwright, name) as browser:
        yield browser


@pytest.fixture(scope="session")
def loaded(running: Any, address: str) -> Iterator[Editor]:
    editor = Editor(running.new_page(viewport={"width": 1280, "height": 800}), address)
    editor.load()
    editor.page.click("#new")  # what the tests write is a script of their own: the demos stay as they are
    yield editor
    editor.page.close()


@pytest.fixture
def editor(loaded: Editor) -> Editor:
    """The page with the editor, Python there and idle."""
    if loaded.page.evaluate("document.documentElement.dataset.state") != "ready" or "?" in loaded.page.url:
        loaded.load()
    loaded.page.bring_to_front()  # Firefox gives keys to no other page, once a test has opened one
    return loaded


@pytest.fixture(scope="session")
def runner(running: Any, address: str) -> Iterator[Any]:
    """The bare page behind `tabtorch run`."""
    page = running.new_page()
    open_runner(page, address)
    yield page
    page.close()


@pytest.fixture
def fresh_runner(running: Any, address: str) -> Iterator[Any]:
    """The bare page in a tab of its own, for what lasts as long as the page does."""
    page = running.new_page()
    open_runner(page, address)
    yield page
    page.close()


def open_runner(page: Any, address: str) -> None:
    page.goto(f"{address}run.html")
    page.wait_for_function("'tabtorchRun' in window")
