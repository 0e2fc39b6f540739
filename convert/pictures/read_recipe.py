"""Recipes are read: from the text chunk of PNG files in which picture tools keep them, or from files of text."""

from __future__ import annotations

from ...models.pipelines.diffusion.recipe import KEY, Recipe, read_recipe
from ...runtime.base.errors import FormatError
from ...runtime.base.system_error import read_error

MOST = 2**20
"""Bytes of a recipe that is a file of its own."""
PNG = b"\x89PNG"


def recipe_of(path: str) -> Recipe:
    """The recipe in a file. FileAccessError for a file that cannot be read, FormatError for one without a recipe."""
    try:
        with open(path, "rb") as file:
            start = file.read(MOST)
    except OSError as error:
        raise read_error(path, error, "E-IO-OPEN") from error
    if start.startswith(PNG):
        from PIL import Image

        try:
            with Image.open(path) as picture:
                text = picture.info.get(KEY)
        except (Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
            raise FormatError("E-DRAW-RECIPE", path, "the picture cannot be read") from error
    else:
        text = start.decode("utf-8", "replace")
    if not isinstance(text, str):
        hint = "Other tools may have removed it; pass -p, --seed and the rest"
        raise FormatError("E-DRAW-RECIPE", path, f"the picture has no text chunk {KEY!r}", hint=hint)
    return read_recipe(text)
