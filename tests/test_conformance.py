"""A slice of the conformance run (`make conformance`): every operator of PyTorch's table, a few samples of each."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.opinfo.core import SampleInput

import tabtorch
from conformance import checks, compare, drawing, drawn, left_out, modules, mutate, relaid, report, slices
from conformance.checks import Answer

ROOT = Path(__file__).parents[1]


def _expect(a: Answer) -> None:
    if a.failed:
        reason = left_out.reason(a)
        assert reason, "\n".join(f"{f.sample}\n  {f.why}" for f in a.failures)
        pytest.skip(reason)


def _asked(check: str) -> list[str]:
    return [n for n, op in checks.operators().items() if (check, "float32") in checks.asked(op, "cpu")]


@pytest.mark.parametrize("name", _asked("forward"))
def test_forward(name: str, device: str) -> None:
    _expect(checks.answer(name, device, "forward", "float32", limit=2))


@pytest.mark.parametrize("name", _asked("gradient"))
def test_gradient(name: str, device: str) -> None:
    _expect(checks.answer(name, device, "gradient", "float32", limit=1))


@pytest.mark.parametrize("name", ["softmax", "nn.functional.conv2d", "nn.functional.max_pool2d", "index_put", "stack"])
def test_layouts(name: str, device: str) -> None:
    a = checks.answer(name, device, "layouts", "float32", limit=3)
    assert a.passed, "no sample has another layout"
    _expect(a)


def test_layouts_differ() -> None:
    """Each relaid sample has the values of one of the table's, and other strides than it and its fellows."""
    found = [SampleInput(torch.arange(24.0).reshape(2, 3, 4)), SampleInput([torch.ones(2, 2)], args=(torch.ones(3),))]
    relaid_ones = list(relaid.samples(found))
    assert [s.input.stride() for s in relaid_ones[:3]] == [(1, 2, 6), (12, 1, 3), (24, 8, 2)]
    assert all(torch.equal(s.input, found[0].input) for s in relaid_ones[:3])
    assert [s.input[0].stride() for s in relaid_ones[3:]] == [(1, 2), (4, 2)]


def test_page() -> None:
    """The page has every operator, and names a reason for each that does not pass."""
    page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8").replace("\\_", "_")
    table = page[page.index("## Every operator") :]
    rows = re.findall(r"^\| (?:\[([^\]]+)\]\([^)]*\)|([^|]+?)) \|(.*)\|$", table, re.MULTILINE)
    found = {a or b: cells for a, b, cells in rows if (a or b) not in ("operator", "---")}
    assert set(found) == {n for n, op in checks.operators().items() if checks.asked(op, "cpu")}
    why = page[page.index("## What does not pass") : page.index("## Outliers")]
    for name, cells in found.items():
        if "/" in "|".join(cells.split("|")[:8]):
            assert re.search(rf"[| ]{re.escape(name)}[,| ]", why), f"{name} does not pass whole, and no reason is given"


def test_page_of_modules_and_optimizers() -> None:
    """They have every one of PyTorch's tables, and pass as far as the page's words say."""
    page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8")
    tables = page[page.index("## Modules") : page.index("## Every operator")]
    found = set(re.findall(r"^\| \[([^\]]+)\]", tables, re.MULTILINE))
    drawn_ones = {f"nn.{name}" for name in drawing.SAMPLES}  # of ours: in the page from the next whole run on
    assert found | drawn_ones == {*modules.infos(), *(x.name for x in optim_db)}


# -- that it can fail

#: seconds of the mutation test that each device gets here; whole: python -m conformance --mutate
SECONDS = 12.0


def test_disturbances_are_noticed(device: str) -> None:
    """Each kind of question, of some operators that change with the commit; all of them take a command of its own."""
    asked = slices.rotated(list(mutate.questions((device,))), slices.number(), lambda q: q.op)
    until, kinds = time.monotonic() + SECONDS, set()
    for q in asked:
        if time.monotonic() > until and len(kinds) == len(mutate.KINDS):
            break
        a = mutate.answer(*q)
        kinds.add(q.check)
        assert not a.failed or left_out.excuses(a), a


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The harness sees a wrong value, a wrong gradient, a missing error, a wrong layout and a missing function."""
    sin = tabtorch.sin
    monkeypatch.setattr(tabtorch, "sin", lambda x, **kw: sin(x, **kw) + 1e-4 * x)
    for check in ("forward", "gradient", "reference"):
        assert checks.answer("sin", device, check, "float32", limit=1).failed
    monkeypatch.setattr(tabtorch, "cat", lambda tensors, dim=0, **kw: tensors[0])
    assert checks.answer("cat", device, "errors", "float32").failed
    tanh = tabtorch.tanh
    monkeypatch.setattr(tabtorch, "tanh", lambda x, **kw: tanh(x, **kw).contiguous())
    assert not checks.answer("tanh", device, "forward", "float32", limit=1).failed
    assert checks.answer("tanh", device, "layouts", "float32", limit=1).failed
    monkeypatch.setattr(tabtorch, "cos", None)
    assert checks.answer("cos", device, "forward", "float32").failed


def _fails(name: str, device: str, limit: int = 0) -> None:
    for check in ("forward", "gradient"):
        a = checks.answer(name, device, check, "float32", limit)
        assert a.failed and not a.passed and not left_out.excuses(a), (check, a)


def test_a_wrong_attention_fails(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """With dropout and without, though the GPU's dropout is not PyTorch's."""
    F, name = tabtorch.nn.functional, "scaled_dot_product_attention"
    real = getattr(F, name)
    monkeypatch.setattr(F, name, lambda *args, **kw: real(*args, **kw) * 3 + 1)
    _fails("nn.functional." + name, device, 6)


@pytest.mark.parametrize(
    "name,wrong",
    [
        ("dropout", lambda real, x, **kw: real(x, **kw) * 1.001),
        ("dropout", lambda real, x, **kw: real(x, **kw).detach() + x - x.detach()),
        ("dropout", lambda real, x, p=0.5, **kw: x / (1 - p) if p < 1 else x * 0),
        ("dropout2d", lambda real, x, **kw: tabtorch.nn.functional.dropout(x, **kw)),
        ("alpha_dropout", lambda real, x, **kw: tabtorch.nn.functional.dropout(x, **kw)),
        ("rrelu", lambda real, x, lower=0.1, upper=0.3, **kw: tabtorch.nn.functional.leaky_relu(x, lower - 0.1)),
        ("rrelu", lambda real, x, lower=0.1, upper=0.3, **kw: tabtorch.nn.functional.leaky_relu(x, upper)),
    ],
    ids=[
        "scaled",
        "another mask in the gradient",
        "kept whole",
        "no channels",
        "not affine",
        "out of bounds",
        "constant",
    ],
)
@pytest.mark.usefixtures("webgpu")
def test_a_wrong_drawing_fails(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> None:
    """What the GPU draws itself is held against PyTorch's formula."""
    F = tabtorch.nn.functional
    real = getattr(F, name)
    monkeypatch.setattr(F, name, lambda *args, **kw: wrong(real, *args, **kw))
    op = checks.operators()["nn.functional." + name]
    failed = 0
    for s in checks._samples(op, "float32", grad=True, limit=8):
        if drawn.draws(op, lambda s=s: checks._call(op.op, s)):
            asked = (checks._judged(s, lambda s=s, f=f: f(s)) for f in (_forward(op), _gradient(op)))
            failed += any(v.kind == "failed" and v.cause == "values" for v in asked)
    assert failed


def _forward(op: Any) -> Any:
    return lambda s: checks._forward(op, checks._function(op), s.transform(_detached), "webgpu", None)


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x


def _gradient(op: Any) -> Any:
    return lambda s: checks._gradient(op, checks._function(op), s, "webgpu", twice=False)


# -- the list of exceptions


def _answer(*failures: checks.Failure, op: str = "renorm", check: str = "gradient") -> Answer:
    return Answer(op, "cpu", check, "complex64", failed=len(failures), failures=list(failures))


def test_an_exception_has_bounds() -> None:
    nan = checks.Failure("a sample", "1 of 1 wrong", "nan")
    assert left_out.reason(_answer(nan))
    assert not left_out.reason(_answer(nan, nan)), "more samples than the entry has"
    assert not left_out.reason(_answer(nan._replace(cause="raised"))), "an exception is no difference of values"
    assert not left_out.reason(_answer(nan, op="mul")) and not left_out.reason(_answer(nan, check="forward"))
    off = checks.Failure("a sample", "far off", "values", 900.0)
    assert left_out.reason(_answer(off, op="svd_lowrank", check="gradgrad"))
    assert not left_out.reason(_answer(off._replace(size=2000.0), op="svd_lowrank", check="gradgrad"))


def test_the_page_gives_the_reasons() -> None:
    nan = checks.Failure("a sample", "1 of 1 wrong", "nan")
    page = report.compatibility([_answer(nan), _answer(op="abs", check="forward")], "an adapter", [], [], most=3)
    assert "| renorm | cpu, gradient, complex64 | " + left_out.reason(_answer(nan)) + " |" in page
    assert "at most 3 samples a question" in page and "an adapter" in page


def test_every_exception_is_bounded() -> None:
    for x in left_out.LIST:
        assert x.reason and x.kinds and set(x.kinds) <= set(compare.KINDS), x
        assert x.samples or x.said, x
        assert "values" not in x.kinds or 0 < x.within, x
        assert any(x.operators[0].startswith(n[:4]) for n in checks.operators()), x


def test_what_covers_nothing_is_said() -> None:
    everywhere = set(left_out.LIST)
    assert set(left_out.idle([], ("cpu", "webgpu"))) == everywhere
    used = left_out.idle([_answer(checks.Failure("", "", "nan"))], ("cpu", "webgpu"))
    assert len(used) == len(everywhere) - 1


# -- slices


def test_slices_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [f"{name} {k}" for name in "abcdefgh" for k in range(5)]
    order = slices.rotated(items, 0, lambda x: x[0])
    for n in range(slices.PARTS):
        turned = slices.rotated(items, n, lambda x: x[0])
        at = order.index(turned[0])
        assert turned == order[at:] + order[:at] and turned[0][0] != turned[-1][0]
    assert len({slices.rotated(items, n, lambda x: x[0])[0] for n in range(slices.PARTS)}) == 8
    monkeypatch.setenv("TABTORCH_SLICE", "7")
    assert slices.number() == 7 and slices.number("3") == 3
