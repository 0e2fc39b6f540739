"""Checksum kernel at memory speed: 64 interleaved chains of 32-bit words, mixed at the end.

Every step can be undone, so that any change of one word changes it; others do but for about one in four billion.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ..jit.kernel_arguments import Address
from ..jit.range_kernel import inlined, range_kernel
from .pointer import flat
from .vector import LANES, load, splat, stack_array, store

FACTOR = -1640531535
MIXER = -7046029254386353131
LENGTH = 4 * LANES


@inlined
def _stepped(chain: Any, word: Any) -> Any:
    chain = (chain ^ word) * FACTOR
    return chain ^ (chain >> 15)


@inlined
def _mixed(total: int, word: int) -> int:
    total = (total ^ word) * MIXER
    return total ^ (total >> 29)


@range_kernel(_nrt=False)
def checksum(data: Address, nbytes: int, result: Address, part: int, parts: int) -> None:
    """The checksum of `nbytes` bytes, an int64 at `result`.

    Words that do not fill all chains are mixed one by one, the last one's missing bytes being zero.
    """
    count = nbytes // 4
    words, single = flat(np.int32, data, count), flat(np.uint8, data, nbytes)
    first = second = third = fourth = splat(np.int32(1))
    whole = count // LENGTH * LENGTH
    for at in range(0, whole, LENGTH):
        first = _stepped(first, load(words, at))
        second = _stepped(second, load(words, at + LANES))
        third = _stepped(third, load(words, at + 2 * LANES))
        fourth = _stepped(fourth, load(words, at + 3 * LANES))
    sums = stack_array(np.int32, 4)
    store(sums, 0, first)
    store(sums, LANES, second)
    store(sums, 2 * LANES, third)
    store(sums, 3 * LANES, fourth)
    total = nbytes
    for i in range(LENGTH):
        total = _mixed(total, sums[i])
    for at in range(whole, count):
        total = _mixed(total, words[at])
    rest = 0
    for at in range(4 * count, nbytes):
        rest = (rest << 8) | single[at]
    flat(np.int64, result, 1)[0] = _mixed(total, rest)
