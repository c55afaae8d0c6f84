"""An ONNX model as an `nn.Module`: read from a file, checked, and run node by node over this package's functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tabtorch as torch
from tabtorch.core.creation import placed
from tabtorch.core.tensor import Tensor
from tabtorch.nn import Module, Parameter
from tabtorch.onnx import operators, registry
from tabtorch.onnx.graph import LATEST, Body, Maker, Run, domain_of
from tabtorch.onnx.proto import FormatError, Message, Place, read_model
from tabtorch.onnx.tensors import HELD, HOLDING, count_of, filled, known, outside, reserved
from tabtorch.onnx.values import DTYPES, LIMIT, Known, Unsupported, dtype_of, known_of, type_name
from tabtorch.serialization.transfer import Span, pour
from tabtorch.utils.fetch import Work, drive, drive_async, is_url, join, open_reader, open_reader_async

#: the latest version of the format itself
LATEST_IR = 14
#: inputs of these are statistics, which are not trained
_STATISTICS = {"BatchNormalization": (3, 4)}
#: an initializer of whole numbers with no more than these is known to the host: sizes, axes, pads
_SMALL = 256


class Slot:
    """Where in the module a weight is."""

    __slots__ = ("module", "name")

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name

    def get(self) -> Tensor:
        found: Tensor = getattr(self.module, self.name)
        return found


class Model(Module):
    """A model of an ONNX file. `net(x)`: by position, or by the names of its inputs; several outputs are a tuple.

    `input_names`, `output_names`, `opset` (domain -> version), `producer`, `metadata` are the file's. Weights are parameters
    under the names that they have in the file, so that `net.parameters()` trains and `net.state_dict()` saves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opset: dict[str, int] = {}
        self.producer = ""
        self.metadata: dict[str, str] = {}
        self._slots: dict[str, Slot] = {}
        self._typed: dict[str, Message | None] = {}
        self._body: Body = Body([], [])

    @property
    def input_names(self) -> list[str]:
        return list(self._body.inputs)

    @property
    def output_names(self) -> list[str]:
        return list(self._body.outputs)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        found = self._outputs(self._feeds(inputs, named))
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs (None: all), for inputs by name. ValueError for a name that there is not."""
        names = self.output_names
        wanted = names if output_names is None else list(output_names)
        for name in wanted:
            if name not in names:
                raise ValueError(f"the model has no output {name!r}; it has {', '.join(map(repr, names))}")
        found = dict(zip(names, self._outputs(self._feeds((), feeds))))
        return [found[name] for name in wanted]

    def _feeds(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self._body.inputs
        if len(inputs) > len(names):
            raise TypeError(f"the model takes {len(names)} inputs ({', '.join(names)}), but {len(inputs)} were given")
        feeds = dict(zip(names, inputs))
        for name, value in named.items():
            if name not in names and name not in self._slots:
                raise TypeError(f"the model has no input {name!r}; it has {', '.join(map(repr, names))}")
            if name in feeds:
                raise TypeError(f"input {name!r} was given twice")
            feeds[name] = value
        for name in names:
            if name not in feeds:
                if not _optional(self._typed.get(name)):
                    raise TypeError(f"input {name!r} is missing")
                feeds[name] = None
        return feeds

    def _outputs(self, feeds: dict[str, Any]) -> list[Any]:
        device = self._device(feeds)
        sizes: dict[str, tuple[int, str]] = {}
        env: dict[str, Any] = {}
        for name, value in self._body.constants.items():
            env[name] = value.get() if isinstance(value, Slot) else value
        for name in list(feeds):
            env[name] = _checked(name, feeds.pop(name), self._typed.get(name), device, sizes)
        with torch.device(device):
            found = self._body.compute(env, Run(device))
            return [_returned(v, device) for v in found]

    def _device(self, feeds: Mapping[str, Any]) -> Any:
        """That of the weights, else of the inputs, else the default device."""
        for slot in self._slots.values():
            return slot.get().device
        return next((v.device for v in feeds.values() if isinstance(v, Tensor)), None) or placed(torch.float32, None)

    def extra_repr(self) -> str:
        return f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"


def _optional(of: Message | None) -> bool:
    return of is not None and of.optional_type is not None


def _returned(value: Any, device: Any) -> Any:
    if isinstance(value, Known):
        return value.tensor(device) if value.type in DTYPES else _array(value)
    if isinstance(value, list):
        return [_returned(v, device) for v in value]
    return value


def _array(value: Known) -> Any:
    """What no tensor can hold: a NumPy array of the type, where NumPy is, else lists."""
    try:
        import numpy as np
    except ImportError:
        return value.nested()
    kind: Any = {4: np.uint16, 12: np.uint32, 13: np.uint64}.get(value.type, object)
    return np.array(value.values, kind).reshape(value.shape)


def _checked(name: str, value: Any, of: Message | None, device: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    """An input as the graph has it. TypeError, ValueError for another type or shape than the model says."""
    if of is not None and of.optional_type is not None:
        return None if value is None else _checked(name, value, of.optional_type.elem_type, device, sizes)
    if of is not None and of.sequence_type is not None:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"input {name!r} is to be a list, not a {type(value).__name__}")
        return [_checked(name, v, of.sequence_type.elem_type, device, {}) for v in value]
    tensor_type = None if of is None else of.tensor_type
    number = tensor_type.elem_type if tensor_type is not None else 0
    if isinstance(value, (bool, int, float, str, list, tuple, Known)) or hasattr(value, "__array__"):
        if not isinstance(value, (Tensor, Known)):
            value = _from_host(value, number, device)
    if not isinstance(value, (Tensor, Known)):
        raise TypeError(f"input {name!r} is to be a tensor, not a {type(value).__name__}")
    if isinstance(value, Tensor) and number and value.dtype != DTYPES.get(number):
        raise TypeError(f"input {name!r} is to have the type {type_name(number)}, not {value.dtype}")
    if tensor_type is None or tensor_type.shape is None:
        return value
    wanted = tensor_type.shape.dim
    if len(wanted) != len(value.shape):
        raise ValueError(f"input {name!r} is to have {len(wanted)} dimensions, but has the shape {list(value.shape)}")
    for i, (dim, n) in enumerate(zip(wanted, value.shape)):
        if dim.dim_param:
            seen, where = sizes.setdefault(dim.dim_param, (n, name))
            if seen != n:
                raise ValueError(
                    f"dimension {i} ({dim.dim_param!r}) of input {name!r} is {n}, but {seen} in input {where!r}"
                )
        elif dim.dim_value > 0 and dim.dim_value != n:
            raise ValueError(f"dimension {i} of input {name!r} is to be {dim.dim_value}, but is {n}")
    return value


def _from_host(value: Any, number: int, device: Any) -> Any:
    """A Python number, a list, or a NumPy array."""
    dtype = DTYPES.get(number)
    if hasattr(value, "__array__"):
        if dtype is not None:
            made = torch.as_tensor(value)
            return made.to(placed(made.dtype, device))
        value = value.tolist()
    if number and dtype is None or isinstance(value, (bool, int, str)):
        return known_of(value, number or 7)
    return torch.tensor(value, dtype=dtype, device=placed(dtype, device) if dtype else device)


# ---- reading


class _Loading:
    """A model while it is read."""

    def __init__(self, model: Message, device: Any) -> None:
        self.net = Model()
        self.model = model
        self.device = device
        self.spans: list[Span] = []
        self.beside: dict[str, list[Span]] = {}
        self.uses: dict[str, set[str]] = {}
        self.taken: set[str] = set()
        self.unheld: dict[str, Message] = {}

    def make(self) -> Model:
        """The module, whose weights are still to come. ValueError, NotImplementedError for what cannot be run."""
        model, net = self.model, self.net
        if model.graph is None:
            raise FormatError("not an ONNX model: it has no graph")
        if not 1 <= model.ir_version <= LATEST_IR:
            raise FormatError(f"version {model.ir_version} of the ONNX format is not known: 1 to {LATEST_IR} are")
        maker = Maker(model)
        for domain, version in maker.opsets.items():
            if not 1 <= version <= LATEST.get(domain, version):
                raise Unsupported(
                    f"opset {version} of {domain or 'ai.onnx'} is not known: 1 to {LATEST.get(domain)} are"
                )
        maker.opsets.setdefault("", 1)
        _lift_constants(model.graph)
        self._look(model.graph, maker)
        net.opset = dict(maker.opsets)
        net.producer = " ".join(t for t in (model.producer_name, model.producer_version) if t)
        net.metadata = {e.key: e.value for e in model.metadata_props}
        net._body = maker.graph(model.graph, self._constant)
        net._typed = {v.name: v.type for v in model.graph.input}
        if maker.problems:
            raise Unsupported("the model needs what is not supported: " + ", ".join(maker.problems))
        for name, t in self.unheld.items():
            raise Unsupported(
                f"initializer {name!r} has the type {type_name(t.data_type)}, which is not supported here"
            )
        return net

    def _look(self, graph: Message, maker: Maker) -> None:
        """Notes what each name is read as."""
        for node in graph.node:
            domain = domain_of(node.domain)
            found = registry.find(domain, node.op_type, maker.opsets.get(domain, 1))
            for i, name in enumerate(node.input):
                use = "host" if found is not None and found.on_host(i) else "tensor"
                if i in _STATISTICS.get(node.op_type, ()):
                    use = "statistic"
                if i in HOLDING.get(node.op_type, ()):
                    use = "held"
                self.uses.setdefault(name, set()).add(use)
            for a in node.attribute:
                if a.g is not None:
                    self._look(a.g, maker)

    def _constant(self, t: Message) -> Any:
        """What an initializer is: a weight of the module, or known to the host."""
        uses = self.uses.get(t.name, set())
        of = t.data_type
        if of not in DTYPES:
            if count_of(t) <= LIMIT or of not in HELD:
                return known(t)
            if uses != {"held"}:
                self.unheld[t.name] = t
            return self._kept(t.name, filled(t, self.device), False)
        dtype = dtype_of(of)
        small = count_of(t) <= _SMALL and t.data_location != 1 and not isinstance(t.raw_data, Place)
        if small and uses == {"host"}:
            return known(t)
        if small and not dtype.is_floating_point and not dtype.is_complex:
            value = known(t)
            value.hold(self._kept(t.name, filled(t, self.device), False).get)
            return value
        trained = (dtype.is_floating_point or dtype.is_complex) and "tensor" in uses and "statistic" not in uses
        return self._kept(t.name, self._tensor(t), trained)

    def _tensor(self, t: Message) -> Tensor:
        if t.data_location == 1:
            file, offset, nbytes = outside(t)
            return reserved(t, self.device, offset, nbytes, self.beside.setdefault(file, []))
        if isinstance(t.raw_data, Place):
            return reserved(t, self.device, t.raw_data.offset, t.raw_data.nbytes, self.spans)
        return filled(t, self.device)

    def _kept(self, name: str, value: Tensor, trained: bool) -> Slot:
        """Makes a tensor a weight of the module, under its name."""
        at: Module = self.net
        *path, last = name.split(".")
        if not all((*path, last)):
            path, last = [], name.replace(".", "_") or "_"
        for part in path:
            child = at._modules.get(part)
            if child is None:
                if hasattr(at, part):
                    path, last, at = [], name.replace(".", "_"), self.net
                    break
                child = Module()
                at.add_module(part, child)
            at = child
        while hasattr(at, last):
            last += "_"
        if trained:
            at.register_parameter(last, Parameter(value))
        else:
            at.register_buffer(last, value)
        slot = self.net._slots[name] = Slot(at, last)
        return slot


def _lift_constants(graph: Message) -> None:
    """Nodes `Constant` of tensors become initializers, which are kept on the device."""
    kept = []
    for node in graph.node:
        given = node.attribute[0] if len(node.attribute) == 1 else None
        plain = node.op_type == "Constant" and domain_of(node.domain) == "" and len(node.output) == 1
        if plain and given is not None and given.name == "value" and given.t is not None:
            t = given.t
            graph.initializer.append(t.but(name=node.output[0]))
        else:
            kept.append(node)
    graph.node[:] = kept


def _folder(source: Any) -> Any:
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        if is_url(text):
            head, mark, query = text.partition("?")
            return head.rpartition("/")[0] + mark + query
        return os.path.dirname(text)
    return None


def _beside(loading: _Loading, source: Any, external_data: Any) -> dict[str, Any]:
    """File -> where it is read from. FileNotFoundError where that cannot be told."""
    if not loading.beside:
        return {}
    place = external_data if external_data is not None else _folder(source)
    if place is None:
        raise FileNotFoundError(
            f"the model's weights lie in {', '.join(loading.beside)}: pass external_data={{name: source}}, or a folder"
        )
    return {file: join(place, file) for file in loading.beside}


def _reading(reader: Any, device: Any) -> Work:
    operators.load()
    model = yield from read_model(reader)
    loading = _Loading(model, device)
    loading.make()
    yield from pour(loading.spans)
    return loading


def load(f: Any, *, device: Any = None, external_data: Any = None, progress: Any = None, cache: bool = True) -> Model:
    """The model in an ONNX file, as an `nn.Module` in evaluation mode.

    f: a path, a URL, bytes, a file object, or (in a tab) a JavaScript `File`. device: of the weights; None is the default
    device. external_data: where files of weights beside the model are, if not in its folder: a folder, or a mapping of their
    names to sources. progress, cache: see `tabtorch.utils.fetch.read_bytes`. ValueError for bytes that are no model;
    NotImplementedError, which names all of them, for operators that are not supported.
    """
    with open_reader(f, cache=cache, random=True) as reader:
        reader.whole()
        loading: _Loading = drive(_reading(reader, device), reader, progress)
    for file, source in _beside(loading, f, external_data).items():
        with open_reader(source, cache=cache) as reader:
            drive(pour(loading.beside[file]), reader, progress)
    return loading.net.eval()


async def load_async(
    f: Any, *, device: Any = None, external_data: Any = None, progress: Any = None, cache: bool = True
) -> Model:
    """As `load`, without blocking: for hosts that have no JSPI."""
    with await open_reader_async(f, cache=cache, random=True) as reader:
        await reader.whole_async()
        loading: _Loading = await drive_async(_reading(reader, device), reader, progress)
    for file, source in _beside(loading, f, external_data).items():
        with await open_reader_async(source, cache=cache) as reader:
            await drive_async(pour(loading.beside[file]), reader, progress)
    return loading.net.eval()
