"""`torch.fx.graph_module`: a module whose `forward` is the code of a graph."""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tabtorch
from tabtorch import nn
from tabtorch.fx._code import PythonCode, _BoxedCodeGen, _PyTreeCodeGen
from tabtorch.fx._compatibility import compatibility
from tabtorch.fx._generated import (
    _assign_attr,
    _copy_attr,
    _del_attr,
    _exec_with_source,
    _format_import_block,
    _forward_from_src,
    _get_attr,
    _get_attr_via_attr_list,
    _has_attr,
    _loader,
    _method_from_src,
    _ours,
    _WrappedCall,
)
from tabtorch.fx.graph import Graph, _custom_builtins
from tabtorch.nn.modules.module import Module, _addindent

__all__ = [
    "GraphModule",
    "_del_attr",
    "_exec_with_source",
    "_get_attr",
    "_get_attr_via_attr_list",
    "_has_attr",
    "_loader",
    "_method_from_src",
    "reduce_graph_module",
    "reduce_package_graph_module",
]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


@compatibility(is_backward_compatible=True)
def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """A GraphModule of what a pickle has of one: its attributes, with the code, which is traced."""
    src = body.get("_code") or body["code"]
    # what a file says that another program wrote is run, as whatever a pickle names
    return _deserialize_graph_module(_forward_from_src(_ours(import_block) + src, {}), body)


def reduce_package_graph_module(importer: Any, body: dict[str, Any], generated_module_name: str) -> Module:
    """The same of a package of `torch.package`."""
    return _deserialize_graph_module(importer.import_module(generated_module_name).forward, body)


class _CodeOnlyModule(Module):
    """The attributes of a GraphModule, with its code and no graph."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _deserialize_graph_module(forward: Any, body: dict[str, Any], graph_module_cls: Any = None) -> Module:
    _CodeOnlyModule.forward = forward
    tracer_cls: Any = body.get("_tracer_cls") or importlib.import_module("tabtorch.fx._symbolic_trace").Tracer

    class KeepModules(tracer_cls):
        """Enters no module: the code has calls of those that were none of the first trace's."""

        def is_leaf_module(self, _: Module, __: str) -> bool:
            return True

    com = _CodeOnlyModule(body)
    graph = KeepModules().trace(com, **body.get("_tracer_extras", {}))
    graph._tracer_cls = tracer_cls
    gm: Any = (graph_module_cls or GraphModule)(com, graph, class_name=body.get("_graphmodule_cls_name", "GraphModule"))
    for k, v in body.items():
        if not hasattr(gm, k):
            setattr(gm, k, v)
    return gm


def _print_readable(module: Any, name: str, print_output: bool = True, **options: Any) -> str:
    graph = module.graph
    assert isinstance(graph, Graph), "print_readable must be used on a module with a graph"
    code = graph.python_code("self", verbose=True, **options).src.lstrip("\n")
    text = _addindent(f"class {name}(torch.nn.Module):\n{code}", 4)
    options.pop("expanded_def", None)
    inner = [
        _print_readable(child, child_name, False, **options)
        for child_name, child in module.named_children()
        if isinstance(child, GraphModule)
    ]
    text += _addindent("\n".join(["", *inner]), 4)
    if print_output:
        print(text)
    return str(text)


#: lists of functions that look on while the graph is changed
_HOOKS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")


@compatibility(is_backward_compatible=True)
class GraphModule(Module):
    """A module made of a graph, with those attributes of another module that the graph uses."""

    _code: str
    _graph: Graph

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # each has a class of its own, which has its `forward`
        base: Any = next(t for t in cls.__mro__ if t.__qualname__.split(".")[-1] != "GraphModuleImpl")

        class GraphModuleImpl(base):
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        """root: the module that has what the graph calls and reads, or a dict of paths."""
        super().__init__()
        self.__class__.__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            if isinstance(root, _CodeOnlyModule):
                for members in (root.named_children(), root.named_buffers(), root.named_parameters()):
                    for k, _ in members:
                        _copy_attr(root, self, k)
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            for target in sorted(targets, key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        tracer = graph._tracer_cls
        self._tracer_cls = tracer if tracer and "<locals>" not in tracer.__qualname__ else None
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        for name in _HOOKS:
            setattr(self, name, [])
        self.shape_env = None

    __jit_unused_properties__ = ["graph", "_boxed_call"]

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    @property
    def graph(self) -> Graph:
        """The graph. One that is assigned is compiled; one that is changed has to be, by `recompile()`."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        assert isinstance(g, Graph), f"Expected a Graph instance, but got {type(g)}"
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The code of `forward`."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Writes the code of the graph anew; `forward` is it from then on."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        made = self._graph.python_code("self")
        self._code, self._lineno_map, self._prologue_start = made.src, made._lineno_map, made._prologue_start
        cls: Any = type(self)
        cls.forward = _forward_from_src(self._code, made.globals, getattr(self._graph, "_co_fields", None))
        if "_wrapped_call" not in vars(cls):
            cls._wrapped_call = _WrappedCall(cls, vars(cls).get("__call__"))
        for _, child in self.named_children():
            if isinstance(child, GraphModule):
                child.recompile()

        def call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._wrapped_call(self, *args, **kwargs)

        cls.__call__ = call_wrapped
        return made

    # ---- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a path, making those on the way; whether it could."""
        *prefix, field = target.split(".")
        owner: Any = self
        for item in prefix:
            found = getattr(owner, item, None)
            if found is None:
                found = Module()
                setattr(owner, item, found)
            if not isinstance(found, Module):
                return False
            owner = found
        owner.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes the module at a path away; whether there was one."""
        *prefix, field = target.split(".")
        owner: Any = self
        for item in prefix:
            owner = getattr(owner, item, None)
            if not isinstance(owner, Module):
                return False
        if not isinstance(getattr(owner, field, None), Module):
            return False
        delattr(owner, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes the modules away that the graph does not use."""
        used = {""}
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                used.update(itertools.accumulate(node.target.split("."), lambda a, b: f"{a}.{b}"))
                if node.op == "call_module":
                    with contextlib.suppress(AttributeError):
                        inner = self.get_submodule(node.target).named_modules()
                        used.update(f"{node.target}.{name}" for name, _ in inner if name)
        for name in [name for name, _ in self.named_modules() if name not in used]:
            self.delete_submodule(name)

    # ---- files and copies

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Writes a Python package that has the module as a class, and its state."""
        folder = Path(folder)
        folder.mkdir(exist_ok=True)
        tabtorch.save(self.state_dict(), folder / "state_dict.pt")
        imports = "\n".join([v.import_str for v in _custom_builtins.values()])
        lines = []
        files = []
        for name, module in self.named_children():
            if type(module) in (
                nn.Linear,
                nn.Conv1d,
                nn.Conv2d,
                nn.Conv3d,
                nn.BatchNorm1d,
                nn.BatchNorm2d,
                nn.BatchNorm3d,
            ):
                lines.append(f"setattr(self, '{name}', {module!r})")
                continue
            file = folder / f"{name}.pt"
            tabtorch.save(module, file)
            files.append(name)
            said = repr(module).replace("\r", " ").replace("\n", " ")
            lines.append(f"setattr(self, '{name}', torch.load(r'{file}', weights_only=False)) # {said}")
        for name, t in self._buffers.items():
            if t is not None:
                lines.append(f"self.register_buffer('{name}', torch.empty({list(t.shape)}, dtype={t.dtype}))")
        for name, t in self._parameters.items():
            if t is not None:
                lines.append(
                    f"setattr(self, '{name}', torch.nn.Parameter(torch.empty({list(t.shape)}, dtype={t.dtype})))"
                )
        lines.append(f"self.load_state_dict(torch.load(r'{folder}/state_dict.pt'))")
        text = (
            f"\nimport torch\n{imports}\n\nfrom torch.nn import *\nclass {module_name}(torch.nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n"
        )
        text += "".join(f"        {line}\n" for line in lines) + f"{_addindent(self.code, 4)}\n"
        (folder / "module.py").write_text(text)
        (folder / "__init__.py").write_text("from .module import *")
        if files:
            warnings.warn(
                f"Was not able to save the following children modules as reprs -saved as pickled files instead: {files}",
                stacklevel=2,
            )

    def __reduce__(self) -> Any:
        body = self.__dict__.copy()
        imports = _format_import_block(self.recompile().globals)
        del body["_graph"]
        return reduce_graph_module, (body, imports)

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: Any) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        fake = _CodeOnlyModule(copy.deepcopy(self.__dict__, memo))
        self._deepcopy_init()(made, fake, fake.__dict__["_graph"])
        kept = ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", *_HOOKS)
        for name in kept:
            if name in self.__dict__:
                setattr(made, name, copy.deepcopy(self.__dict__[name], memo))
        made.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        for name, value in made.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(made, name, value)
        for hook in getattr(self, "_deepcopy_hooks", ()):
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph)
        made.meta = getattr(self, "meta", {})
        return made

    # ---- text

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The code, and that of inner GraphModules, with what is known of each value."""
        return _print_readable(
            self, self._get_name(), print_output, include_stride=include_stride, include_device=include_device,
            colored=colored, expanded_def=expanded_def, additional_meta=additional_meta,
        )  # fmt: skip

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, reminder])

    def _replicate_for_data_parallel(self) -> GraphModule:
        made = self.__copy__()
        object.__setattr__(made, "_is_replica", True)
        return made

    # ---- hooks

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _hook(self, name: str, f: Callable[..., Any], add: bool) -> None:
        assert callable(f), "create_node hook must be a callable."
        hooks = getattr(self, name)
        (hooks.append if add else hooks.remove)(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_replace_hooks", f, True)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_replace_hooks", f, False)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_create_node_hooks", f, True)

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_create_node_hooks", f, False)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_erase_node_hooks", f, True)

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_erase_node_hooks", f, False)

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_deepcopy_hooks", f, True)

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._hook("_deepcopy_hooks", f, False)
