"""Resize rules: the size that a picture gets, from its own size.

Sizes are (height, width). Each rule rounds as the library does that it is from.
"""

from __future__ import annotations

import math
from typing import Protocol

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError

Size = tuple[int, int]


class Rule(Protocol):
    """The new size of a picture."""

    def __call__(self, height: int, width: int) -> Size: ...


@dataclass(frozen=True)
class Exact:
    """One size, whatever the proportions."""

    height: int
    width: int

    def __call__(self, height: int, width: int) -> Size:
        return self.height, self.width


@dataclass(frozen=True)
class ShortestEdge:
    """The shorter edge has a length, proportions are kept (torchvision's Resize)."""

    length: int

    def __call__(self, height: int, width: int) -> Size:
        if width <= height:
            return int(self.length * height / width), self.length
        return self.length, int(self.length * width / height)


@dataclass(frozen=True)
class EdgesWithin:
    """The shorter edge has a length, unless the longer one would exceed `longest` (DETR); YOLOS cuts both to a
    multiple."""

    shortest: int
    longest: int
    multiple: int = 1

    def __call__(self, height: int, width: int) -> Size:
        short, long = float(min(height, width)), float(max(height, width))
        exact: float = self.shortest
        length = self.shortest
        if long / short * self.shortest > self.longest:
            exact = self.longest * short / long
            length = round(exact)
        if min(height, width) == length:
            found = height, width
        elif width < height:
            found = int(exact * height / width), length
        else:
            found = length, int(exact * width / height)
        return found[0] - found[0] % self.multiple, found[1] - found[1] % self.multiple


@dataclass(frozen=True)
class LongestEdge:
    """The longer edge has a length (Segment Anything)."""

    length: int

    def __call__(self, height: int, width: int) -> Size:
        scale = self.length * 1.0 / max(height, width)
        return int(height * scale + 0.5), int(width * scale + 0.5)


@dataclass(frozen=True)
class NoLonger:
    """The longer edge has a length at most; proportions are kept (CRAFT)."""

    length: int

    def __call__(self, height: int, width: int) -> Size:
        scale = min(1.0, self.length / max(height, width))
        return int(height * scale), int(width * scale)


@dataclass(frozen=True)
class Within:
    """As large as fits into a box; proportions are kept."""

    height: int
    width: int

    def __call__(self, height: int, width: int) -> Size:
        scale = min(self.height / height, self.width / width)
        return int(height * scale), int(width * scale)


@dataclass(frozen=True)
class Letterbox:
    """As large as fits into a box, edges rounded to the nearest integer (ultralytics' LetterBox)."""

    height: int
    width: int

    def __call__(self, height: int, width: int) -> Size:
        scale = min(self.height / height, self.width / width)
        return round(height * scale), round(width * scale)


@dataclass(frozen=True)
class Ratio:
    """One ratio for both edges, the smaller or the larger of those that a box asks for (timm's ResizeKeepRatio)."""

    height: int
    width: int
    inside: bool

    def __call__(self, height: int, width: int) -> Size:
        ratios = height / self.height, width / self.width
        ratio = max(ratios) if self.inside else min(ratios)
        return round(height / ratio), round(width / ratio)


@dataclass(frozen=True)
class Multiples:
    """Near a size, both edges a multiple of a number (DPT, Depth Anything); proportions may be kept."""

    height: int
    width: int
    multiple: int
    keep_proportions: bool

    def __call__(self, height: int, width: int) -> Size:
        down, across = self.height / height, self.width / width
        if self.keep_proportions:
            down = across = across if abs(1 - across) < abs(1 - down) else down
        return self._near(down * height), self._near(across * width)

    def _near(self, length: float) -> int:
        near = round(length / self.multiple) * self.multiple
        return near if near > 0 else math.ceil(length / self.multiple) * self.multiple


@dataclass(frozen=True)
class Divisible:
    """Both edges cut to a multiple of a number (GLPN)."""

    divisor: int

    def __call__(self, height: int, width: int) -> Size:
        return height // self.divisor * self.divisor, width // self.divisor * self.divisor


@dataclass(frozen=True)
class PatchGrid:
    """Within a box, proportions kept and no edge enlarged, and then both edges up to a multiple of a patch's
    (Pixtral)."""

    height: int
    width: int
    patch: int

    def __call__(self, height: int, width: int) -> Size:
        ratio = max(height / self.height, width / self.width)
        if ratio > 1:
            height, width = math.floor(height / ratio), math.floor(width / ratio)
        rows, columns = ((length - 1) // self.patch + 1 for length in (height, width))
        return rows * self.patch, columns * self.patch


MAX_RATIO = 200
"""The longer edge by the shorter one at most, of pictures that become multiples of squares of patches."""


@dataclass(frozen=True)
class PixelRange:
    """Both edges a multiple of `factor`, with `fewest` to `most` pixels; proportions are kept as far as possible
    (Qwen-VL).

    Attributes:
        enlarged: whether an edge that is shorter than `factor` first becomes as long (PaddleOCR-VL).
    """

    factor: int
    fewest: int
    most: int
    enlarged: bool = False

    def __call__(self, height: int, width: int) -> Size:
        """Height and width. FormatError for a picture that is too narrow."""
        factor = self.factor
        if self.enlarged and height < factor:
            height, width = factor, round(width * factor / height)
        if self.enlarged and width < factor:
            height, width = round(height * factor / width), factor
        if max(height, width) > MAX_RATIO * min(height, width):
            why, hint = f"a picture of {width} x {height} is too narrow", f"Use edges of at most 1 : {MAX_RATIO}"
            raise FormatError("E-PICTURE-SIZE", None, why, hint=hint)
        rows, columns = round(height / factor) * factor, round(width / factor) * factor
        if rows * columns > self.most:
            beta = math.sqrt(height * width / self.most)
            rows, columns = (max(factor, math.floor(edge / beta / factor) * factor) for edge in (height, width))
        elif rows * columns < self.fewest:
            beta = math.sqrt(self.fewest / (height * width))
            rows, columns = (math.ceil(edge * beta / factor) * factor for edge in (height, width))
        return rows, columns
