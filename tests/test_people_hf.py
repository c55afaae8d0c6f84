"""What Hugging Face's packages ask of torch, beside real PyTorch: names, tensors' attributes, FlexAttention, operators, files."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention
import torch.utils._pytree

import tabtorch as tt
import tabtorch.func
import tabtorch.nn.attention.flex_attention
import tabtorch.utils._pytree

BOTH: tuple[Any, Any] = (tt, torch)


def numbers(t: Any) -> Any:
    return t.detach().cpu().double().tolist() if t.dtype.is_floating_point else t.tolist()


def near(a: Any, b: Any) -> None:
    assert tuple(a.shape) == tuple(b.shape)
    if b.dtype.is_floating_point:
        torch.testing.assert_close(torch.tensor(a.tolist()), b.detach())
    else:
        assert str(a.dtype) == str(b.dtype) and a.tolist() == b.tolist()


def error(f: Any) -> tuple[str, str]:
    try:
        f()
    except Exception as e:
        return type(e).__name__, str(e)
    return "", ""


# ---- dtypes that have a name only

NAMED = (
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu uint16 uint32 uint64 complex32".split()
)


@pytest.mark.parametrize("name", NAMED)
def test_dtypes_by_name(name: str) -> None:
    ours, theirs = getattr(tt, name), getattr(torch, name)
    assert str(ours) == str(theirs) and ours is getattr(tt, name) and ours in {ours: 1}
    for what in ("itemsize", "is_floating_point", "is_complex", "is_signed"):
        assert getattr(ours, what) == getattr(theirs, what), what
    assert copy.deepcopy(ours) is ours
    if theirs.is_floating_point:
        a, b = tt.finfo(ours), torch.finfo(theirs)
        assert [a.bits, a.max, a.min, a.eps, a.tiny] == [b.bits, b.max, b.min, b.eps, b.tiny]
    elif not theirs.is_complex:
        assert (tt.iinfo(ours).max, tt.iinfo(ours).min) == (torch.iinfo(theirs).max, torch.iinfo(theirs).min)


def test_no_tensors_of_them(device: str) -> None:
    x, d = tt.ones(2, dtype=tt.int32), tt.uint32
    with pytest.raises(TypeError, match=r"no tensors of torch\.uint32"):
        tt.zeros(2, dtype=d)
    with pytest.raises(TypeError, match=r"no tensors of torch\.uint32"):
        tt.tensor([1, 2], dtype=d)
    with pytest.raises(TypeError, match=r"no tensors of torch\.uint32"):
        x.to(d)
    with pytest.raises(TypeError, match=r"no tensors of torch\.uint32"):
        x.view(d)
    with pytest.raises(TypeError, match="no tensors"):
        tt.set_default_dtype(tt.float8_e5m2)
    assert tt.get_default_dtype() is tt.float32


# ---- attributes of tensors


def test_dict_of_a_tensor_is_what_a_script_put_there() -> None:
    seen = []
    for ns in BOTH:
        p = ns.nn.Parameter(ns.ones(2))
        out: list[Any] = [dict(p.__dict__)]
        kwargs = p.__dict__
        kwargs["requires_grad"] = False
        out.append(type(p)(ns.zeros(1), **kwargs).requires_grad)  # as accelerate's `init_empty_weights` does
        q = ns.zeros(2)
        q.tag = [1]
        r = ns.ones(2)
        r.__dict__.update(q.__dict__)
        r.__dict__["more"] = 2
        out += [r.tag is q.tag, r.more, r.tolist(), sorted(vars(r))]
        out += [r.__dict__.pop("more"), hasattr(r, "more"), r.__dict__.setdefault("x", 5), r.x]
        r.__dict__ = {"only": 1}
        out += [hasattr(r, "tag"), r.only, r.sum().item()]
        c = copy.deepcopy(q)
        out += [c.tag, c.tag is q.tag, copy.copy(q).tag is q.tag]
        leaf = ns.ones(2, requires_grad=True)
        leaf.name_ = "w"
        leaf.sum().backward()
        out += [leaf.__dict__, copy.deepcopy(leaf).requires_grad]
        file = io.BytesIO()
        ns.save(q, file)
        file.seek(0)
        out.append(ns.load(file, weights_only=False).tag)
        out.append([k.__name__ for k in ns.Tensor.__mro__])
        seen.append(out)
    assert seen[0] == seen[1]


def test_pytree_functions_of_built_in_containers() -> None:
    class Output(dict[str, Any]):
        pass

    seen = []
    for ns in BOTH:
        tree = ns.utils._pytree
        kind = type("Output" + ns.__name__, (Output,), {})
        tree.register_pytree_node(
            kind,
            lambda x: (list(x.values()), list(x)),
            lambda v, c, kind=kind: kind(zip(c, v)),
            flatten_with_keys_fn=tree._dict_flatten_with_keys,
        )
        pairs, spec = tree.tree_flatten_with_path(kind(a=1, b=[2, 3]))
        seen.append(([(tree.keystr(k), v) for k, v in pairs], tree.tree_unflatten([4, 5, 6], spec)))
        seen[-1] += (tree._list_unflatten([1], None), tree._tuple_flatten((1, 2)))
    assert seen[0] == seen[1]


# ---- functions


def test_pad_by_keyword(device: str) -> None:
    x = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    for kwargs in ({"pad": (1, 2)}, {"pad": (1, 1), "mode": "reflect"}, {"pad": (0, -1, 1, 0), "value": 2.0}):
        a, b = (ns.nn.functional.pad(input=ns.tensor(x), **kwargs) for ns in BOTH)
        assert a.tolist() == b.tolist()


def test_grouped_mm(device: str) -> None:
    torch.manual_seed(0)
    rows, experts, square, cols = torch.randn(8, 4), torch.randn(3, 4, 8), torch.randn(8, 8), torch.randn(4, 8)
    three = torch.randn(3, 4, 4)
    for args, ends in (
        ((rows, experts), [2, 2, 8]),
        ((rows.T.contiguous(), square), [3, 8]),
        ((three, cols), [1, 5, 8]),
        ((three, experts), None),
    ):
        theirs = [t.clone().requires_grad_() for t in args]
        ours = [tt.tensor(t.tolist(), requires_grad=True) for t in args]
        results = []
        for ns, ts in ((tt, ours), (torch, theirs)):
            offs = None if ends is None else ns.tensor(ends, dtype=ns.int32)
            r = ns.nn.functional.grouped_mm(*ts, offs=offs)
            (r * r).sum().backward()
            results.append(r)
        near(*results)
        for a, b in zip(ours, theirs):
            near(a.grad, b.grad)
    a, b = (
        error(lambda ns=ns: ns._grouped_mm(ns.ones(8, 4), ns.ones(3, 4, 8), offs=ns.tensor([2, 2, 8])))  # type: ignore[misc]
        for ns in BOTH
    )
    assert a == b == ("RuntimeError", "Offsets have to be int32")


def test_associative_scan(device: str) -> None:
    ours, theirs = (
        importlib.import_module(f"{n}._higher_order_ops.associative_scan").associative_scan
        for n in ("tabtorch", "torch")
    )
    torch.manual_seed(0)
    x, y = torch.rand(2, 7), torch.rand(2, 7)

    def both(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    for n, reverse in ((1, False), (2, False), (7, False), (6, True)):
        a = ours(both, (tt.tensor(x[:, :n].tolist()), tt.tensor(y[:, :n].tolist())), 1, reverse, "generic")
        b = theirs(both, (x[:, :n], y[:, :n]), 1, reverse, "generic")
        near(a[0], b[0])
        near(a[1], b[1])


def test_gradient_out_of_the_first_levels_of_vmap() -> None:
    """In a process of its own: the levels of nested maps are its first numbers, which a leaf's must be below."""
    text = (
        "import tabtorch as torch; torch.set_default_device('cpu'); a = torch.arange(6.).view(2, 3).requires_grad_();"
        "f = torch.vmap(torch.vmap(lambda b, q: a[b, q] * 2, (None, 0)), (0, None));"
        "f(torch.arange(2), torch.arange(3)).sum().backward(); print(a.grad.tolist())"
    )
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert out.stdout.strip() == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]", out.stderr


# ---- FlexAttention


def flex(ns: Any, q: Any, k: Any, v: Any, bias: Any) -> list[Any]:
    fa = ns.nn.attention.flex_attention
    fa._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True

    def add(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + bias[h, i - j + 5]

    def cut(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return ns.where(i >= j, s * 0.5, -float("inf"))

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i - j <= 2

    mask = fa.create_block_mask(fa.and_masks(causal, window), None, None, 6, 6, device=q.device, BLOCK_SIZE=2)
    out = [fa.flex_attention(q, k, v, score_mod=add), *fa.flex_attention(q, k, v, score_mod=cut, return_lse=True)]
    r, aux = fa.flex_attention(q, k, v, add, mask, return_aux=fa.AuxRequest(lse=True))
    out += [r, aux.lse, fa.flex_attention(q, k[:, :1], v[:, :1], block_mask=mask, enable_gqa=True, scale=0.3)]
    out += [getattr(mask, name) for name in mask._TENSOR_ATTRS if not name.startswith("dq")]
    out += [mask.to_dense(), mask._adjust(4, 4).kv_indices, mask[0, 0, 1:].kv_num_blocks]
    out += [fa.create_mask(fa.or_masks(causal, window), 1, 1, 4, 5, device=q.device).int()]
    shown = [str(mask), repr(mask), mask.sparsity(), mask.numel(), mask[0].shape]
    shown += [
        error(lambda: fa.flex_attention(q, k[:, :1], v[:, :1])),
        error(lambda: fa.flex_attention(q[:, :, :4], k, v, None, mask)),
    ]
    shown += [
        error(lambda: fa.flex_attention(q, k[..., :4], v)),
        error(lambda: fa.flex_attention(q, k, v, None, mask[0])),
    ]
    return [out, shown]


def test_flex_attention(device: str) -> None:
    torch.manual_seed(0)
    values = [torch.randn(1, 2, 6, 8) for _ in range(3)] + [torch.randn(2, 11)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = flex(torch, *values)
        ours = flex(tt, *[tt.tensor(t.tolist()) for t in values])
    for a, b in zip(ours[0], theirs[0], strict=True):
        near(a, b)
    assert ours[1] == theirs[1]


def test_flex_attention_has_gradients(device: str) -> None:
    """Which PyTorch has on GPUs only: beside its scaled dot product."""
    torch.manual_seed(0)
    fa = tt.nn.attention.flex_attention
    values = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3)]
    ours = [tt.tensor(t.tolist(), requires_grad=True) for t in values]
    mask = fa.create_block_mask(lambda b, h, i, j: i >= j, None, None, 3, 3, BLOCK_SIZE=2)
    (fa.flex_attention(*ours, block_mask=mask) ** 2).sum().backward()
    (torch.nn.functional.scaled_dot_product_attention(*values, is_causal=True) ** 2).sum().backward()
    for a, b in zip(ours, values):
        near(a.grad, b.grad)


# ---- torch.library


def library(ns: Any, space: str) -> list[Any]:
    @ns.library.custom_op(f"{space}::scaled", mutates_args=(), schema="(Tensor x, float w, int n=2) -> Tensor")  # type: ignore[untyped-decorator]
    def scaled(x: Any, w: float, n: int = 2) -> Any:
        return ns.sin(x) * w * n

    @scaled.register_fake  # type: ignore[untyped-decorator]
    def _(x: Any, w: float, n: int = 2) -> Any:
        return ns.empty_like(x)

    x = ns.tensor([0.0, 0.5, 1.0], requires_grad=True)
    y = scaled(x, 2.0)
    out: list[Any] = [y.requires_grad, numbers(y), error(lambda: y.sum().backward())]

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, n = inputs
        ctx.save_for_backward(x)
        ctx.w = w * n

    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0].cos() * ctx.w, None, None

    ns.library.register_autograd(f"{space}::scaled", backward, setup_context=setup)
    op = getattr(ns.ops, space).scaled
    op(x, 3.0, n=1).sum().backward()
    out += [numbers(x.grad), numbers(op.default(ns.ones(2), 1.0)), tuple(op(ns.empty(3, device="meta"), 1.0).shape)]
    lib = ns.library.Library(space, "FRAGMENT")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    x.grad = None
    getattr(ns.ops, space).twice(x).sum().backward()
    out += [numbers(x.grad), hasattr(ns.ops, "nobodys"), hasattr(ns.ops.nobodys, "op")]
    out += [error(lambda: ns.ops.nobodys.op), error(lambda: ns.library.define("nameless", "() -> ()"))[0]]
    return out


def test_library(device: str) -> None:
    ours, theirs = (library(ns, f"people_{device}") for ns in BOTH)
    for a, b in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b) if isinstance(b, list) else a == b


# ---- names

PROBED = """
torch.cuda.CUDAGraph | None
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
torch._dynamo.mark_static_address(torch.ones(1))
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
assert not isinstance(torch.nn.Linear(1, 1), FullyShardedDataParallel)
from torch.distributed.fsdp import FSDPModule
torch.distributed.device_mesh.DeviceMesh | None
import importlib.metadata
assert importlib.metadata.version("torch") == torch.__version__
assert importlib.metadata.distribution("torch").metadata["Name"] == "torch"
assert "torch" in importlib.metadata.packages_distributions()
assert importlib.metadata.version("pip")
import safetensors.torch, safetensors
safetensors.torch.save_file({"a": torch.arange(6).reshape(2, 3)}, FILE, metadata={"k": "v"})
f = safetensors.safe_open(FILE, framework="pt", device="cpu")
assert f.metadata() == {"k": "v"} and f.get_slice("a")[:, 1:2].tolist() == [[1], [4]]
t = f.get_tensor("a")
assert type(t) is torch.Tensor and safetensors.torch.storage_size(t) == 48
assert safetensors.torch.storage_ptr(t) == safetensors.torch.storage_ptr(t[1:]) != safetensors.torch.storage_ptr(t.clone())
"""


@pytest.mark.parametrize("bare", [False, True])
def test_names_after_install(bare: bool, tmp_path: Path) -> None:
    """`bare`: in a Python that has neither PyTorch nor safetensors, as a tab."""
    package = str(Path(str(tt.__file__)).parents[1])
    hidden = "import importlib.machinery as m; hidden = m.PathFinder.find_spec\n"
    hidden += "m.PathFinder.find_spec = classmethod(lambda c, n, *a: None if n in ('torch', 'safetensors') else hidden(n, *a))\n"
    text = f"import sys\nsys.path.insert(0, {package!r})\nFILE = {str(tmp_path / 'x.safetensors')!r}\n"
    text += (
        (hidden if bare else "")
        + "import tabtorch\ntabtorch.install()\ntabtorch.set_default_device('cpu')\nimport torch"
        + PROBED
    )
    text += "print(torch is tabtorch, safetensors.__name__)"
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    has = not bare and importlib.util.find_spec("safetensors") is not None
    assert out.stdout.split() == ["True", "safetensors" if has else "tabtorch.safetensors"], out.stderr


@pytest.mark.parametrize("t", (tt, torch))
def test_attributes_of_a_class_with_another_base(t: Any) -> None:
    """monai's MetaTensor: the other base has a `__dict__` of its own, which must not show what a tensor consists of."""

    class Noted:
        pass

    class Image(Noted, t.Tensor):
        pass

    x, y = t.ones(2).as_subclass(Image), t.zeros(2).as_subclass(Image)
    x.affine = [1, 2]
    assert vars(x) == {"affine": [1, 2]}
    y.__dict__ = copy.deepcopy(x.__dict__)
    assert y.affine == [1, 2] and y.affine is not x.affine and (y + 1).tolist() == [1, 1]
    y.__dict__.update(spacing=3)
    assert y.spacing == 3 and vars(y) == {"affine": [1, 2], "spacing": 3}
    y.__dict__ = {}
    assert not hasattr(y, "affine") and y.tolist() == [0, 0]
