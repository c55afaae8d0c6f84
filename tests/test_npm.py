"""The npm package: built as it is published, and run in Node with no Python on files that Python wrote."""

from __future__ import annotations

import gzip
import json
import random
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tabtorch as torch
from tabtorch import nn, plan_files, safetensors
from tabtorch.bridge.node import environment
from tabtorch.engine import graph
from tabtorch.engine.recipes import Check, Recipe, Step
from tabtorch.engine.temporaries import lay_out
from tabtorch.nn import functional as F

ROOT = Path(__file__).parent.parent
DEVICES = ["cpu", "webgpu"]
LIMIT = 25_000


def node(script: str, *arguments: str, stdin: str = "", cwd: Path | None = None) -> str:
    """What a module prints. Where there is no graphics card, Vulkan's driver is SwiftShader."""
    command = ["node", "--input-type=module", "-e", script, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment(), cwd=cwd or ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder, with its types."""
    out: Path = tmp_path_factory.mktemp("npm") / "node_modules" / "tabtorch"
    subprocess.run(["node", "js/package/build.mjs", str(out)], cwd=ROOT, check=True)
    (out.parent / "webgpu").symlink_to(ROOT / "node_modules" / "webgpu")  # Dawn, which it takes where it finds it
    return out


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts of it by themselves, as a module."""
    out: Path = tmp_path_factory.mktemp("pieces")
    entry = "\n".join(
        f'export * from "{ROOT}/js/src/model/{name}";' for name in ("recipe", "layout", "power", "generators", "dtypes")
    )
    (out / "entry.ts").write_text(entry)
    esbuild = ROOT / "node_modules" / ".bin" / "esbuild"
    subprocess.run(
        [
            str(esbuild),
            str(out / "entry.ts"),
            "--bundle",
            "--format=esm",
            f"--outfile={out / 'pieces.mjs'}",
            "--log-level=error",
        ],
        check=True,
    )
    return out / "pieces.mjs"


def trainer(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


def exported(path: Path, dynamic: Any) -> Path:
    """A classifier with dropout and AdamW."""
    with torch.device("cpu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
        methods = {"predict": (lambda x: model(x), (x,)), "step": (trainer(model, optimizer), (x, y))}
        plan_files.save(path, methods, model=model, optimizer=optimizer, dynamic=dynamic)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for any batch."""
    path: Path = tmp_path_factory.mktemp("files") / "digits.safetensors"
    return exported(path, {"x": {0: "batch"}, "y": {0: "batch"}})


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for batches of 4, which has few kernels: each takes a software GPU a second or so."""
    return exported(tmp_path_factory.mktemp("files") / "fixed.safetensors", None)


def data_of(sizes: list[int]) -> list[Any]:
    r = random.Random(1)
    return [
        ([[round(r.uniform(-1, 1), 3) for _ in range(8)] for _ in range(n)], [r.randrange(3) for _ in range(n)])
        for n in sizes
    ]


# ---- pieces


def test_recipes_give_what_they_give_in_python(pieces: Path) -> None:
    r = random.Random(0)
    binary = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "ceil"]
    cases, wanted = [], []
    for _ in range(300):
        steps: list[Step] = [
            Step("s", 0),
            Step("s", 1),
            Step("number", r.choice([0, 1, 2, 3, -7, 0.5, 256])),
            Step("number", 9),
        ]
        for _ in range(r.randrange(12)):
            op = r.choice([*binary, "neg", "abs"])
            a, b = r.randrange(len(steps)), r.randrange(len(steps))
            steps.append(Step(op, a) if op in ("neg", "abs") else Step(op, a, b))
        tests = (Check("<", r.randrange(len(steps)), r.randrange(len(steps)), r.random() < 0.5),)
        recipe = Recipe(("s",), tuple(steps), tests, (len(steps) - 1,))
        s = [r.randrange(-5, 50), r.randrange(1, 3000)]
        try:
            values = [float(x) for x in recipe.values(s)]
        except ZeroDivisionError:
            values = None
        spec = {
            "steps": [list(t[:2] if t.b < 0 else t) for t in steps],
            "tests": [list(t) for t in tests],
            "results": [len(steps) - 1],
        }
        cases.append([spec, s])
        wanted.append([recipe.holds(s), values])
    script = """
      import { readFileSync } from "node:fs";
      const { Recipe } = await import(process.argv[1]);
      const out = JSON.parse(readFileSync(0, "utf8")).map(([spec, s]) => {
        const recipe = new Recipe(spec, { s: 2 }, "it");
        let values = null;
        try { values = recipe.values(s); } catch (error) { if (!/zero/.test(error.message)) throw error; }
        return [recipe.holds(s), values];
      });
      console.log(JSON.stringify(out));
    """
    assert json.loads(node(script, str(pieces), stdin=json.dumps(cases))) == wanted


def test_powers_are_those_of_python(pieces: Path) -> None:
    cases = [(b, n) for b in (0.9, 0.999, 0.95, 0.98) for n in (0, 1, 2, 3, 7, 10, 100, 999, 1234)]
    script = """
      import { readFileSync } from "node:fs";
      const { power } = await import(process.argv[1]);
      console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(([b, n]) => power(b, n))));
    """
    found = json.loads(node(script, str(pieces), stdin=json.dumps(cases)))
    assert [float(x) for x in found] == [b**n for b, n in cases]


def test_temporaries_lie_where_python_puts_them(pieces: Path) -> None:
    r = random.Random(2)
    cases, wanted = [], []
    for k in range(60):
        n = r.randrange(1, 40)
        firsts = sorted(r.randrange(50) for _ in range(n))
        lives = [(f, f + r.randrange(12)) for f in firsts]
        sizes = [r.randrange(1, 5000) if k % 2 else r.randrange(1 << 16, 1 << 21) for _ in range(n)]
        apart = [sorted(r.sample(range(n), min(n, r.randrange(4)))) for _ in range(n)]
        limit = r.choice([1 << 22, 1 << 28])
        cases.append([lives, sizes, apart, limit])
        pieces_of, places = lay_out(lives, sizes, apart, limit)
        wanted.append({"pieces": pieces_of, "places": [list(p) for p in places]})
    script = """
      import { readFileSync } from "node:fs";
      const { layOut } = await import(process.argv[1]);
      console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((c) => layOut(...c))));
    """
    assert json.loads(node(script, str(pieces), stdin=json.dumps(cases))) == wanted


def test_half_precision_rounds_as_in_python(pieces: Path) -> None:
    r = random.Random(3)
    numbers = [
        0.0,
        -0.0,
        65504.0,
        65519.0,
        65520.0,
        6e-8,
        3e-8,
        1 / 3,
        2049.0,
        2051.0,
        *[r.uniform(-1, 1) * 10.0 ** r.randrange(-8, 5) for _ in range(200)],
    ]
    script = """
      import { readFileSync } from "node:fs";
      const { encode, decode } = await import(process.argv[1]);
      const x = JSON.parse(readFileSync(0, "utf8"));
      console.log(JSON.stringify(["float16", "bfloat16"].map((t) => [...decode(t, encode(t, x))].map(String))));
    """
    with torch.device("cpu"):
        wanted = [torch.tensor(numbers, dtype=t).tolist() for t in (torch.float16, torch.bfloat16)]
    found = json.loads(node(script, str(pieces), stdin=json.dumps(numbers)))
    assert [[float(x.replace("Infinity", "inf")) for x in each] for each in found] == wanted


# ---- the package


def _static(package: Path, name: str) -> set[str]:
    text = (package / name).read_text()
    found = {name}
    for other in re.findall(r'(?:from|import)"\./([^"]+)"', text):
        found |= _static(package, other)
    return found


def test_its_main_entry_is_small_and_depends_on_nothing(package: Path) -> None:
    entry = _static(package, "tabtorch.js")
    size = sum(len(gzip.compress((package / name).read_bytes(), 9)) for name in entry)
    assert size <= LIMIT, f"{size} bytes"
    described = json.loads((package / "package.json").read_text())
    assert "dependencies" not in described
    assert described["version"] == re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M).group(1)  # type: ignore[union-attr]
    for path in package.glob("*.js"):
        text = path.read_text()
        assert "eval(" not in text
        # what is looked for when it runs is none of a bundler's business: webpack warns of it
        assert not re.search(r"\bimport\((?![\"'/])", text), path.name
        # whether the page allows it is asked with one; kernels of the cpu device are another, which a thread of wasi-nn has in it
        has_cpu = path.name.startswith("cpu") or path.name == "wasi-nn-worker.js"
        assert text.count("new Function") <= 1 + has_cpu


def test_a_strict_typescript_project_takes_it(package: Path) -> None:
    folder = package.parent.parent
    (folder / "consumer.mts").write_text(
        """
        import { fromImage, load, tensor, toImageData, type Method, type Tensor } from "tabtorch";
        interface Digits { predict: Method; step(inputs: { x: Float32Array; y: BigInt64Array }): Promise<{ loss: Tensor }> }
        const m = await load<Digits>("digits.safetensors", { device: "auto", onProgress: (done: number, of: number) => { done / of; } });
        m.numbers.lr = 1e-3;
        const { loss } = await m.step({ x: new Float32Array(8), y: new BigInt64Array(1) });
        const value: number | boolean = await loss.item();
        const device: "webgpu" | "cpu" = m.device;
        const best: Int32Array = await tensor([[1, 2]]).argmax(1);
        const picture: ImageData = await toImageData(fromImage(new ImageData(1, 1)));
        // @ts-expect-error there is no such device
        await load("x", { device: "tpu" });
        const file: Blob = await m.save();
        export { value, device, best, picture, file };
        """
    )
    tsc = ROOT / "node_modules" / ".bin" / "tsc"
    options = "--strict --noEmit --target es2022 --module nodenext --moduleResolution nodenext --skipLibCheck false --types".split()
    done = subprocess.run([str(tsc), *options, "", "consumer.mts"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


TRAIN = """
  import { readFileSync } from "node:fs";
  const [entry, file, device] = process.argv.slice(1);
  const { load } = await import(entry);
  const batches = JSON.parse(readFileSync(0, "utf8"));
  const int64 = (y) => BigInt64Array.from(y.map(BigInt));
  let m = await load(file, { device });
  const losses = [];
  for (const [k, [x, y]] of batches.entries()) {
    if (k === 3) m.numbers.lr = 5e-3;
    if (k === 5) { const saved = await m.save(); m.dispose(); m = await load(saved, { device }); }
    const { loss } = await m.step({ x, y: int64(y) });
    losses.push(await loss.item());
    loss.dispose();
  }
  const logits = [];
  for (const [x] of batches.slice(0, 4)) logits.push(...await (await m.predict(Float32Array.from(x.flat()))).data());
  console.log(JSON.stringify({ device: m.device, losses, logits }));
"""


@pytest.mark.parametrize("device", DEVICES)
def test_it_trains_as_python_does(package: Path, file: Path, fixed: Path, device: str) -> None:
    if device == "webgpu" and not graph.bridge().info.get("webgpu"):
        pytest.skip("there is no WebGPU")
    batches = data_of([4, 4, 1, 9, 5, 17, 2, 4])
    if device == "webgpu":
        batches, file = data_of([4] * 8), fixed
    with torch.device(device):
        m = plan_files.load(file, device=device)
        losses, logits = [], []
        for k, (x, y) in enumerate(batches):
            if k == 3:
                m.numbers["lr"] = 5e-3
            losses.append(m.step(torch.tensor(x), torch.tensor(y))["loss"].item())
        for x, _ in batches[:4]:
            logits += m.predict(torch.tensor(x)).flatten().tolist()
    found = json.loads(node(TRAIN, str(package / "tabtorch.js"), str(file), device, stdin=json.dumps(batches)))
    assert found == {"device": device, "losses": losses, "logits": logits}


MISTAKES = """
  const [entry, file] = process.argv.slice(1);
  const { load, tensor } = await import(entry);
  const m = await load(file, { device: "cpu" });
  const x = new Float32Array(16), y = new BigInt64Array(2);
  const attempts = [
    () => m.predict({ x: new Float64Array(16) }),
    () => m.predict({ x: new Float32Array(15) }),
    () => m.predict({ x: tensor(x, { shape: [4, 4] }) }),
    () => m.predict({}),
    () => m.predict({ x, z: x }),
    () => m.step({ x, y: new BigInt64Array(3) }),
    () => m.run("fit", x),
    () => m.step({ x, y: [0, 7] }).then(({ loss }) => loss.item()),
    () => load("/nothing/there.safetensors", { device: "cpu" }),
    () => load(new Uint8Array(7), { device: "cpu" }),
    () => load(file, { device: "cpu", signal: AbortSignal.abort(new Error("enough")) }),
    () => m.predict({ x }).then((y) => y.argmax()), // what was told is not told again
    () => m.step({ x, y: [2n ** 63n, 0] }),
    () => tensor([[1], [[2]]]),
    () => tensor(new Uint32Array(1)),
    () => load(new Response("", { status: 404 })),
    () => { const t = tensor([1]); t.dispose(); return t.data(); },
    () => { m.dispose(); return m.predict({ x }); },
    () => m.save(),
  ];
  const said = [];
  for (const attempt of attempts) {
    try { await attempt(); said.push("nothing"); } catch (error) { said.push(error.message); }
  }
  console.log(JSON.stringify(said));
"""


def test_what_is_wrong_is_said(package: Path, file: Path) -> None:
    said = json.loads(node(MISTAKES, str(package / "tabtorch.js"), str(file)))
    wanted = [
        r"expected dtype float32 for input 'x' but got float64",
        r"expected shape \[batch, 8\] for input 'x' but got \[15\]",
        r"expected shape \[batch, 8\] for input 'x' but got \[4, 4\]",
        r"missing required input 'x'",
        r"unexpected input 'z'",
        r"expected shape \[batch, 8\] for input 'x' but got \[16\] \(batch = 3\)",
        r"no method 'fit': it has predict, step",
        r"Target 7 is out of bounds",
        r"no such file",
        r"no safetensors file",
        r"enough",
        r"nothing",
        r"value 9223372036854775808 cannot be converted to type int64 without overflow",
        r"the lists are not of one depth everywhere",
        r"Uint32Array is no array of a dtype",
        r"the model cannot be fetched: HTTP 404",
        r"disposed",
        r"disposed",
        r"disposed",
    ]
    assert len(said) == len(wanted)
    for text, pattern in zip(said, wanted, strict=True):
        assert re.search(pattern, text), (text, pattern)


KINDS = """
  import { readFileSync } from "node:fs";
  import { runInNewContext } from "node:vm";
  const [entry, file] = process.argv.slice(1);
  const { load, tensor } = await import(entry);
  globalThis.Float16Array ??= class Float16Array extends Uint16Array {
    get [Symbol.toStringTag]() { return "Float16Array"; }
  };
  const half = new Float16Array(new Uint16Array([0x3c00, 0xc100]).buffer);
  const bytes = Uint8Array.from(readFileSync(file));
  const elsewhere = runInNewContext("(bytes) => { const a = new Uint8Array(bytes.length); a.set(bytes); return a.buffer; }");
  const m = await load(elsewhere(bytes), { device: "cpu" });
  const { sum } = await m.twice({ parts: { half, bytes: Buffer.from([7, 9]) } });
  const extra = await m.twice({ parts: { half, bytes: [1, 2], more: 3 } }).catch((error) => error.message);
  console.log(JSON.stringify([[...await sum.data()], tensor(half).dtype, extra]));
"""


def test_arrays_are_known_by_what_they_are(package: Path, tmp_path: Path) -> None:
    """Node's Buffer, the Float16Array of newer engines, and what another context made."""
    with torch.device("cpu"):
        parts = {"half": torch.zeros(2, dtype=torch.float16), "bytes": torch.zeros(2, dtype=torch.uint8)}
        plan_files.save(
            tmp_path / "m.safetensors", {"twice": (lambda parts: {"sum": parts["half"] + parts["bytes"]}, (parts,))}
        )
    numbers, dtype, extra = json.loads(node(KINDS, str(package / "tabtorch.js"), str(tmp_path / "m.safetensors")))
    assert (numbers, dtype, extra) == ([8.0, 6.5], "float16", "unexpected input 'parts.more'")


KEPT = """
  import { readFileSync, rmSync } from "node:fs";
  const [entry, file] = process.argv.slice(1);
  const { load } = await import(entry);
  const x = [[1, 2, 3]];
  const whole = Uint8Array.from(readFileSync(file)).buffer;
  const fromFile = await load(file, { device: "cpu" });
  const fromBytes = await load(whole, { device: "cpu" });
  rmSync(file);
  structuredClone(whole, { transfer: [whole] });
  const found = [];
  for (const m of [fromFile, fromBytes])
    for (const saved of await Promise.all([m.save(), m.save()])) {
      const other = await load(saved, { device: "cpu" });
      found.push([...await (await other.predict({ x })).data()]);
    }
  console.log(JSON.stringify(found));
"""


def test_it_saves_when_the_file_is_gone(package: Path, tmp_path: Path) -> None:
    """What a method reads is on the device, constants too; and two at once do not disturb each other."""
    path = tmp_path / "m.safetensors"
    with torch.device("cpu"):
        table = torch.arange(6.0).reshape(3, 2)
        plan_files.save(path, {"predict": (lambda x: x @ table, (torch.zeros(1, 3),))})
    assert json.loads(node(KEPT, str(package / "tabtorch.js"), str(path))) == [[16.0, 22.0]] * 4


PROGRESS = """
  import { setTimeout as later } from "node:timers/promises";
  const [entry, file, device] = process.argv.slice(1);
  const { load } = await import(entry);
  const m = await load(file, { device });
  const weights = await m.save();
  const seen = { bytes: [], kernels: [] };
  await load(file, { device, weights, onProgress: (...[done, total, what]) => seen[what].push([done, total]) });
  const unheard = [];
  process.on("unhandledRejection", (error) => unheard.push(error.message));
  // one that comes slowly, so that kernels are there before it
  class Slow extends Blob {
    slice(...args) {
      const part = super.slice(...args);
      part.arrayBuffer = async () => { await later(300); return Blob.prototype.arrayBuffer.call(part); };
      return part;
    }
  }
  const fail = (what) => { throw new Error("in " + what); };
  const said = await load(new Slow([weights]), { device, onProgress: (_, __, what) => fail(what) }).catch((error) => error.message);
  // a GPU that never has its kernels
  const { create } = await import("webgpu");
  const dawn = create([]);
  const gpu = {
    async requestAdapter(options) {
      const adapter = await dawn.requestAdapter(options);
      const request = adapter.requestDevice.bind(adapter);
      adapter.requestDevice = async (wanted) => {
        const device = await request(wanted);
        device.createComputePipelineAsync = () => new Promise(() => {});
        return device;
      };
      return adapter;
    },
  };
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error("enough")), 200);
  const stopped = { device, gpu, signal: stop.signal };
  const ended = device === "cpu" || (await load(file, stopped).catch((error) => error.message));
  await later(50);
  console.log(JSON.stringify({ seen, said, ended, unheard }));
"""


@pytest.mark.parametrize("device", DEVICES)
def test_progress_goes_up_to_its_end(package: Path, fixed: Path, device: str) -> None:
    """With weights of another file, too; and what the callback throws is the load's error, once."""
    if device == "webgpu" and not graph.bridge().info.get("webgpu"):
        pytest.skip("there is no WebGPU")
    found = json.loads(node(PROGRESS, str(package / "tabtorch.js"), str(fixed), device))
    for what, events in found["seen"].items():
        assert events == sorted(events) and len({total for _, total in events}) == (
            device == "webgpu" or what == "bytes"
        )
        assert not events or events[-1][0] == events[-1][1]
    assert found["said"].startswith("in ") and not found["unheard"], found
    assert found["ended"] == (device == "cpu" or "enough"), found


TURNS = """
  const [entry, file] = process.argv.slice(1);
  const { load } = await import(entry);
  const m = await load(file, { device: "cpu" });
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  let most = 0;
  for (let k = 0; k < 400; k++) {
    await m.predict([k]); // 2 MB, which nobody takes
    most = Math.max(most, m.stats().bytes);
  }
  clearInterval(timer);
  console.log(JSON.stringify({ turns, most }));
"""


def test_results_that_nobody_takes_are_given_back(package: Path, tmp_path: Path) -> None:
    """On the cpu device, too, where nothing is waited for: others of its thread have their turn."""
    with torch.device("cpu"):
        predict = lambda x: x.reshape(1, 1).expand(1000, 500) + 1  # noqa: E731
        plan_files.save(tmp_path / "m.safetensors", {"predict": (predict, (torch.zeros(1),))})
    found = json.loads(node(TURNS, str(package / "tabtorch.js"), str(tmp_path / "m.safetensors")))
    assert found["turns"] > 2 and found["most"] < 600e6, found


LOSSES = """
  const [entry, file] = process.argv.slice(1);
  const { load } = await import(entry);
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  const dawn = create([]);
  let device;
  const gpu = {
    async requestAdapter(options) {
      const adapter = await dawn.requestAdapter(options);
      const request = adapter.requestDevice.bind(adapter);
      adapter.requestDevice = async (wanted) => { device = await request(wanted); return device; };
      return adapter;
    },
  };
  const m = await load(file, { device: "webgpu", gpu });
  const x = Float32Array.from({ length: 32 }, (_, i) => Math.sin(i)), y = BigInt64Array.from([0n, 1n, 2n, 0n]);
  const step = async () => {
    const { loss } = await m.step({ x, y });
    const value = await loss.item();
    loss.dispose();
    return value;
  };
  const first = await step();
  await m.save();
  const second = await step();
  const found = [];
  for (let k = 0; k < 3; k++) {
    const { lost } = m;
    device.destroy();
    await lost;
    const said = await step().catch((error) => error.message);
    if (k === 1) (await load(file, { device: "webgpu", gpu })).dispose(); // which takes another device, too
    await Promise.all([m.revive(), m.revive()]);
    found.push([said, (await step()) === second]);
  }
  m.dispose();
  const { bytes, buffers } = m.stats();
  console.log(JSON.stringify({ found, bytes, buffers, learnt: second < first || second > first }));
"""


def test_it_goes_on_after_lost_devices(package: Path, fixed: Path) -> None:
    """From what was saved last; and nothing is left on the device when it is disposed of."""
    if not graph.bridge().info.get("webgpu"):
        pytest.skip("there is no WebGPU")
    done = json.loads(node(LOSSES, str(package / "tabtorch.js"), str(fixed)))
    assert done["learnt"] and done["bytes"] == done["buffers"] == 0
    assert len(done["found"]) == 3
    for said, same in done["found"]:
        assert same and "lost" in said and "revive()" in said


HOSTILE = """
  import { readFileSync } from "node:fs";
  const [entry, count, seed, ...files] = process.argv.slice(1);
  const { load } = await import(entry);
  let state = Number(seed);
  const random = (n) => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return Math.floor((state / 2 ** 32) * n); };
  const wild = [null, -1, 0, 1, 2 ** 31, 2 ** 53, 1.5, "s", [], {}, [[]], true, "nan", 1e308];
  // one place of a tree of JSON, at random, is something else
  const disturb = (x) => {
    const keys = Object.keys(x);
    const key = keys[random(keys.length)];
    if (key === undefined) return;
    const inner = x[key];
    if (typeof inner === "object" && inner !== null && random(12) > 0) return disturb(inner);
    const how = random(4);
    if (how === 0 && Array.isArray(x)) x.splice(Number(key), 1);
    else if (how === 0) delete x[key];
    else if (how === 1 && typeof inner === "number") x[key] = inner + random(9) - 4;
    else x[key] = structuredClone(wild[random(wild.length)]);
  };
  let errors = 0, slowest = 0;
  for (let k = 0; k < Number(count); k++) {
    const bytes = readFileSync(files[k % files.length]);
    const n = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + n).toString());
    const plan = JSON.parse(header.__metadata__["tabtorch.plan"]);
    for (let i = 0; i <= random(2); i++) disturb(random(8) ? plan : header);
    header.__metadata__ ??= {};
    if (typeof header.__metadata__ === "object") header.__metadata__["tabtorch.plan"] = JSON.stringify(plan);
    const text = Buffer.from(JSON.stringify(header));
    const head = Buffer.alloc(8);
    head.writeBigUInt64LE(BigInt(text.length));
    const began = performance.now();
    try {
      const m = await load(new Uint8Array(Buffer.concat([head, text, bytes.subarray(8 + n)])), { device: "cpu" });
      try {
        const x = new Float32Array(16);
        await (await m.predict({ x })).data();
        await (await m.step({ x, y: new BigInt64Array(2) })).loss.item();
      } finally { m.dispose(); }
    } catch (error) {
      if (!(error instanceof Error)) throw new Error("no Error: " + error);
      errors++;
    }
    slowest = Math.max(slowest, performance.now() - began);
  }
  console.log(JSON.stringify({ errors, slowest }));
"""


def test_mutated_plans_are_errors_or_run(package: Path, file: Path) -> None:
    """Nothing hangs or crashes; most are errors. The cpu's kernels are JavaScript, which is as trusted as the page's own."""
    found = json.loads(node(HOSTILE, str(package / "tabtorch.js"), "120", "1", str(file)))
    assert found["errors"] > 20
    assert found["slowest"] < 10_000


def test_weights_of_another_file_take_their_place(package: Path, file: Path, tmp_path: Path) -> None:
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3)).eval()
        other = tmp_path / "other.safetensors"
        safetensors.save_file(model.state_dict(), str(other))
        safetensors.save_file({"0.weight": torch.zeros(3, 3)}, str(tmp_path / "wrong.safetensors"))
    script = """
      const [entry, file, weights, wrong] = process.argv.slice(1);
      const { load } = await import(entry);
      const m = await load(file, { device: "cpu", weights });
      const state = await m.state();
      const said = await load(file, { device: "cpu", weights: wrong }).catch((error) => error.message);
      console.log(JSON.stringify([[...await state["3.bias"].data()], said]));
    """
    arguments = [str(package / "tabtorch.js"), str(file), str(other), str(tmp_path / "wrong.safetensors")]
    bias, said = json.loads(node(script, *arguments))
    assert bias == model[3].bias.tolist()
    assert "size mismatch for '0.weight'" in said


def test_a_saved_file_is_one_for_python_too(package: Path, file: Path, tmp_path: Path) -> None:
    script = """
      import { writeFileSync } from "node:fs";
      const [entry, file, out] = process.argv.slice(1);
      const { load } = await import(entry);
      const m = await load(file, { device: "cpu" });
      const x = Float32Array.from({ length: 32 }, (_, i) => i % 5), y = BigInt64Array.from([0n, 1n, 2n, 0n]);
      await m.step({ x, y });
      writeFileSync(out, new Uint8Array(await (await m.save()).arrayBuffer()));
      console.log(await (await m.step({ x, y })).loss.item());
    """
    out = tmp_path / "saved.safetensors"
    loss = float(node(script, str(package / "tabtorch.js"), str(file), str(out)))
    with torch.device("cpu"):
        m = plan_files.load(out, device="cpu")
        assert m.numbers["optimizer.0.weight.step"] == 1
        x = torch.tensor([float(i % 5) for i in range(32)]).reshape(4, 8)
        assert m.step(x, torch.tensor([0, 1, 2, 0]))["loss"].item() == loss
    n = struct.unpack("<Q", out.read_bytes()[:8])[0]
    assert n % 8 == 0
