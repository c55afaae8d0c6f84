"""Sequences of different lengths: padded, or packed step by step."""

from collections import namedtuple
from collections.abc import Iterable

import tabtorch as torch
from tabtorch.autograd.tape import named


class PackedSequence(namedtuple("PackedSequence", "data batch_sizes sorted_indices unsorted_indices")):
    """All first steps, then all second steps, …: data (sum of lengths, *), and how many sequences each step has.

    Made by `pack_padded_sequence` and `pack_sequence`. sorted_indices: which sequence became which, None if none moved.
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. They "
                "should be instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """With ``data.to(...)``; itself where that changes nothing."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        orders = (None if t is None else t.to(data.device) for t in self[2:])
        return type(self)(data, self.batch_sizes, *orders)

    def cuda(self, *args, **kwargs):
        """On the GPU."""
        return self.to(self.data.cuda(*args, **kwargs).device)

    def cpu(self):
        """On the cpu device."""
        return self.to("cpu")

    def pin_memory(self):
        """Itself: uploads need no pinned memory here."""
        return self

    def double(self):
        return self.to(torch.double)

    def float(self):
        return self.to(torch.float)

    def half(self):
        return self.to(torch.half)

    def long(self):
        return self.to(torch.long)

    def int(self):
        return self.to(torch.int)

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        return False


def invert_permutation(permutation):
    """The permutation that undoes it."""
    return None if permutation is None else torch.argsort(permutation)


def _live(batch_sizes):
    """Which sequences have which steps: (L, N), on the cpu device, as the sizes are."""
    return torch.arange(int(batch_sizes[0]), device="cpu") < batch_sizes.unsqueeze(1)


def _places(batch_sizes, device):
    """Which rows of (L, N, *), flattened to (L · N, *), a packed sequence holds, in its order."""
    return _live(batch_sizes).flatten().nonzero().squeeze(1).to(device)


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs (L, N, *), or (N, L, *) with ``batch_first``; lengths (N), descending unless ``enforce_sorted=False``."""
    lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    order = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    values = lengths.tolist()
    if len(values) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(values)} (batch_size={input.size(1)})"
        )
    if min(values) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if values != sorted(values, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do "
            "not need ONNX exportability."
        )
    sizes = (torch.arange(values[0], device="cpu").unsqueeze(1) < lengths).sum(1)
    data = input[: values[0]].flatten(0, 1).index_select(0, _places(sizes, input.device))
    return PackedSequence(named(data, "PackPaddedSequenceBackward0"), sizes, order, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The padded tensor and the lengths: the inverse of ``pack_padded_sequence``."""
    data, sizes, _, order = sequence
    longest = sizes.size(0)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    lengths = _live(sizes).sum(0)
    batch = lengths.size(0)
    out = data.new_full(((total_length or longest) * batch, *data.shape[1:]), padding_value)
    out = out.index_copy(0, _places(sizes, data.device), data).unflatten(0, (-1, batch))
    if batch_first:
        out = out.transpose(0, 1)
    if order is None:
        return out, lengths
    return out.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def pack_sequence(sequences, enforce_sorted=True):
    """Packs tensors (L_i, *)."""
    lengths = [s.size(0) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The tensors (L_i, *) of a packed sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (L_i, *) in one, padded to the longest: (L, N, *), or (N, L, *) with ``batch_first``."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = tuple(sequences)
    longest = max(s.size(0) for s in sequences)
    rows = []
    for s in sequences:
        if s.size(0) < longest:
            fill = s.new_full((longest - s.size(0), *s.shape[1:]), padding_value)
            s = torch.cat([s, fill] if padding_side == "right" else [fill, s])
        rows.append(s)
    return torch.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The inverse of ``pad_sequence``: a list of tensors (lengths[i], *)."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(padded_sequences, lengths, strict=True)]
