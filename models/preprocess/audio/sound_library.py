"""The libraries of the extra `audio`, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from ....runtime.base.errors import UnsupportedError


def soundfile() -> Any:
    """soundfile, which decodes and writes audio files; UnsupportedError if it is missing."""
    return _imported("soundfile", "audio files need soundfile")


def soxr() -> Any:
    """soxr, which changes the rate of samples; UnsupportedError if it is missing."""
    return _imported("soxr", "audio of another rate than the model's needs soxr")


def _imported(name: str, why: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, OSError) as cause:  # soundfile raises OSError without its shared library
        hint = "pip install candle-convert[audio]"
        raise UnsupportedError("E-SOUND-LIBRARY", None, why, hint=hint) from cause
