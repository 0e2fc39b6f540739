"""Tensors recomputed on every read, so that transformed weights of large models need not be held in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..base.process_cache import owned
from .storage import Derived
from .stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

LARGE = 128 << 10
"""Bytes from which a tensor is computed again rather than held."""
KEPT = 2
"""Results that are kept for the next reading: a weight's codes are followed by its scales, and may be made of another
deferred tensor."""

Make = Callable[[], "Sequence[np.ndarray | None]"]

_results: OrderedDict[int, tuple[Make, list[StoredTensor | None]]] = owned(OrderedDict())
_lock = threading.RLock()


def tensors(make: Make) -> list[StoredTensor | None]:
    """Tensors of the arrays that `make` gives, the same on every call; large ones hold nothing but `make`."""
    return [_deferred(make, index, held) for index, held in enumerate(_made(make))]


def _deferred(make: Make, index: int, held: StoredTensor | None) -> StoredTensor | None:
    if held is None or held.nbytes < LARGE:
        return held

    def read(start: int, stop: int) -> bytes | memoryview:
        again = _made(make)[index]
        assert again is not None
        return again.storage.read(start, stop)

    return StoredTensor(held.dtype, held.shape, Derived(held.nbytes, held.storage.step, read, sequential=True))


def _made(make: Make) -> list[StoredTensor | None]:
    with _lock:
        if id(make) not in _results:
            while len(_results) >= KEPT:
                _results.popitem(last=False)
            _results[id(make)] = (make, [None if array is None else StoredTensor.of(array) for array in make()])
        return _results[id(make)][1]


def forget() -> None:
    """Let go of the results that are kept."""
    with _lock:
        _results.clear()
