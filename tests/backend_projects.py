"""The programs of tests/projects on real PyTorch's device="webgpu", for test_backend_projects.py.

    TABTORCH_DEVICE=cpu|webgpu python tests/backend_projects.py NAME HOW [--steps N]

prints, as JSON, the losses that a program is differentiated of, what it printed, and what ended it. HOW is `plain` (on PyTorch's
CPU), `eager` (on "webgpu"), `compiled` (the same with its models compiled for webgpu), or `beside` (compiled, with models and
data on the CPU). --steps: the program ends after so many losses.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: whether it is compiled, and where its models and data are
HOWS = {"plain": (False, "cpu"), "eager": (False, "webgpu"), "compiled": (True, "webgpu"), "beside": (True, "cpu")}
#: what programs call their models
MODELS = {"model", "net", "netG", "netD", "classifier", "policy_net", "target_net"}


class _Compiling(ast.NodeTransformer):
    """After `model = …to(device)` comes `model.compile(backend="webgpu")`."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        named = [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        found = [n for n in named if n in MODELS]
        if not found or not ast.unparse(node.value).rstrip(")").endswith(".to(device"):
            return node
        # Dynamo leaves an `nn.Sequential` alone that is compiled by its method
        wrapped = "nn.Sequential(" in ast.unparse(node.value)
        form = "{0} = torch.compile({0}, backend='webgpu')\n" if wrapped else "{0}.compile(backend='webgpu')\n"
        return [node, *ast.parse("".join(form.format(n) for n in found)).body]


def changed(text: str, compiled: bool, place: str) -> str:
    """The program for another device than CUDA."""
    if place != "cpu":
        text = text.replace("torch.cuda.is_available()", "True")
        for cuda in ('"cuda:0"', '"cuda"'):
            text = text.replace(cuda, repr(place))
    if "torch.compile(" in text:
        return text.replace('backend="eager"', 'backend="webgpu"') if compiled else text
    return ast.unparse(_Compiling().visit(ast.parse(text))) if compiled else text


class _Enough(Exception):
    """As many losses as were asked for."""


def run(name: str, how: str, steps: int) -> dict[str, Any]:
    """Losses, words, and the traceback of what ended it."""
    import torch

    losses: list[Any] = []
    backward = torch.Tensor.backward

    def noting(self: Any, *args: Any, **kw: Any) -> Any:
        losses.append(self.detach().clone())
        if len(losses) == steps:
            raise _Enough
        return backward(self, *args, **kw)

    path = HERE / "projects" / f"{name}.py"
    text = changed(path.read_text(), *HOWS[how])
    out, error = io.StringIO(), ""
    torch.Tensor.backward = noting
    try:
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    except _Enough:
        pass
    except BaseException:
        error = traceback.format_exc()
    finally:
        torch.Tensor.backward = backward
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] if HOWS[how][0] else 0
    return {
        "losses": [loss.item() for loss in losses],
        "out": out.getvalue().replace("_orig_mod.", ""),
        "error": error,
        "graphs": graphs,
    }


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("name")
    ask.add_argument("how", choices=HOWS)
    ask.add_argument("--steps", type=int, default=0)
    o = ask.parse_args()
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch

    torch.set_num_threads(1)
    torch._dynamo.config.allow_rnn = True  # else LSTMs are left out of graphs
    if o.how != "plain":
        import tabtorch.backend.dynamo  # noqa: F401  # which Dynamo finds by itself where the package is installed
    json.dump(run(o.name, o.how, o.steps), sys.stdout)


if __name__ == "__main__":
    main()
