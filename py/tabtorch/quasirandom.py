"""`torch.quasirandom`: Sobol sequences, plain and scrambled, whose points are PyTorch's."""

from __future__ import annotations

import importlib.util
from typing import Any

from tabtorch.core.tensor import Tensor

torch: Any = importlib.import_module(__package__ or "tabtorch")

#: The direction numbers of the first dimensions after the first, which has none: the polynomial, then m_1, m_2, ... in
#: hexadecimal. From Joe and Kuo, https://web.maths.unsw.edu.au/~fkuo/sobol/ (search criterion D(6)).
_NUMBERS = (
    "3:1 7:1,3 b:1,3,1 d:1,1,1 13:1,1,3,3 19:1,3,5,d 25:1,1,5,5,11 29:1,1,5,5,5 2f:1,1,7,b,13 37:1,1,5,1,1 3b:1,1,1,3,b "
    "3d:1,3,5,5,1f 43:1,3,3,9,7,31 5b:1,1,1,f,15,15 61:1,3,1,d,1b,31 67:1,1,1,f,7,5 6d:1,3,1,f,d,19 73:1,1,5,5,13,3d "
    "83:1,3,7,b,17,f,67 89:1,3,7,d,d,f,45 8f:1,1,3,d,7,23,3f 91:1,3,5,9,1,19,35 9d:1,3,1,d,9,23,6b a7:1,3,1,5,1b,3d,1f "
    "ab:1,1,5,b,13,29,3d b9:1,3,5,3,3,d,45 bf:1,1,7,d,1,13,1 c1:1,3,7,5,d,13,3b cb:1,1,3,9,19,1d,29 d3:1,3,5,d,17,1,37 "
    "d5:1,3,7,3,d,3b,11 e5:1,3,1,3,5,35,45 ef:1,1,5,5,17,21,d f1:1,1,7,7,1,3d,7b f7:1,1,7,9,d,3d,31 fd:1,3,3,5,3,37,21 "
    "11d:1,3,1,f,1f,d,31,f5 12b:1,3,5,f,1f,3b,3f,61 12d:1,3,1,b,b,b,4d,f9 14d:1,3,1,b,1b,2b,47,9 15f:1,1,7,f,15,b,51,2d "
    "163:1,3,7,3,19,1f,41,4f 165:1,3,1,1,13,b,3,cd 169:1,1,5,9,13,15,1d,9d 171:1,3,7,b,1,21,59,b9 187:1,3,3,3,f,9,4f,47 "
    "18d:1,3,7,b,f,27,77,1b 1a9:1,1,3,1,b,1f,61,e1 1c3:1,1,1,3,17,2b,39,b1 1cf:1,3,7,7,11,11,25,47 1e7:1,3,1,5,1b,3f,7b,d5 "
    "1f5:1,1,3,5,b,2b,35,85 211:1,3,5,5,1d,11,2f,ad,1df 21b:1,3,3,b,3,1,6d,9,45 221:1,1,1,5,11,27,17,5,157 "
    "22d:1,3,1,5,19,f,1f,67,1f3 233:1,1,1,b,b,11,3f,69,b7 259:1,1,5,b,9,1d,61,e7,16b 25f:1,1,5,f,13,2d,29,7,17f "
    "269:1,3,7,7,1f,13,53,89,dd 26f:1,1,1,3,17,f,6f,df,53 277:1,1,5,d,1f,f,37,19,a1 27d:1,1,3,d,19,2f,27,57,101 "
)


def _directions(dimension: int) -> list[tuple[int, list[int]]]:
    """(polynomial, initial numbers) of each dimension. ImportError for more than the table has, where SciPy's is not there either."""
    if dimension <= 1 + _NUMBERS.count(":"):
        rows = [r.split(":") for r in _NUMBERS.split()[: dimension - 1]]
        return [(1, [])] + [(int(p, 16), [int(m, 16) for m in ms.split(",")]) for p, ms in rows]
    spec = importlib.util.find_spec("scipy.stats")
    if spec is None or spec.origin is None:
        raise ImportError(f"SobolEngine of {dimension} dimensions needs the table that SciPy has: install scipy")
    import numpy

    table = numpy.load(spec.origin.replace("__init__.py", "_sobol_direction_numbers.npz"))
    polynomials, numbers = table["poly"][:dimension].tolist(), table["vinit"][:dimension].tolist()
    return [(p, m[: p.bit_length() - 1]) for p, m in zip(polynomials, numbers, strict=True)]


class SobolEngine:
    """Points of a Sobol sequence in [0, 1)^dimension, scrambled with `scramble`; `seed` is that of the scrambling.

    Dimensions up to 21201; those over 64 need SciPy, for its table. See PyTorch's class of this name.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed = seed
        self.scramble = scramble
        self.dimension = dimension
        state = [self._first_state(p, m) for p, m in _directions(dimension)]
        shift = [0] * dimension
        if scramble:
            state, shift = self._scrambled(state)
        self.sobolstate = torch.tensor(state, device="cpu")
        self.shift = torch.tensor(shift, device="cpu")
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def _first_state(self, polynomial: int, numbers: list[int]) -> list[int]:
        bits, degree = self.MAXBIT, polynomial.bit_length() - 1
        v = numbers[:] if degree else [1] * bits
        for j in range(len(v), bits):
            new = v[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    new ^= v[j - k - 1] << (k + 1)
            v.append(new)
        return [x << (bits - 1 - j) for j, x in enumerate(v)]

    def _scrambled(self, state: list[list[int]]) -> tuple[list[list[int]], list[int]]:
        """The direction numbers times random lower triangular matrices, and a random shift."""
        bits = self.MAXBIT
        g: Any = None
        if self.seed is not None:
            g = torch.Generator()
            g.manual_seed(self.seed)
        drawn = torch.randint(2, (self.dimension, bits), device="cpu", generator=g).tolist()
        shift = [sum(b << j for j, b in enumerate(row)) for row in drawn]
        matrices = torch.randint(2, (self.dimension, bits, bits), device="cpu", generator=g).tolist()
        out = []
        for v, matrix in zip(state, matrices, strict=True):
            rows = [
                sum(row[c] << (bits - 1 - c) for c in range(r)) | 1 << (bits - 1 - r) for r, row in enumerate(matrix)
            ]
            out.append([sum(((row & x).bit_count() & 1) << (bits - 1 - r) for r, row in enumerate(rows)) for x in v])
        return out, shift

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Tensor:
        """The next `n` points, of shape (n, dimension), in the default dtype unless one is given."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        state, point = list(zip(*self.sobolstate.tolist(), strict=True)), self.quasi.tolist()
        points = []
        for k in range(self.num_generated, self.num_generated + n):
            if k:
                point = [x ^ s for x, s in zip(point, state[_zero(k - 1)], strict=True)]
            points.append(point)
        self.quasi = torch.tensor(point, device="cpu")
        self.num_generated += n
        device = "cpu" if dtype is torch.float64 else None
        scale = 2.0**-self.MAXBIT
        result = torch.tensor([[x * scale for x in p] for p in points], dtype=dtype, device=device).reshape(n, -1)
        if out is not None:
            return out.resize_as_(result).copy_(result)
        return result

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Tensor:
        """The next 2**m points. ValueError where their number in all is then no power of two."""
        n = 2**m
        total_n = self.num_generated + n
        if total_n & (total_n - 1):
            raise ValueError(
                "The balance properties of Sobol' points require "
                f"n to be a power of 2. {self.num_generated} points have been "
                f"previously generated, then: n={self.num_generated}+2**{m}={total_n}. "
                "If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves `n` points out."""
        state, point = list(zip(*self.sobolstate.tolist(), strict=True)), self.quasi.tolist()
        for k in range(max(self.num_generated, 1), self.num_generated + n):
            point = [x ^ s for x, s in zip(point, state[_zero(k - 1)], strict=True)]
        self.quasi = torch.tensor(point, device="cpu")
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown += ["scramble=True"]
        if self.seed is not None:
            shown += [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(shown)})"


def _zero(k: int) -> int:
    """The place of the rightmost bit of `k` that is 0."""
    return (~k & (k + 1)).bit_length() - 1


__all__ = ["SobolEngine"]
