"""Pictures: files, bytes and arrays as upright RGB images of Pillow."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops.image.picture_file import DAMAGE, eight_bit, opened
from ...runtime.base.errors import FileAccessError, FormatError, LimitError, UnsupportedError, UsageError
from ...runtime.base.system_error import read_error
from ...runtime.plugin.optional_package import optional_package

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""Pillow's names of the formats that are read; EPS and others that start programs are not among them."""
SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".ico", ".jfif", ".jp2", ".jpeg", ".jpg", ".mpo", ".pgm", ".png", ".ppm", ".tga", ".tif"}
    | {".tiff", ".webp"}
)
"""Names of picture files end in one of these."""
CHANNELS = {1: "L", 3: "RGB"}
"""Pillow's modes by the number of channels."""
Picture = Any
"""A path, encoded bytes, an array of bytes [height, width] or [height, width, channels], or an image of Pillow."""


def picture_of(given: Picture, channels: int = 3) -> Image:
    """The picture as RGB, or as grey with one channel; upright as its EXIF data say, the first of an animation.

    Transparency is dropped as transformers and timm do, 16-bit channels keep their high byte.

    Raises FileAccessError for paths that cannot be read, FormatError for damaged pictures and other files, LimitError
    for pictures beyond the memory limit, UnsupportedError without Pillow, UsageError for values of other kinds.
    """
    if isinstance(given, str | os.PathLike):
        return _read(os.fspath(given), channels)
    if isinstance(given, bytes):
        return _decoded(given, None, channels)
    if isinstance(given, np.ndarray):
        return _converted(_image_of(given), channels)
    if hasattr(given, "convert") and hasattr(given, "getexif"):
        return _converted(given, channels)
    expected = "a path, bytes, a NumPy array or an image of Pillow"
    raise UsageError("E-PICTURE-KIND", None, "not a picture", expected=expected, found=type(given).__name__)


def _read(path: str, channels: int) -> Image:
    try:
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileAccessError("E-IO-READ", path, "not a regular file")
            return _decoded(file, path, channels)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise read_error(path, error) from error


def _at_once(path: str, flags: int) -> int:
    """A file descriptor, even of a pipe that nothing writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _decoded(stream: Any, path: str | None, channels: int) -> Image:
    UnidentifiedImageError = optional_package("PIL", "reading images").UnidentifiedImageError  # noqa: N806

    try:
        with opened(stream, FORMATS, "a picture") as picture:
            return _converted(picture, channels, read=True)
    except LimitError as error:
        error.file = path
        raise
    except UnidentifiedImageError as error:
        empty = stream == b"" if isinstance(stream, bytes) else os.fstat(stream.fileno()).st_size == 0
        why = "the file is empty" if empty else "not a picture of a known format"
        raise FormatError("E-PICTURE-FORMAT", path, why, hint=f"Formats: {', '.join(FORMATS)}") from error
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise FormatError("E-PICTURE-DAMAGED", path, f"the picture cannot be decoded: {reason}") from error


def _image_of(array: np.ndarray) -> Image:
    library = optional_package("PIL.Image", "an array as an image")
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise UsageError(
            "E-PICTURE-ARRAY",
            None,
            "an array of a picture has bytes [height, width] or [height, width, channels]",
            found=f"{array.dtype} {list(array.shape)}",
        )
    if not array.size:
        raise UsageError("E-PICTURE-ARRAY", None, "the picture has no pixels", found=str(list(array.shape)))
    picture: Image = library.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return picture


def _converted(picture: Image, channels: int, *, read: bool = False) -> Image:
    """Upright, in the mode of the channels; independent of the file. One that was `read` here is not copied."""
    mode = CHANNELS[channels]
    try:
        if read:
            picture.load()
        converted = picture if read and picture.mode == mode else eight_bit(picture).convert(mode)
    except ValueError as error:
        if picture.mode in ("LAB", "HSV", "YCbCr"):
            raise UnsupportedError("E-PICTURE-MODE", None, f"pictures of mode {picture.mode} are not read") from error
        raise
    return _upright(picture, converted)


ORIENTATION = 0x0112
"""The EXIF tag of the orientation of a picture."""


def _upright(picture: Image, converted: Image) -> Image:
    from PIL.Image import Transpose

    try:
        said = picture.getexif().get(ORIENTATION)
    except DAMAGE:
        said = None
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(said) if isinstance(said, int) else None
    return converted if turn is None else converted.transpose(turn)
