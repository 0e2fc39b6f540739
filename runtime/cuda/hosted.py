"""Weights on the host on their way to a device: one array for all sessions that use the same bytes of a file, which is mapped and not copied."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

import numpy as np

from ..blocks import Blocks, Packed, held, packed
from ..storage import Held, Mapped, Region
from ..tensor import Tensor

SMALLEST = 1 << 16
"""Bytes of the smallest weight that is mapped."""

_known: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_of_memory: weakref.WeakKeyDictionary[Held, dict[Hashable, np.ndarray | Blocks | Packed]] = weakref.WeakKeyDictionary()


def once(tensor: Tensor) -> np.ndarray | Blocks | Packed:
    """What a run holds of a weight; the same object while anybody has it."""
    storage = tensor.storage
    if type(storage) is Held:
        mine = _of_memory.setdefault(storage, {})
        return mine.setdefault((tensor.dtype, tensor.shape), _stored(tensor))
    if storage.key is None:
        return _stored(tensor)
    key = (storage.key, tensor.dtype, tensor.shape)
    found: np.ndarray | Blocks | Packed | None = _known.get(key)
    if found is None:
        if isinstance(storage, Region) and storage.nbytes >= SMALLEST:
            tensor = Tensor(tensor.dtype, tensor.shape, Mapped(storage))
        found = _known[key] = _stored(tensor)
    return found


def _stored(tensor: Tensor) -> np.ndarray | Blocks | Packed:
    return packed(tensor) or held(tensor)
