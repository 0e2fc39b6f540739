"""Device decoders of block types: one element of a block per call, decoded by the thread that needs it.

A module defines ``ELEMENTS``: by type name, a function ``element(blocks, at, index, table)`` of the bytes, the offset
of the block, the index of the element in the block, and the type's table. Types with a layout are decoded by
`layout_elements`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import FILES, process_cache
from ....runtime.plugin import discovery

NOTHING = np.zeros(1, np.int8)


@dataclass(frozen=True)
class Element:
    """The device decoder of a block type.

    Attributes:
        function: for kernels and the simulator.
        table: returns the int8 values that codes index.
    """

    function: Callable[[Any, int, int, Any], Any]
    table: Callable[[], np.ndarray] = lambda: NOTHING


@process_cache(kept=FILES)
def elements() -> dict[str, Element]:
    """Functions by the names of block types."""
    return {name: made for module in discovery.below(__name__, "ELEMENTS").all() for name, made in module.items()}


@process_cache(kept=FILES)
def table_of(name: str) -> np.ndarray:
    """The table of a type, cached."""
    return np.ascontiguousarray(elements()[name].table().reshape(-1))


@process_cache(kept=FILES)
def digest() -> str:
    """Digest of the block types' sources, on which generated kernels depend."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    return hashlib.sha256(sources).hexdigest()[:16]
