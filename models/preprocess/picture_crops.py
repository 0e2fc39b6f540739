"""Crops of a picture in layers, each of 4 times as many that overlap, in which small objects are large.

Source: segment-anything (Kirillov et al. 2023, arXiv:2304.02643, appendix B).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from .resize_rules import Size

Crop = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels of the picture, ends not included."""


def crops_of(size: Size, layers: int, overlap: float) -> Iterator[tuple[int, Crop]]:
    """The whole picture in layer 0, and 2^i crops in each direction in layer i, after the number of the layer.

    Args:
        size: height and width of the picture.
        layers: how many besides the whole picture.
        overlap: of crops in layer 1, as a share of the picture's shorter side; half of it in each further layer.
    """
    height, width = size
    yield 0, (0, 0, width, height)
    for layer in range(1, layers + 1):
        count = 2**layer
        shared = int(overlap * min(size) * (2 / count))
        across, down = (math.ceil((shared * (count - 1) + length) / count) for length in (width, height))
        for column, row in itertools.product(range(count), range(count)):
            x, y = column * (across - shared), row * (down - shared)
            if x < width and y < height:
                yield layer, (x, y, min(x + across, width), min(y + down, height))
