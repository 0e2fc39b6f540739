"""Run-length encoding of masks, as COCO has it: lengths of runs down the columns, the first one outside the mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..preprocess.resize_rules import Size


@dataclass(frozen=True)
class RunLengthMask:
    """A mask of a picture in little memory; ``numpy.asarray`` makes booleans [height, width] of it.

    Attributes:
        size: height and width.
        counts: int64 [runs]: lengths of runs in column-major order, outside and inside in turn.
    """

    size: Size
    counts: np.ndarray

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        inside = np.arange(len(self.counts)) % 2 == 1
        mask = np.repeat(inside, self.counts).reshape(self.size[::-1]).T
        return mask if dtype is None else mask.astype(dtype)

    @property
    def area(self) -> int:
        """Pixels inside."""
        return int(self.counts[1::2].sum())

    def to_coco(self) -> dict[str, Any]:
        """COCO's uncompressed form: ``size`` and ``counts`` as lists of integers."""
        return {"size": list(self.size), "counts": self.counts.tolist()}


def run_lengths(mask: np.ndarray) -> RunLengthMask:
    """The runs of booleans [height, width]."""
    height, width = mask.shape
    pixels = mask.T.reshape(-1)
    edges = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    first = [0] if pixels.size and pixels[0] else []
    counts = np.diff(np.concatenate([[0], edges, [pixels.size]]))
    return RunLengthMask((height, width), np.concatenate([first, counts]).astype(np.int64))
