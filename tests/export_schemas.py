"""Writes `py/tabtorch/export/schemas_table.py` from PyTorch's own schemas: `python tests/export_schemas.py`."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from tabtorch.ops import aten

TARGET = Path(__file__).parent.parent / "py/tabtorch/export/schemas_table.py"
_LEFT_OUT = re.compile(
    r"^_|backward|_copy$|^(_foreach|cudnn|miopen|mkldnn|quantize|fake_quant|fbgemm|sparse|to_sparse|xlogy_|qu|q_|dequ|int_repr|segment|"
    r"batch_norm_|native_(batch|channel|norm)|mps|dense|coo|crow|col_|row_|ccol|slow_|thnn|rename|align|refine|names|is_|set_|resize_|tensor$|as_tensor|nonzero|masked_select|unique|bincount|repeat_interleave|argwhere|"
    r"choose|from_file|frac_|to_mkl|vulkan|nested|unsafe|values$|indices$|item|data$|retain|requires|record|chain_matmul|"
    r"gru_cell_|rnn_tanh_cell_|clip$|special_(gammainc|multi|log_sof|soft|xlog1|polygamma|psi|expit$|ndtr$)|linalg_(cond|ldl|lu|tensor|eig|"
    r"svdvals|matrix_norm|multi)|fft_(h|ihfft|rfftn|irfftn|fftn|ifftn|rfft2|irfft2)|fused_moving|feature_|alpha_dropout_|fractional)"
)
_TYPES = {
    "Tensor": "T", "Scalar": "S", "SymInt": "i", "int": "i", "float": "f", "bool": "b", "str": "s", "ScalarType": "d",
    "MemoryFormat": "m", "Layout": "l", "Device": "D", "Generator": "G",
}  # fmt: skip
_OPTIONS = "*,d? dtype=None,l? layout=None,D? device=None,b? pin_memory=None"
_FIRST = ("self", "input")


def _short(schema: str) -> str:
    """ "add.Tensor(Tensor self, ...) -> Tensor" as the table has it."""
    schema = re.sub(r"\([a-z|]+!?( -> \*)?\)", "", schema).removeprefix("aten::")
    head, _, rest = schema.partition("(")
    inside, _, returned = rest.rpartition(") -> ")
    inside = inside.replace(", ", ",")
    for name, letter in _TYPES.items():
        inside = re.sub(rf"(^|,){name}(?=[\[? ])", rf"\1{letter}", inside)
    inside = inside.replace(_OPTIONS, "%")
    results = {"Tensor": "", "Tensor[]": ">T[]"}.get(returned)
    if results is None:
        results = f">{returned.count('Tensor')}"
    return head.partition(".")[2] + "(" + inside + ")" + results


def wanted(name: str) -> bool:
    if name in ("slice", "alias"):
        return True
    spaces = ("linalg_", "fft_", "special_")
    shown = any(hasattr(x, name) for x in (torch, torch.Tensor, torch._C._nn)) or name.startswith(spaces)
    return shown and not _LEFT_OUT.search(name) and aten.lookup("aten::" + name) is not None


def lines() -> list[str]:
    """A line for each name: the name, and its overloads."""
    found: dict[str, list[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if not schema.name.startswith("aten::") or not wanted(name):
            continue
        kinds = {str(a.type) for a in schema.arguments} | {str(r.type) for r in schema.returns}
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        texts = str(schema)
        if (
            not schema.returns
            or not any("Tensor" in str(r.type) for r in schema.returns)
            or any(k for k in kinds if re.search(r"Dict|Any|Stream|Future|Storage|Quantizer|\bt\b|complex", k))
            or any(a.name in ("out", "indices_out") or a.is_out for a in schema.arguments)
            or "Dimname" in texts
            or schema.overload_name.startswith(("generator", "hacked", "prim_", "complex"))
            or schema.overload_name.endswith("_hacked_twin")
            or len(written) > 1
        ):
            continue
        try:
            torch._C._get_operation_overload(schema.name, schema.overload_name)
        except RuntimeError:
            continue
        if not hasattr(getattr(torch.ops.aten, name), schema.overload_name or "default"):
            continue
        found.setdefault(name, []).append(_short(texts))
    made = []
    for name, overloads in sorted(found.items()):
        if name.endswith("_") and found.get(name[:-1]) is not None and set(overloads) <= set(found[name[:-1]]):
            continue  # as the one that gives a new tensor
        made.append(f"{name} {'|'.join(sorted(overloads, key=lambda o: (_rank(o), len(o))))}")
    return made


def _rank(overload: str) -> int:
    """Overloads of tensors are tried first."""
    return 0 if "T other" in overload or "T exponent" in overload else 1


def text() -> str:
    rows, row = [], ""
    for line in lines():
        row = f"{row};{line}" if row else line
        if len(row) > 400:
            rows.append(row)
            row = ""
    found = ";\n".join([*rows, row]).rstrip(";\n")
    head = '"""Schemas of ATen\'s operators, as PyTorch 2.13 has them. Written by tests/export_schemas.py; read by schemas.py."""\n\n'
    return head + '# ruff: noqa: E501\nTABLE = """\\\n' + found + '"""\n'


if __name__ == "__main__":
    TARGET.write_text(text())
