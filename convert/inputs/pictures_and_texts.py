"""Models that take pictures and texts: an argument is a picture where there is such a file, else a text."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Sequence
from pathlib import Path

from ...models.preprocess.picture import SUFFIXES
from ..pictures.picture_inputs import pictures_of
from . import pictures


def _inputs_of(given: Sequence[str]) -> list[str]:
    return [each for one in given for each in (pictures_of([one]) if _names_pictures(one) else [one])]


def _names_pictures(given: str) -> bool:
    """Whether an argument is a path or a pattern of pictures: it exists, or looks like one."""
    return os.path.lexists(given) or Path(given).suffix.lower() in SUFFIXES or bool(glob.glob(given))


def _input(given: str) -> str | Path:
    return Path(given) if _names_pictures(given) else given


KIND = dataclasses.replace(
    pictures.KIND, one="picture or text", several="pictures and texts", files=_inputs_of, input=_input
)
