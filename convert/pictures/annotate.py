"""Annotated pictures: boxes with labels, masks, skeletons and depth, drawn with Pillow."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.pipelines.image.image_pipeline import EDGES

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Result = Mapping[str, Any]
ALPHA = 0.5
"""How much of a mask's color covers the picture."""
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
SKELETON = (
    (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10),
    (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
)  # fmt: skip
"""Pairs of COCO's 17 key points that are joined by lines."""
PERSON = 17
VISIBLE = 0.5
NEAR_TO_FAR = np.array(
    [
        (0, 0, 4),
        (40, 11, 84),
        (101, 21, 110),
        (159, 42, 99),
        (212, 72, 66),
        (245, 125, 21),
        (250, 193, 39),
        (252, 255, 164),
    ],
    np.float32,
)
"""Colors of depth, from the least to the most."""
NAMES = ("label", "text", "number", "generated_text", "answer")
"""Keys of what a result is called."""
LISTED = 8
"""Lines of text on a picture."""


def annotated(picture: Image, results: Sequence[Result]) -> Image:
    """A copy of an RGB picture on which results are drawn: of a classifier as lines of text, of others in place."""
    from PIL import ImageDraw

    if any("depth" in result for result in results):
        return _depth(results[0]["depth"])
    colors = {name: _color(index) for index, name in enumerate(dict.fromkeys(map(_name, results)))}
    image = _masked(picture, results, colors)
    draw = ImageDraw.Draw(image)
    for result in reversed(results):
        color = colors[_name(result)]
        if "keypoints" in result:
            _skeleton(draw, result["keypoints"], color, _width(image))
        if "box" in result and "mask" not in result:
            _box(draw, result, color, image)
    lines = [
        (_titled(result), colors[_name(result)])
        for result in results[:LISTED]
        if "box" not in result or "mask" in result
    ]
    _lines(draw, lines, image)
    return image


def _name(result: Result) -> str:
    """The label or text, or the number of an object without one."""
    return str(next(result[key] for key in NAMES if key in result))


def _titled(result: Result) -> str:
    """The name, with the score or share if there is one."""
    value = result.get("score", result.get("share"))
    return _name(result) if value is None else f"{_name(result)} {value:.2f}"


def _color(place: int) -> tuple[int, int, int]:
    """A color that differs from those of neighboring places: hues by the golden ratio."""
    red, green, blue = colorsys.hsv_to_rgb(place * 0.618034 % 1, 0.85 - 0.25 * (place // 8 % 2), 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def _width(image: Image) -> int:
    return max(2, round(min(image.size) / 200))


def _font(image: Image) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(max(12, round(min(image.size) / 32)))


def _masked(picture: Image, results: Sequence[Result], colors: Mapping[str, tuple[int, int, int]]) -> Image:
    """The picture under its masks, small ones on top."""
    from PIL import Image

    pixels = np.array(picture)
    for result in sorted(results, key=lambda each: -each.get("area", 0)):
        if "mask" in result:
            mask, color = np.asarray(result["mask"]), np.array(colors[_name(result)], np.float32)
            pixels[mask] = np.round(pixels[mask] * (1 - ALPHA) + color * ALPHA).astype(np.uint8)
    return Image.fromarray(pixels)


def _box(draw: ImageDraw, result: Result, color: tuple[int, int, int], image: Image) -> None:
    left, top, right, bottom = (result["box"][name] for name in EDGES)
    if "polygon" in result:
        draw.polygon([tuple(corner) for corner in result["polygon"]], outline=color, width=_width(image))
    else:
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=color, width=_width(image))
    text, font = _titled(result), _font(image)
    if not text:
        return
    across, down = _extent(draw, text, font)
    x = min(max(0, left), max(0, image.width - across))
    y = top - down if top >= down else min(top, image.height - down)
    _label(draw, (x, y), text, color, font)


def _lines(draw: ImageDraw, lines: Sequence[tuple[str, tuple[int, int, int]]], image: Image) -> None:
    font, y = _font(image), 0.0
    for text, color in lines:
        _label(draw, (0, y), text, color, font)
        y += _extent(draw, text, font)[1]


def _extent(draw: ImageDraw, text: str, font: Any) -> tuple[float, float]:
    _, _, right, bottom = draw.textbbox((0, 0), text, font=font)
    return right + 4, bottom + 4


def _label(draw: ImageDraw, at: tuple[float, float], text: str, color: tuple[int, int, int], font: Any) -> None:
    """Text on its color, black or white by what is legible."""
    across, down = _extent(draw, text, font)
    draw.rectangle((at[0], at[1], at[0] + across, at[1] + down), fill=color)
    light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140
    draw.text((at[0] + 2, at[1] + 2), text, fill=BLACK if light else WHITE, font=font)


def _skeleton(draw: ImageDraw, points: Sequence[Sequence[float]], color: tuple[int, int, int], width: int) -> None:
    shown = [len(point) < 3 or point[2] > VISIBLE for point in points]
    for one, other in SKELETON if len(points) == PERSON else ():
        if shown[one] and shown[other]:
            draw.line((*points[one][:2], *points[other][:2]), fill=color, width=width)
    for point, visible in zip(points, shown, strict=True):
        if visible:
            x, y = point[:2]
            draw.ellipse((x - 2 * width, y - 2 * width, x + 2 * width, y + 2 * width), fill=color, outline=BLACK)


def _depth(depth: np.ndarray) -> Image:
    from PIL import Image

    least, most = float(depth.min()), float(depth.max())
    scaled = (depth - least) / (most - least) if most > least else np.zeros_like(depth)
    place = scaled * (len(NEAR_TO_FAR) - 1)
    first = np.minimum(place.astype(np.int64), len(NEAR_TO_FAR) - 2)
    weight = (place - first)[..., None]
    colors = NEAR_TO_FAR[first] * (1 - weight) + NEAR_TO_FAR[first + 1] * weight
    return Image.fromarray(np.round(colors).astype(np.uint8))
