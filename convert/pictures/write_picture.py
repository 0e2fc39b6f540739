"""Drawn pictures are written: PNG, JPEG and WebP by the suffix, with the recipe in the metadata that tools read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...models.pipelines.diffusion.recipe import KEY
from ...runtime.base.errors import UsageError
from ..console.atomic_replace import replacing
from ..console.stdio import STREAM

if TYPE_CHECKING:
    from PIL.Image import Image

WRITTEN = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Pillow's names of formats by suffix."""
USER_COMMENT = 0x9286
"""The tag of EXIF for texts about a picture ..."""
EXIF = 0x8769
"""... in the directory of this tag."""
UNICODE = b"UNICODE\0"
"""Prefix of such a text in UTF-16."""


def check_picture_suffix(path: str) -> None:
    """UsageError for names of files that are not written; before long work. ``-`` is PNG on standard output."""
    suffix = Path(path).suffix.lower()
    if path != STREAM and suffix not in WRITTEN:
        expected = ", ".join(WRITTEN)
        raise UsageError(
            "E-DRAW-SUFFIX", path, "pictures are not written to such files", expected=expected, found=suffix
        )


def numbered_paths(path: str, count: int) -> list[str]:
    """The paths of several pictures: ``fox-1.png``, ``fox-2.png`` ...; the path itself for one."""
    if count == 1:
        return [path]
    if path == STREAM:
        raise UsageError(
            "E-DRAW-SUFFIX", None, "several pictures do not fit standard output", hint="Name a file with -o"
        )
    stem, suffix = os.path.splitext(path)
    return [f"{stem}-{number}{suffix}" for number in range(1, count + 1)]


def write_picture(path: str, picture: Image, recipe: str, *, force: bool) -> None:
    """Write a picture with its recipe: the text chunk ``parameters`` of PNG, the user comment of EXIF in others."""
    kind = "PNG" if path == STREAM else WRITTEN[Path(path).suffix.lower()]
    with replacing(path, force=force) as file:
        if kind == "PNG":
            from PIL.PngImagePlugin import PngInfo

            info = PngInfo()
            info.add_text(KEY, recipe)
            picture.save(file, kind, pnginfo=info)
        else:
            exif = picture.getexif()
            exif.get_ifd(EXIF)[USER_COMMENT] = UNICODE + recipe.encode("utf-16-be")
            picture.save(file, kind, quality=95, exif=exif)
