"""Host weights before upload: one array for all sessions that use the same bytes of a file, memory-mapped."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np

from ...base.process_cache import PROCESS, owned
from ...ir.graph import Graph, Value
from ...region.region import used_weights
from ...tensor.storage import Held, Mapped, Region
from ...tensor.stored_tensor import StoredTensor
from ...tensor.weight_array import Blocks, Packed, load_weight, packed

DeviceWeight: TypeAlias = np.ndarray | Blocks | Packed
"""A weight as plans of a device have it, on the host."""
MIN_MAPPED_BYTES = 1 << 16
"""Bytes of the smallest weight that is memory-mapped."""

_known: weakref.WeakValueDictionary[Hashable, Any] = owned(weakref.WeakValueDictionary(), PROCESS)
_of_memory: weakref.WeakKeyDictionary[Held, dict[Hashable, DeviceWeight]] = owned(weakref.WeakKeyDictionary(), PROCESS)


def weights_of(graph: Graph) -> dict[Value, DeviceWeight]:
    """The used weights of a graph, quantized ones as blocks; equal bytes of a file are held once per process."""
    same: dict[int, DeviceWeight] = {}
    return {
        value: same[id(tensor)] if id(tensor) in same else same.setdefault(id(tensor), host_weight(tensor))
        for value, tensor in used_weights(graph)
    }


def host_weight(tensor: StoredTensor) -> DeviceWeight:
    """The host array of a weight, shared while referenced."""
    storage = tensor.storage
    if type(storage) is Held:
        mine = _of_memory.setdefault(storage, {})
        return mine.setdefault((tensor.dtype, tensor.shape), _stored(tensor))
    if storage.key is None:
        return _stored(tensor)
    key = (storage.key, tensor.dtype, tensor.shape)
    found: DeviceWeight | None = _known.get(key)
    if found is None:
        if isinstance(storage, Region) and storage.nbytes >= MIN_MAPPED_BYTES:
            tensor = StoredTensor(tensor.dtype, tensor.shape, Mapped(storage))
        found = _known[key] = _stored(tensor)
    return found


def _stored(tensor: StoredTensor) -> DeviceWeight:
    return packed(tensor) or load_weight(tensor)
