"""Idefics3's processor: a picture as square tiles of the encoder's size, in rows, and the whole picture as one more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import FormatError
from .marked_pictures import MarkedPictures, token_text
from .prompt_rules import Arrays, PromptModel

if TYPE_CHECKING:
    from ....preprocess.preparation import Preparation

AROUND, WHOLE = "<fake_token_around_image>", "<global-img>"
"""Tokens around the placeholders of a tile, and before those of the whole picture."""
MAX_SIDE = 4096
"""Longest edge that a picture is resized to, whatever files say."""
Size = tuple[int, int]


@dataclass(frozen=True)
class Tiles:
    """Tiling of a picture.

    Attributes:
        longest: the length of the longer edge, before both become multiples of `tile`.
        tile: height and width of a tile.
        splits: whether it is cut at all; else the whole picture is the only tile.
    """

    longest: int
    tile: int
    splits: bool

    def resized(self, height: int, width: int) -> Size:
        """The size with the longer edge as asked for; proportions are kept, the shorter edge is even."""
        longest, ratio = self.longest, width / height
        if width >= height:
            short = int(longest / ratio)
            found = (short + short % 2, longest)
        else:
            short = int(longest * ratio)
            found = (longest, short + short % 2)
        return _limited(max(found[0], 1), max(found[1], 1))

    def multiple(self, height: int, width: int) -> Size:
        """The size with both edges a multiple of a tile's."""
        tile, ratio = self.tile, width / height
        if width >= height:
            width = math.ceil(width / tile) * tile
            return math.ceil(int(width / ratio) / tile) * tile, width
        height = math.ceil(height / tile) * tile
        return height, math.ceil(int(height * ratio) / tile) * tile


def _limited(height: int, width: int) -> Size:
    ratio = width / height
    if width >= height and width > MAX_SIDE:
        return max(int(MAX_SIDE / ratio), 1), MAX_SIDE
    if height > width and height > MAX_SIDE:
        return MAX_SIDE, max(int(MAX_SIDE * ratio), 1)
    return height, width


def tiles_of(settings: Mapping[str, Any]) -> Tiles:
    """The settings of preprocessor_config.json, with the defaults of transformers' class. FormatError for invalid
    ones."""
    from ....preprocess.checked_settings import integer

    try:
        longest, tile = (
            integer(f"{name}.longest_edge", (settings.get(name) or {}).get("longest_edge", length))
            for name, length in (("size", 4 * 364), ("max_image_size", 364))
        )
    except (AttributeError, ValueError) as error:
        why = f"invalid image processor: {error}"
        raise FormatError("E-PREPROCESSOR", None, why, hint="Correct preprocessor_config.json") from error
    return Tiles(longest, tile, settings.get("do_image_splitting", True) is True)


def _tiles(picture: Any, tiles: Tiles, preparation: Preparation) -> tuple[list[np.ndarray], int, int]:
    """Tiles f32 [3, height, width] of a picture in rows, the whole one last, and the numbers of rows and columns."""
    from ....preprocess.picture import picture_of

    def resized(image: Any, size: Size) -> Any:
        height, width = size
        return image if (image.height, image.width) == size else image.resize((width, height), preparation.filter)

    image = picture_of(picture, 3)
    image = resized(image, tiles.resized(image.height, image.width))
    square, rows, columns, found = (tiles.tile, tiles.tile), 0, 0, []
    if tiles.splits:
        image = resized(image, tiles.multiple(image.height, image.width))
        pixels = np.asarray(image)
        if pixels.shape[:2] != square:
            rows, columns = pixels.shape[0] // tiles.tile, pixels.shape[1] // tiles.tile
            for row in range(rows):
                for column in range(columns):
                    top, left = row * tiles.tile, column * tiles.tile
                    found.append(preparation.normalized(pixels[top : top + tiles.tile, left : left + tiles.tile]))
    found.append(preparation.normalized(np.asarray(resized(image, square))))
    return found, rows, columns


def _expanded(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Tiles of all pictures, and the text of each."""
    from ....preprocess.stated_preparation import stated_preparation, stated_settings

    config = model.options.config
    assert config is not None
    preparation, tiles = stated_preparation(model.options.source), tiles_of(stated_settings(model.options.source))
    side = tiles.tile // config.values["vision.patch"] // config.fold
    placeholders = token_text(model, "image_token") * (side * side)
    arrays, texts = [], []
    for picture in images:
        own, rows, columns = _tiles(picture, tiles, preparation)
        text = ""
        for row in range(rows):
            for column in range(columns):
                text += f"{AROUND}<row_{row + 1}_col_{column + 1}>{placeholders}"
            text += "\n"
        arrays += own
        texts.append(f"{text}{chr(10) if rows else ''}{AROUND}{WHOLE}{placeholders}{AROUND}")
    return {"pixel_values": np.stack(arrays)}, texts


tiled_pictures = MarkedPictures(_expanded)
