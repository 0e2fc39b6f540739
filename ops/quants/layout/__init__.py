"""How blocks are laid out: fields, packed bits and the tables that codes point into."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from ....runtime.quant import Decoder


def native(name: str) -> Callable[[], Decoder]:
    """A loader of the compiled decoder `name`; only it imports Numba."""

    def load() -> Decoder:
        decoder: Decoder = getattr(importlib.import_module(".compiled", __name__), name)
        return decoder

    return load
