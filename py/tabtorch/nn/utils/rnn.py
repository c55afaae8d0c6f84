"""Sequences of different lengths."""

import tabtorch as torch


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (L_i, *) in one, padded to the longest: (L, N, *), or (N, L, *) with ``batch_first``."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side must be either 'left' or 'right', got '{padding_side}'")
    if not isinstance(sequences, (list, tuple)):
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
