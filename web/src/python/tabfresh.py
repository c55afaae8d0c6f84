"""A Run starts clean: what the script before changed in this interpreter is put back. Files stay."""

import asyncio
import importlib
import os
import re
import site
import sys
import types
import warnings

_kept = {}  # what was there before the first script, by name
_names = vars(types.ModuleType)["__dict__"]
_LEAVE_ALONE = ("__main__", "_pyodide", "asyncio", "js", "pyodide", "pyodide_js", "sys", "tabfresh", "tabpage")

#: of tabtorch, what scripts know by PyTorch's names. The others keep state that modules which are loaded later set: what
#: becomes of a batched value, how a bad index is read
_PUBLIC = re.compile(r"tabtorch(\.(autograd|fft|func|linalg|special|(backends|distributions|nn|optim|utils)(\..*)?))?$")


def remember():
    """Call before the first script or line of the prompt. Of modules that are loaded later, torch's are put back."""
    if _kept:
        return
    import torch
    import torch.backends.cudnn
    import torch.nn.functional
    import torch.optim

    sys.dont_write_bytecode = True  # its times are in seconds: a module edited within one would not be read again
    _kept.update(
        modules=dict(sys.modules),
        namespaces=[(each, dict(_own(each))) for each in _namespaces(torch)],
        environ=dict(os.environ),
        cwd=os.getcwd(),
        path=sys.path[:],
        filters=warnings.filters[:],
        streams=(sys.stdin, sys.stdout, sys.stderr),
        hooks=(sys.excepthook, sys.displayhook),
        recursion=sys.getrecursionlimit(),
        dtype=torch.get_default_dtype(),
        precision=torch.get_float32_matmul_precision(),
    )
    _remember_what_comes()


async def restore():
    """Put everything back, but for what lies in the file system."""
    warnings.resetwarnings()
    warnings.filters[:] = _kept["filters"]
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)
    _forget_own_modules()
    for namespace, names in _kept["namespaces"]:
        _put_back(namespace, names)
    sys.stdin, sys.stdout, sys.stderr = _kept["streams"]
    sys.excepthook, sys.displayhook = _kept["hooks"]
    sys.setrecursionlimit(_kept["recursion"])
    sys.path[:] = _kept["path"]
    for name in os.environ.keys() - _kept["environ"].keys():
        del os.environ[name]
    os.environ.update(_kept["environ"])
    os.makedirs(_kept["cwd"], exist_ok=True)
    os.chdir(_kept["cwd"])
    _restore_torch()


def _namespaces(torch):
    """What a script may set attributes on: modules, and the two classes that are patched now and then."""
    found = {id(each): each for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)}
    modules = [each for each in found.values() if _may_be_changed(each.__name__)]
    return [*modules, torch.Tensor, torch.nn.Module]


def _may_be_changed(name):
    package = name.partition(".")[0]
    return bool(_PUBLIC.match(name)) if package == "tabtorch" else package not in _LEAVE_ALONE


def _own(namespace):
    """The names that are there. `vars` loads what a module of torch's would load if it were asked for."""
    return _names.__get__(namespace) if isinstance(namespace, types.ModuleType) else vars(namespace)


def _remember_what_comes():
    """Of torch's modules many are loaded when a script first names something of them: each is as it should be then."""
    from tabtorch._archive import Archive

    load = Archive.exec_module

    def exec_module(self, module):
        load(self, module)
        if _may_be_changed(module.__name__):
            _kept["namespaces"].append((module, dict(_own(module))))

    Archive.exec_module = exec_module


def _put_back(namespace, names):
    """Public names only: the others are a module's own business."""
    for name, value in list(_own(namespace).items()):
        if name not in names and not name.startswith("_") and not isinstance(value, types.ModuleType):
            delattr(namespace, name)
    for name, value in names.items():
        if not name.startswith("_") and _own(namespace).get(name, _kept) is not value:
            setattr(namespace, name, value)


def _forget_own_modules():
    """Those that lie beside a script are read anew; those of the distribution are kept, which takes seconds to load."""
    installed = tuple(os.path.dirname(folder) for folder in site.getsitepackages())  # the library, with packages in it
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in _kept["modules"] and file and not file.startswith(installed) and ".zip/" not in file:
            del sys.modules[name]
    sys.modules.update({name: each for name, each in _kept["modules"].items() if name != "__main__"})
    importlib.invalidate_caches()


def _restore_torch():
    import random

    import torch

    from tabtorch.base import thread_state

    for _, put, initial in thread_state.KINDS:  # grad mode, the default device, autocast, …
        put(initial)
    torch.set_default_dtype(_kept["dtype"])
    torch.set_default_device(None)
    torch.set_float32_matmul_precision(_kept["precision"])
    torch.use_deterministic_algorithms(False)
    torch.set_warn_always(False)
    torch.autograd.set_detect_anomaly(False)
    torch.set_printoptions(profile="default", sci_mode=None)
    torch.seed()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
