"""Models that take pictures."""

from __future__ import annotations

from typing import Any

from ..pictures.picture_inputs import pictures_of, read_preparation
from ..pictures.predict_pictures import predict_pictures
from .input_kind import InputKind

BATCH = 8
"""Pictures of which vectors are made in one run by default."""


def _read(options: dict[str, Any]) -> dict[str, Any]:
    if "preprocessor" not in options:
        return options
    others = {name: value for name, value in options.items() if name != "preprocessor"}
    return {**others, "preparation": read_preparation(options["preprocessor"])}


KIND = InputKind(
    "picture",
    "pictures",
    predict_pictures,
    pictures_of,
    BATCH,
    embed_options=("batch", "normalize", "preprocessor"),
    predict_options=("output", "preprocessor"),
    read_options=_read,
)
