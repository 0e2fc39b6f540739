"""Architectures, one file per family: which weights it has under which names, and how they make a graph."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .language.model import LanguageModel

    load: Callable[..., LanguageModel]
else:

    def __getattr__(name: str) -> Any:
        if name == "load":  # opening files is the composition root's
            return importlib.import_module("..convert.modelling", __name__).load
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
