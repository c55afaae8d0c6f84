"""`tabtorch.show`: a tensor as an image, a grid of images, or maps in colours."""

from __future__ import annotations

import math
import shutil
import struct
import sys
import zlib
from typing import Any, NamedTuple

from tabtorch.display import host, windows
from tabtorch.display.colours import table

#: of a value that is not a number, so that it is seen: magenta
_NAN = (255, 0, 255, 255)
#: a picture is enlarged to about so many CSS pixels
_COMFORTABLE = 320


class Picture(NamedTuple):
    """Pixels (red, green, blue, opacity), row by row from the top, and what they show in words."""

    width: int
    height: int
    rgba: bytes
    alt: str


def show(
    tensor: Any,
    *,
    scale: float | None = None,
    cmap: str | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    columns: int = 8,
    padding: int = 2,
    title: str | None = None,
    alt: str | None = None,
    name: str | None = None,
) -> None:
    """Shows a tensor as a picture, below what was printed so far.

    tensor: of either torch, an array, nested lists, or a list of tensors of one shape. Its shape says what it is:

    - (H, W): gray, or in the colours of `cmap`
    - (C, H, W), or (H, W, C) with H and W above 4, with C of 1 or 3: one image, gray or red-green-blue
    - (N, C, H, W) or (N, H, W, C) with such a C: a grid of N images
    - (N, H, W) otherwise, (M, N, H, W) otherwise (a row for each of M), and all with `cmap`: a grid of maps, such as
      a layer's attention, (heads, T, T)

    scale: CSS pixels to a value; left out, what makes it large enough to see. cmap: "gray", "viridis", "magma", "coolwarm",
    or one of these with "_r", from high to low.
    vmin, vmax: the values of the lowest and the highest colour. Left out: 0 and 255 for uint8, 0 and 1 for bool and for
    floating values that lie within, else, and with `cmap`, the least and greatest finite value.
    columns: of a grid. padding: pixels between its images. title: shown above. alt: for those who cannot see it; left out,
    it is made of shape and range. name: a picture of the same name that is there is replaced where it stands.

    NaN is magenta. In a notebook the picture is shown there; in a script that uses matplotlib, in a window; else in a
    terminal it is drawn in coloured blocks, and where output is no terminal a line describes it.

    Raises ValueError for other shapes and for a colour map that is not known, TypeError for complex values.
    """
    picture = draw(tensor, cmap=cmap, vmin=vmin, vmax=vmax, columns=columns, padding=padding)
    if alt is not None:
        picture = picture._replace(alt=alt)
    if scale is None:
        scale = comfortable(picture.height, picture.width)
    if scale <= 0:
        raise ValueError(f"show() takes a scale above 0, not {scale}")
    put(picture, scale, title, name)


def comfortable(height: int, width: int) -> float:
    """A scale that makes a picture large enough to see."""
    return max(1, _COMFORTABLE // max(height, width, 1))


def put(picture: Picture, scale: float, title: str | None, name: str | None) -> None:
    """Show a picture where there is a place for it."""
    png = encode(picture)
    width, height = round(picture.width * scale), round(picture.height * scale)
    bundle: dict[str, Any] = {"image/png": png, "text/plain": picture.alt}
    if host.page() is None:
        bundle["text/html"] = host.image_html(png, picture.alt, title, width)
    about = {"alt": picture.alt, "title": title, "width": width, "height": height, "pixelated": True}
    ident = None if name is None else f"tabtorch.show:{name}"
    if host.put(bundle, {"image/png": about}, ident):
        return
    if (plt := windows.pyplot()) is not None:
        windows.show_picture(plt, picture, title, name)
        return
    if title:
        print(title)
    print(blocks(picture, shutil.get_terminal_size().columns) if sys.stdout.isatty() else picture.alt)


def draw(
    tensor: Any,
    *,
    cmap: str | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    columns: int = 8,
    padding: int = 2,
) -> Picture:
    """The pixels of what `show` shows."""
    t = host.as_tensor(tensor, "show()")
    torch = host.library(t)
    if t.is_complex():
        raise TypeError("show() has no colours for complex values: show(x.abs()) or show(x.angle())")
    if t.dim() == 4 and (cmap is not None or _channels(t) is None):
        columns = int(t.shape[1])
    tiles, what = _tiles(t, cmap)
    if columns < 1 or padding < 0:
        raise ValueError(f"show() takes columns from 1 and padding from 0, not {columns} and {padding}")
    columns = min(columns, len(tiles))
    low, high, said = _range(torch, tiles, cmap, vmin, vmax)
    colours = coloured(torch, tiles, cmap or "gray", low, high)
    sheet = _sheet(torch, colours, columns, padding if len(tiles) > 1 else 0)
    height, width = int(sheet.shape[0]), int(sheet.shape[1])
    size = f"{tiles.shape[1]} by {tiles.shape[2]}"
    words = f"1 {what}, {size}" if len(tiles) == 1 else f"{len(tiles)} {what}s, {size} each, {columns} in a row"
    if cmap is not None:
        words += f", in {cmap}"
    return Picture(width, height, host.to_bytes(sheet), f"{words}, {said}")


def _channels(t: Any) -> int | None:
    """The dimension that holds one or three channels."""
    if t.dim() > 2 and t.shape[-3] in (1, 3):
        return -3
    return -1 if t.dim() > 2 and t.shape[-1] in (1, 3) and min(t.shape[-3:-1]) > 4 else None


def _tiles(t: Any, cmap: str | None) -> tuple[Any, str]:
    """(N, H, W, C), and what one of them is."""
    if not 2 <= t.dim() <= 4 or 0 in t.shape:
        raise ValueError(
            "show() takes (H, W), (C, H, W), (H, W, C), (N, H, W), (N, C, H, W), (N, H, W, C) or (M, N, H, W), "
            f"none of them 0, with C of 1 or 3; this has shape {tuple(t.shape)}"
        )
    at = _channels(t) if cmap is None else None
    if at is None:
        return t.reshape(-1, *t.shape[-2:], 1), "image" if cmap is None else "map"
    last = t.movedim(at, -1)
    return last.reshape(-1, *last.shape[-3:]), "image"


def _range(
    torch: Any, tiles: Any, cmap: str | None, vmin: float | None, vmax: float | None
) -> tuple[float, float, str]:
    """The values of the lowest and the highest colour, and the values in words. One read."""
    v = tiles if tiles.is_floating_point() else tiles.to(torch.float32)
    finite = torch.isfinite(v)
    least = torch.where(finite, v, math.inf).amin()
    greatest = torch.where(finite, v, -math.inf).amax()
    nans = torch.isnan(v).sum().to(v.dtype)
    low, high, count = torch.stack([least, greatest, nans]).tolist()
    if low > high:  # none is finite
        low, high = 0.0, 1.0
    said = f"values {low:.4g} to {high:.4g}" + (f", {count:.0f} not a number" if count else "")
    within = _usual(torch, tiles, cmap)
    if within and within[0] <= low and high <= within[1]:
        low, high = within
    low = low if vmin is None else float(vmin)
    high = high if vmax is None else float(vmax)
    if low > high:
        raise ValueError(f"show() takes vmin below vmax, not {low:g} and {high:g}")
    return low, (high if high > low else low + 1), said


def _usual(torch: Any, tiles: Any, cmap: str | None) -> tuple[float, float] | None:
    """From black to white, as images have it, if the values lie within."""
    if tiles.dtype is torch.bool or (cmap is None and tiles.is_floating_point()):
        return 0.0, 1.0
    if cmap is None and (tiles.dtype is torch.uint8 or tiles.shape[-1] > 1):
        return 0.0, 255.0
    return None


def coloured(torch: Any, tiles: Any, cmap: str, low: float, high: float) -> Any:
    """(N, H, W, C) of values -> (N, H, W, 4) of uint8."""
    v = tiles if tiles.is_floating_point() else tiles.to(torch.float32)
    unit = torch.nan_to_num((v - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0).clamp(0, 1)
    levels = (unit * 255).round().to(torch.uint8)
    if tiles.shape[-1] == 1:
        colours = torch.tensor([(*rgb, 255) for rgb in table(cmap)], dtype=torch.uint8, device=v.device)
        found = colours[levels[..., 0].long()]
    else:
        found = torch.cat([levels, torch.full_like(levels[..., :1], 255)], -1)
    missing = torch.isnan(v).any(-1, keepdim=True)
    return torch.where(missing, torch.tensor(_NAN, dtype=torch.uint8, device=v.device), found)


def _sheet(torch: Any, tiles: Any, columns: int, padding: int) -> Any:
    """(N, H, W, 4) -> one (height, width, 4); between the tiles nothing is drawn."""
    count, height, width, _ = tiles.shape
    rows = -(-count // columns)
    sheet = torch.zeros(rows * columns, height + padding, width + padding, 4, dtype=torch.uint8, device=tiles.device)
    sheet[:count, :height, :width] = tiles
    sheet = sheet.reshape(rows, columns, height + padding, width + padding, 4).permute(0, 2, 1, 3, 4)
    sheet = sheet.reshape(rows * (height + padding), columns * (width + padding), 4)
    return sheet[: sheet.shape[0] - padding, : sheet.shape[1] - padding].contiguous()


def encode(picture: Picture) -> bytes:
    """As a PNG file. https://www.w3.org/TR/png-3/"""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    stride = 4 * picture.width
    rows = (picture.rgba[at : at + stride] for at in range(0, len(picture.rgba), stride))
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 3)  # each row after its filter: none
    header = struct.pack(">2I5B", picture.width, picture.height, 8, 6, 0, 0, 0)  # 8 bits of red, green, blue, opacity
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def blocks(picture: Picture, columns: int) -> str:
    """As coloured text, two rows of pixels a line: an upper half block in the one colour on the other."""
    step = max(1, -(-picture.width // columns))

    def pixel(x: int, y: int) -> str:
        at = 4 * (y * picture.width + x)
        r, g, b, opacity = picture.rgba[at : at + 4] or (0, 0, 0, 0)
        return ";".join(str(c * opacity // 255) for c in (r, g, b))

    lines = []
    for y in range(0, picture.height, 2 * step):
        cells = (f"\x1b[38;2;{pixel(x, y)};48;2;{pixel(x, y + step)}m▀" for x in range(0, picture.width, step))
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)
