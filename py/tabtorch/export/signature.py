"""What the inputs and results of a program's graph are: parameters, buffers, the user's, what is written back. PyTorch's classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tabtorch.export.fields import bad, boolean, integer, items, number, text, union
from tabtorch.export.fields import field as take


class InputKind(Enum):
    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass
class TensorArgument:
    name: str


@dataclass
class TokenArgument:
    name: str


@dataclass
class SymIntArgument:
    name: str


@dataclass
class SymFloatArgument:
    name: str


@dataclass
class SymBoolArgument:
    name: str


@dataclass
class CustomObjArgument:
    name: str
    class_fqn: str


@dataclass
class ConstantArgument:
    name: str
    value: Any


ArgumentSpec = (
    TensorArgument
    | SymIntArgument
    | SymFloatArgument
    | SymBoolArgument
    | ConstantArgument
    | CustomObjArgument
    | TokenArgument
)


@dataclass
class InputSpec:
    """An input of the graph. target: the name of the parameter, buffer or constant, in the module."""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """A result of the graph. target: what it is written to, if it is."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportBackwardSignature:
    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class ExportGraphSignature:
    """Inputs and results of the graph, in its order."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _targets(self, *kinds: InputKind) -> tuple[str, ...]:
        return tuple(str(s.target) for s in self.input_specs if s.kind in kinds)

    def _names(self, *kinds: InputKind) -> dict[str, str]:
        return {s.arg.name: str(s.target) for s in self.input_specs if s.kind in kinds}

    def _results(self, *kinds: OutputKind) -> dict[str, str]:
        return {s.arg.name: str(s.target) for s in self.output_specs if s.kind in kinds}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        return tuple(str(s.target) for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the user's inputs in the graph; the value of one that is a constant."""
        mine = [s.arg for s in self.input_specs if s.kind is InputKind.USER_INPUT]
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in mine)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        mine = [s.arg for s in self.output_specs if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in mine)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """Name in the graph -> name in the module."""
        return self._names(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return self._names(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return self._names(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> dict[str, str]:
        return self._names(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        return self._results(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        return self._results(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        return self._results(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        loss = [s.arg.name for s in self.output_specs if s.kind is OutputKind.LOSS_OUTPUT]
        if not loss:
            return None
        return ExportBackwardSignature(
            self._results(OutputKind.GRADIENT_TO_PARAMETER), self._results(OutputKind.GRADIENT_TO_USER_INPUT), loss[0]
        )

    @property
    def input_tokens(self) -> tuple[str, ...]:
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.TOKEN)

    @property
    def output_tokens(self) -> tuple[str, ...]:
        return tuple(s.arg.name for s in self.output_specs if s.kind is OutputKind.TOKEN)

    def __str__(self) -> str:
        return "\n".join(
            ["", "# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""]
        )


@dataclass
class ModuleCallSignature:
    inputs: list[ArgumentSpec]
    outputs: list[ArgumentSpec]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module of the model that was exported, by its name; the first is the whole."""

    fqn: str
    signature: ModuleCallSignature | None = None


# ---- from JSON

_CONSTANTS = {"as_int": integer, "as_float": number, "as_string": text, "as_bool": boolean}


def _constant(x: Any) -> Any:
    kind, value = union(x, "a constant")
    if kind == "as_none":
        return None
    if kind not in _CONSTANTS:
        raise bad(f"a constant input cannot be {kind}")
    return _CONSTANTS[kind](value)


def argument(x: Any) -> ArgumentSpec:
    """What the JSON of a user's input or result says of it."""
    kind, value = union(x, "an argument")
    if kind == "as_tensor":
        return TensorArgument(text(take(value, "name")))
    for name, cls in (
        ("as_sym_int", SymIntArgument),
        ("as_sym_float", SymFloatArgument),
        ("as_sym_bool", SymBoolArgument),
    ):
        if kind == name:
            sort, held = union(value, "a number")
            return cls(text(held)) if sort == "as_name" else ConstantArgument("", held)
    if kind == "as_custom_obj":
        return CustomObjArgument(text(take(value, "name")), text(take(value, "class_fqn")))
    if kind in _CONSTANTS or kind == "as_none":
        return ConstantArgument("", _constant(x))
    return ConstantArgument("", value)


def _tensor(x: Any) -> TensorArgument:
    return TensorArgument(text(take(take(x, "arg"), "name")))


def _input(x: Any) -> InputSpec:
    kind, value = union(x, "an input")
    if kind == "user_input":
        return InputSpec(InputKind.USER_INPUT, argument(take(value, "arg")), None)
    if kind == "parameter":
        return InputSpec(InputKind.PARAMETER, _tensor(value), text(take(value, "parameter_name")))
    if kind == "buffer":
        persistent = boolean(take(value, "persistent"))
        return InputSpec(InputKind.BUFFER, _tensor(value), text(take(value, "buffer_name")), persistent)
    if kind == "tensor_constant":
        return InputSpec(InputKind.CONSTANT_TENSOR, _tensor(value), text(take(value, "tensor_constant_name")))
    if kind == "token":
        return InputSpec(InputKind.TOKEN, TokenArgument(text(take(take(value, "arg"), "name"))), None)
    if kind == "constant_input":
        return InputSpec(
            InputKind.USER_INPUT, ConstantArgument(text(take(value, "name")), _constant(take(value, "value"))), None
        )
    if kind == "custom_obj":
        arg = take(value, "arg")
        made = CustomObjArgument(text(take(arg, "name")), text(take(arg, "class_fqn")))
        return InputSpec(InputKind.CUSTOM_OBJ, made, text(take(value, "custom_obj_name")))
    raise bad(f"there is no kind of input {kind!r}")


#: kind of a result that is a tensor -> its enumerator, and the field of what it is written to
_RESULTS = {
    "loss_output": (OutputKind.LOSS_OUTPUT, None),
    "buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"),
    "parameter_mutation": (OutputKind.PARAMETER_MUTATION, "parameter_name"),
    "gradient_to_parameter": (OutputKind.GRADIENT_TO_PARAMETER, "parameter_name"),
    "gradient_to_user_input": (OutputKind.GRADIENT_TO_USER_INPUT, "user_input_name"),
    "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
}


def _output(x: Any) -> OutputSpec:
    kind, value = union(x, "a result")
    if kind == "user_output":
        return OutputSpec(OutputKind.USER_OUTPUT, argument(take(value, "arg")), None)
    if kind == "token":
        return OutputSpec(OutputKind.TOKEN, TokenArgument(text(take(take(value, "arg"), "name"))), None)
    if kind not in _RESULTS:
        raise bad(f"there is no kind of result {kind!r}")
    sort, name = _RESULTS[kind]
    return OutputSpec(sort, _tensor(value), None if name is None else text(take(value, name)))


def read_signature(x: Any) -> ExportGraphSignature:
    """The signature of a program's JSON. SerializeError."""
    inputs = [_input(s) for s in items(take(x, "input_specs"))]
    return ExportGraphSignature(inputs, [_output(s) for s in items(take(x, "output_specs"))])
