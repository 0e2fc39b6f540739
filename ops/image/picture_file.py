"""Encoded pictures: opened with Pillow, within the memory limit, and without the formats that run other programs."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ...runtime.base.errors import LimitError
from ...runtime.base.limits import current
from ...runtime.base.units import counted
from ...runtime.plugin.optional_package import optional_package
from ..rules.output_limit import allowed

if TYPE_CHECKING:
    from PIL.Image import Image

DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    struct.error,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ZeroDivisionError,
)
"""Errors of Pillow's parsers for streams that are not images."""
BYTES = {"WEBP": 16, "AVIF": 16}
"""Bytes of a pixel while Pillow decodes it, by format; those of others are `USUAL`."""
USUAL = 8
MAX_PACKED = 1 << 24
"""Pixels that a file of any size may hold."""
RATIO = 2
"""JPEG packs up to 200 bytes of a plain picture into one, twice the limit of archives; so may others, past
`MAX_PACKED`."""


@contextlib.contextmanager
def opened(stream: bytes | BinaryIO, formats: Sequence[str], what: str) -> Iterator[Image]:
    """The first picture of a stream in one of Pillow's formats, not decoded yet.

    Raises UnsupportedError without Pillow, LimitError for pictures beyond the memory limit, and what `DAMAGE` lists, in
    the block too, for streams that are not pictures.
    """
    Image, ImageFile = optional_package("PIL.Image", what), optional_package("PIL.ImageFile", what)  # noqa: N806
    truncated, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = io.BytesIO(stream) if isinstance(stream, bytes) else stream
            with Image.open(file, formats=_built(formats)) as picture:
                _check_ratio(picture, file, what)
                size = BYTES.get(picture.format or "", USUAL)
                allowed((picture.height, picture.width, size), 1, f"{what}: the picture")
                yield picture
    except Image.DecompressionBombError as cause:
        pixels = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        why = f"{what} has more than {counted(pixels, 'pixel')}; it may be made to exhaust memory"
        raise LimitError("E-RUN-MEMORY", None, why, hint="Scale it down with an image editor if it is yours") from cause
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = truncated


def _check_ratio(picture: Image, file: BinaryIO, what: str) -> None:
    """LimitError for many pixels in few bytes."""
    pixels = picture.width * picture.height
    size = file.getbuffer().nbytes if isinstance(file, io.BytesIO) else os.fstat(file.fileno()).st_size
    if pixels > MAX_PACKED and 3 * pixels > RATIO * current().zip_ratio * size:
        why = f"{what} of {picture.width:,} x {counted(picture.height, 'pixel')} is packed into {counted(size, 'byte')}"
        hint = "If you trust it, raise the limit with --limit zip-ratio=1000, or scale it down with an image editor"
        raise LimitError("E-LIMIT-RATIO", None, f"{why}; it may be made to exhaust memory", hint=hint)


def _built(formats: Sequence[str]) -> list[str]:
    """The formats that this build of Pillow reads."""
    from PIL import Image

    if not all(name in Image.OPEN for name in formats):
        Image.init()
    return [name for name in formats if name in Image.OPEN]


def eight_bit(picture: Image) -> Image:
    """The picture with at most 8 bits a channel: 16-bit greys keep their high byte, which Pillow would clip, and floats
    in 0 to 1 are scaled to 0 to 255."""
    from PIL import Image

    if picture.mode.startswith("I"):
        return Image.fromarray(np.clip(np.asarray(picture).astype(np.int64) >> 8, 0, 255).astype(np.uint8))
    if picture.mode == "F":
        values = np.nan_to_num(np.asarray(picture))
        unit = values.size > 0 and values.max() <= 1
        return Image.fromarray(np.clip(np.round(values * 255 if unit else values), 0, 255).astype(np.uint8))
    return picture
