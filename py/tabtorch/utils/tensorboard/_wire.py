"""TensorBoard's messages, to Protocol Buffers' wire format: one table says which fields there are.

The format: https://protobuf.dev/programming-guides/encoding; the messages: tensorboard/compat/proto and tensorboard/plugins of
https://github.com/tensorflow/tensorboard.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tabtorch import _lazy

#: a line a message: its fields, as name=number:kind. A star: repeated. An exclamation mark: written where it is given, even a zero,
#: because it is one of several (`oneof`)
_TABLE = """
Event wall_time=1:double step=2:int file_version=3:str! graph_def=4:bytes! summary=5:Summary! session_log=7:SessionLog! \
tagged_run_metadata=8:TaggedRunMetadata! source_metadata=10:SourceMetadata!
SessionLog status=1:int
TaggedRunMetadata tag=1:str run_metadata=2:bytes
SourceMetadata writer=1:str
Summary value=1:Value*
Value tag=1:str simple_value=2:float! image=4:Image! histo=5:HistogramProto! audio=6:Audio! tensor=8:TensorProto! \
metadata=9:SummaryMetadata!
Image height=1:int width=2:int colorspace=3:int encoded_image_string=4:bytes
Audio sample_rate=1:float num_channels=2:int length_frames=3:int encoded_audio_string=4:bytes content_type=5:str
HistogramProto min=1:double max=2:double num=3:double sum=4:double sum_squares=5:double bucket_limit=6:double* bucket=7:double*
SummaryMetadata plugin_data=1:PluginData!
PluginData plugin_name=1:str content=2:bytes
TensorProto dtype=1:int tensor_shape=2:TensorShape! float_val=5:float* double_val=6:double* int_val=7:int* string_val=8:bytes* \
scomplex_val=9:float* int64_val=10:int* bool_val=11:int* dcomplex_val=12:double* half_val=13:int* uint32_val=16:int*
TensorShape dim=2:Dim*
Dim size=1:int
HParamsPluginData version=1:int experiment=2:Experiment! session_start_info=3:SessionStartInfo! \
session_end_info=4:SessionEndInfo!
Experiment hparam_infos=4:HParamInfo* metric_infos=5:MetricInfo*
HParamInfo name=1:str type=4:int domain_discrete=5:ListValue!
MetricInfo name=1:MetricName!
MetricName tag=2:str
SessionStartInfo hparams=1:Entry*
SessionEndInfo status=1:int
Entry key=1:str! value=2:Any!
Any number_value=2:double! string_value=3:str! bool_value=4:int!
ListValue values=1:Any*
Layout category=2:Category*
Category title=1:str chart=2:Chart*
Chart title=1:str multiline=2:Multiline! margin=3:Margin!
Multiline tag=1:str*
Margin series=1:Series*
Series value=1:str lower=2:str upper=3:str
PrCurvePluginData version=1:int num_thresholds=2:int
MeshPluginData version=1:int name=2:str content_type=3:int json_config=5:str shape=6:int* components=7:int
GraphDef node=1:Node* versions=4:Versions!
Versions producer=1:int
Node name=1:str op=2:str input=3:str* attr=5:AttrEntry*
AttrEntry key=1:str! value=2:AttrValue!
AttrValue list=1:AttrList! s=2:bytes!
AttrList shape=7:TensorShape*
RunMetadata step_stats=1:StepStats!
StepStats dev_stats=1:DeviceStepStats*
DeviceStepStats device=1:str
"""


def _fields(line: str) -> tuple[str, dict[str, tuple[int, str, str]]]:
    """The name of a message; name of a field -> number, kind, mark."""
    message, *fields = line.split()
    found = {}
    for field in fields:
        name, _, rest = field.partition("=")
        number, _, kind = rest.partition(":")
        found[name] = (int(number), kind.rstrip("*!"), kind[-1] if kind[-1] in "*!" else "")
    return message, found


_MESSAGES = dict(map(_fields, _TABLE.strip().splitlines()))
_PACKED = {"double": "d", "float": "f"}


class Message:
    """A message by its name in the table. Its fields are attributes; those that were not given read as None.

    AttributeError for a field that the message does not have.
    """

    def __init__(self, kind: str, **fields: Any) -> None:
        object.__setattr__(self, "_kind", kind)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _MESSAGES[self._kind]:
            raise AttributeError(f"{self._kind} has no field {name!r}")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in _MESSAGES[self._kind]:
            raise AttributeError(f"{self._kind} has no field {name!r}")
        return None

    def waiting(self) -> Iterator[tuple[Message, str, Any]]:
        """The numbers below that the device has yet to tell: message, field, its tensor, of one element."""
        for name, value in list(self.__dict__.items()):
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, Message):
                    yield from each.waiting()
                elif isinstance(each, _lazy.torch.Tensor):
                    yield self, name, each

    def SerializeToString(self) -> bytes:
        """Its bytes, fields by number, as Protocol Buffers writes them."""
        given = self.__dict__
        table = sorted((place, name) for name, place in _MESSAGES[self._kind].items() if given.get(name) is not None)
        return b"".join(_field(number, kind, mark, given[name]) for (number, kind, mark), name in table)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are those of 64 bits
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _sized(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _field(number: int, kind: str, mark: str, value: Any) -> bytes:
    if mark == "*":
        if kind in _PACKED:
            data = struct.pack(f"<{len(value)}{_PACKED[kind]}", *map(_narrow if kind == "float" else float, value))
        elif kind == "int":
            data = b"".join(map(_varint, map(int, value)))
        else:
            return b"".join(_sized(number, _bytes(each)) for each in value)
        return _sized(number, data) if data else b""
    if kind == "int":
        return _varint(number << 3) + _varint(int(value)) if mark or value else b""
    if kind in _PACKED:
        value = float(value) if kind == "double" else _narrow(value)
        data = struct.pack("<" + _PACKED[kind], value)
        return _varint(number << 3 | (1 if kind == "double" else 5)) + data if mark or any(data) else b""
    data = _bytes(value)
    return _sized(number, data) if mark or data else b""


def _narrow(value: Any) -> float:
    """For 32 bits: what is too large is an infinity, as in C."""
    value = float(value)
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    # a message: ours, or one of the protobuf package
    return value if isinstance(value, bytes) else bytes(value.SerializeToString())
