"""The libraries of the extra `audio`, imported when they are needed."""

from __future__ import annotations

from typing import Any

from ....runtime.plugin.optional_package import optional_package


def soundfile() -> Any:
    """soundfile, which decodes and writes audio files; UnsupportedError if it is missing."""
    return optional_package("soundfile", "reading and writing audio files")


def soxr() -> Any:
    """soxr, which changes the rate of samples; UnsupportedError if it is missing."""
    return optional_package("soxr", "audio of another rate than the model's")
