"""Location tokens: boxes and polygons with labels in generated text, read as transformers' post-processor of Florence-2
does.

``<loc_0>`` to ``<loc_999>`` count thousandths of the width or height of a picture.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass

BINS = 1000
LOCATION = re.compile(r"<loc_(\d+)>")
MARKS = re.compile(r"</?s>|<pad>")
NAME = re.compile(r"^\s*(.*?)(?=</?od>|</?box>|</?bbox>|<loc_)")
OUTLINED = re.compile(r"^\s*(.*?)(?=</?od>|</?box>|</?bbox>|<loc_|<poly>)")
NAMED_BOXES, BOXES = re.compile(r"([^<]+(?:<loc_\d+>){4,})"), re.compile(r"(?:(?:<loc_\d+>){4,})")
PARTS = r"(?:<loc_\d+>|<sep>|<poly>|</poly>){4,}"
NAMED_OUTLINES, OUTLINES = re.compile(rf"([^<]+{PARTS})"), re.compile(PARTS)
QUADS = re.compile(r"(.+?)" + r"<loc_(\d+)>" * 8)
MOST_DIGITS = 6


@dataclass(frozen=True)
class Region:
    """A labeled part of a picture.

    Attributes:
        label: text; empty for a region without one.
        corners: pixels, [x, y] each; two opposite ones of a box.
        is_box: whether it is a box.
    """

    label: str
    corners: list[list[int]]
    is_box: bool


Size = tuple[int, int]
"""Height and width of a picture."""


def plain_text(text: str) -> str:
    """The text without marks of its start and end, and without padding."""
    return MARKS.sub("", text).strip()


def boxes(text: str, size: Size, *, named: bool = True, banned: Collection[str] = ()) -> list[Region]:
    """Boxes, several of which may share a label.

    Args:
        named: whether boxes have labels.
        banned: labels that are left out.
    """
    found = []
    for phrase in (NAMED_BOXES if named else BOXES).findall(MARKS.sub("", text)):
        match = NAME.search(phrase)
        label = "" if match is None else match.group().strip()
        if match is not None and label not in banned:
            ascii_label = label.encode("ascii", "ignore").decode("ascii")
            spots = _points(phrase, size)
            found += [Region(ascii_label, spots[i : i + 2], True) for i in range(0, len(spots) - 1, 2)]
    return found


def quads(text: str, size: Size, *, least_area: float = 0.0) -> list[Region]:
    """Quadrilaterals around lines of text; `least_area`: share of the picture below which they are left out."""
    found = []
    for label, *indices in QUADS.findall(MARKS.sub("", text)):
        corners = _pixels(indices, size)
        (x, y) = np.array(corners).T
        area = 0.5 * abs(sum(x[i] * y[i + 1] - x[i + 1] * y[i] for i in range(3)))
        if not least_area or area >= size[0] * size[1] * least_area:
            found.append(Region(label.strip(), corners, False))
    return found


def polygons(text: str, size: Size, *, named: bool = False) -> list[Region]:
    """Polygons, several of which may share a label; `named`: whether they have labels."""
    found = []
    for phrase in (NAMED_OUTLINES if named else OUTLINES).findall(MARKS.sub("", text)):
        rest = re.sub(r"^<loc_\d+>", "", phrase, count=1)
        match = OUTLINED.search(rest)
        if match is None:
            continue
        marked = re.findall(r"<poly>(.*?)</poly>", phrase) if "<poly>" in phrase and "</poly>" in phrase else [phrase]
        rings = [ring for part in marked for ring in re.findall(r"((?:<loc_\d+>)+)(?:<sep>|$)", part)]
        found += [Region(match.group().strip(), _points(ring, size), False) for ring in rings]
    return found


def boxes_or_polygons(text: str, size: Size) -> list[Region]:
    """Polygons of a text that has any, else boxes."""
    return polygons(text, size, named=True) if "<poly>" in text else boxes(text, size)


def _points(text: str, size: Size) -> list[list[int]]:
    """The points of all pairs of indices in a text."""
    indices = LOCATION.findall(text)
    return _pixels(indices[: len(indices) // 2 * 2], size)


def _pixels(indices: Sequence[str], size: Size) -> list[list[int]]:
    """The centers of bins, rounded down to pixels."""
    height, width = size
    bins = np.array([int(index[-MOST_DIGITS:]) for index in indices], np.float32).reshape(-1, 2)
    scaled = (bins + np.float32(0.5)) * np.array([width / BINS, height / BINS], np.float32)
    pixels: list[list[int]] = scaled.astype(np.int32).tolist()
    return pixels
