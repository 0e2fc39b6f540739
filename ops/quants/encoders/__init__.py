"""Compiled encoders of block types; these modules import Numba, so they are only loaded to encode."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from ....runtime.quant import Encoder


def compiled(module: str, name: str) -> Callable[[], Encoder]:
    """A loader of the encoder `name` that the module `module` of this package defines."""

    def load() -> Encoder:
        encoder: Encoder = getattr(importlib.import_module(f".{module}", __name__), name)
        return encoder

    return load
