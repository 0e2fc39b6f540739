"""Pictures in folders: each folder is a class. The interface is that of torchvision's ImageFolder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops.image.picture_file import DAMAGE, eight_bit, opened
from ...runtime.base.errors import FileAccessError, FormatError, UsageError
from ...tensors.operations.creation import made
from .dataset import Dataset

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow's names of the formats that are read."""
SUFFIXES = frozenset((".bmp", ".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp"))


class ImageFolder(Dataset[Any]):
    """Pictures below folders that are named by their classes: item i is a picture and the number of its class.

    Without `transform` a picture is an f32 tensor [channels, height, width] of values from 0 to 1.

    Args:
        root: the folder of the classes' folders.
        transform: makes something else of a picture of Pillow.
        target_transform: makes something else of the number of a class.
        size: height and width to which pictures are resized (bilinear); None leaves them as they are.
        mode: Pillow's name of the channels: RGB, or L for grey.

    Attributes:
        classes: names of the folders in alphabetical order; a class is its position there.
        samples: path and class of each picture.

    Raises FileAccessError if the folder does not exist, UsageError if it has no pictures in folders.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Image], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        size: tuple[int, int] | None = None,
        mode: str = "RGB",
    ) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileAccessError("E-DATA-FOLDER", self.root, "is not a folder")
        self.transform = transform
        self.target_transform = target_transform
        self.size = size
        self.mode = mode
        self.classes = sorted(each.name for each in self.root.iterdir() if each.is_dir())
        self.class_to_idx = {name: place for place, name in enumerate(self.classes)}
        self.samples = [
            (str(path), place)
            for name, place in self.class_to_idx.items()
            for path in sorted((self.root / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES and path.is_file()
        ]
        if not self.samples:
            raise UsageError(
                "E-DATA-FOLDER", str(self.root), "has no pictures in folders", expected="FOLDER/CLASS/PICTURE.png"
            )
        self.targets = [place for _, place in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        with open(path, "rb") as file:
            try:
                with opened(file, FORMATS, path) as picture:
                    found = eight_bit(picture).convert(self.mode)
            except DAMAGE as cause:
                why = f"is not a picture of {', '.join(FORMATS)} that can be read"
                raise FormatError("E-DATA-PICTURE", path, why) from cause
        if self.size is not None:
            from PIL import Image

            height, width = self.size
            found = found.resize((width, height), Image.Resampling.BILINEAR)
        given = made(_channels_first(found)) if self.transform is None else self.transform(found)
        return given, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self.samples)


def _channels_first(picture: Image) -> np.ndarray:
    pixels = np.asarray(picture, np.float32) / np.float32(255)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
