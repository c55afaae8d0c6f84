"""A Run starts clean: what the one before changed is put back, and files stay."""

from __future__ import annotations

from browser.pages import Editor

CHANGES = """import asyncio, builtins, json, math, os, random, sys, warnings
import torch
from pathlib import Path

Path("own_module.py").write_text("value = 1\\n")
Path("folder").mkdir(exist_ok=True)
import own_module

torch.set_default_dtype(torch.float64)
torch.set_default_device("cpu")
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True)
torch.set_printoptions(precision=1)
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.deterministic = not torch.backends.cudnn.deterministic
torch.manual_seed(0)
torch.nn.functional.relu = torch.sin
torch.mine = torch.Tensor.mine = builtins.mine = 1
torch.Tensor.sum = None
math.pi = 3
json.dumps = None
os.environ["MINE"] = "1"
os.environ["HOME"] = "/"
os.chdir("folder")
sys.path.insert(0, "/nowhere")
sys.stdout = open("/tmp/elsewhere", "w")
sys.setrecursionlimit(77_777)
warnings.simplefilter("error")
task = asyncio.ensure_future(asyncio.sleep(1000))
Path("/home/pyodide/own_module.py").write_text("value = 2\\n")
"""

STATE = """import asyncio, builtins, json, math, os, sys, warnings
import torch

print(torch.get_default_dtype(), torch.ones(1).device.type, torch.is_grad_enabled())
print(torch.are_deterministic_algorithms_enabled(), torch.tensor(1 / 3), torch.get_float32_matmul_precision())
print(torch.backends.cudnn.deterministic, torch.nn.functional.relu(torch.tensor(-2.0)).item(), torch.ones(2).sum().item())
print(hasattr(torch, "mine"), hasattr(torch.Tensor, "mine"), hasattr(builtins, "mine"), math.pi, json.dumps([1]))
print(os.environ.get("MINE"), os.environ["HOME"], os.getcwd(), "/nowhere" in sys.path, sys.getrecursionlimit() == 77_777)
warnings.warn("only a warning")
print(len(asyncio.all_tasks()), "own_module" in sys.modules)
"""


def test_a_run_starts_clean(editor: Editor) -> None:
    editor.load()
    before = editor.run(STATE)
    assert "torch.float32 webgpu True\nFalse tensor(0.3333" in before
    editor.run(CHANGES)
    assert editor.run(STATE) == before
    output = editor.run("import own_module, os\nprint(own_module.value, os.path.exists('folder'))\n")
    assert output == "2 True\n", "files stay, and are read anew"
    seeds = {editor.run("import torch\nprint(torch.rand(1).item())\n") for _ in range(2)}
    assert len(seeds) == 2, "no seed is left"


LATE = """import torch
from torch.func import grad, jvp, vmap

x = torch.linspace(0, 1, 4)
print(vmap(grad(grad(lambda x: x**3)))(x), jvp(torch.sin, (x,), (x,))[1].tolist())
try:
    x[torch.tensor([7])].tolist()
except IndexError as e:
    print(e)
double = torch.compile(lambda x: x * 2)
for _ in range(4):
    x = double(x)
print(x.tolist(), torch.vmap(torch.sum)(torch.ones(2, 3)).tolist())
with torch.autograd.set_detect_anomaly(True), torch.profiler.profile() as found:
    torch.ones(3, requires_grad=True).exp().sum().backward()
print(len(found.key_averages()) > 0)
"""


def test_what_was_loaded_late_works_in_the_next_run(editor: Editor) -> None:
    """Modules of tabtorch that a script brings in set what others of its own do: that is nothing a script changed."""
    first = editor.run(LATE)
    assert (
        first.startswith("tensor([0.0000, 2.0000, 4.0000, 6.0000])") and "out of" in first and first.endswith("True\n")
    ), first
    assert editor.run(LATE) == first
