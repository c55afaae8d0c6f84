"""Quantized checkpoints of Hugging Face's format into a model: GPTQ, AWQ, compressed-tensors (pack-quantized), bitsandbytes' 4 bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import tabtorch
from tabtorch.base import dtypes
from tabtorch.nn.modules.linear import Linear
from tabtorch.nn.parameter import Parameter
from tabtorch.packed.schemes import FLOATS, require
from tabtorch.packed.weight import Packed

#: takes the tensors of one weight out of the state by the ends of their names, and packs them: (name, take, options, shape)
Take = Callable[[str], Any]


def _need(take: Take, end: str) -> Any:
    found = take(end)
    require(found is not None, f"the checkpoint has no {end!r} for a weight that wants one")
    return found


def _shown(scales: Any) -> Any:
    require(scales.dtype in FLOATS, f"scales are of {scales.dtype}")
    return scales.dtype


def _gptq(take: Take, options: Mapping[str, Any], shape: tuple[int, int]) -> Packed:
    bits = options.get("bits")
    require(bits in (2, 3, 4, 8) and type(bits) is int, f"GPTQ has 2, 3, 4 or 8 bits, and not {bits!r}")
    kind = options.get("checkpoint_format", "gptq")
    require(kind in ("gptq", "gptq_v2"), f"there is no reader for GPTQ's checkpoint_format {kind!r}")
    qweight, qzeros, scales = (_need(take, end) for end in ("qweight", "qzeros", "scales"))
    g_idx = take("g_idx")
    groups, columns = scales.shape[0] if scales.ndim == 2 else 0, shape[1]
    if g_idx is None:
        require(not options.get("desc_act"), "desc_act wants g_idx, the group of each column")
        size = options.get("group_size", -1)
        size = columns if size == -1 else size
        require(
            type(size) is int and size > 0 and groups * size >= columns,
            f"group_size {size!r} is none of {groups} groups",
        )
        g_idx = tabtorch.arange(columns, dtype=dtypes.int32, device=scales.device) // size
    else:
        require(g_idx.dtype is dtypes.int32 and g_idx.numel() > 0, "g_idx must be torch.int32")
        low, high = int(g_idx.min()), int(g_idx.max())
        require(low >= 0 and high < groups, f"g_idx goes from {low} to {high}, and there are {groups} groups")
    name = f"GPTQ{bits}" + ("_V2" if kind == "gptq_v2" else "")
    return Packed([qweight, qzeros, scales, g_idx], name, shape, dtype=_shown(scales))


def _awq(take: Take, options: Mapping[str, Any], shape: tuple[int, int]) -> Packed:
    bits, version = options.get("bits", options.get("w_bit", 4)), str(options.get("version", "gemm")).lower()
    require(
        bits == 4 and version == "gemm", f"there is a reader for AWQ's gemm of 4 bits, and not {version} of {bits!r}"
    )
    qweight, qzeros, scales = (_need(take, end) for end in ("qweight", "qzeros", "scales"))
    return Packed([qweight, qzeros, scales], "AWQ4", shape, dtype=_shown(scales))


def _compressed(take: Take, options: Mapping[str, Any], shape: tuple[int, int]) -> Packed:
    kind = options.get("format")
    require(
        kind in (None, "pack-quantized"), f"there is a reader for compressed-tensors' pack-quantized, and not {kind!r}"
    )
    packed, scales = _need(take, "weight_packed"), _need(take, "weight_scale")
    zeros, stated = take("weight_zero_point"), take("weight_shape")
    require(
        take("weight_g_idx") is None, "there is no reader for compressed-tensors with weight_g_idx (activation order)"
    )
    if stated is not None:
        require(stated.numel() == 2, "weight_shape has two numbers")
        require(tuple(stated.tolist()) == shape, f"weight_shape is {stated.tolist()}, and the layer's {list(shape)}")
    width = packed.shape[-1] if packed.ndim == 2 else 0
    bits = next((b for b in (4, 8) if width == -(-shape[1] * b // 32)), 0)
    require(bits > 0, f"weight_packed of {list(packed.shape)} is not of {shape[1]} columns of 4 or 8 bits")
    parts = [packed, scales] if zeros is None else [packed, scales, zeros]
    return Packed(parts, f"CT{bits}" + "_ZEROS" * (zeros is not None), shape, dtype=_shown(scales))


def _bitsandbytes(take: Take, options: Mapping[str, Any], shape: tuple[int, int]) -> Packed:
    codes, absmax, table = (_need(take, end) for end in ("weight", "weight.absmax", "weight.quant_map"))
    found = [x for x in (take(f"weight.quant_state.bitsandbytes__{kind}") for kind in ("nf4", "fp4")) if x is not None]
    require(
        len(found) == 1 and found[0].dtype is dtypes.uint8 and found[0].numel() < 65536, "quant_state is a small text"
    )
    state = json.loads(bytes(found[0].tolist()))
    require(isinstance(state, dict), "quant_state is an object of JSON")
    require(
        state.get("shape") == list(shape), f"the weight is of {state.get('shape')!r}, and the layer's of {list(shape)}"
    )
    kinds = {str(d).rpartition(".")[2]: d for d in FLOATS}
    require(state.get("dtype") in kinds, f"the weight is of {state.get('dtype')!r}")
    require(table.numel() == 16, f"quant_map has 16 numbers, and not {table.numel()}")
    size, dtype = state.get("blocksize"), kinds[state["dtype"]]
    codes = codes.reshape(-1)
    nested = take("weight.nested_absmax")
    if nested is None:
        parts = [codes, tabtorch.cat([table.float().reshape(-1), absmax.float().reshape(-1)])]
        return Packed(parts, "BNB4", shape, dtype=dtype, options=(size,))
    offset, second = state.get("nested_offset"), _need(take, "weight.nested_quant_map")
    require(isinstance(offset, (int, float)), f"nested_offset is a number, and not {offset!r}")
    require(second.numel() == 256, f"nested_quant_map has 256 numbers, and not {second.numel()}")
    middle = tabtorch.tensor([float(offset)], device=codes.device)
    tables = tabtorch.cat([table.float().reshape(-1), second.float().reshape(-1), middle, nested.float().reshape(-1)])
    sizes = (size, state.get("nested_blocksize"))
    return Packed([codes, absmax.reshape(-1), tables], "BNB4_NESTED", shape, dtype=dtype, options=sizes)


#: `quant_method` of a config -> the tensor by whose name a weight is known, and who packs it
_METHODS: dict[str, tuple[tuple[str, ...], Callable[..., Packed]]] = {
    "gptq": (("qweight",), _gptq),
    "awq": (("qweight",), _awq),
    "compressed-tensors": (("weight_packed",), _compressed),
    "bitsandbytes": (
        tuple(f"weight.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4")),
        _bitsandbytes,
    ),
}


def load_quantized(model: Any, state: Mapping[str, Any], config: Mapping[str, Any], *, strict: bool = True) -> Any:
    """Loads a quantized checkpoint into a model; the weights of its `nn.Linear`s become `Packed`. Gives what `load_state_dict` does.

    state: tensors by name, as `safetensors.torch.load_file` has them: NAME.qweight, NAME.qzeros, NAME.scales, … in the place of
    NAME.weight. config: the contents of config.json, or its `quantization_config`. ValueError where method, names or sizes are not those of
    a reader, or contradict the model; then the model is as it was. What is not quantized is loaded as `load_state_dict(assign=True)` does.
    """
    options = config.get("quantization_config", config)
    method = options.get("quant_method") if isinstance(options, Mapping) else None
    require(method in _METHODS, f"quant_method is one of {', '.join(_METHODS)}, and not {method!r}")
    ends, pack = _METHODS[str(method)]
    rest = dict(state)
    packed: dict[str, Packed] = {}
    modules: dict[str, Any] = dict(model.named_modules())
    for name in [k[: -len(end) - 1] for k in state for end in ends if k.endswith("." + end)]:
        module: Any = modules.get(name)
        require(
            isinstance(module, Linear),
            f"the checkpoint has a packed weight for {name!r}, which is no nn.Linear of the model",
        )
        try:
            packed[name] = pack(
                lambda end, name=name: rest.pop(f"{name}.{end}", None),
                options,
                (module.out_features, module.in_features),
            )
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from None
    missing = set(model.state_dict()) - rest.keys() - {f"{name}.weight" for name in packed}
    extra = [name for name in packed if modules[name].bias is None and f"{name}.bias" in rest]
    for name in extra:  # GPTQ's layers always have one
        bias, rows = rest[f"{name}.bias"], modules[name].out_features
        require(
            tuple(bias.shape) == (rows,), f"{name}: the bias is of {list(bias.shape)}, and the layer of {rows} rows"
        )
    if strict and missing:
        raise ValueError(f"the checkpoint has no {', '.join(sorted(missing))}")
    for name in extra:
        modules[name].bias = Parameter(rest[f"{name}.bias"], requires_grad=False)
    for name, weight in packed.items():
        modules[name].weight = weight
        rest[f"{name}.weight"] = weight
    return model.load_state_dict(rest, strict=strict, assign=True)
