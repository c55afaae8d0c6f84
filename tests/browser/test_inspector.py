"""The inspector: what the page runs on, what the runtime does now, a run under the profiler, the graph of a gradient."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from browser.pages import Editor

TRAINING = """import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
x, t = torch.randn(128, 64), torch.randint(0, 10, (128,))
for i in range(3):
    loss = nn.functional.cross_entropy(model(x), t)
    model.zero_grad()
    loss.backward()
    print(loss.item())
"""
COPYING = """() => {
  const writeText = async (text) => { window.copied = text; };
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
}"""
#: in Python's thread: how many messages with counters go out
COUNTING = """from pyodide.code import run_js
run_js('''
self.figures = 0;
const post = self.postMessage;
self.postMessage = (message, ...rest) => {
  if (message?.event === "figures") self.figures++;
  return post.call(self, message, ...rest);
};
''')
"""
#: Kernels that no browser has compiled yet, all asked for before the first value is read: so many that they take more than the
#: half second after which it is said, on a fast machine too
MANY_KERNELS = """import random, torch
steps = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf, torch.atan, torch.log1p, torch.expm1]
total = torch.zeros(())
for i in range(40):
    y = torch.linspace(0, 1, 64 + i) + total  # each waits for the one before: else they would share launches
    for step in random.choices(steps, k=7):
        y = step(y)
    total = y.sum()
print(total.item())
"""
WATCH_STATE = """() => {
  window.said = [];
  const state = document.getElementById("state");
  new MutationObserver(() => said.push(state.textContent)).observe(state, { childList: true });
}"""


class Inspector:
    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.page = editor.page

    def open(self, tab: str) -> None:
        if self.page.locator("#inspect").get_attribute("aria-expanded") == "false":
            self.page.click("#inspect")
        self.page.get_by_role("tab", name=tab, exact=True).click()

    def close(self) -> None:
        if self.page.locator("#inspect").get_attribute("aria-expanded") == "true":
            self.page.click("#inspect")

    def gauge(self, name: str) -> str:
        return str(self.page.locator(f".gauge:has(dt:text-is({name!r})) dd").first.inner_text())

    def profile(self, button: str = "Run with profile", seconds: float = 90) -> None:
        self.page.evaluate("document.querySelector('.kernels')?.remove()")
        self.page.get_by_role("button", name=button).click()
        self.page.wait_for_selector(".kernels", timeout=seconds * 1000)
        self.editor.wait()

    @property
    def rows(self) -> list[list[str]]:
        rows = (
            "[...document.querySelectorAll('.kernels tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
        )
        return list(self.page.evaluate(rows))


@pytest.fixture
def inspector(editor: Editor) -> Iterator[Inspector]:
    inspector = Inspector(editor)
    yield inspector
    editor.wait()
    inspector.close()


def test_the_device_report_is_reached_by_keyboard_and_copied(inspector: Inspector) -> None:
    page = inspector.page
    page.evaluate(COPYING)
    page.locator("#inspect").press("Enter")
    chosen = page.get_by_role("tab", name="Device")
    chosen.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Device"
    report = page.locator("#inspector .report")
    assert report.locator("h3").inner_text() == inspector.editor.device
    page.wait_for_function("document.querySelector('#inspector .report').textContent.includes('Pyodide')")
    report.get_by_role("button", name="Copy report").press("Enter")
    page.wait_for_function("window.copied")
    lines = page.evaluate("copied").splitlines()
    said = dict(line[2:].split(": ", 1) for line in lines if line.startswith("- "))
    assert said["Tensors are made on"] == "webgpu" and said["Cross-origin isolated"].startswith("yes")
    assert said["Browser"] == page.evaluate("navigator.userAgent")
    assert re.fullmatch(r"3\.\d+\.\d+", said["Python"]) and said["tabtorch"] and said["Pyodide"]
    assert int(said["maxComputeWorkgroupsPerDimension"]) >= 65535
    page.keyboard.press("Escape")
    assert page.locator("#inspector").is_hidden()
    assert page.evaluate("document.activeElement.id") == "inspect", "focus goes back to where it was opened"


def test_arrow_keys_choose_a_view(inspector: Inspector) -> None:
    page = inspector.page
    inspector.open("Device")
    for key, name in [("ArrowRight", "Live"), ("End", "Autograd"), ("ArrowRight", "Device"), ("ArrowLeft", "Autograd")]:
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.textContent") == name
        assert page.locator("#inspector [role=tabpanel]:visible").count() == 1


def test_memory_and_dispatches_while_a_script_runs(inspector: Inspector) -> None:
    editor, page = inspector.editor, inspector.page
    inspector.open("Live")
    editor.start("""import torch
kept = torch.ones(3 << 20)
step = 0
while True:
    kept = kept + 1
    step += kept[0].item() > 0
""")
    try:
        busy = "[...document.querySelectorAll('.gauge')].some((g) => g.textContent.startsWith('Dispatches') && /[1-9]/.test(g.textContent))"
        page.wait_for_function(busy, timeout=60_000)
        held = "document.querySelector('.gauge dd').textContent"
        page.wait_for_function(f"parseFloat({held}) >= 12 && {held}.includes('MiB')", timeout=60_000)
    finally:  # the page is other tests', too
        editor.stop()
    assert re.fullmatch(r"\d+(\.\d+)? MiB", inspector.gauge("Peak")), inspector.gauge("Peak")
    assert re.fullmatch(r"\d+(\.\d+)? MiB", inspector.gauge("Python's memory"))
    assert int(inspector.gauge("Kernels compiled").replace(",", "")) > 0


def test_nothing_is_told_while_the_panel_is_closed(inspector: Inspector) -> None:
    editor, page = inspector.editor, inspector.page
    inspector.close()
    editor.enter(*COUNTING.splitlines()[:1], "exec(" + repr(COUNTING) + ")")
    waiting = "import torch, time; [((torch.ones(4) + i).sum().item(), time.sleep(0.05)) for i in range(20)] and None"
    editor.enter(waiting)
    assert editor.enter("run_js('self.figures')").endswith("\n0\n")
    inspector.open("Live")
    editor.enter(waiting)
    inspector.close()
    told = int(editor.enter("run_js('self.figures')").splitlines()[-1])
    assert 0 < told < 200
    editor.enter(waiting)
    assert editor.enter("run_js('self.figures')").endswith(f"\n{told}\n"), "and no more once it is closed again"
    assert page.locator("#inspector").is_hidden()


def test_a_run_under_the_profiler(inspector: Inspector) -> None:
    editor, page = inspector.editor, inspector.page
    page.evaluate(COPYING)
    inspector.open("Profile")
    editor.write(TRAINING)
    inspector.profile()
    assert editor.output.count("\n") == 3 and editor.state.startswith("Done in")
    words = page.locator(".profile [role=status]").inner_text()
    assert re.search(r"\d+ dispatches of \d+ kernels", words), words
    rows = inspector.rows
    linear = next(row for row in rows if all(word in row[0] for word in ("matmul", "addmm", "relu")))
    assert linear[1] == "3" and linear[3] == "3", "matmul, bias and relu are one kernel"
    assert all(re.match("before$|in this run$|after [0-9]", row[7]) for row in rows), rows
    timed = "timestamp-query" in page.evaluate("document.querySelector('.report').textContent")
    assert any(re.search(r"\d (µs|ms|s)$", row[2]) for row in rows) == timed
    page.get_by_role("button", name="Calls").click()
    calls = [int(row[1].replace(",", "")) for row in inspector.rows]
    assert calls == sorted(calls, reverse=True)
    page.get_by_role("button", name="Calls").click()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Calls")
    page.get_by_role("button", name=linear[0], exact=True).click()
    chosen = page.locator("section.kernel")
    assert [li.split(" → ")[0] for li in chosen.locator("ol li").all_inner_texts()] == ["matmul", "addmm", "relu"]
    assert "@compute" in chosen.locator("textarea").input_value()
    chosen.get_by_role("button", name="Copy WGSL").click()
    page.wait_for_function("window.copied?.includes('@compute')")
    canvas = page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for part in range(60, int(box["width"]), 10):
        page.mouse.move(box["x"] + part, box["y"] + 28)
    assert re.search(r" · .* at \d", page.locator(".readout").inner_text()), "what is under the pointer is said"
    before = canvas.evaluate("e => e.toDataURL()")
    canvas.press("+")
    assert canvas.evaluate("e => e.toDataURL()") != before, "it zooms by keyboard"
    canvas.press("Home")
    assert canvas.evaluate("e => e.toDataURL()") == before


def test_one_cell_under_the_profiler_and_a_script_that_fails(inspector: Inspector) -> None:
    editor, page = inspector.editor, inspector.page
    inspector.open("Profile")
    editor.run("# %%\nimport torch\nx = torch.ones(50, 50)\n# %%\n(x.sin() @ x).sum().item()\n1 / 0\n")
    assert "division by zero" in editor.output or page.get_by_text("division by zero").count()
    page.locator(".cm-content").focus()
    page.keyboard.press("ControlOrMeta+End")
    inspector.profile("Profile this cell")
    assert any("matmul" in row[0] for row in inspector.rows), "as far as it came"
    assert page.locator("#inspector [role=alert]").count() == 0


def test_the_graph_of_a_tensor_is_drawn(inspector: Inspector) -> None:
    editor, page = inspector.editor, inspector.page
    editor.run(TRAINING)
    inspector.open("Autograd")
    page.get_by_label("Tensor", exact=True).fill("loss * 2")
    page.get_by_label("Tensor", exact=True).press("Enter")
    page.locator(".graph text", has_text="AddmmBackward0").first.wait_for(timeout=30_000)  # another may be there yet
    drawn = page.locator(".graph text").all_text_contents()
    assert {"MulBackward0", "AddmmBackward0", "loss", "model.0.weight", "32 × 64 float32", "model.2.bias"} <= set(drawn)
    assert page.locator(".graph path.edge").count() >= 8
    page.get_by_label("Tensor", exact=True).fill("nothing_of_that_name")
    page.keyboard.press("Enter")
    page.wait_for_selector("#inspector [role=alert]", timeout=30_000)
    assert (
        "NameError: name 'nothing_of_that_name' is not defined" in page.locator("#inspector [role=alert]").inner_text()
    )


def test_how_many_kernels_are_compiled_is_said(inspector: Inspector, name: str) -> None:
    if name == "firefox":
        pytest.skip(
            "Mesa's software driver compiles a kernel when that first runs: Firefox says before that it is ready"
        )
    editor, page = inspector.editor, inspector.page
    page.evaluate(WATCH_STATE)
    editor.run(MANY_KERNELS, seconds=120)
    said = page.evaluate("said")
    counts = [tuple(map(int, re.findall(r"\d+", words))) for words in said if words.startswith("Compiling")]
    assert counts, said
    assert all(ready < asked for ready, asked in counts) and max(asked for _, asked in counts) >= 5
    assert editor.state.startswith("Done in")
