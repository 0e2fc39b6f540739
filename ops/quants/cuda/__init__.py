"""Quantized elements on the device: for each type, the number that stands at a place of a block, decoded by the thread
that asks for it.

A module defines ``ELEMENTS``: by the name of a type, a function ``element(blocks, at, index, table)`` of the bytes, the
byte where the block starts, the element's index in the block, and the type's table. Types with a layout have
theirs from `layout_elements`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.plugin import discovery

NOTHING = np.zeros(1, np.int8)


@dataclass(frozen=True)
class Element:
    """How an element of a type is decoded.

    Attributes:
        function: for kernels and the simulator.
        table: gives int8 values that codes point to.
    """

    function: Callable[[Any, int, int, Any], Any]
    table: Callable[[], np.ndarray] = lambda: NOTHING


@functools.cache
def elements() -> dict[str, Element]:
    """By the names of the block types."""
    return {name: made for module in discovery.below(__name__, "ELEMENTS").all() for name, made in module.items()}


@functools.cache
def table_of(name: str) -> np.ndarray:
    """The table of a type, the same array for all who ask."""
    return np.ascontiguousarray(elements()[name].table().reshape(-1))


@functools.cache
def digest() -> str:
    """Of the sources of block types, which kernels made of them depend on."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    return hashlib.sha256(sources).hexdigest()[:16]
