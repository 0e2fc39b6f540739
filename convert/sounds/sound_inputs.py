"""Sounds of a command line: files, folders, patterns of names, and standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...models.preprocess.audio.sound import SUFFIXES
from ..console.stdio import STREAM
from ..run.input_files import files_of


def sounds_of(given: Sequence[str]) -> list[str]:
    """The paths of sounds: files as they are, the audio files of folders, and the files that patterns match; ``-`` is
    standard input.

    Raises UsageError for a folder without audio files, FileAccessError for a path or pattern that leads to nothing.
    """
    return files_of(given, SUFFIXES, "E-SOUND-NONE", "sounds", allow_stream=True)


def sound_at(path: str) -> Any:
    """The input of `opened_sound` and `samples_of`: the path, or standard input for ``-``."""
    return sys.stdin.buffer if path == STREAM else path
