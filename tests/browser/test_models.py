"""Models without Python in pages: the npm package alone, trained in a page of somebody else's, and the site's two demos of it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import tabtorch as torch
import tiny_gguf
from browser.pages import without_webgpu
from browser.test_accessible import findings
from tabtorch import nn, plan_files
from tabtorch.bridge.node import environment
from tabtorch.cli import site as served
from tabtorch.cli.site import find_site, serving

ROOT = Path(__file__).resolve().parents[2]
READY = "html[data-state]"
STEPS, BATCH = 24, 16

TRAIN = """
export async function train(load, file, batches, device) {
  let model = await load(file, { device });
  const losses = [];
  for (const [k, { x, y }] of batches.entries()) {
    if (k === batches.length / 2) {  // what was saved goes on
      const saved = await model.save();
      model.dispose();
      model = await load(saved, { device });
    }
    const { loss } = await model.step({ x: Float32Array.from(x), y: BigInt64Array.from(y, BigInt) });
    losses.push(await loss.item());
    loss.dispose();
  }
  const { device: found } = model;
  model.dispose();
  return { device: found, losses };
}
"""
PAGE = """<!doctype html>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; connect-src 'self'">
<title>digits</title>
<script type="module" src="page.js"></script>
"""
SCRIPT = """
import { load } from "./npm/tabtorch.js";
import { train } from "./train.js";
const batches = await (await fetch("batches.json")).json();
document.documentElement.dataset.found = JSON.stringify(
  await train(load, "digits.safetensors", batches, "auto").catch((error) => String(error)),
);
"""
IN_NODE = """
import { readFileSync } from "node:fs";
const [folder, entry] = process.argv.slice(1);
const { load } = await import(entry);
const { train } = await import(`${folder}/train.js`);
const batches = JSON.parse(readFileSync(`${folder}/batches.json`, "utf8"));
console.log(JSON.stringify(await train(load, `${folder}/digits.safetensors`, batches, "webgpu")));
"""


def digits() -> tuple[list[list[float]], list[int]]:
    rows = [line.split() for line in (ROOT / "web" / "demos" / "data" / "digits.txt").read_text().splitlines()]
    return [[int(c, 17) / 16 for c in pixels] for _, pixels in rows], [int(label) for label, _ in rows]


def export(path: Path) -> None:
    """Prediction and step of a network that has learnt nothing yet."""
    with torch.device("cpu"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        batch = torch.zeros(BATCH, 64), torch.zeros(BATCH, dtype=torch.int64)
        methods = {"predict": (lambda x: net(x), batch[:1]), "step": (step, batch)}
        plan_files.save(path, methods, model=net, optimizer=optimizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one script, the package beside it, and a file of Python's."""
    folder: Path = tmp_path_factory.mktemp("page")
    (folder / "npm").symlink_to(find_site() / "npm")
    (folder / "index.html").write_text(PAGE)
    (folder / "page.js").write_text(SCRIPT)
    (folder / "train.js").write_text(TRAIN)
    (folder / "package.json").write_text('{"type": "module"}')
    images, labels = digits()
    batches = [
        {"x": sum(images[k : k + BATCH], []), "y": labels[k : k + BATCH]} for k in range(0, STEPS * BATCH, BATCH)
    ]
    (folder / "batches.json").write_text(json.dumps(batches))
    export(folder / "digits.safetensors")
    return folder


@pytest.fixture(scope="module")
def in_node(folder: Path) -> Any:
    """The same in Node, on the GPU."""
    command = ["node", "--input-type=module", "-e", IN_NODE, str(folder), str(find_site() / "npm" / "tabtorch.js")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


class Visit:
    """A page, with what it has asked for and what has gone wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.asked: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def is_alone(self, url: str) -> None:
        """Nothing of Python, and nobody else."""
        assert not [each for each in self.asked if not each.startswith((url, "data:", "blob:"))]
        assert not [each for each in self.asked if any(part in each for part in ("pyodide", ".wasm", ".whl", ".zip"))]
        assert self.errors == []


@pytest.fixture
def visit(running: Any) -> Iterator[Visit]:
    context = running.new_context(viewport={"width": 1280, "height": 800}, service_workers="block")
    yield Visit(context.new_page())
    context.close()


def test_a_page_trains_digits_with_the_package_alone(visit: Visit, folder: Path, in_node: Any) -> None:
    """Under a policy that allows no text to become code; its losses are Node's, as they are printed."""
    with serving(folder) as url:
        visit.page.goto(f"{url}/")
        visit.page.wait_for_selector("html[data-found]", state="attached", timeout=90_000)
        found = json.loads(visit.page.evaluate("document.documentElement.dataset.found"))
        visit.asked = [each for each in visit.asked if not each.endswith("favicon.ico")]
        visit.errors = [each for each in visit.errors if "favicon" not in each and "404" not in each]
        visit.is_alone(url)
    assert found["device"] == in_node["device"] == "webgpu", found
    losses = found["losses"]
    assert [f"{x:.4f}" for x in losses] == [f"{x:.4f}" for x in in_node["losses"]]
    assert len(losses) == STEPS and sum(losses[-4:]) < 0.75 * sum(losses[:4])


# What is handed to the reader as a file: Playwright does not see Firefox's downloads.
KEEP = """() => {
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => {
    const reader = new FileReader();
    reader.onload = () => { window.kept = reader.result.split(",")[1]; };
    reader.readAsDataURL(blob);
    return make.call(URL, blob);
  };
}"""


def test_the_page_of_the_guide(visit: Visit, folder: Path, tmp_path: Path) -> None:
    """The example of docs/npm.md, as it is there: what it needs is a picture and its label."""
    (example,) = re.findall(r"^```html\n(.*?)^```$", (ROOT / "docs" / "npm.md").read_text(), re.M | re.S)
    for file in (find_site() / "npm").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "digits.safetensors").symlink_to(folder / "digits.safetensors")
    given = (
        f"<script>var pixels = new Float32Array({BATCH * 64}).fill(0.5), labels = Array({BATCH}).fill(3);</script>\n"
    )
    (tmp_path / "index.html").write_text(f"<!doctype html>\n<title>guide</title>\n{given}{example}")
    said: list[str] = []
    visit.page.on("console", lambda message: said.append(message.text) if message.type == "log" else None)
    with serving(tmp_path) as url:
        visit.page.goto(f"{url}/")
        for _ in range(600):
            visit.page.wait_for_timeout(100)
            if said and re.fullmatch(r"\d\.\d+", said[-1]):
                break
    assert any(line.startswith("webgpu there is a WebGPU adapter") for line in said), (said, visit.errors)
    assert any(line.startswith("bytes 1") for line in said) and any(line.startswith("kernels 1") for line in said)
    others = [line for line in said if not re.match(r"(bytes|kernels|webgpu) |\d\.\d+$", line)]
    assert len(others) == 1 and 0 < float(said[-1]) < 5  # where the largest is, which browsers write in their ways
    assert [each for each in visit.errors if "favicon" not in each and "404" not in each] == []


def draw_seven(page: Any) -> None:
    box = page.locator("#pad canvas").bounding_box()
    at = lambda x, y: (box["x"] + x * box["width"], box["y"] + y * box["height"])  # noqa: E731
    page.mouse.move(*at(0.3, 0.2))
    page.mouse.down()
    page.mouse.move(*at(0.7, 0.2), steps=6)
    page.mouse.move(*at(0.4, 0.85), steps=6)
    page.mouse.up()


def percents(page: Any) -> list[float]:
    page.locator("#digits .best").wait_for()
    return [float(text.split("\n")[-1].removesuffix("%")) for text in page.locator("#digits button").all_inner_texts()]


def test_the_classifier_reads_and_keeps_learning(visit: Visit, address: str, tmp_path: Path) -> None:
    page = visit.page
    page.goto(f"{address}draw.html")
    page.wait_for_selector(READY, timeout=90_000)
    assert page.inner_text("#device").startswith("webgpu")
    draw_seven(page)
    page.wait_for_timeout(300)
    assert len(percents(page)) == 10 and abs(sum(percents(page)) - 100) < 2
    page.get_by_title("This is a 3").click()
    page.locator("#says", has_text="It has learnt that this is a 3").wait_for(timeout=60_000)
    for _ in range(2):
        page.get_by_title("This is a 3").click()
        page.locator("#says", has_text="Learning").wait_for()
        page.locator("#says", has_text="It has learnt").wait_for(timeout=60_000)
    taught = percents(page)
    assert max(taught) == taught[3]
    assert len(json.loads(page.locator("#curve").get_attribute("data-values"))) == 24
    page.evaluate(KEEP)
    page.click("#save")
    page.wait_for_function("window.kept")
    saved = tmp_path / "digits.safetensors"
    saved.write_bytes(base64.b64decode(page.evaluate("kept")))
    page.click("#reset")
    page.locator("#taught", has_text="nothing yet").wait_for(timeout=60_000)
    assert percents(page)[3] < taught[3]
    page.set_input_files("#file", saved)
    page.locator("#taught", has_text="goes on with").wait_for(timeout=60_000)
    assert percents(page) == taught
    visit.is_alone(address)
    assert findings(page) == {}


@pytest.fixture(scope="module")
def on_the_cpu(playwright: Any, name: str) -> Iterator[Any]:
    with without_webgpu(playwright, name) as browser:
        yield browser


def test_the_writer_without_a_gpu(on_the_cpu: Any, address: str, tmp_path: Path) -> None:
    """It says where it runs and why, writes, learns, and says what is wrong with a file."""
    visit = Visit(on_the_cpu.new_page(viewport={"width": 1280, "height": 800}))
    page = visit.page
    page.goto(f"{address}write.html")
    page.wait_for_selector(READY, timeout=60_000)
    assert "WebGPU" in page.inner_text("#device") and page.inner_text("#device").startswith("cpu")
    page.fill("#temperature", "0")
    page.fill("#prompt", "import tor")
    page.click("#write")
    page.locator("#written", has_text="import torch").wait_for(timeout=30_000)
    page.click("#stop")
    page.locator("#write:enabled").wait_for()
    page.fill("#text", "too short")
    page.click("#learn")
    page.locator("#problem", has_text="more than 64 characters").wait_for()
    page.fill("#text", "abcdefgh" * 20)
    page.click("#learn")
    page.locator("#curve", has_text=re.compile(r"after ([4-9]|\d\d) steps")).wait_for()
    page.click("#enough")
    page.locator("#write:enabled").wait_for()
    losses = json.loads(page.locator("#curve").get_attribute("data-values"))
    assert losses[-1] < losses[0]
    (tmp_path / "notes.safetensors").write_text("no model")
    page.set_input_files("#file", tmp_path / "notes.safetensors")
    page.locator("#problem", has_text="“notes.safetensors” cannot be opened here").wait_for()
    page.set_input_files("#file", find_site() / "models" / "digits.safetensors")
    page.locator("#problem", has_text="This file is of another model").wait_for()
    assert page.locator("#write").is_enabled()  # the one that was there is there still
    visit.is_alone(address)
    assert findings(page) == {}
    page.close()


# nothing, if the answer has ended just now: a context of 512 tokens is full soon
STOP = "document.getElementById('stop').click()"
CHOSEN = "html[data-state=ready]"


def said(page: Any) -> str:
    """The last answer, once it is over."""
    page.locator("#words:enabled").wait_for(timeout=60_000)
    return str(page.locator("#talk .assistant p").last.inner_text())


def test_a_chat_with_a_file(running: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts, tokens as they come, Stop, a talk that goes on; and what is wrong with a file, in words."""
    file = tiny_gguf.write(tmp_path / "tiny.gguf")
    context = running.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"{address}chat.html")
    page.wait_for_selector(CHOSEN, timeout=60_000)
    (tmp_path / "notes.gguf").write_text("no model")
    page.set_input_files("#file", tmp_path / "notes.gguf")
    page.locator("#problem", has_text="“notes.gguf” is no GGUF file").wait_for()
    assert page.locator("#send").is_disabled()
    page.set_input_files("#file", file)
    page.locator("#words:enabled").wait_for(timeout=90_000)
    facts = page.locator("#facts").inner_text()
    assert "A tiny random Llama" in facts and "258 tokens" in facts and "512 tokens" in facts
    assert page.inner_text("#device").startswith("webgpu") and "GPU memory" in facts
    page.fill("#temperature", "0")
    page.fill("#words", 'Say "a\\b"\nand ’ü’')
    page.keyboard.press("Enter")
    page.locator("#speed", has_text=re.compile(r"^\d{2,} tokens, [\d.]+ a second, .*GPU memory")).wait_for(
        timeout=90_000
    )
    page.evaluate(STOP)
    first = said(page)
    assert len(first) >= 10
    # the same again: the same answer, as far as it comes, and then a talk that goes on
    page.click("#anew")
    assert page.locator("#talk > div").count() == 0
    for k in range(2):
        page.fill("#words", 'Say "a\\b"\nand ’ü’' if k == 0 else "And then?")
        page.click("#send")
        page.locator("#speed", has_text=re.compile(r"^\d{2,} tokens")).wait_for(timeout=90_000)
        page.evaluate(STOP)
        again = said(page)
        assert k or again[:8] == first[:8]
    assert page.locator("#talk > div").count() == 4
    assert findings(page) == {}
    with serving(tmp_path) as url:
        page.fill("#url", f"{url}/tiny.gguf")
        page.get_by_role("button", name="Fetch").click()
        page.locator("#talk:empty").wait_for(state="attached", timeout=60_000)  # the talk was with the other one
        page.locator("#words:enabled").wait_for(timeout=60_000)
        assert page.locator("#problem").is_hidden()
        monkeypatch.setattr(served._Handler, "end_headers", SimpleHTTPRequestHandler.end_headers)
        page.fill("#url", f"{url}/another.gguf")
        page.get_by_role("button", name="Fetch").click()
        page.locator("#problem", has_text="only if that site allows it, by CORS").wait_for(timeout=60_000)
        assert page.locator("#words").is_disabled()
        monkeypatch.undo()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(file.read_bytes()[:-1000])
    page.set_input_files("#file", damaged)
    page.locator("#problem", has_text=re.compile(r"damaged.gguf cannot be used\. \w+: ")).wait_for(timeout=60_000)
    assert page.locator("#words").is_disabled()
    context.close()
