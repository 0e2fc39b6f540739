"""Architectures, one file per family: which weights it has under which names, and how they make a graph."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "load":  # opening files is the composition root's
        return importlib.import_module("..convert.modelling", __name__).load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
