"""Modules of PyTorch that few know and other packages import: those that can work here do as PyTorch's, the others say why not."""

from __future__ import annotations

import collections
import importlib
import operator
import subprocess
import sys
from typing import Any

import pytest
import torch

import tabtorch as tt

#: what some package or other takes from torch when it is imported, or used
NAMES = """
torch._C:DispatchKey torch._C:DispatchKeySet torch._C:_ExcludeDispatchKeyGuard torch._C:Value torch._custom_ops:get_ctx
torch:TensorType torch._C:Graph torch._C:_has_xpu torch.nn.modules.padding:_ReflectionPadNd torch.nn.modules.padding:_ReplicationPadNd
torch._dynamo.utils:is_compile_supported torch._functorch.vmap:_add_batch_dim torch._functorch.vmap:_broadcast_to_and_flatten
torch._functorch.vmap:_get_name torch._functorch.vmap:_maybe_remove_batch_dim torch._functorch.vmap:Tensor
torch._subclasses.fake_tensor:unset_fake_temporarily torch.ao.quantization:DeQuantStub torch.ao.quantization:QuantStub
torch.distributed._composable.fsdp:FSDPModule torch.distributed._tensor:DTensor
torch.distributed._tensor.experimental:implicit_replication
torch.distributed.algorithms._checkpoint.checkpoint_wrapper:CheckpointWrapper torch.distributed.autograd:context
torch.distributed.checkpoint.state_dict:get_model_state_dict torch.distributed.distributed_c10d:_new_process_group_helper
torch.distributed.distributed_c10d:PrefixStore torch.distributed.distributed_c10d:default_pg_timeout
torch.distributed.elastic.multiprocessing.errors:record torch.distributions.transforms:_clipped_sigmoid torch.hub:tqdm
torch.jit:_get_trace_graph torch.nested:nested_tensor torch.nn.common_types:_ratio_any_t torch.nn.common_types:_size_2_t
torch.nn.utils._named_member_accessor:swap_tensor torch.onnx:symbolic_opset11 torch.onnx.symbolic_helper:parse_args
torch.quantization:QuantStub torch.utils._contextlib:_DecoratorContextManager
torch.utils.data._utils.collate:np_str_obj_array_pattern torch.utils.data._utils.worker:_generate_state
torch.utils.data.dataloader:_collate_fn_t torch.utils.module_tracker:ModuleTracker torch.library:triton_op
torch.library:wrap_triton torch._ops:HigherOrderOperator torch.utils._python_dispatch:TorchDispatchMode
torch.fx.experimental.proxy_tensor:make_fx functorch:make_functional functorch:make_fx torch.nn._reduction:get_enum
torch.utils.data._utils.pin_memory:pin_memory torch.quantization.observer:MinMaxObserver torch.quantization.qconfig:QConfig
torch.ao.quantization.observer:HistogramObserver torch.nn.quantized:BatchNorm2d torch.ao.nn.quantized:Linear
torch._C:_is_tracing torch._C:_jit_override_can_fuse_on_cpu torch._C:_jit_set_texpr_fuser_enabled
torch.cuda.amp.common:amp_definitely_not_available
""".split()


def test_they_can_be_imported() -> None:
    code = "import sys, importlib, tabtorch; tabtorch.install()\nfor n in sys.argv[1:]:\n m, _, a = n.partition(':')\n "
    code += "try: getattr(importlib.import_module(m), a)\n except Exception as e: print(n, repr(e))"
    run = subprocess.run([sys.executable, "-c", code, *NAMES], capture_output=True, text=True, check=True)
    assert run.stdout == ""


def test_what_needs_several_processes_says_so() -> None:
    code = (
        "import tabtorch; tabtorch.install()\nimport torch.distributed.distributed_c10d as c\n"
        "class Own(c.PrefixStore): pass\nprint(isinstance(1, c.PrefixStore), c.Backend | None)\n"
        "for f in (c.PrefixStore, c.rendezvous, Own):\n try: f()\n except RuntimeError as e: print(str(e)[:60])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines[0].startswith("False") and len(lines) == 4
    assert lines[1] == "PrefixStore: torch.distributed is not available in tabtorch:"


def both(name: str) -> Any:
    ours = {"algorithms._checkpoint.checkpoint_wrapper": "checkpoint_wrapper", "checkpoint.state_dict": "state_dict"}
    for package in ("torch", "tabtorch"):
        part = name
        for theirs, here in ours.items():
            part = part.replace(theirs, here) if package == "tabtorch" else part
        yield importlib.import_module(package), importlib.import_module(f"{package}.{part}")


def test_checkpoint_wrapper() -> None:
    found = []
    for m, w in both("distributed.algorithms._checkpoint.checkpoint_wrapper"):
        m.manual_seed(0)
        nn = m.nn
        net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)))
        if m is tt:
            net = net.to("cpu")
        plain = {k: v.clone() for k, v in net.state_dict().items()}
        w.apply_activation_checkpointing(net, check_fn=lambda x, kind=nn.Sequential: isinstance(x, kind))
        assert isinstance(net[0], w.CheckpointWrapper) and list(net.state_dict()) == list(plain)
        assert isinstance(net[0][0], nn.Linear) and net[1][1].p == 0.5
        net.load_state_dict(plain)
        x = m.ones(2, 3, requires_grad=True, device="cpu")
        m.manual_seed(1)
        net(x).sum().backward()
        twice = w.checkpoint_wrapper(net[0], checkpoint_impl=w.CheckpointImpl.REENTRANT)
        twice(x).sum().backward()
        away = w.offload_wrapper(nn.Linear(3, 1).to("cpu"))
        away(x).sum().backward()
        found.append([x.grad.tolist(), [n for n, _ in net.named_parameters()], net.state_dict()["0.0.weight"].tolist()])
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[0][1] == found[1][1] and torch.allclose(torch.tensor(found[0][2]), torch.tensor(found[1][2]))


@pytest.mark.parametrize("flat", [False, True])
def test_state_dicts_by_name(flat: bool) -> None:
    found = []
    for m, d in both("distributed.checkpoint.state_dict"):
        m.manual_seed(0)
        nn = m.nn
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to("cpu")
        net[0].bias.requires_grad_(False)
        groups = [{"params": list(net[2].parameters()), "lr": 0.5}, {"params": [net[0].weight, *net[1].parameters()]}]
        opt = m.optim.SGD(groups, lr=0.1, momentum=0.9)
        net(m.ones(4, 2, device="cpu") * m.arange(4.0, device="cpu")[:, None]).sum().backward()
        opt.step()
        options = d.StateDictOptions(flatten_optimizer_state_dict=flat, ignore_frozen_params=True)
        model, state = d.get_state_dict(net, opt, options=options)
        other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to("cpu")
        order = [{"params": list(other[2].parameters())}, {"params": [*other[1].parameters(), other[0].weight]}]
        again = m.optim.SGD(order, lr=0.3, momentum=0.9)
        if not flat:  # flat, PyTorch asks for the groups as they were
            d.set_optimizer_state_dict(other, again, state)
            moved = again.state[other[0].weight]["momentum_buffer"].tolist()
        else:
            d.set_optimizer_state_dict(net, opt, state, options=options)
            moved = opt.state[net[0].weight]["momentum_buffer"].tolist()
        d.set_model_state_dict(other, {**model, "0.bias": net[0].bias.detach()})
        begun = d.get_optimizer_state_dict(other, m.optim.Adam(other.parameters()))
        with pytest.warns(FutureWarning, match="Getting submodules only"):
            part = d.get_model_state_dict(
                net, submodules={net[2]}, options=d.StateDictOptions(keep_submodule_prefixes=False)
            )
        shown = (
            {k: v.tolist() if hasattr(v, "tolist") else v for k, v in state.items()} if flat else sorted(state["state"])
        )
        rates = None if flat else [(g["params"], g["lr"]) for g in state["param_groups"]]
        found.append(
            [
                sorted(model),
                shown,
                rates,
                moved,
                sorted(part),
                other[2].weight.tolist(),
                sorted(begun["state"]["0.weight"]),
            ]
        )
    assert (
        found[0][0] == found[1][0]
        and found[0][2] == found[1][2]
        and found[0][4] == found[1][4]
        and found[0][6] == found[1][6]
    )
    if flat:
        assert found[1][1].keys() <= found[0][1].keys()
        for k in (k for k in found[1][1] if "momentum_buffer" in k):
            torch.testing.assert_close(found[1][1][k], found[0][1][k], rtol=1e-5, atol=1e-5)
    else:
        assert found[0][1] == found[1][1]
    torch.testing.assert_close(found[1][3], found[0][3], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found[1][5]), torch.tensor(found[0][5]))


def test_seeds_of_workers() -> None:
    from torch.utils.data._utils.worker import _generate_state

    from tabtorch.utils.data._worker import _generate_state as ours

    for seed, worker in ((0, 0), (1, 3), (2**63 - 25, 7), (0xFFFFFFFF, 1), (123456789012, 63)):
        assert ours(seed, worker) == _generate_state(seed, worker)


def test_module_tracker() -> None:
    found = []
    for m, t in both("utils.module_tracker"):
        nn = m.nn
        seen: list[Any] = []

        class Noted(m.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                seen.append((sorted(tracker.parents), tracker.is_bw))  # noqa: B023
                return x * 1

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                seen.append((sorted(tracker.parents), tracker.is_bw))  # noqa: B023
                return g

        class Inner(nn.Module):  # type: ignore[name-defined,misc]
            def forward(self, x: Any) -> Any:
                return Noted.apply(x)

        net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Inner(), nn.ReLU())).to("cpu")
        tracker = t.ModuleTracker()
        with tracker:
            net(m.ones(1, 2, device="cpu")).sum().backward()
            seen.append((sorted(tracker.parents), tracker.is_bw))
        found.append(seen)
    assert found[0] == found[1] and found[0][0] == (["Global", "Sequential", "Sequential.1", "Sequential.1.0"], False)


def test_callbacks_of_a_backward_pass() -> None:
    found = []
    for m in (torch, tt):
        said: list[str] = []
        engine = m.autograd.Variable._execution_engine
        x = m.ones(2, requires_grad=True, device="cpu")
        x.register_hook(lambda g: engine.queue_callback(lambda: said.append("end")) or said.append("hook"))  # noqa: B023
        (x * 2).sum().backward()
        with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass."):
            engine.queue_callback(lambda: None)
        found.append(said)
    assert found == [["hook", "end"]] * 2


def test_decorating_contexts() -> None:
    found = []
    for _, c in both("utils._contextlib"):
        log: list[str] = []

        class Noting(c._DecoratorContextManager):  # type: ignore[name-defined,misc]
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                log.append("+" + self.name)  # noqa: B023

            def __exit__(self, *exc: Any) -> None:
                log.append("-" + self.name)  # noqa: B023

            def clone(self) -> Any:
                return type(self)(self.name)

        @Noting("f")
        def f(x: int) -> int:
            log.append("f")  # noqa: B023
            return x + 1

        @Noting("g")
        def g() -> Any:
            got = yield 1
            log.append(str(got))  # noqa: B023
            yield 2
            return 3

        log.append(str(f(1)))
        steps = g()
        log += [str(next(steps)), str(steps.send("sent"))]
        with pytest.raises(StopIteration):
            next(steps)
        with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
            log.append(str(Noting("c")(int)("7")))
        with pytest.raises(RuntimeError, match="Cannot decorate classes"):
            c.context_decorator(lambda: Noting("c"), int)

        class Bare(c._NoParamDecoratorContextManager):  # type: ignore[name-defined,misc]
            def __enter__(self) -> None:
                log.append("in")  # noqa: B023

            def __exit__(self, *exc: Any) -> None:
                log.append("out")  # noqa: B023

        @Bare
        def h() -> None:
            log.append("h")  # noqa: B023

        h()
        found.append(log)
    assert found[0] == found[1]


def test_named_members() -> None:
    found = []
    for m, a in both("nn.utils._named_member_accessor"):
        net = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.BatchNorm1d(2))
        at = a.NamedMemberAccessor(net)
        old = at.swap_tensor("0.weight", m.zeros(2, 2))
        said = [tuple(old.shape), at.get_tensor("0.weight").sum().item(), [n for n, _ in at.named_tensors()]]
        at.set_tensors_dict({"1.running_mean": m.ones(2)})
        said.append(net[1].running_mean.tolist())
        for bad in ("no", "1.no", ""):
            try:
                at.swap_tensor(bad, m.ones(1))
            except Exception as e:
                said.append((type(e).__name__, str(e)))
        found.append(said)
    assert found[0] == found[1]


def test_versions_are_compared_as_those_of_packages() -> None:
    others: list[Any] = [
        "2.9",
        "2.13",
        "2.13.0a0",
        "2.13.0.dev20",
        "2.13.0rc1",
        "2.13.0.post1",
        "2.13.0+cpu",
        "parrot",
        (2, 6),
    ]
    others += [
        (2, 13),
        (2, 13, 0),
        (3,),
        (2, "x"),
        2,
        [2, 14, 0],
        "v2.13",
        "1!1.0",
        "2.13rc1.dev2",
        "2.13.0+cu12.1",
        "",
        None,
    ]
    for version in ("2.13.0", "2.13.0a0+git12", "2.13.0+cpu", "2.13.0+5.a", "1!1.0", "2.13.0.post1", "2.13rc1.dev2"):
        found = []
        for lib in (torch, tt):
            v = importlib.import_module(f"{lib.__name__}.torch_version").TorchVersion(version)
            assert isinstance(lib.__version__, type(v)) and v == version and {v: 1}[version] == 1
            said: list[Any] = []
            for other in others:
                for method in ("gt", "lt", "ge", "le", "eq", "ne"):
                    try:
                        said.append((other, method, getattr(operator, method)(v, other)))
                    except TypeError as e:
                        said.append((other, method, str(e)))
            found.append(said)
        assert found[0] == found[1]
    assert tt.__version__ >= (2, 9) and tt.__version__ > "2.9"


def test_padding_layers_are_of_their_family() -> None:
    for lib in (torch, tt):
        for mode in ("Reflection", "Replication", "Circular", "Constant"):
            family = getattr(lib.nn.modules.padding, f"_{mode}PadNd")
            assert all(issubclass(getattr(lib.nn, f"{mode}Pad{n}d"), family) for n in (1, 2, 3))


def test_what_is_absent_says_so() -> None:
    for kind in ("Graph", "TensorType"):
        with pytest.raises(RuntimeError, match="no TorchScript graphs"):
            getattr(tt._C, kind)()
    with pytest.raises(NotImplementedError, match="no nested tensors"):
        tt.nested.nested_tensor([tt.ones(2)])
    with pytest.raises(NotImplementedError, match="no quantized tensors"):
        tt.ao.quantization.prepare(tt.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="older exporter"):
        tt.onnx.symbolic_opset11.select(1)
    x = tt.ones(2)
    assert tt.ao.quantization.QuantWrapper(tt.nn.Identity())(x) is x


def test_tensors_of_the_other_package_are_refused() -> None:
    """Both packages loaded, and a tensor of one given to the other: it is said, and no recursion without end."""
    x, y = tt.ones(2, device="cpu"), torch.ones(2)
    for f in (
        lambda: torch.sin(x), lambda: torch.nn.functional.relu(x), lambda: torch.cat([x, x]), lambda: torch.nn.Linear(2, 2)(x),
        lambda: y.mul(x), lambda: y.__setitem__(0, x[0]),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"\(\) of PyTorch was given a tensor of tabtorch. Two packages are loaded"):
            f()
    for f in (lambda: x + y, lambda: y + x, lambda: y @ x, lambda: x @ y):
        with pytest.raises(TypeError, match="unsupported operand type"):
            f()
    for f in (lambda: tt.sin(y), lambda: tt.cat([y]), lambda: tt.nn.functional.relu(y), lambda: tt.sum(y)):
        with pytest.raises(TypeError, match="Tensor of PyTorch"):
            f()
    with pytest.raises(TypeError, match="an index is a tensor of PyTorch"):
        x[torch.tensor([0])]
    for v in (torch.tensor([[1.5, 2]]), torch.tensor(3), torch.tensor([True]), torch.ones(2, dtype=torch.bfloat16)):
        copy = tt.tensor(v)
        assert copy.tolist() == v.tolist() and str(copy.dtype) == str(v.dtype)
        assert v.dtype is torch.bfloat16 or torch.tensor(copy).tolist() == v.tolist()  # PyTorch reads it as NumPy's


def test_functorch_as_it_was(device: str) -> None:
    """`functorch.make_functional` and its like; each warns as PyTorch's."""
    ours, theirs = importlib.import_module("tabtorch._functorch.deprecated"), importlib.import_module("functorch")
    found = []
    for m, f in ((tt, ours), (torch, theirs)):
        m.manual_seed(0)
        x, nn = m.randn(5, 3), m.nn
        with pytest.warns(FutureWarning) as warned:
            call, params, buffers = f.make_functional_with_buffers(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
            outs = [call(params, buffers, x), *buffers]
            plain, weights = f.make_functional(nn.Linear(3, 2), disable_autograd_tracking=True)
            outs += f.grad(lambda w, f=plain, x=x: f(w, x).square().sum())(weights)
            ensemble = f.combine_state_for_ensemble([nn.Linear(3, 2) for _ in range(3)])
            outs.append(f.vmap(ensemble[0], (0, 0, None))(*ensemble[1:], x))
            outs += f.jacrev(lambda x: x[0] * x[1])(x)
        with pytest.raises(RuntimeError, match="`model` has buffers"), pytest.warns(FutureWarning):
            f.make_functional(nn.BatchNorm1d(2))
        flags = [t.requires_grad for t in (*params, *weights, *ensemble[1])]
        names = [call.param_names, call.buffer_names, len(list(call.parameters()))]
        found.append(([o.tolist() for o in outs], flags, names, [str(w.message) for w in warned]))
    assert found[0][1:] == found[1][1:]
    for a, b in zip(found[0][0], found[1][0], strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


@pytest.mark.filterwarnings("ignore")
def test_reductions_as_numbers() -> None:
    found = []
    for package in ("torch", "tabtorch"):
        r = importlib.import_module(f"{package}.nn._reduction")
        flags = (None, True, False)
        found.append([r.get_enum(n) for n in ("none", "mean", "elementwise_mean", "sum")])
        found[-1] += [r.legacy_get_enum(a, b) for a in flags for b in flags]
        with pytest.raises(ValueError, match="max is not a valid value for reduction"):
            r.get_enum("max")
    assert found[0] == found[1]


def test_pinning_keeps_the_structure() -> None:
    from torch.utils.data._utils.pin_memory import pin_memory as theirs

    from tabtorch.utils.data._pin_memory import pin_memory as ours

    class Pinned:
        def pin_memory(self) -> str:
            return "pinned"

    Point = collections.namedtuple("Point", "x y")
    data = {
        "a": [Pinned(), 1],
        "b": (Pinned(), "s"),
        "c": Point(Pinned(), b"b"),
        "d": range(2),
        "e": collections.deque([Pinned()]),
    }
    assert ours(data) == theirs(data)
    assert ours(tt.ones(2, device="cpu")).tolist() == [1, 1]


def test_what_a_script_sets_of_the_executor_of_torchscript() -> None:
    found = []
    for package in ("torch", "tabtorch"):
        c = importlib.import_module(f"{package}._C")
        before = [f(False) for f in (c._jit_set_profiling_executor, c._jit_set_profiling_mode)]
        found.append(
            [before, c._jit_set_profiling_executor(before[0]), c._jit_set_profiling_mode(before[1]), c._is_tracing()]
        )
    assert found[0] == found[1]


def test_layers_of_quantized_tensors_say_what_they_need() -> None:
    from tabtorch.ao.nn.quantized import BatchNorm2d

    class Own(BatchNorm2d):
        pass

    assert not isinstance(tt.nn.BatchNorm2d(2), BatchNorm2d)
    with pytest.raises(NotImplementedError, match=r"torch\.ao\.nn\.quantized\.BatchNorm2d"):
        Own(3)


def test_what_compilers_would_build() -> None:
    """Modules that libraries import and ask; what would need a compiler raises when it is called."""
    from tabtorch._dynamo.utils import warn_once
    from tabtorch.sparse import _triton_ops_meta
    from tabtorch.utils import _triton, cpp_extension

    theirs = dir(importlib.import_module("torch.utils.cpp_extension"))  # BuildExtension is there with setuptools
    assert {*cpp_extension.__all__} - {"BuildExtension"} <= {*theirs}
    for call in (
        lambda: cpp_extension.load("ops", ["ops.cpp"]),
        lambda: cpp_extension.load_inline("ops", "int one();"),
        lambda: cpp_extension.CUDAExtension("ops", []),
        lambda: cpp_extension.BuildExtension.with_options(use_ninja=False)(),
        lambda: _triton_ops_meta.get_meta("bsr_dense_addmm", (1, 2)),
    ):
        with pytest.raises(RuntimeError, match="tabtorch"):
            call()
    assert not _triton.has_triton() and set(_triton.__all__) <= set(dir(importlib.import_module("torch.utils._triton")))
    with pytest.warns(UserWarning, match="slow") as said:
        warn_once("slow here")
        warn_once("slow here")
    assert len(said) == 1
    assert tt._utils._get_available_device_type() in ("cuda", None)


def test_types_of_quantized_numbers_have_names() -> None:
    for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4"):
        ours, theirs = getattr(tt, name), getattr(torch, name)
        assert repr(ours) == repr(theirs) and ours.itemsize == theirs.itemsize
        assert ours.is_floating_point == theirs.is_floating_point and ours.is_complex == theirs.is_complex
        with pytest.raises((RuntimeError, TypeError)):
            tt.zeros(2, dtype=ours)


def test_progress_where_tqdm_is_not_installed() -> None:
    """torchvision takes it from there as it is imported."""
    code = (
        "import sys\nsys.modules['tqdm'] = None\n{}\nfrom torch.hub import tqdm\nfrom torch.utils.model_zoo import tqdm as same\n"
        "assert tqdm is same\n"
        "for total in (8, None):\n with tqdm(total=total, unit='B', desc='x') as bar:\n  bar.update(2); bar.set_description('y')\n"
        "  bar.update(1)\nbar.write('text'); bar.close(); bar.update(5)\nwith tqdm(disable=True) as bar: bar.update(3)"
    )
    said = [
        subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True).stderr
        for first in ("", "import tabtorch; tabtorch.install()")
    ]
    assert said[0] == said[1] and "37.5%" in said[0]
