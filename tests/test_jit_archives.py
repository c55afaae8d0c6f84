"""TorchScript archives that real PyTorch writes, read here: equal results, and nothing of them executed."""

import ast
import enum
import io
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import tabtorch

PACKAGE = Path(tabtorch.__file__).parent / "jit"


def archive(module: Any) -> bytes:
    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()


def loaded(data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tabtorch.jit.load(data)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def ours(x: Any) -> Any:
    return tabtorch.tensor(x.numpy()) if isinstance(x, torch.Tensor) else x


def same(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=2e-4, atol=1e-5)
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(want) == list(got)
        same(list(want.values()), list(got.values()))
    else:
        assert want == got and type(want) is type(got)


def check(module: Any, *args: Any) -> Any:
    net = loaded(archive(module))
    same(module(*args), net(*[ours(a) for a in args]))
    return net


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(3, 4, 2, batch_first=True)
        self.second = nn.GRU(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        a, (h, c) = self.first(x)
        return self.second(a)[0], h, c


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)
    )


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.randn(1, 1, 8, 8))])
def test_a_cnn(make: Any) -> None:
    net = check(make(cnn().eval()), torch.randn(2, 1, 8, 8))
    assert isinstance(net, tabtorch.nn.Module) and not net.training
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in cnn().named_parameters()]
    assert set(net.state_dict()) == set(cnn().state_dict())


def test_a_transformer() -> None:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        check(torch.jit.script(net), x)
        check(torch.jit.trace(net, x), x)


def test_recurrent_layers_and_training() -> None:
    net = check(torch.jit.trace(Recurrent(), torch.randn(2, 5, 3)), torch.randn(2, 5, 3))
    net(tabtorch.randn(2, 5, 3))[0].sum().backward()
    assert all(p.grad is not None for p in net.parameters())


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: torch.Tensor
    b: int


class Counter:
    def __init__(self, n: int):
        self.n = n
        self.items: list[int] = []

    def push(self, x: int) -> None:
        self.items.append(x)
        self.n += x


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.jit.script(Counter)


class Zoo(nn.Module):
    names: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.names = {"a": 1}
        self.color = Color.RED
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.register_buffer("count", torch.zeros(3))

    @torch.jit.export
    def other(self, x: torch.Tensor, n: int = 4) -> torch.Tensor:
        return x + n

    def forward(self, x: torch.Tensor, n: int, flag: bool):  # type: ignore[no-untyped-def]
        for layer in self.layers:
            x = torch.relu(layer(x))
        counter = Counter(2)
        i = 0
        while i < n:
            i += 1
            if i == 3:
                continue
            if i == 6:
                break
            counter.push(i)
        for j in range(2, 10, 3):
            x = x + j // 2 + j / 2 + j % 3 + float(j) ** 2
        found = {"x": x}
        for v in found.values():
            x = x + v
        if self.color == Color.RED:
            x = x + self.names["a"]
        x[0, 1] = 5.0
        self.count = self.count + 1
        if flag:
            rest = [k * 2 for k in range(n)]
        else:
            with torch.no_grad():
                x = x * 2
            rest = [n // -2, n % -2]
        return x, counter.items, Pair(x, i), rest, counter.n, len(f"{n} {x.dim()}")


@pytest.mark.parametrize("n", [0, 2, 7])
@pytest.mark.parametrize("flag", [False, True])
def test_control_flow_and_classes(n: int, flag: bool) -> None:
    net = check(torch.jit.script(Zoo()), torch.randn(4, 3), n, flag)
    assert net.other(tabtorch.ones(1)).tolist() == [5]
    assert net(tabtorch.ones(4, 3), n, flag)[2].b == min(n, 6)


class Raises(nn.Module):
    def forward(self, x: int) -> int:
        if x > 1:
            raise ValueError(f"bad {x}")
        return x // 0


def test_errors_say_where() -> None:
    net = loaded(archive(torch.jit.script(Raises())))
    with pytest.raises(tabtorch.jit.Error, match="bad 2") as caught:
        net(2)
    assert any("line" in note for note in caught.value.__notes__)
    with pytest.raises(RuntimeError, match="division by 0"):
        net(0)
    with pytest.raises(RuntimeError, match="missing value for argument"):
        net()


def changed(data: bytes, name: str, new: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as made:
        for each in old.namelist():
            made.writestr(each, new if each.endswith(name) else old.read(each))
    return out.getvalue()


CODE = """class Raises(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  _is_full_backward_hook : Optional[bool]
  def forward(self: __torch__.Raises,
    x: int) -> int:
    return {}
"""


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "os.system('true')",
        "open('/etc/passwd')",
        "eval('1')",
        "torch.save(x, 'file')",
        "torch.from_file('file')",
        "torch.hub.load('x', 'y')",
        "torch.importlib('os')",
        "torch.__reduce__(x)",
        "ops.mine.call(x)",
        "lambda: x",
        "[y for y in x]",
        "-" * 5000 + "1",
        "(" * 150 + "x" + ")" * 150 + "[0]" * 90,
        "__torch__.nothing(x)",
    ],
)
def test_hostile_code_is_refused_at_load(expression: str) -> None:
    data = archive(torch.jit.script(Raises()))
    name = next(n for n in zipfile.ZipFile(io.BytesIO(data)).namelist() if n.endswith(".py"))
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        qualified = z.read(name).decode().partition("def forward(self: ")[2].partition(",")[0]
    good = changed(data, ".py", CODE.replace("__torch__.Raises", qualified).format("x").encode())
    assert loaded(good)(3) == 3
    bad = CODE.replace("__torch__.Raises", qualified).format(expression)
    with pytest.raises(RuntimeError):
        loaded(changed(data, ".py", bad.encode()))


@pytest.mark.parametrize("attribute", ["__class__", "_script", "__dict__", "parameters"])
def test_no_attribute_of_python_is_reached(attribute: str) -> None:
    data = archive(torch.jit.script(Raises()))
    net = loaded(changed(data, ".py", CODE.format(f"self.{attribute}").encode()))
    with pytest.raises(RuntimeError, match="has no attribute"):
        net(1)


def test_pickles_name_only_what_is_listed() -> None:
    data = archive(torch.jit.script(Raises()))
    for line in (b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch.hub\nload\n", b"c__torch__\nNothing\n"):
        with pytest.raises(Exception, match="may not name|no class"):
            loaded(changed(data, "data.pkl", b"\x80\x02" + line + b"X\x04\0\0\0true\x85R."))


def test_nothing_executes_text() -> None:
    """No call of exec, eval, compile(…) or an import by name in the reader."""
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("exec", "eval", "compile", "__import__"), file


def test_every_operator_that_is_found_is_atens() -> None:
    from tabtorch.jit import operators
    from tabtorch.ops import aten

    theirs = {s.name.rpartition("::")[2] for s in torch._C._jit_get_all_schemas()}
    risky = {n for n in (*dir(tabtorch), *dir(tabtorch.Tensor)) if n not in theirs and aten.lookup(n)}
    callable_here = set()
    for name in risky:
        try:
            operators.find(name, 10)
        except RuntimeError:
            continue
        callable_here.add(name)
    dangerous = {"importlib", "numpy", "save", "load", "storage", "apply_", "map_", "guard", "read", "data_ptr"}
    assert not callable_here & dangerous


class Older(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        filled = [torch.full([2], 7), torch.full([2], 7, dtype=torch.int64), torch.full([2], 2.5)]
        z = x.clone()
        if not x.is_floating_point() and not y.is_floating_point():
            z.div_(y, rounding_mode="trunc")
        else:
            z = z.float().div_(y)
        divided = [x / y, torch.div(x, 2), x / 2.5, torch.div(x, y, rounding_mode="floor"), z]
        return filled + divided + [x.float().log_softmax(0)]


@pytest.mark.parametrize("version", [3, 4, 5, 8, 10])
@pytest.mark.parametrize("kinds", ["ii", "if", "fi", "ff"])
def test_operators_mean_what_they_meant(version: int, kinds: str) -> None:
    """The same archive under each version, as PyTorch runs it: before 4 `div` of integers was another, before 5 `full`."""
    data = archive(torch.jit.script(Older()))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        (name,) = [n for n in file.namelist() if n.endswith("/version")]
    data = changed(data, name.partition("/")[2], f"{version}\n".encode())
    whole, real = torch.tensor([7, -7, 5]), torch.tensor([7.5, -7.5, 5.0])
    given = [(whole if k == "i" else real) // (n + 1) for n, k in enumerate(kinds)]
    want = torch.jit.load(io.BytesIO(data))(*given)
    have = loaded(data)(*[tabtorch.tensor(g.tolist()) for g in given])
    for w, h in zip(want, have, strict=True):
        assert str(w.dtype) == str(h.dtype)
        same(w, h)


class Odds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Named(), Named()])
        self.named = nn.ModuleDict({"a": Named()})

    def forward(self, x: torch.Tensor, i: int, k: str):  # type: ignore[no-untyped-def]
        layer: Layer = self.layers[i]
        other: Layer = self.named[k]
        with torch.autograd.profiler.record_function("here"):
            y = layer.forward(x) + other.forward(x)
        return y, "%d of %s" % (i, k), torch.view_as_real(x * (1.5 - 2j))  # noqa: UP031 (it is what is read)


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Layer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[empty-body]
        pass


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.jit.interface(Layer)


def test_modules_by_index_and_complex_constants() -> None:
    check(torch.jit.script(Odds()), torch.randn(3), 1, "a")


class Packing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor, n: torch.Tensor):  # type: ignore[no-untyped-def]
        packed = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        y, h = self.inner(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True), h


def test_packed_sequences() -> None:
    check(torch.jit.script(Packing()), torch.randn(3, 6, 3), torch.tensor([3, 6, 2]))


@pytest.mark.parametrize("traced", [False, True])
def test_padding_on_the_fast_path(traced: bool) -> None:
    """There PyTorch's encoder makes a nested tensor of what is not padding."""
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 3:] = True
    with torch.no_grad(), tabtorch.no_grad(), tabtorch.device("cpu"):
        check(torch.jit.trace(Masked(net), (x, mask)) if traced else torch.jit.script(Masked(net)), x, mask)


class Masked(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.net(x, src_key_padding_mask=mask)
