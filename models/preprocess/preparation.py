"""Preparation: pictures as arrays for a model, resized, cropped, padded and normalized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops.rules.output_limit import allowed
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UsageError
from .bilinear import between, neighbors
from .picture import Picture, picture_of
from .placement import Placement
from .resize_rules import Letterbox, Rule, Size

if TYPE_CHECKING:
    from PIL.Image import Image

NEAREST, LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = range(6)
"""Filters by Pillow's numbers: all average over the area of a pixel where a picture is made smaller, except nearest."""
PIXEL = 6
"""Bytes of one channel of a pixel while it is prepared: resized, cut out, and as f32."""
TWO_BY_TWO = -1
"""Linear interpolation of four pixels whatever the scale, as OpenCV's INTER_LINEAR."""


def floor_half(difference: int) -> int:
    """Start of a centre crop in transformers: half of the picture's length less the crop's, rounded down."""
    return difference // 2


def torchvision_half(difference: int) -> int:
    """Start of a centre crop in torchvision: half rounded to even inside a picture, towards 0 outside."""
    return round(difference / 2) if difference > 0 else -(-difference // 2)


@dataclass(frozen=True)
class Padding:
    """Padding of the normalized picture at the right and at the bottom, or all around.

    Attributes:
        size: height and width; None for those of the largest picture of a batch.
        divisor: both edges become a multiple of it.
        centered: whether it is added on both sides.
        masked: whether the model is given which pixels are the picture's, as ``pixel_mask``.
        black: whether black is added, else 0.
    """

    size: Size | None = None
    divisor: int = 1
    centered: bool = False
    masked: bool = False
    black: bool = False

    def box(self, sizes: Sequence[Size]) -> Size:
        """Height and width that pictures of the sizes are padded to."""
        height, width = self.size or (max(size[0] for size in sizes), max(size[1] for size in sizes))
        return -(-height // self.divisor) * self.divisor, -(-width // self.divisor) * self.divisor

    def corner(self, size: Size, box: Size) -> Size:
        """Upper left corner of a picture in a box. FormatError for pictures that are larger than the box."""
        if size[0] > box[0] or size[1] > box[1]:
            why = f"a picture of {size[1]} x {size[0]} does not fit into {box[1]} x {box[0]}"
            raise FormatError("E-PICTURE-SIZE", None, why, hint="Correct pad_size in preprocessor_config.json")
        return ((box[0] - size[0]) // 2, (box[1] - size[1]) // 2) if self.centered else (0, 0)


@dataclass(frozen=True)
class Preparation:
    """Preparation of pictures.

    Attributes:
        resize: the size that a picture gets; None leaves it.
        filter: Pillow's number of the filter, or `TWO_BY_TWO`.
        crop: height and width that are cut out of the middle; smaller pictures are surrounded with `fill`.
        halved: where the crop begins, from the difference of lengths.
        fill: byte of each channel.
        factor, shift: of each channel: a byte becomes byte * factor + shift.
        bgr: whether blue is the first channel.
        padding: of the normalized picture.
        channels: 3, or 1 for grey pictures.
    """

    resize: Rule | None = None
    filter: int = BICUBIC
    crop: Size | None = None
    halved: Callable[[int], int] = floor_half
    fill: tuple[int, ...] = (0,)
    factor: tuple[float, ...] = (1 / 255,)
    shift: tuple[float, ...] = (0.0,)
    bgr: bool = False
    padding: Padding | None = None
    channels: int = 3

    def prepare(self, picture: Picture) -> Prepared:
        """One picture, read as `picture_of` does."""
        image = picture_of(picture, self.channels)
        at = self.placement((image.height, image.width))
        return Prepared(self.normalized(self._cropped(self._resized(image, at.resized), at)), at)

    def grey(self) -> Preparation:
        """The same for one channel; unchanged where the channels have factors or shifts of their own."""
        if len(set(self.factor)) > 1 or len(set(self.shift)) > 1:
            return self
        factor, shift, fill = self.factor[:1], self.shift[:1], self.fill[:1]
        return replace(self, channels=1, bgr=False, factor=factor, shift=shift, fill=fill)

    def placement(self, size: Size) -> Placement:
        """Position of a picture of a size in the input, before padding."""
        resized = self.size_of(size)
        if self.crop is not None:
            allowed((*self.crop, PIXEL * self.channels), 1, "preparing a picture")
        return Placement(size, resized, self.corner_of(resized), self.crop or resized)

    def size_of(self, size: Size) -> Size:
        """Height and width that a picture of a size is resized to. FormatError if nothing would remain of it."""
        found = size if self.resize is None else self.resize(*size)
        if min(found) < 1:
            why = f"a picture of {size[1]} x {size[0]} would be resized to {found[1]} x {found[0]}"
            raise FormatError("E-PICTURE-SIZE", None, why, hint="Use a larger picture, or one that is less narrow")
        allowed((*found, PIXEL * self.channels), 1, "resizing a picture")
        return found

    def corner_of(self, resized: Size) -> Size:
        """Upper left corner of a resized picture in the crop."""
        if self.crop is None:
            return 0, 0
        return -self.halved(resized[0] - self.crop[0]), -self.halved(resized[1] - self.crop[1])

    def normalized(self, pixels: np.ndarray) -> np.ndarray:
        """Bytes [height, width, channels] as f32 [channels, height, width]."""
        ordered = pixels[:, :, ::-1] if self.bgr else pixels
        factor, shift = (np.array(each, np.float32)[:, None, None] for each in (self.factor, self.shift))
        values: np.ndarray = ordered.transpose(2, 0, 1).astype(np.float32)
        values *= factor
        values += shift
        return values

    def batch(self, pictures: Sequence[Prepared]) -> tuple[dict[str, np.ndarray], list[Placement]]:
        """``pixel_values`` f32 [batch, channels, height, width], ``pixel_mask`` int64 [batch, height, width] where
        padding is masked, and the placement of each picture.

        Raises UsageError for pictures of several sizes without padding.
        """
        sizes = [each.values.shape[1:] for each in pictures]
        padding = self.padding
        if padding is None:
            if len(set(sizes)) > 1:
                raise UsageError("E-PICTURE-BATCH", None, "pictures of different sizes cannot be one batch")
            allowed((len(pictures), *pictures[0].values.shape), 4, "a batch of pictures")
            return {"pixel_values": np.stack([each.values for each in pictures])}, [each.at for each in pictures]
        height, width = padding.box(sizes)
        shape = allowed((len(pictures), self.channels, height, width), 4, "padding pictures")
        values, mask = np.zeros(shape, np.float32), np.zeros((len(pictures), height, width), np.int64)
        if padding.black:
            values += np.array(self.shift, np.float32)[:, None, None]
        placements = []
        for row, (picture, size) in enumerate(zip(pictures, sizes, strict=True)):
            top, left = padding.corner(size, (height, width))
            window = slice(top, top + size[0]), slice(left, left + size[1])
            values[row][:, *window] = picture.values
            mask[row][window] = 1
            placements.append(picture.moved((top, left), (height, width)))
        return {"pixel_values": values, **({"pixel_mask": mask} if padding.masked else {})}, placements

    @property
    def same_sizes(self) -> bool:
        """Whether pictures of a batch need one size, so that none is padded for the sake of another."""
        return self.padding is None or self.padding.size is None

    def _resized(self, image: Image, size: Size) -> np.ndarray:
        """Bytes [height, width, channels]."""
        height, width = size
        if (height, width) != (image.height, image.width):
            if self.filter == TWO_BY_TWO:
                return two_by_two(bytes_of(image), height, width)
            image = image.resize((width, height), self.filter)
        return bytes_of(image)

    def _cropped(self, pixels: np.ndarray, at: Placement) -> np.ndarray:
        if self.crop is None:
            return pixels
        found = np.empty((*self.crop, pixels.shape[2]), np.uint8)
        found[:] = self.fill
        (top, left), (rows, columns) = at.corner, at.window
        found[rows, columns] = pixels[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
        return found


@dataclass(frozen=True)
class Prepared:
    """A prepared picture: f32 [channels, height, width], and where it lies."""

    values: np.ndarray
    at: Placement

    def moved(self, by: Size, into: Size) -> Placement:
        """Its placement in a larger input."""
        corner = self.at.corner[0] + by[0], self.at.corner[1] + by[1]
        return Placement(self.at.size, self.at.resized, corner, into)


def letterbox(height: int, width: int) -> Preparation:
    """As the YOLO models of ultralytics see pictures: as large as fits, in the middle of grey, bytes divided by 255."""
    return Preparation(Letterbox(height, width), TWO_BY_TWO, (height, width), torchvision_half, fill=(114,))


def two_by_two(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bytes [height, width, channels], each from the four nearest pixels."""
    rows, across = (neighbors(length, new) for length, new in zip(pixels.shape[:2], (height, width), strict=True))
    lines = between(pixels[rows[0]].astype(np.float32), pixels[rows[1]], rows[2][:, None, None])
    found = between(lines[:, across[0]], lines[:, across[1]], across[2][:, None])
    return np.clip(np.round(found), 0, 255).astype(np.uint8)


def bytes_of(image: Any) -> np.ndarray:
    """Bytes [height, width, channels] of an image of Pillow."""
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]
