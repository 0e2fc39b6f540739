"""Pictures from files, bytes and arrays: modes, orientation, and damaged or hostile files."""

import io
import os
import struct
import zlib

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import FileAccessError, FormatError, LimitError, UsageError
from candle_convert.models.preprocess.picture import picture_of
from candle_convert.tests.builders.pictures import made
from PIL import Image, ImageOps

PIXELS = made(37, 41, 2)


def encoded(kind, image=None, **options):
    stream = io.BytesIO()
    (Image.fromarray(PIXELS) if image is None else image).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP"])
def test_formats(kind, tmp_path):
    data = encoded(kind)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    path = tmp_path / "picture"
    path.write_bytes(data)
    for given in (data, path, str(path)):
        assert (np.asarray(picture_of(given)) == expected).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_modes(mode):
    data = encoded("TIFF" if mode in ("CMYK", "YCbCr") else "PNG", Image.fromarray(PIXELS).convert(mode))
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert (np.asarray(picture_of(data)) == expected).all()
    assert picture_of(data, channels=1).mode == "L"


def test_sixteen_bits_keep_the_high_byte():
    deep = PIXELS[:, :, 0].astype(np.uint16) << 8 | 0x77
    for data in (encoded("PNG", Image.fromarray(deep)), encoded("TIFF", Image.fromarray(deep))):
        assert (np.asarray(picture_of(data, channels=1)) == PIXELS[:, :, 0]).all()
    unit = encoded("TIFF", Image.fromarray(PIXELS[:, :, 0].astype(np.float32) / 255))
    assert (np.asarray(picture_of(unit, channels=1)) == PIXELS[:, :, 0]).all()


@pytest.mark.parametrize("orientation", range(10))
def test_orientation(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded("JPEG", exif=exif, quality=95)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert (np.asarray(picture_of(data)) == np.asarray(expected)).all()


def test_malformed_orientation_leaves_the_picture():
    data = encoded("JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert picture_of(data).size == (41, 37)


def test_first_picture_of_an_animation():
    frames = [Image.fromarray(made(20, 30, seed)) for seed in range(3)]
    data = encoded("GIF", frames[0], save_all=True, append_images=frames[1:])
    assert (np.asarray(picture_of(data)) == np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))).all()


def test_arrays():
    assert (np.asarray(picture_of(PIXELS)) == PIXELS).all()
    assert (np.asarray(picture_of(PIXELS[:, :, :1])) == PIXELS[:, :, :1]).all()
    assert (np.asarray(picture_of(Image.fromarray(PIXELS).convert("P"))) != 0).any()
    for given in (PIXELS.astype(np.float32), PIXELS[None], PIXELS[:0], np.zeros((3, 4, 2), np.uint8), 5, None):
        with pytest.raises(UsageError):
            picture_of(given)


def test_truncated_pictures():
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "TIFF"):
        data = encoded(kind)
        for length in (len(data) // 2, len(data) - len(data) // 8):
            with pytest.raises(FormatError) as caught:
                picture_of(data[:length])
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"no picture at all", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nsystemdict\n", "not a picture"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "picture"),
    ],
)
def test_files_that_are_not_pictures(data, why, tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(data)
    for given in (data, path):
        with pytest.raises(FormatError, match=why):
            picture_of(given)


def test_paths_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "missing.png"):
        with pytest.raises(FileAccessError):
            picture_of(path)


def _png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(4000))) + chunk(b"IEND", b"")
    )


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(cc.Error, match=f"{name}: not a regular file"):
            picture_of(tmp_path / name)


def packed(format, width, height, color=(0, 0, 0)):
    """A picture of one color, which takes next to nothing."""
    made = io.BytesIO()
    Image.new("RGB", (width, height), color).save(made, format)
    return made.getvalue()


@pytest.mark.parametrize("format", ["WEBP", "PNG"])
def test_many_pixels_in_few_bytes(format):
    """9,000 x 9,000 pixels take 1.3 GB as WebP, of a file of 144 KB."""
    data = packed(format, 9_000, 9_000)
    with pytest.raises(LimitError) as caught:
        picture_of(data)
    assert caught.value.code == "E-LIMIT-RATIO"
    assert f"9,000 x 9,000 pixels is packed into {len(data):,} bytes" in str(caught.value)
    with cc.limits(zip_ratio=10_000, memory="200MB"), pytest.raises(LimitError) as caught:
        picture_of(data)
    assert caught.value.code == "E-RUN-MEMORY"


def test_pictures_of_cameras_and_screens_are_read():
    for format, width, height in (("JPEG", 8_000, 6_000), ("PNG", 3_840, 2_160), ("WEBP", 3_840, 2_160)):
        assert picture_of(packed(format, width, height)).size == (width, height)


def test_decompression_bombs():
    for size in ((60000, 60000), (30000, 30000), (1 << 30, 1)):
        with pytest.raises(LimitError):
            picture_of(_png(*size))
    with pytest.raises(LimitError), cc.limits(memory="1KiB"):
        picture_of(encoded("PNG"))
