"""Maps: classes and depth of every pixel, in the size of the picture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...ops.image.resize import resize
from ...ops.rules.output_limit import allowed
from ..preprocess.bilinear import between, neighbors
from ..preprocess.resize_rules import Size

BAND = 1 << 24
"""Elements that are interpolated at once."""


def interpolated(maps: np.ndarray, size: Size) -> np.ndarray:
    """Maps [channels, height, width] in another size, linearly between pixel centers (torch's bilinear `interpolate`
    with ``align_corners=False``)."""
    shape = allowed((len(maps), *size), 4, "resizing a map")
    found = np.empty(shape, np.float32)
    for rows, band in _bands(maps, size):
        found[:, rows] = band
    return found


def depth_map(depth: np.ndarray, size: Size) -> np.ndarray:
    """Depth [height, width] in another size by cubic interpolation, f32 (`post_process_depth_estimation` of
    transformers)."""
    compute = resize.compute
    assert compute is not None
    found: np.ndarray = compute(depth.astype(np.float32), None, None, np.array(size), mode="cubic")
    return found


def class_map(logits: np.ndarray, size: Size) -> np.ndarray:
    """The best class of each pixel, int64 [height, width], from logits [classes, height, width] in another size
    (`post_process_semantic_segmentation` of transformers)."""
    found = np.empty(allowed(size, 8, "a map of classes"), np.int64)
    for rows, band in _bands(logits, size):
        found[rows] = band.argmax(0)
    return found


def _bands(maps: np.ndarray, size: Size) -> Iterator[tuple[slice, np.ndarray]]:
    """Bands of rows of the interpolated maps."""
    first, second, down = neighbors(maps.shape[1], size[0])
    left, right, across = neighbors(maps.shape[2], size[1])
    count = max(1, BAND // max(1, len(maps) * max(size[1], maps.shape[2])))
    for start in range(0, size[0], count):
        rows = slice(start, min(size[0], start + count))
        lines = between(maps[:, first[rows]].astype(np.float32), maps[:, second[rows]], down[rows, None])
        yield rows, between(lines[..., left], lines[..., right], across)
