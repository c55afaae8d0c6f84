"""What is written of each kind of value: Summary messages, as ``torch.utils.tensorboard.summary`` makes them."""

from __future__ import annotations

import io
import json
import struct
import wave
from typing import Any

from tabtorch import _lazy
from tabtorch.utils.tensorboard import _histograms, _pictures
from tabtorch.utils.tensorboard._wire import Message

__all__ = [
    "audio",
    "custom_scalars",
    "histogram",
    "histogram_raw",
    "hparams",
    "image",
    "image_boxes",
    "make_histogram",
    "mesh",
    "pr_curve",
    "pr_curve_raw",
    "scalar",
    "tensor_proto",
    "text",
]

# numbers of the types of a TensorProto
_FLOAT, _DOUBLE, _STRING = 1, 2, 7
#: type of a tensor -> its number, and the field of its elements
_TYPES = {
    "float16": (19, "half_val"),
    "bfloat16": (14, "half_val"),
    "float32": (_FLOAT, "float_val"),
    "float64": (_DOUBLE, "double_val"),
    "int8": (6, "int_val"),
    "uint8": (4, "uint32_val"),
    "int16": (5, "int_val"),
    "int32": (3, "int_val"),
    "int64": (9, "int64_val"),
    "bool": (10, "bool_val"),
    "complex64": (8, "scomplex_val"),
    "complex128": (18, "dcomplex_val"),
}


def _summary(tag: str, plugin: str | None = None, content: Message | None = None, **value: Any) -> Message:
    if plugin is not None:
        data = content.SerializeToString() if content is not None else b""
        plugin_data = Message("PluginData", plugin_name=plugin, content=data)
        value["metadata"] = Message("SummaryMetadata", plugin_data=plugin_data)
    return Message("Summary", value=[Message("Value", tag=tag, **value)])


def _shape(sizes: Any) -> Message:
    return Message("TensorShape", dim=[Message("Dim", size=int(each)) for each in sizes])


def _one(value: Any) -> Any:
    """A number, or a tensor of one element as it is now, which is read when it is written."""
    if isinstance(value, _lazy.torch.Tensor):
        if value.numel() != 1:
            raise AssertionError(
                "Tensor should contain one element (0 dimensions). "
                f"Was given size: {value.numel()} and {value.dim()} dimensions."
            )
        if value.is_complex():
            raise TypeError("float() argument must be a string or a real number, not 'complex'")
        return value.detach().clone()
    found = _pictures.numbers(value)
    if len(found) != 1:
        dimensions = len(value.shape)
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {len(found)} and {dimensions} dimensions."
        )
    return float(found[0])


def scalar(
    name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False
) -> Message:
    """A number, or a tensor or array of one element. AssertionError for more."""
    number = _one(tensor)
    if not new_style:
        return _summary(name, simple_value=number)
    if double_precision:
        proto = Message("TensorProto", dtype=_DOUBLE, double_val=[number])
    else:
        proto = Message("TensorProto", dtype=_FLOAT, float_val=[number])
    return _summary(name, "scalars", tensor=proto)


def number(summary: Message) -> Any:
    """What `scalar` wrote, for who shows it: a number, or a tensor."""
    value = summary.value[0]
    return value.simple_value if value.tensor is None else (value.tensor.float_val or value.tensor.double_val)[0]


def tensor_proto(tag: str, tensor: Any) -> Message:
    """All elements of a tensor of any shape. ValueError from 2 GB on, and for types that the format has no place for."""
    if tensor.numel() * tensor.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    number, field = _TYPES[name]
    values = _pictures.numbers(tensor)
    if field == "half_val":  # PyTorch writes the bits of 32
        values = [struct.unpack("<i", struct.pack("<f", each))[0] for each in values]
    elif "complex" in name:
        values = [part for each in values for part in (each.real, each.imag)]
    proto = Message("TensorProto", dtype=number, tensor_shape=_shape(tensor.shape), **{field: values})
    return _summary(tag, "tensor", tensor=proto)


def histogram_raw(
    name: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any, bucket_counts: Any
) -> Message:
    """A histogram that was counted elsewhere."""
    limits, counts = (
        _pictures.numbers(each) if hasattr(each, "tolist") else list(each) for each in (bucket_limits, bucket_counts)
    )
    histo = Message(
        "HistogramProto",
        **dict(zip(("min", "max", "num", "sum", "sum_squares"), map(float, (min, max, num, sum, sum_squares)))),
        bucket_limit=limits,
        bucket=counts,
    )
    return _summary(name, histo=histo)


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Message:
    """The values of a tensor or array of any shape, counted. ValueError for no values, and for bins that are none."""
    return _summary(name, histo=make_histogram(values, bins, max_bins))


def make_histogram(values: Any, bins: Any, max_bins: int | None = None) -> Message:
    """The HistogramProto of `histogram`."""
    if hasattr(bins, "tolist"):
        bins = bins.tolist()
    return _histograms.make_histogram([float(each) for each in _pictures.numbers(values)], bins, max_bins)


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Message:
    """A picture, or a grid of pictures, as `dataformats` says; uint8, or else from 0 to 1."""
    _unscaled(rescale)
    return _summary(tag, image=_pictures.make_image(tensor, dataformats))


def image_boxes(
    tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None
) -> Message:
    """A picture with boxes, (N, 4). NotImplementedError for labels, which need a font, and for another scale than 1."""
    _unscaled(rescale)
    if labels is not None:
        raise NotImplementedError("add_image_with_boxes draws boxes without labels: there is no font without Pillow")
    return _summary(tag, image=_pictures.make_image(tensor_image, dataformats, tensor_boxes))


def _unscaled(rescale: float) -> None:
    if rescale != 1:
        raise NotImplementedError(
            "images are written as large as they are: for rescale, use torch.nn.functional.interpolate first"
        )


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Message:
    """A sound, (L,) or (1, L), from -1 to 1, as a WAVE file of 16 bits. AssertionError for other shapes."""
    torch = _lazy.torch
    t = _pictures.as_tensor(tensor).squeeze()
    if t.abs().max().item() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        t = t.clamp(-1, 1)
    if t.dim() != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    data = _lazy.to_host.to_bytes((t * 32767).to(torch.int16).contiguous())
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(data)
    sound = Message(
        "Audio",
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=t.shape[0],
        encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )
    return _summary(tag, audio=sound)


def _strings(tag: str, plugin: str, data: bytes, shape: Any) -> Message:
    return _summary(
        tag, plugin, tensor=Message("TensorProto", dtype=_STRING, string_val=[data], tensor_shape=_shape(shape))
    )


def text(tag: str, text: str) -> Message:
    """A text, which TensorBoard shows as Markdown."""
    return _strings(f"{tag}/text_summary", "text", text.encode(), [1])


def custom_scalars(layout: dict[str, dict[str, Any]]) -> Message:
    """Which scalars share a chart: category -> chart -> ("Multiline" or "Margin", tags). AssertionError for a margin not of 3."""
    categories = []
    for category, charts in layout.items():
        found = []
        for title, (kind, tags, *_) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError("len(tags) != 3")
                series = Message("Series", value=tags[0], lower=tags[1], upper=tags[2])
                found.append(Message("Chart", title=title, margin=Message("Margin", series=[series])))
            else:
                found.append(Message("Chart", title=title, multiline=Message("Multiline", tag=list(tags))))
        categories.append(Message("Category", title=category, chart=found))
    data = Message("Layout", category=categories).SerializeToString()
    return _strings("custom_scalars__config__", "custom_scalars", data, [])


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Message:
    """Precision and recall at thresholds, of (N,) labels of 0 and 1 and (N,) predictions from 0 to 1."""
    num = min(num_thresholds, 127)
    p = _pictures.as_tensor(predictions)
    places = _pictures.numbers((p * (num - 1)).floor())
    wanted = [float(each) for each in _pictures.numbers(labels)]
    factors = [1.0] if weights is None else [float(each) for each in _pictures.numbers(weights)]
    if len(factors) == 1:
        factors *= len(wanted)
    if not len(wanted) == len(places) == len(factors):
        raise ValueError(f"{len(wanted)} labels, {len(places)} predictions and {len(factors)} weights are not as many")
    tp, fp = [0.0] * num, [0.0] * num
    for place, label, factor in zip(places, wanted, factors):
        if 0 <= place < num:
            tp[int(place)] += label * factor
            fp[int(place)] += (1 - label) * factor
    for at in range(num - 2, -1, -1):  # how many lie at a threshold or above
        tp[at] += tp[at + 1]
        fp[at] += fp[at + 1]
    tn, fn = [fp[0] - each for each in fp], [tp[0] - each for each in tp]
    precision = [a / max(1e-7, a + b) for a, b in zip(tp, fp)]
    recall = [a / max(1e-7, a + b) for a, b in zip(tp, fn)]
    return _curve(tag, [tp, fp, tn, fn, precision, recall], num)


def pr_curve_raw(
    tag: str,
    tp: Any,
    fp: Any,
    tn: Any,
    fn: Any,
    precision: Any,
    recall: Any,
    num_thresholds: int = 127,
    weights: Any = None,
) -> Message:
    """A curve that was computed elsewhere: lists, arrays or tensors of one length."""
    rows = [
        [float(each) for each in (_pictures.numbers(row) if hasattr(row, "tolist") else row)]
        for row in (tp, fp, tn, fn, precision, recall)
    ]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("all input arrays must have the same shape")
    return _curve(tag, rows, min(num_thresholds, 127))


def _curve(tag: str, rows: list[list[float]], num: int) -> Message:
    values = [each for row in rows for each in row]
    proto = Message("TensorProto", dtype=_FLOAT, tensor_shape=_shape([len(rows), len(rows[0])]), float_val=values)
    return _summary(tag, "pr_curves", Message("PrCurvePluginData", num_thresholds=num), tensor=proto)


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config_dict: Any) -> Message:
    """Points and triangles: each (B, N, 3). ValueError for other shapes."""
    kinds = (("VERTEX", 1, vertices), ("FACE", 2, faces), ("COLOR", 3, colors))
    given = [each for each in kinds if each[2] is not None]
    config = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
    values = []
    for name, kind, each in given:
        shape = tuple(each.shape)
        if len(shape) != 3:
            raise ValueError(f"Tensor shape should be of shape BxNx3, but got {shape}.")
        content = Message(
            "MeshPluginData",
            name=tag,
            content_type=kind,
            json_config=config,
            shape=list(shape),
            components=sum(1 << other for _, other, _ in given),
        )
        proto = Message("TensorProto", dtype=_FLOAT, tensor_shape=_shape(shape), float_val=_pictures.numbers(each))
        values += _summary(f"{tag}_{name}", "mesh", content, tensor=proto).value
    return Message("Summary", value=values)


_STRING_KIND, _NUMBER_KIND = 1, 3


def hparams(
    hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: dict[str, list[Any]] | None = None
) -> tuple[Message, Message, Message]:
    """Three summaries: the experiment, the start of its session with the values, and the end.

    hparam_dict: name -> bool, int, float, str, tensor of one element, or None, which is left out. metric_dict: its keys are tags of
    scalars. hparam_domain_discrete: name -> all values that it can have. TypeError for what is no dict and for such values of
    another type, ValueError for other hyperparameters.
    """
    for name, each in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(each, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    domains = hparam_domain_discrete or {}
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for key, domain in domains.items():
        if (
            key not in hparam_dict
            or not isinstance(domain, list)
            or not all(isinstance(d, type(hparam_dict[key])) for d in domain)
        ):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{key}] should be a list of same type as hparam_dict[{key}]."
            )
    infos, entries = [], []
    for key, value in hparam_dict.items():
        if value is None:
            continue
        if isinstance(value, str):
            kind, field = _STRING_KIND, "string_value"
        elif isinstance(value, (int, float)):  # a bool is a number, as PyTorch has it
            kind, field = _NUMBER_KIND, "number_value"
        elif hasattr(value, "tolist"):
            kind, field, value = _NUMBER_KIND, "number_value", float(_pictures.numbers(value)[0])
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        entries.append(Message("Entry", key=key, value=Message("Any", **{field: value})))
        infos.append(Message("HParamInfo", name=key, type=kind))
        if key in domains:
            infos[-1].domain_discrete = Message(
                "ListValue", values=[Message("Any", **{field: each}) for each in domains[key]]
            )
    metrics = [Message("MetricInfo", name=Message("MetricName", tag=key)) for key in metric_dict]
    parts = {
        "experiment": Message("Experiment", hparam_infos=infos, metric_infos=metrics),
        "session_start_info": Message("SessionStartInfo", hparams=entries),
        "session_end_info": Message("SessionEndInfo", status=1),  # success
    }
    found = [
        _summary(f"_hparams_/{name}", "hparams", Message("HParamsPluginData", **{name: part}))
        for name, part in parts.items()
    ]
    return found[0], found[1], found[2]
