"""ImageDecoder: pixels of an encoded image, decoded by Pillow."""

from __future__ import annotations

import io
import struct
import warnings
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.base.errors import FormatError, LimitError, UnsupportedError
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import CHECK, Inference
from ...runtime.tensor.dtype import U8
from ..rules.output_limit import allowed

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}
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
"""What Pillow's parsers raise for streams that are not images."""


def _infer(node: Inference) -> None:
    node.set(0, U8, (None, None, CHANNELS.get(node.attributes["pixel_format"])))


@op(
    "ImageDecoder",
    since=20,
    types="u8",
    infer=_infer,
    examples=[
        case(np.frombuffer(b"P6 3 2 255\n" + bytes(range(18)), np.uint8)),
        case(np.frombuffer(b"P6 3 2 255\n" + bytes(range(0, 180, 10)), np.uint8), pixel_format="BGR"),
        case(np.frombuffer(b"P6 2 2 255\n" + bytes(range(0, 240, 20)), np.uint8), pixel_format="Grayscale"),
    ],
)
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """Pixels [height, width, channels]; an empty array if the stream is not an image. Pictures beyond the memory limit
    raise LimitError."""
    if pixel_format not in CHANNELS:
        raise FormatError(
            "E-OP-VALUE",
            None,
            f"ImageDecoder: pixel_format is {pixel_format!r}",
            expected=f"one of {', '.join(CHANNELS)}",
            hint=CHECK,
        )
    try:
        from PIL import Image, ImageFile
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            "E-OP-PILLOW", None, "ImageDecoder needs Pillow", hint="pip install candle-convert[image]"
        ) from cause
    truncated, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(encoded_stream.tobytes()), formats=FORMATS) as picture:
                allowed((picture.height, picture.width, 4), 1, "ImageDecoder: the picture")
                pixels = _pixels(picture, "L" if pixel_format == "Grayscale" else "RGB")
    except Image.DecompressionBombError as cause:
        raise LimitError(
            "E-RUN-MEMORY", None, f"ImageDecoder: {cause}", hint="Raise it with --limit memory=8GiB"
        ) from cause
    except DAMAGE:
        return np.zeros((0, 0, CHANNELS[pixel_format]), np.uint8)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = truncated
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return np.ascontiguousarray(pixels[..., ::-1] if pixel_format == "BGR" else pixels)


def _pixels(picture: Image, mode: str) -> np.ndarray:
    """All pixels; 16-bit greys keep their high byte, which Pillow would clip."""
    from PIL import Image

    if picture.mode.startswith("I"):
        picture = Image.fromarray(np.clip(np.asarray(picture) >> 8, 0, 255).astype(np.uint8))
    return np.asarray(picture.convert(mode))
