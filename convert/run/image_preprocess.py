"""Images as inputs of a network: read, resized, cropped and normalized."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.system_error import read_error
from ...runtime.ir.graph import Value
from ...runtime.plugin.optional_package import optional_package

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = frozenset({".bmp", ".jpg", ".jpeg", ".jp2", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class Look:
    """Preparation of pictures.

    Attributes:
        size: height and width that the network takes; None for those of its input.
        resize: length of the shorter side before the middle is cut out; None resizes to `size` without regard to
            proportions.
        mean, std: of each channel (or one for all), in the scale where white is 1.
        order: ``rgb`` or ``bgr``.
        layout: ``nchw``, ``nhwc``, or None to find it by the input's shape.
    """

    size: tuple[int, int] | None = None
    resize: int | None = None
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    order: str = "rgb"
    layout: str | None = None


def image_files(folder: Path, classes: Sequence[str] | None = None) -> list[tuple[Path, int]]:
    """Pictures in a folder for each class, with the class's number: its index in `classes`, or among the sorted names
    of the folders."""
    names = sorted(each.name for each in folder.iterdir() if each.is_dir())
    numbers = {name: number for number, name in enumerate(classes or names)}
    unknown = [name for name in names if name not in numbers]
    if unknown:
        why = f"has a folder {unknown[0]!r} that is not a class"
        raise UsageError("E-EVAL-CLASSES", str(folder), why, hint="One name per line in --classes FILE")
    return [
        (path, numbers[name])
        for name in names
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in SUFFIXES
    ]


def pictures_below(folder: Path) -> list[Path]:
    """Pictures in a folder and in the folders of it, in the order of their names."""
    places = [folder, *sorted(each for each in folder.iterdir() if each.is_dir())]
    return [path for place in places for path in sorted(place.iterdir()) if path.suffix.lower() in SUFFIXES]


class Camera:
    """Makes arrays of pictures for one input of a network."""

    def __init__(self, value: Value, look: Look) -> None:
        shape = value.shape or ()
        self.name = value.name
        self.dtype = "uint8" if value.dtype is not None and value.dtype.name == "u8" else "float32"
        if len(shape) != 4:
            why = f"input {value.name!r} does not take images"
            raise UsageError("E-EVAL-INPUT", None, why, expected="4 dimensions", found=len(shape))
        self.layout = look.layout or ("nhwc" if shape[3] in (1, 3) and shape[1] not in (1, 3) else "nchw")
        height, width, channels = (shape[index] for index in ((1, 2, 3) if self.layout == "nhwc" else (2, 3, 1)))
        self.grey = channels == 1
        if look.size is not None:
            self.size = look.size
        elif isinstance(height, int) and isinstance(width, int) and min(height, width) > 0:
            self.size = (height, width)
        else:
            why = f"the model does not state the size of its input {value.name!r}"
            raise UsageError("E-EVAL-SIZE", None, why, hint="Pass it: --size 224x224")
        self.look = look

    def shot(self, path: Path) -> np.ndarray:
        """One picture, without the axis of samples."""
        import numpy

        Image = optional_package("PIL.Image", "reading images")  # noqa: N806
        picture = Image.fromarray(_pixels(path, self.grey))
        height, width = self.size
        if self.look.resize is not None:
            scale = self.look.resize / min(picture.size)
            wanted = [max(1, round(side * scale)) for side in picture.size]
            picture = picture.resize((wanted[0], wanted[1]), Image.Resampling.BILINEAR)
            left, upper = (picture.width - width) // 2, (picture.height - height) // 2
            picture = picture.crop((left, upper, left + width, upper + height))
        else:
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        pixels = numpy.asarray(picture).reshape(height, width, -1)
        if self.look.order == "bgr":
            pixels = pixels[:, :, ::-1]
        if self.dtype == "float32":
            pixels = (pixels.astype(numpy.float32) / 255 - numpy.array(self.look.mean, numpy.float32)) / numpy.array(
                self.look.std, numpy.float32
            )
        return numpy.ascontiguousarray(pixels if self.layout == "nhwc" else pixels.transpose(2, 0, 1))

    def shots(self, paths: Sequence[Path]) -> np.ndarray:
        """Several pictures."""
        import numpy

        return numpy.stack([self.shot(path) for path in paths])


def _pixels(path: Path, grey: bool) -> np.ndarray:
    import numpy

    from ...ops.image.image_decoder import image_decoder

    try:
        stream = numpy.fromfile(path, numpy.uint8)
    except OSError as error:
        raise read_error(path, error) from error
    assert image_decoder.compute is not None
    pixels: np.ndarray = image_decoder.compute(stream, pixel_format="Grayscale" if grey else "RGB")
    if not pixels.size:
        raise FormatError("E-EVAL-PICTURE", str(path), "is not a readable image", hint="Remove it from the folder")
    return pixels[:, :, 0] if grey else pixels


def batches(pictures: Sequence[tuple[Path, int]], count: int) -> Iterator[Sequence[tuple[Path, int]]]:
    """Slices of `count` pictures."""
    return (pictures[start : start + count] for start in range(0, len(pictures), count))
