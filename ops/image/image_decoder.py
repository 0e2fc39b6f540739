"""ImageDecoder: pixels of an encoded image, decoded by Pillow."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import U8
from ..rules.shape_rules import shape_error
from .picture_file import DAMAGE, eight_bit, opened

FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


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
        raise shape_error(
            "ImageDecoder", f"pixel_format is {pixel_format!r}", "E-OP-VALUE", expected=f"one of {', '.join(CHANNELS)}"
        )
    try:
        with opened(encoded_stream.tobytes(), FORMATS, "ImageDecoder") as picture:
            pixels = np.asarray(eight_bit(picture).convert("L" if pixel_format == "Grayscale" else "RGB"))
    except DAMAGE:
        return np.zeros((0, 0, CHANNELS[pixel_format]), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return np.ascontiguousarray(pixels[..., ::-1] if pixel_format == "BGR" else pixels)
