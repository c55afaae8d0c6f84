"""The host random streams, run in Node, against PyTorch's own generator."""

import base64
import json
import shutil
import subprocess

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabtorch.base import random_streams as rs

HARNESS = r"""
const types = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u32: Uint32Array, u8: Uint8Array, i8: Int8Array,
  i16: Int16Array, u16: Uint16Array };
const buffers = new Map();
const compiled = new Map();
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const m = JSON.parse(line);
  let reply = null;
  try {
    if (m.set) buffers.set(m.set, new Uint8Array(Buffer.from(m.data, "base64")).slice().buffer);
    else if (m.get) reply = Buffer.from(buffers.get(m.get)).toString("base64");
    else if (m.define) {
      const names = m.bindings.map((_, i) => `b${i}`);
      compiled.set(m.define, { call: new Function("P", "I", "F", "D", "Q", ...names, "G", m.source), m });
    } else if (m.eval) reply = new Function(m.eval)();
    else {
      const k = compiled.get(m.run);
      const block = new ArrayBuffer(Math.ceil(k.m.words / 2) * 8);
      const view = new DataView(block);
      k.m.scalars.forEach(([, type, word], i) => {
        if (type === "u32") view.setUint32(4 * word, m.scalars[i], true);
        else if (type === "f64") view.setFloat64(4 * word, m.scalars[i], true);
        else view.setBigInt64(4 * word, BigInt(m.scalars[i]), true);
      });
      if (m.nbytes !== null) buffers.set("out", new ArrayBuffer(m.nbytes));
      const args = m.buffers.map((name, i) => new types[k.m.bindings[i][0]](buffers.get(name)));
      k.call(new Uint32Array(block), new Int32Array(block), new Float32Array(block), new Float64Array(block),
        new BigInt64Array(block), ...args, [1, 1, 1]);
    }
    console.log(JSON.stringify({ reply }));
  } catch (e) {
    console.log(JSON.stringify({ error: e.message }));
  }
});
"""


class Node:
    """The cpu device in miniature: one Node process, named buffers, kernels by their `HostKernel`."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["node", "-e", HARNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.known = set()

    def send(self, **message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["reply"]

    def set(self, name, data):
        self.send(set=name, data=base64.b64encode(data).decode())

    def get(self, name):
        return base64.b64decode(self.send(get=name))

    def run(self, draw, data=None):
        kernel = draw.kernel
        if kernel.name not in self.known:
            self.known.add(kernel.name)
            self.send(
                define=kernel.name,
                source=kernel.source,
                bindings=kernel.bindings,
                scalars=kernel.scalars,
                words=kernel.words,
            )
        names = ["state"]
        if data is not None:
            self.set("in", data)
            names.append("in")
        if len(kernel.bindings) > len(names):
            names.append("out")
        scalars = [str(v) if s.type == "i64" else v for s, v in zip(kernel.scalars, draw.scalars, strict=True)]
        self.send(run=kernel.name, scalars=scalars, nbytes=draw.nbytes, buffers=names)
        if draw.elements == 0:
            return None
        return torch.frombuffer(bytearray(self.get("out")), dtype=getattr(torch, draw.dtype))

    def seed(self, value):
        self.set("state", bytes(rs.STATE_BYTES))
        self.run(rs.seed(value))
        torch.manual_seed(value)

    def same_state(self):
        return rs.state_to_torch(self.get("state")) == torch.get_rng_state().numpy().tobytes()


@pytest.fixture(scope="module")
def node():
    if not shutil.which("node"):
        pytest.skip("Node is not installed")
    one = Node()
    yield one
    one.process.stdin.close()
    one.process.stdout.close()
    one.process.wait()


def raw(t):
    return t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes()


def same(mine, theirs, ulps=0.0, scale=1e-3):
    """Bit for bit, or to within `ulps` units in the last place (of `scale`, for smaller numbers)."""
    assert mine.dtype == theirs.dtype and mine.numel() == theirs.numel()
    if raw(mine) == raw(theirs):
        return
    assert ulps, f"{mine} != {theirs}"
    a, b = mine.double(), theirs.reshape(-1).double()
    assert torch.equal(a.isfinite(), b.isfinite())
    ok = a.isfinite()
    unit = torch.finfo(mine.dtype).eps * b.abs().clamp(min=scale)
    assert ((a - b).abs()[ok] <= ulps * unit[ok]).all(), ((a - b).abs() / unit).max()


SIZES = [*range(1, 41), 63, 100, 624, 1000, 5003]
SEEDS = [0, 1, 42, -1, 2**32 + 5, 2**64 - 1, -(2**63)]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def empty(n, dtype):
    return torch.empty(n, dtype=dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeding_and_state(node, seed):
    node.seed(seed)
    assert node.same_state()
    assert rs.state_seed(node.get("state")) == torch.initial_seed() == rs.normalize_seed(seed)
    same(node.run(rs.uniform("float32", 1000)), torch.rand(1000))
    assert node.same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(node, dtype):
    node.seed(7)
    for n in SIZES:
        same(node.run(rs.uniform(dtype, n)), torch.rand(n, dtype=dtype))
    for low, high in [(-1, 1), (-0.037, 0.037), (0.1, 0.7), (3, 3), (-5, 1e-3), (100, 1000), (1e-20, 2e-20)]:
        same(node.run(rs.uniform(dtype, 3000, low, high)), empty(3000, dtype).uniform_(low, high))
    assert node.same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(node, dtype):
    for seed in (0, 3):
        node.seed(seed)
        for n in SIZES:
            same(node.run(rs.normal(dtype, n)), torch.randn(n, dtype=dtype), 4 if dtype == torch.float64 else 0)
        ulps = 4 if dtype == torch.float64 else 1
        for mean, std in [(0.0, 0.02), (1.5, 2.0), (-3.0, 0.1), (2.0, 0.0)]:
            for n in (7, 16, 33, 2000):
                theirs = empty(n, dtype).normal_(mean, std)
                same(node.run(rs.normal(dtype, n, mean, std)), theirs, ulps, abs(mean) + std)
        mine = rs.state_to_torch(node.get("state"))  # the cached normal may be off by a unit, the rest may not
        assert mine[:5024] == torch.get_rng_state().numpy().tobytes()[:5024]


@pytest.mark.parametrize("seed", range(4))
def test_float32_randn_is_exact(node, seed):
    node.seed(seed)
    same(node.run(rs.normal("float32", 100003)), torch.randn(100003))
    same(node.run(rs.normal("float32", 100000, 0.5, 0.02)), torch.empty(100000).normal_(0.5, 0.02))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_random_full(node, dtype):
    node.seed(11)
    for n in (1, 5, 1000):
        same(node.run(rs.random_full(dtype, n)), empty(n, dtype).random_())


RANGES = [
    *[(0, 1), (0, 2), (0, 100), (-100, 100), (3, 256), (-5, 60000), (5, None), (-(2**63), None)],
    *[(0, 2**28 - 1), (0, 2**28), (-7, 2**28), (0, 2**36), (0, 2**40 + 3)],
    *[(-(2**31), 2**31 - 1), (-(2**62), 2**62), (-(2**63), 2**63 - 1), (2**60, 2**60 + 7)],
]


@pytest.mark.filterwarnings("ignore:.*out of bounds")
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_random_range(node, dtype):
    node.seed(12)
    for low, high in RANGES:
        for n in (1, 500):
            try:
                theirs = empty(n, dtype).random_(low, high)
            except (RuntimeError, NotImplementedError) as error:
                with pytest.raises(type(error)) as mine:
                    rs.random_range(dtype, n, low, high)
                assert str(mine.value) == str(error)
                continue
            same(node.run(rs.random_range(dtype, n, low, high)), theirs)
    assert node.same_state()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_bernoulli(node, dtype):
    node.seed(13)
    for p in (0.0, 0.3, 0.5, 1.0):
        same(node.run(rs.bernoulli(dtype, 500, p)), empty(500, dtype).bernoulli_(p))
    for p_dtype in FLOATS:
        p = torch.rand(500).to(p_dtype)
        node.run(rs.uniform("float32", 500))
        same(node.run(rs.bernoulli_tensor(dtype, 500, p_dtype), raw(p)), empty(500, dtype).bernoulli_(p))
    assert node.same_state()
    with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1 to be true"):
        node.run(rs.bernoulli_tensor("float32", 1, "float32"), raw(torch.tensor([1.5])))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS[:-1]])
def test_randperm(node, dtype):
    node.seed(14)
    for n in [*range(20), 100, 255, 256, 257, 300, 1000, 2049, 2050, 40000]:
        try:
            theirs = torch.randperm(n, dtype=dtype)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as mine:
                rs.randperm(dtype, n)
            assert str(mine.value) == str(error)
            continue
        if n:
            same(node.run(rs.randperm(dtype, n)), theirs)
    assert node.same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous(node, dtype):
    node.seed(15)
    for rate in (1.0, 0.3, 20.0):
        same(node.run(rs.exponential(dtype, 2000, rate)), empty(2000, dtype).exponential_(rate), 4)
    same(node.run(rs.cauchy(dtype, 2000, 1.0, 2.5)), empty(2000, dtype).cauchy_(1.0, 2.5), 64)
    same(node.run(rs.log_normal(dtype, 2000, 0.5, 0.7)), empty(2000, dtype).log_normal_(0.5, 0.7), 8)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32])
def test_geometric(node, dtype):
    node.seed(16)
    for p in (0.9, 0.5, 0.05):
        same(node.run(rs.geometric(dtype, 2000, p)), empty(2000, dtype).geometric_(p))


@pytest.mark.parametrize("dtype", FLOATS)
def test_poisson(node, dtype):
    node.seed(18)
    for top in (0.0, 1.0, 9.0, 12.0, 200.0, 5e4):
        rates = (torch.rand(500) * top).to(dtype)
        node.run(rs.uniform("float32", 500))
        same(node.run(rs.poisson(dtype, 500), raw(rates)), torch.poisson(rates))
    assert node.same_state()
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        node.run(rs.poisson(dtype, 1), raw(torch.tensor([-1.0], dtype=dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_multinomial(node, dtype):
    node.seed(17)
    for shape, samples in [((5,), 3), ((5,), 1), ((4, 10), 7), ((3, 100), 1), ((1, 1), 1), ((2, 1000), 200)]:
        p = torch.rand(shape).to(dtype)
        node.run(rs.uniform("float32", p.numel()))
        for replacement in (True, False):
            theirs = torch.multinomial(p, samples, replacement)
            if dtype.itemsize == 2 and not replacement and samples > 1:
                continue  # ties are many, and torch.topk breaks them as it likes
            same(node.run(rs.multinomial(dtype, shape, samples, replacement), raw(p)), theirs)
        node.set("state", rs.state_from_torch(torch.get_rng_state().numpy().tobytes()))
    for bad in ([1.0, -1.0], [1.0, float("inf")], [1.0, float("nan")], [0.0, 0.0]):
        p = torch.tensor(bad, dtype=dtype)
        with pytest.raises(RuntimeError) as theirs:
            torch.multinomial(p, 2, True)
        with pytest.raises(RuntimeError) as mine:
            node.run(rs.multinomial(dtype, (2,), 2, True), raw(p))
        assert str(mine.value) == str(theirs.value)


STEPS = {
    "rand": (lambda n: torch.rand(n), lambda n: rs.uniform("float32", n)),
    "rand64": (lambda n: torch.rand(n, dtype=torch.float64), lambda n: rs.uniform("float64", n)),
    "randn": (lambda n: torch.randn(n), lambda n: rs.normal("float32", n)),
    "randn64": (lambda n: torch.randn(n, dtype=torch.float64), lambda n: rs.normal("float64", n)),
    "randnhalf": (lambda n: torch.randn(n, dtype=torch.float16), lambda n: rs.normal("float16", n)),
    "randperm": (lambda n: torch.randperm(n), lambda n: rs.randperm("int64", n)),
    "randint": (lambda n: torch.randint(0, 10, (n,)), lambda n: rs.random_range("int64", n, 0, 10)),
    "randint64": (lambda n: torch.randint(0, 2**40, (n,)), lambda n: rs.random_range("int64", n, 0, 2**40)),
    "bernoulli": (lambda n: torch.empty(n).bernoulli_(0.4), lambda n: rs.bernoulli("float32", n, 0.4)),
    "serial": (lambda n: torch.empty(n, 2)[:, 0].normal_(), lambda n: rs.normal("float32", n, contiguous=False)),
}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-(2**63), 2**64 - 1),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 70)), min_size=1, max_size=8),
)
def test_interleaved(node, seed, steps):
    node.seed(seed)
    for i, (name, n) in enumerate(steps):
        theirs, mine = STEPS[name]
        same(node.run(mine(n)), theirs(n), 4)
        if i == 2:  # both ways through PyTorch's bytes
            node.set("state", rs.state_from_torch(torch.get_rng_state().numpy().tobytes()))
            torch.set_rng_state(torch.frombuffer(bytearray(rs.state_to_torch(node.get("state"))), dtype=torch.uint8))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_fill_order(data):
    dims = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=dims, max_size=dims))
    t = torch.empty(shape).permute(data.draw(st.permutations(range(dims))))
    t = t[tuple(slice(None, None, data.draw(st.integers(1, 2))) for _ in range(dims))]
    order = rs.fill_order(t.shape, t.stride())
    torch.manual_seed(5)
    t.random_(1000)
    torch.manual_seed(5)
    if order is None:
        drawn = torch.randint(0, 1000, t.shape)
    else:
        drawn = torch.randint(0, 1000, [t.shape[d] for d in order])
        drawn = drawn.permute([order.index(d) for d in range(dims)])
    assert torch.equal(t.long(), drawn)


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error), str(error).split("  (Could")[0]
    return None


@pytest.mark.parametrize(
    "theirs, mine",
    [
        (lambda: torch.empty(3).uniform_(2, 1), lambda: rs.uniform("float32", 3, 2, 1)),
        (lambda: torch.empty(3).uniform_(-1e39, 1), lambda: rs.uniform("float32", 3, -1e39, 1)),
        (lambda: torch.empty(3).uniform_(-3e38, 3e38), lambda: rs.uniform("float32", 3, -3e38, 3e38)),
        (lambda: empty(3, torch.half).uniform_(0, 1e6), lambda: rs.uniform("float16", 3, 0, 1e6)),
        (lambda: empty(3, torch.int64).uniform_(), lambda: rs.uniform("int64", 3)),
        (lambda: torch.empty(3).normal_(0, -1), lambda: rs.normal("float32", 3, 0, -1)),
        (lambda: empty(3, torch.int32).normal_(), lambda: rs.normal("int32", 3)),
        (lambda: torch.randint(5, 5, (2,)), lambda: rs.random_range("int64", 2, 5, 5)),
        (lambda: empty(3, torch.complex64).random_(), lambda: rs.random_full("complex64", 3)),
        (lambda: torch.empty(3).bernoulli_(1.5), lambda: rs.bernoulli("float32", 3, 1.5)),
        (lambda: empty(3, torch.complex64).bernoulli_(0.5), lambda: rs.bernoulli("complex64", 3, 0.5)),
        (lambda: torch.empty(3).geometric_(0), lambda: rs.geometric("float32", 3, 0)),
        (lambda: empty(3, torch.bool).geometric_(0.5), lambda: rs.geometric("bool", 3, 0.5)),
        (lambda: torch.empty(3).exponential_(-1), lambda: rs.exponential("float32", 3, -1)),
        (lambda: empty(3, torch.int32).exponential_(), lambda: rs.exponential("int32", 3)),
        (lambda: torch.empty(3).cauchy_(0, 0), lambda: rs.cauchy("float32", 3, 0, 0)),
        (lambda: empty(3, torch.int32).cauchy_(), lambda: rs.cauchy("int32", 3)),
        (lambda: torch.empty(3).log_normal_(0, 0), lambda: rs.log_normal("float32", 3, 0, 0)),
        (lambda: empty(3, torch.int32).log_normal_(), lambda: rs.log_normal("int32", 3)),
        (lambda: torch.randperm(-1), lambda: rs.randperm("int64", -1)),
        (lambda: torch.randperm(3, dtype=torch.bool), lambda: rs.randperm("bool", 3)),
        (lambda: torch.randperm(1, dtype=torch.bool), lambda: rs.randperm("bool", 1)),
        (lambda: torch.randperm(40000, dtype=torch.int16), lambda: rs.randperm("int16", 40000)),
        (lambda: torch.randperm(200, dtype=torch.int8), lambda: rs.randperm("int8", 200)),
        (lambda: torch.randperm(2**24 + 2, dtype=torch.float32), lambda: rs.randperm("float32", 2**24 + 2)),
        (lambda: empty(3, torch.int64).cauchy_(), lambda: rs.cauchy("int64", 3)),
        (lambda: torch.poisson(torch.ones(2).long()), lambda: rs.poisson("int64", 2)),
        (lambda: torch.randperm(3, dtype=torch.complex64), lambda: rs.randperm("complex64", 3)),
        (lambda: torch.multinomial(torch.ones(3), 0), lambda: rs.multinomial("float32", (3,), 0)),
        (lambda: torch.multinomial(torch.ones(3), 4), lambda: rs.multinomial("float32", (3,), 4)),
        (lambda: torch.multinomial(torch.ones(3).long(), 1), lambda: rs.multinomial("int64", (3,), 1)),
        (lambda: torch.multinomial(torch.ones(3, 1, 1), 1), lambda: rs.multinomial("float32", (3, 1, 1), 1)),
        (lambda: torch.manual_seed(2**64), lambda: rs.seed(2**64)),
        (lambda: torch.manual_seed(-(2**63) - 1), lambda: rs.seed(-(2**63) - 1)),
        (lambda: torch.set_rng_state(torch.zeros(10, dtype=torch.uint8)), lambda: rs.state_from_torch(bytes(10))),
        (lambda: torch.set_rng_state(torch.zeros(5056, dtype=torch.uint8)), lambda: rs.state_from_torch(bytes(5056))),
    ],
)
def test_errors(theirs, mine):
    assert error_of(theirs) is not None
    assert error_of(mine) == error_of(theirs)


def test_kernels_compile(node):
    assert len({k.name for k in rs.all_kernels()}) == len(rs.all_kernels())
    for kernel in rs.all_kernels():
        node.send(
            define=kernel.name,
            source=kernel.source,
            bindings=kernel.bindings,
            scalars=kernel.scalars,
            words=kernel.words,
        )
        assert all(s.word % 2 == 0 for s in kernel.scalars if s.type != "u32")
