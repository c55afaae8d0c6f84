"""The documentation in the site: examples that run in place, search, links, and that it is for everyone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest

from browser.test_accessible import findings
from browser.test_embed import Cell, Requests
from tabtorch.cli.site import find_site


@pytest.fixture
def site(address: str) -> Path:
    """The folder that is served."""
    return find_site()


@pytest.fixture
def tab(running: Any, address: str) -> Iterator[tuple[Any, Requests]]:
    page = running.new_page(viewport={"width": 1280, "height": 800})
    requests = Requests(page, address)
    yield page, requests
    page.close()


def test_an_example_runs_where_it_stands(tab: tuple[Any, Requests], address: str) -> None:
    page, requests = tab
    page.goto(f"{address}docs/training.html")
    examples = page.locator(".example")
    examples.first.get_by_role("button", name="Try it").wait_for()
    page.wait_for_timeout(300)
    loaded = [url for url in requests if "pyodide" in url or "tabtorch-cell" in url or "wheel" in url]
    assert loaded == []  # before somebody wants it
    # one that goes on from another brings that along, and both share one Python
    examples.nth(1).get_by_role("button", name="Try it").click()
    first, second = (Cell(page, f".example >> nth={at} >> iframe") for at in (0, 1))
    assert first.ended() == "torch.Size([50, 2]) torch.int64\n"
    assert second.ended() == "99 numbers to learn\n"
    assert sum("pyodide.asm.wasm" in url for url in requests) == 1
    # and it can be had back as it was
    button = examples.nth(1).get_by_role("button", name="Back")
    button.press("Enter")
    assert examples.nth(1).locator(".printed").is_visible() and not examples.nth(1).locator("iframe").count()
    assert not requests.said, requests.said


def test_it_opens_in_the_page_with_what_it_goes_on_from(tab: tuple[Any, Requests], address: str) -> None:
    page, _ = tab
    page.goto(f"{address}docs/training.html")
    link = page.locator(".example").nth(1).get_by_role("link")
    assert link.inner_text() == "Open in the page"
    link.click()
    page.wait_for_url(re.compile(r"#code="))
    text = page.locator(".cm-content").evaluate("e => e.cmTile.view.state.doc.toString()")
    assert text.startswith("import torch\n") and "class Net(nn.Module)" in text


def test_search_finds_headings_and_names(tab: tuple[Any, Requests], address: str) -> None:
    page, requests = tab
    page.goto(f"{address}docs/index.html")
    page.keyboard.press("/")
    page.keyboard.type("out of mem")
    page.get_by_role("option", name="Out of memory").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"errors\.html#out-of-memory$"))
    field = page.get_by_role("combobox")
    field.fill("plot")
    page.get_by_role("option").first.wait_for()
    field.press("ArrowDown")
    assert page.locator("#found [aria-selected=true]").inner_text().startswith("tabtorch.plot")
    assert field.get_attribute("aria-activedescendant") == "found-0"
    assert findings(page) == {}  # while it is open
    field.press("Escape")
    assert page.locator("#found").is_hidden() and not requests.said


def test_what_the_reference_is_made_of_is_there(tab: tuple[Any, Requests], address: str) -> None:
    page, _ = tab
    page.goto(f"{address}docs/reference.html")
    for name in ("tabtorch.show", "tabtorch.plot", "torch.compile", "tabtorch-run", "tabtorch.safetensors.load_file"):
        assert page.locator(f"id={name}").count() == 1, name
    text = page.locator("article").inner_text()
    for words in ("--screenshot", "--tabtorch-timeout", "memory_allocated", "TABTORCH_DEVICE"):
        assert words in text, words
    page.goto(f"{address}docs/quickstart.html")
    page.locator("article a", has_text="tabtorch.plot").first.click()
    page.wait_for_url(re.compile(r"reference\.html#tabtorch\.plot$"))


@pytest.mark.parametrize("guide", ["quickstart.html", "hosting.html", "reference.html"])
def test_they_are_for_everyone(tab: tuple[Any, Requests], address: str, guide: str) -> None:
    page, requests = tab
    page.goto(f"{address}docs/{guide}")
    page.evaluate("document.querySelectorAll('tbody tr:nth-child(n + 8)').forEach((row) => row.remove())")  # all alike
    assert findings(page) == {}
    assert page.locator("nav [aria-current=page]").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert not requests.said, requests.said


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    for path in (site / "docs").glob("*.html"):
        name, text = path.name, path.read_text()
        for link in re.findall(
            r'(?:href|src|content)="(\.{0,2}[^":]*?\.(?:html|js|css|svg|png)(?:#[^"]*)?|#[^"]+)"', text
        ):
            leads, part = urldefrag(urljoin(f"/docs/{name}", link))
            there = site / leads[1:]
            assert there.is_file(), (name, link)
            if part and there.suffix == ".html" and not part.startswith("code="):
                assert f'id="{part}"' in there.read_text(), (name, link)
    for entry in json.loads((site / "docs" / "search.json").read_text()):
        page = (site / "docs" / entry["page"]).read_text()
        assert not entry["id"] or f'id="{entry["id"]}"' in page, entry


def test_each_has_a_title_a_policy_and_words_for_previews(site: Path) -> None:
    pages = sorted((site / "docs").glob("*.html"))
    titles = set()
    for path in pages:
        text = path.read_text()
        assert '<html lang="en">' in text and "script-src &#39;self&#39;;" in text
        assert re.search(r'og:description" content="[^"]{20,}"', text), path
        titles.add(re.search(r"<title>(.*)</title>", text)[1])  # type: ignore[index]
    assert len(titles) == len(pages) > 10
