"""Notebooks: opened as a script with cells, with their outputs; written so that Jupyter takes them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from browser.pages import Editor
from browser.test_accessible import findings
from browser.test_cells import Cells
from browser.test_controls import MIDDLES, RED
from browser.test_documents import CATCH_DOWNLOAD

# a red pixel
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
).decode()

NOTEBOOK: dict[str, Any] = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {
            "cell_type": "markdown",
            "id": "a",
            "metadata": {},
            "source": ["# A *title*\n", "\n", "<img src=x onerror='window.ran = 1'> [link](https://pytorch.org)"],
        },
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {},
            "source": ["x = 20\n", "print('old', x)"],
            "execution_count": 4,
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["old 20\n"]},
                {"output_type": "display_data", "metadata": {}, "data": {"image/png": PNG, "text/plain": ["<dot>"]}},
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"text/html": "<b>bold</b><script>window.ran = 2</script>", "text/plain": "bold"},
                },
            ],
        },
        {
            "cell_type": "code",
            "id": "c",
            "metadata": {"tags": ["mine"]},
            "source": "y = x + 1\ny",
            "execution_count": None,
            "outputs": [],
        },
    ],
}


@pytest.fixture
def cells(editor: Editor) -> Any:
    before = editor.page.url.rpartition("#")[2]
    yield Cells(editor)
    editor.page.evaluate("address => { location.hash = address; }", before)
    editor.write("")


def saved(page: Any, item: str) -> tuple[str, str]:
    """The name and text of what an item of the File menu downloads."""
    page.evaluate(CATCH_DOWNLOAD)
    page.click("#menu")
    page.click(f"#actions [data-act={item}]")
    page.wait_for_function("window.downloaded")
    name, text = page.evaluate("downloaded")
    page.evaluate("() => { delete window.downloaded; }")
    return name, text


def test_a_notebook_is_opened_run_and_written(cells: Cells) -> None:
    nbformat = pytest.importorskip("nbformat")
    editor, page = cells.editor, cells.page
    file = {"name": "lesson.ipynb", "mimeType": "", "buffer": json.dumps(NOTEBOOK).encode()}
    page.set_input_files("#chosen", files=[file])
    page.wait_for_selector(".cell-output .rich img")
    assert page.locator("#file").inner_text().startswith("lesson")
    assert editor.code == (
        "# %% [markdown]\n# # A *title*\n#\n"
        "# <img src=x onerror='window.ran = 1'> [link](https://pytorch.org)\n\n"
        "# %%\nx = 20\nprint('old', x)\n\n"
        '# %% tags=["mine"]\ny = x + 1\ny\n'
    )
    page.wait_for_function("document.querySelector('.cell-prose > *').shadowRoot?.querySelector('h1 em')")
    assert cells.statuses() == ["[4]"] and cells.outputs() == ["old 20\n"]
    assert page.locator(".cell-output .markup").evaluate("e => e.shadowRoot.querySelector('b').textContent") == "bold"
    assert page.evaluate("window.ran") is None
    assert findings(page) == {}

    # as it came, and as a run leaves it
    name, text = saved(page, "notebook")
    assert name.startswith("lesson") and name.endswith(".ipynb")
    written = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(written)
    assert (written.nbformat, written.nbformat_minor) == (4, 5)
    assert [cell.source for cell in written.cells] == ["".join(cell["source"]) for cell in NOTEBOOK["cells"]]
    assert written.cells[2].metadata == {"tags": ["mine"]}
    first = written.cells[1]
    assert first.execution_count == 4 and [output.output_type for output in first.outputs] == [
        "stream",
        "display_data",
        "display_data",
    ]
    assert first.outputs[1].data["image/png"] == PNG
    page.click("#run")
    cells.settle(["[4]"])
    assert cells.outputs() == ["old 20\n", "21\n"]
    name, text = saved(page, "notebook")
    nbformat.validate(nbformat.reads(text, as_version=4))
    assert [cell.get("outputs") for cell in json.loads(text)["cells"]] == [
        None,
        [{"output_type": "stream", "name": "stdout", "text": ["old 20\n"]}],
        [{"output_type": "stream", "name": "stdout", "text": ["21\n"]}],
    ]


DRAWN = """# %%
import tabtorch, torch
c = tabtorch.canvas(40, 60, 2, alt="Red")
c.draw(torch.ones(3, 40, 60))
c.draw(torch.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1).expand(3, 40, 60))
# %%
for step in range(5):
    tabtorch.plot("descent", loss=5 - step, slope=step)
tabtorch.show(torch.eye(3), scale=10, title="eye")
speed = tabtorch.slider("Speed", 0, 3)
"""


def test_what_is_drawn_is_kept_as_pictures(cells: Cells) -> None:
    """Where nothing draws canvases and charts, they are seen all the same; here a chart is one again."""
    nbformat = pytest.importorskip("nbformat")
    editor, page = cells.editor, cells.page
    editor.run(DRAWN)
    page.wait_for_selector(".chart canvas")
    name, text = saved(page, "notebook")
    nbformat.validate(nbformat.reads(text, as_version=nbformat.NO_CONVERT))
    (canvas,), (chart, eye, slider) = (cell["outputs"] for cell in json.loads(text)["cells"])
    assert set(canvas["data"]) == {"image/png", "text/plain"}
    about = canvas["metadata"]["image/png"]
    assert (about["width"], about["height"], about["alt"]) == (120, 80, "Red")
    assert page.evaluate(MIDDLES, canvas["data"]["image/png"]) == [list(RED)] * 6
    assert chart["metadata"]["image/png"]["alt"].startswith("Chart descent: loss 1 at 4")
    assert len(chart["data"]["image/png"]) > 4000 and "application/vnd.tabtorch.chart+json" in chart["data"]
    assert (eye["metadata"]["image/png"]["width"], eye["metadata"]["image/png"]["title"]) == (30, "eye")
    assert "image/png" not in slider["data"]
    editor.write("")
    page.set_input_files("#chosen", files=[{"name": name, "mimeType": "", "buffer": text.encode()}])
    page.wait_for_selector(".chart .u-legend")
    assert "slope" in page.locator(".chart .u-legend").inner_text()
    assert "Chart descent: loss 1 at 4, 5 points" in (
        page.locator(".chart [role=img]").get_attribute("aria-label") or ""
    )
    assert page.locator(".cell-output img[alt=Red]").evaluate("e => e.clientWidth") == 120
    assert page.locator(".cell-output figcaption", has_text="eye").count() == 1
    assert page.locator(".cell-output input[type=range]").is_disabled()


def test_text_is_read_and_edited(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write("# %% [markdown]\n# Some *words*\n\n# %%\nx = 1\n")
    page.wait_for_function("document.querySelector('.cell-prose > *').shadowRoot?.querySelector('em')")
    page.locator(".cell-prose").click()
    assert cells.line() == 2 and page.locator(".cell-prose").count() == 0
    page.keyboard.press("End")
    page.keyboard.insert_text(" and **more**")
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("document.querySelector('.cell-prose > *').shadowRoot?.querySelector('strong')")
    assert cells.line() == 5
    page.locator("[data-act=edit]:visible").click()
    assert cells.line() == 2 and "more" in page.locator(".cm-content").inner_text()


def test_what_colab_is_given(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write("import tabtorch\nprint(1)\n")
    name, text = saved(page, "colab")
    sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    assert sources == ["%pip install tabtorch", "import tabtorch\nprint(1)"]
    said = page.locator("#notice").inner_text()
    assert name in said and "choose Upload" in said
    editor.write("import torch\n")
    _, text = saved(page, "colab")
    assert ["".join(cell["source"]) for cell in json.loads(text)["cells"]] == ["import torch"]
    page.click("#notice [aria-label=Close]")


def test_a_file_that_is_no_notebook(cells: Cells) -> None:
    page = cells.page
    for text, words in (("{", "it is not JSON"), ('{"nbformat": 3}', "its format is 3")):
        page.set_input_files("#chosen", files=[{"name": "x.ipynb", "mimeType": "", "buffer": text.encode()}])
        page.wait_for_function("words => document.getElementById('notice').textContent.includes(words)", arg=words)
    page.click("#notice [aria-label=Close]")
