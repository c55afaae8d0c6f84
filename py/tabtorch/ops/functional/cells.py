"""One step of each kind of recurrent layer, which cells and, where no kernel does it, whole layers are made of."""

from tabtorch.ops.functional.activation import relu
from tabtorch.ops.functional.linear import linear


def recurrent_step(mode, gates, h, w_hh, b_hh, c=None, w_hr=None):
    """One step. ``gates`` (N, G · H): the input's part. Returns (h, c)."""
    hidden = linear(h, w_hh, b_hh)
    if mode == "LSTM":
        i, f, g, o = (gates + hidden).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h if w_hr is None else linear(h, w_hr)), c
    if mode == "GRU":
        (r_x, z_x, n_x), (r_h, z_h, n_h) = gates.chunk(3, -1), hidden.chunk(3, -1)
        z = (z_x + z_h).sigmoid()
        n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
        return (h - n) * z + n, None
    total = gates + hidden
    return (total.tanh() if mode == "RNN_TANH" else relu(total)), None
