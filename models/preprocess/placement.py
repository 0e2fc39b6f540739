"""Placement: where a picture lies in the input of a model, after resizing, cropping and padding."""

from __future__ import annotations

import numpy as np

from ...runtime.base.dataclass import dataclass
from .resize_rules import Size


@dataclass(frozen=True)
class Placement:
    """Position of a picture in the input of a model.

    Attributes:
        size: height and width of the picture.
        resized: height and width that it was resized to.
        corner: row and column of its upper left corner in the input; negative where it was cropped.
        input: height and width of the input.
    """

    size: Size
    resized: Size
    corner: Size
    input: Size

    def to_input(self, points: np.ndarray) -> np.ndarray:
        """Points [..., 2] as x and y in the picture, in pixels, as points of the input."""
        scale, shift = self._affine()
        return np.asarray(points * scale + shift)

    def to_picture(self, points: np.ndarray) -> np.ndarray:
        """Points [..., 2] as x and y in the input as points of the picture, moved to its edge if they are outside."""
        scale, shift = self._affine()
        return np.clip((points - shift) / scale, 0, np.array(self.size[::-1], np.float32))

    def boxes_to_picture(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes [..., 4] as x0, y0, x1, y1 in the input as boxes of the picture."""
        return self.to_picture(boxes.reshape(*boxes.shape[:-1], 2, 2)).reshape(boxes.shape)

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the input that show the picture."""
        return tuple(
            slice(max(0, start), min(end, start + length))
            for start, length, end in zip(self.corner, self.resized, self.input, strict=True)
        )  # type: ignore[return-value]

    def _affine(self) -> tuple[np.ndarray, np.ndarray]:
        scale = np.array([self.resized[1] / self.size[1], self.resized[0] / self.size[0]], np.float32)
        return scale, np.array(self.corner[::-1], np.float32)
