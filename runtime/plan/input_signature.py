"""Input signatures: the dtypes, shapes and specialized values of inputs that a plan is made for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.dataclass import dataclass
from ..base.process_cache import process_cache
from ..region.region import Region
from ..region.value_specialization import MAX_SPECIALIZATIONS, specialized_inputs
from ..tensor.dtype import STRING, of_numpy
from .plan import plain


@dataclass(frozen=True)
class Signature:
    """Dtype and shape of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Specialized:
    """An input of one element, for whose value the plan is specialized."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    value: int


class Signatures:
    """The signatures of a region's feeds.

    Args:
        specialized: whether signatures include values that control flow depends on, up to `MAX_SPECIALIZATIONS`.
    """

    def __init__(self, region: Region[Any], specialized: bool) -> None:
        self._inputs = specialized_inputs(region.nodes, region.inputs) if specialized else frozenset()
        self._values: set[tuple[int, ...]] = set()

    @property
    def specialized(self) -> bool:
        """Whether signatures include values."""
        return bool(self._inputs)

    def of(self, feeds: Sequence[Any]) -> tuple[Any, ...]:
        """The signature of each feed: dtype and shape of an array, None for anything else."""
        found = tuple(map(_signature, feeds))
        return self._with_values(found, feeds) if self._inputs else found

    def copy(self) -> Signatures:
        """A copy with its own set of seen values."""
        made = copy.copy(self)
        made._values = set(self._values)
        return made

    def _with_values(self, signatures: tuple[Any, ...], feeds: Sequence[Any]) -> tuple[Any, ...]:
        found = [
            Specialized(item.dtype, item.shape, feeds[index].item())
            if index in self._inputs
            and isinstance(item, Signature)
            and item.dtype.kind in "iub"
            and feeds[index].size == 1
            else item
            for index, item in enumerate(signatures)
        ]
        values = tuple(item.value for item in found if isinstance(item, Specialized))
        if values not in self._values:
            if len(self._values) == MAX_SPECIALIZATIONS:
                self._inputs = frozenset()
                return signatures
            self._values.add(values)
        return tuple(found)


@process_cache(maxsize=4096)
def _plain(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if plain(dtype):
        return Signature(dtype, shape)
    return (STRING if dtype.kind in "OUT" else of_numpy(dtype), shape)


def _signature(feed: Any) -> Any:
    return _plain(feed.dtype, feed.shape) if isinstance(feed, np.ndarray) else None
