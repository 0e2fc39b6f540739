"""Pictures in terminals: by kitty's protocol or sixels where the terminal knows them, else by half blocks."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

KITTY, SIXEL, BLOCKS = "kitty", "sixel", "blocks"
KITTY_TERMINALS = ("ghostty", "WezTerm", "kitty")
SIXEL_TERMINALS = ("foot", "mlterm", "contour", "mintty")
"""Values of TERM_PROGRAM, or beginnings of TERM, of terminals that know a protocol."""
CHUNK = 4096
"""Bytes of base64 in one escape sequence of kitty's."""
COLORS = 256
HALF = "\N{UPPER HALF BLOCK}"


def protocol(environment: Mapping[str, str] = os.environ) -> str:
    """How a terminal shows pictures, by its environment variables."""
    program, term = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if environment.get("KITTY_WINDOW_ID") or program in KITTY_TERMINALS or term.startswith("xterm-kitty"):
        return KITTY
    if program in SIXEL_TERMINALS or term.startswith(SIXEL_TERMINALS) or "sixel" in term:
        return SIXEL
    return BLOCKS


def shown(picture: Image, how: str, columns: int) -> str:
    """Text that shows an RGB picture.

    Args:
        how: `KITTY`, `SIXEL` or `BLOCKS`.
        columns: width of the picture in half blocks, at most.
    """
    if how == KITTY:
        return _kitty(picture)
    return _sixel(picture) if how == SIXEL else _blocks(picture, columns)


def _kitty(picture: Image) -> str:
    held = io.BytesIO()
    picture.save(held, "PNG")
    content = base64.standard_b64encode(held.getvalue()).decode()
    pieces = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]
    last = len(pieces) - 1
    return "".join(
        f"\x1b_G{'a=T,f=100,' if index == 0 else ''}m={int(index < last)};{piece}\x1b\\"
        for index, piece in enumerate(pieces)
    )


def _sixel(picture: Image) -> str:
    reduced = picture.quantize(COLORS)
    palette = np.array(reduced.getpalette(), np.int64).reshape(-1, 3)
    indices = np.array(reduced)
    text = [f'\x1bPq"1;1;{picture.width};{picture.height}']
    for index, color in enumerate(palette.tolist()):
        red, green, blue = (level * 100 // 255 for level in color)
        text.append(f"#{index};2;{red};{green};{blue}")
    for top in range(0, picture.height, 6):
        band = indices[top : top + 6]
        weights = 1 << np.arange(len(band))[:, None]
        for color in np.unique(band):
            bits = ((band == color) * weights).sum(0)
            text.append(f"#{color}{''.join(chr(63 + int(each)) for each in bits)}$")
        text.append("-")
    return "".join(text) + "\x1b\\"


def _blocks(picture: Image, columns: int) -> str:
    width = min(columns, picture.width)
    height = max(2, round(picture.height * width / picture.width / 2) * 2)
    pixels = np.array(picture.resize((width, height)))
    lines = []
    for upper, lower in zip(pixels[0::2], pixels[1::2], strict=True):
        cells = [
            f"\x1b[38;2;{top[0]};{top[1]};{top[2]}m\x1b[48;2;{low[0]};{low[1]};{low[2]}m{HALF}"
            for top, low in zip(upper.tolist(), lower.tolist(), strict=True)
        ]
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)
