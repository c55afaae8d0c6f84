"""What packages of layers and their tools ask of torch: `torch.jit` as with PYTORCH_JIT=0, and names that they import."""

from __future__ import annotations

import importlib
import sys
import typing
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import outcome, to_tab, values


@pytest.fixture
def eager() -> Iterator[None]:
    """PyTorch's own jit is off, and what both say of its deprecation is not heard."""
    torch.jit._state.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.jit._state.enable()


def both(call: Any) -> tuple[Any, Any]:
    """The outcome of `call(library)` with each."""
    return outcome(lambda: call(torch)), outcome(lambda: call(tabtorch))


def test_script_and_trace_give_back_what_they_get(eager: None) -> None:
    def f(x: Any) -> Any:
        return x + 1

    def check(lib: Any) -> list[Any]:
        m = lib.nn.Linear(2, 2)
        x = lib.ones(1, 2)
        return [
            lib.jit.script(f) is f,
            lib.jit.script(m) is m,
            lib.jit.trace(f, x) is f,
            lib.jit.trace(m, (x,)) is m,
            lib.jit.trace_module(m, {"forward": x}) is m,
            lib.jit.script_method(f) is f,
            lib.jit.script_if_tracing(f)(3),
            lib.jit.annotate(int, 3),
            lib.jit.is_scripting(),
            lib.jit.is_tracing(),
            isinstance(m, lib.jit.ScriptModule),
            issubclass(lib.jit.ScriptModule, lib.nn.Module),
        ]

    want, got = both(check)
    assert want == got
    assert got[1][:7] == [True] * 6 + [4]


def test_a_module_with_all_the_marks_runs_and_trains(eager: None, device: str) -> None:
    def steps(lib: Any, device: str) -> list[Any]:
        class Gate(lib.nn.Module):  # type: ignore[misc]
            __constants__: typing.ClassVar = ["n"]
            n: lib.jit.Final[int]  # type: ignore[name-defined]

            def __init__(self) -> None:
                super().__init__()
                self.n = 2
                self.lin = lib.nn.Linear(3, 3)

            @lib.jit.export
            def scaled(self, x: Any) -> Any:
                return x * self.n

            @lib.jit.ignore
            def gate(self, x: Any) -> Any:
                return x.sigmoid()

            @lib.jit.unused
            def never(self, x: Any) -> Any:
                raise NotImplementedError

            def forward(self, x: Any) -> Any:
                if lib.jit.is_scripting():
                    return self.never(x)
                y = lib.jit.annotate(lib.Tensor, self.lin(x))
                return self.scaled(y) * self.gate(y)

        lib.manual_seed(0)
        m = lib.jit.script(Gate())
        m.to(device)
        x = lib.linspace(-1, 1, 6, device=device).view(2, 3)
        optimizer = lib.optim.SGD(m.parameters(), lr=0.5)
        losses = []
        for _ in range(3):
            loss = (m(x) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return [
            losses,
            Gate.scaled._torchscript_modifier,
            Gate.gate._torchscript_modifier,
            Gate.never._torchscript_modifier,
        ]

    want, got = steps(torch, "cpu"), steps(tabtorch, device)
    assert got[0] == pytest.approx(want[0], rel=1e-5)
    assert got[1:] == want[1:]


def test_marks(eager: None) -> None:
    def check(lib: Any) -> list[Any]:
        def f() -> None: ...

        p = property(f, f)
        assert lib.jit.unused(p) is p
        made = [f._torchscript_modifier]  # type: ignore[attr-defined]
        made.append(lib.jit.ignore()(f)._torchscript_modifier)
        made.append(lib.jit.ignore(drop=True)(f)._torchscript_modifier)
        made.append(outcome(lambda: lib.jit.ignore(3)))
        return made

    want, got = both(check)
    assert want == got


List, Dict, Tuple, Optional, Union = typing.List, typing.Dict, typing.Tuple, typing.Optional, typing.Union  # noqa: UP006


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        ([1, 2], List[int]),
        ([1, "a"], List[int]),
        ([[1], [2]], list[list[int]]),
        ([[1], ["b"]], list[list[int]]),
        ((1,), list[int]),
        ([], List[int]),
        ({"a": 1}, Dict[str, int]),
        ({"a": "a"}, Dict[str, int]),
        ({1: 1}, dict[str, int]),
        ({"a": [1]}, dict[str, list[int]]),
        ({"a": [1.0]}, dict[str, list[int]]),
        ((1, 2.0), Tuple[int, float]),
        ((1, 2), tuple[int, float]),
        ((1,), tuple[int, int]),
        (None, Optional[int]),
        ("a", Optional[int]),
        (1, Union[int, str]),
        (1, int | str),
        ([1.0], Optional[list[float]]),
        (1, (int, str)),
        (1.0, (int, List[float])),
        ([1.0], (int, List[float])),
        (1, [int]),
        ([1], list),
        ({}, dict),
        ((1,), tuple),
        ([1], List),
        ({}, Dict),
        (1, int),
    ],
)
def test_isinstance(obj: Any, kind: Any, eager: None) -> None:
    want, got = both(lambda lib: lib.jit.isinstance(obj, kind))
    assert want == got


def test_interfaces(eager: None) -> None:
    class Plain:
        def f(self, x: int) -> int: ...

    class Derived(Plain):
        pass

    for each in (3, Derived):
        want, got = both(lambda lib, each=each: lib.jit.interface(each) is each)
        assert want == got
        assert got[0] == "error"
    for base in (object, tabtorch.nn.Module):
        made = type("Run", (base,), {})
        assert tabtorch.jit.interface(made) is made


def test_archives_are_refused_in_words(eager: None, tmp_path: Any) -> None:
    want, got = both(lambda lib: lib.jit.load(str(tmp_path / "none.pt")))
    assert want == got
    (tmp_path / "some.pt").write_bytes(b"PK")
    with pytest.raises(RuntimeError, match="central directory"):
        tabtorch.jit.load(str(tmp_path / "some.pt"))
    with pytest.raises(RuntimeError, match="state_dict"):
        tabtorch.jit.save(tabtorch.nn.Linear(1, 1), str(tmp_path / "m.pt"))
    with pytest.raises(RuntimeError, match="no TorchScript"):
        tabtorch.jit.CompilationUnit("def f(x): return x")
    assert not (tmp_path / "m.pt").exists()


def test_freezing_wants_eval_mode(eager: None) -> None:
    m = tabtorch.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="Please call .eval"):
        tabtorch.jit.freeze(m)
    assert tabtorch.jit.freeze(m.eval()) is m
    assert tabtorch.jit.optimize_for_inference(m.train()) is m
    assert not m.training


def test_forks_are_called_at_once(eager: None) -> None:
    def check(lib: Any) -> list[Any]:
        future = lib.jit.fork(lambda x, y=1: x + y, lib.ones(2), y=3)

        def bad() -> None:
            raise KeyError("no")

        return [
            future.done(),
            future.value().tolist(),
            lib.jit.wait(future).tolist(),
            future.then(lambda f: f.value() * 2).wait().tolist(),
            outcome(lambda: lib.jit.fork(bad)),
        ]

    want, got = both(check)
    assert want == got


def test_futures() -> None:
    def check(lib: Any) -> list[Any]:
        seen: list[Any] = []
        one, two, three = (lib.futures.Future() for _ in range(3))
        then = one.then(lambda f: f.wait() + 1)
        failed = two.then(lambda f: f.wait())
        one.add_done_callback(lambda f: seen.append(f.value()))
        before = one.done()
        one.set_result(3)
        two.set_exception(ValueError("no"))
        all_of = lib.futures.collect_all([one, three])
        waiting = all_of.done()
        three.set_result(5)
        return [
            before,
            waiting,
            seen,
            then.wait(),
            outcome(two.wait),
            outcome(failed.wait)[1][0],
            outcome(lambda: one.set_result(4))[1][0],
            outcome(lambda: three.set_exception(3)),
            lib.futures.wait_all([one, three]),
            outcome(lambda: lib.futures.wait_all([one, two])),
            [f.value() for f in all_of.wait()],
        ]

    want, got = both(check)
    assert want == got


def test_boolean_dispatch() -> None:
    def pick(lib: Any) -> list[Any]:
        def yes(x: int, flag: bool = False) -> str:
            """What it does."""
            return f"yes {x}"

        def no(x: int, flag: bool = False) -> str:
            return f"no {x}"

        internal = importlib.import_module(f"{lib.__name__}._jit_internal")
        f = internal.boolean_dispatch("flag", 1, False, yes, no, "m", "f")
        return [f(1), f(1, True), f(1, flag=True), f.__doc__, f.__name__, f.__module__]

    want, got = both(pick)
    assert want == got


def test_states_of_devices_for_checkpointing(device: str) -> None:
    from tabtorch.utils import checkpoint

    x = tabtorch.ones(64, device=device)
    indices, states = checkpoint.get_device_states(x, {"a": [x]}, 3)
    if device == "cpu":
        want = torch.utils.checkpoint.get_device_states(torch.ones(2), 3)
        assert (indices, states) == tuple(want) == ([], [])
        return
    assert indices == [0, 0]
    first = tabtorch.nn.functional.dropout(x)
    checkpoint.set_device_states(indices, states)
    again = tabtorch.nn.functional.dropout(x)
    other = tabtorch.nn.functional.dropout(x)
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_recorded_operation_shows_no_saved_tensors(device: str) -> None:
    """Only functions of the user's own have `saved_tensors`: torchviz tells them apart by that."""

    def check(lib: Any, device: str) -> list[bool]:
        x = lib.ones(3, device=device, requires_grad=True)

        class Square(lib.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return 2 * g * ctx.saved_tensors[0]

        made = [x.exp(), x * x, x.softmax(0), x.norm(), Square.apply(x)]
        return [hasattr(y.grad_fn, "saved_tensors") for y in made]

    assert check(torch, "cpu") == check(tabtorch, device) == [False] * 4 + [True]


def test_storages_count_their_bytes(device: str) -> None:
    def more(lib: Any, device: str) -> int:
        a, b = (lib.ones(n, device=device).untyped_storage() for n in (0, 1000))
        return sys.getsizeof(b) - sys.getsizeof(a)

    assert more(torch, "cpu") == more(tabtorch, device) == 4000


def test_names_that_packages_import(eager: None) -> None:
    def check(lib: Any) -> list[Any]:
        def module(name: str) -> Any:
            return importlib.import_module(f"{lib.__name__}.{name}")

        top: dict[str, Any] = {"lib": lib}
        exec("f = lib.fx.wrap(len); g = lib.fx.wrap('len')", top)
        return [
            top["f"] is len,
            top["g"],
            outcome(lambda: lib.fx.wrap(3)),
            outcome(lambda: lib.fx.wrap(len)),
            isinstance(lib.ones(1), lib.fx.Proxy),
            isinstance(3, lib.SymInt),
            isinstance(True, module("types")._Number),
            lib.onnx.is_in_onnx_export(),
            lib._C._get_tracing_state(),
            module("hub").HASH_REGEX.search("net-0123abcd.pth")[1],
            module("hub")._get_torch_home(),
            module("jit.annotations").BroadcastingList2[int],
            lib.multiprocessing.get_start_method(allow_none=True),
            module("utils.model_zoo").load_url is lib.hub.load_state_dict_from_url,
            lib.multiprocessing.get_context("spawn").get_start_method(),
            isinstance(
                lib.nn.Linear(1, 1), module("_dynamo.eval_frame" if lib is torch else "compiler").OptimizedModule
            ),
            isinstance(lib.ones(1), module("distributed.tensor").DTensor),
            isinstance(lib.optim.SGD([lib.ones(1)]), module("distributed.optim").ZeroRedundancyOptimizer),
        ]

    want, got = both(check)
    assert want == got


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(RuntimeError, match="one process"):
        tabtorch.multiprocessing.spawn(print, nprocs=2)


@pytest.mark.parametrize(
    ("shape", "pads"), [((1, 4, 5), (5, 0)), ((1, 4, 5), (0, 0, 0, 4)), ((1, 4, 5, 6), (0, 0, 0, 0, 4, 4))]
)
def test_reflection_names_the_argument_that_is_too_large(shape: Any, pads: Any, device: str) -> None:
    want = outcome(lambda: torch.nn.functional.pad(torch.ones(shape), pads, mode="reflect"))
    got = outcome(lambda: tabtorch.nn.functional.pad(tabtorch.ones(shape, device=device), pads, mode="reflect"))
    assert want[0] == "error"
    assert want == got


def test_linear_by_jit_is_the_layer_itself(device: str, eager: None) -> None:
    torch.manual_seed(0)
    m = torch.jit.script(torch.nn.Linear(3, 2))
    ours = tabtorch.jit.script(tabtorch.nn.Linear(3, 2).to(device))
    ours.load_state_dict({k: to_tab(v, device) for k, v in m.state_dict().items()})
    x = torch.randn(4, 3)
    assert values(ours(to_tab(x, device))) == pytest.approx(values(m(x)), rel=1e-5, abs=1e-6)
