"""Outputs of commands that make a file of each sound."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...runtime.base.errors import UsageError
from ..console.atomic_replace import refuse_existing
from ..console.stdio import STREAM


def output_files(given: Sequence[str], output: str, suffix: str, *, force: bool) -> Mapping[str, str]:
    """The path of the output of each input: `output` of a single one, unless that is a folder; else files in that
    folder, which is made, with the names of the inputs and the suffix.

    Raises UsageError for two inputs with the same output, UnsafeFileError for existing files unless `force`.
    """
    folder = len(given) > 1 or os.path.isdir(output) or output.endswith(os.sep)
    names = [os.path.splitext("stdin" if path == STREAM else os.path.basename(path))[0] + suffix for path in given]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError("E-OUT-TWICE", output, f"two inputs have the output {twice}", hint="Convert them separately")
    paths = {path: os.path.join(output, name) if folder else output for path, name in zip(given, names, strict=True)}
    for path in paths.values():
        refuse_existing(path, force=force)
    if folder:
        os.makedirs(output, exist_ok=True)
    return paths
