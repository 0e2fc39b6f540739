"""Runs of neighbours that share a scale, for the types that models mostly come in: four codes at a time, read as 16-bit words.

A number is ``scale * code - least``, codes of the run without their zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.cuda.bits import half as of_half
from ....runtime.cuda.bits import inlined

ELEMENTS: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """How a type's runs are read; functions get the words, the word where the block starts, and the run's number in the block.

    Attributes:
        length: elements of a run.
        codes: of four neighbours, also given by number, packed as signed bytes.
        scale: of the run; least: what is subtracted, None for nothing.
    """

    length: int
    codes: Callable[[Any, int, int, int], Any]
    scale: Callable[[Any, int, int], Any]
    least: Callable[[Any, int, int], Any] | None = None


@inlined
def _four(words: Any, at: int) -> Any:
    """Four bytes, which is an integer that is not negative."""
    return np.int64(words[at]) | (np.int64(words[at + 1]) << np.int64(16))


@inlined
def _byte(words: Any, block: int, at: int) -> Any:
    return (np.int32(words[block + at // 2]) >> np.int32(8 * (at % 2))) & np.int32(255)


@inlined
def _half(words: Any, at: int) -> Any:
    return of_half(np.uint16(words[at]))


@inlined
def _first(words: Any, block: int, run: int) -> Any:
    return _half(words, block)


@inlined
def _q8_0_codes(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32(_four(words, block + 1 + 2 * four))


@inlined
def _q4_0_codes(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32((_four(words, block + 1 + 2 * (four % 4)) >> np.int64(4 * (four // 4))) & np.int64(0x0F0F0F0F))


@inlined
def _q4_0_least(words: Any, block: int, run: int) -> Any:
    return _half(words, block) * np.float32(8)


@inlined
def _q4_k_codes(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32((_four(words, block + 8 + 16 * (run // 2) + 2 * four) >> np.int64(4 * (run % 2))) & np.int64(0x0F0F0F0F))


@inlined
def _q4_k_scale(words: Any, block: int, run: int) -> Any:
    low = _byte(words, block, 4 + run % 4)
    late = (_byte(words, block, 12 + run % 4) & np.int32(15)) | ((low >> np.int32(6)) << np.int32(4))
    return _half(words, block) * np.float32(low & np.int32(63) if run < 4 else late)


@inlined
def _q4_k_least(words: Any, block: int, run: int) -> Any:
    low = _byte(words, block, 8 + run % 4)
    late = (_byte(words, block, 12 + run % 4) >> np.int32(4)) | ((low >> np.int32(6)) << np.int32(4))
    return _half(words, block + 1) * np.float32(low & np.int32(63) if run < 4 else late)


@inlined
def _q6_k_codes(words: Any, block: int, run: int, four: int) -> Any:
    side, rest = run // 8, 16 * (run % 8) + 4 * four
    low = (_four(words, block + 32 * side + (rest % 64) // 2) >> np.int64(4 * (rest // 64))) & np.int64(0x0F0F0F0F)
    high = (_four(words, block + 64 + 16 * side + (rest % 32) // 2) >> np.int64(2 * (rest // 32))) & np.int64(0x03030303)
    return np.int32(low | (high << np.int64(4)))


@inlined
def _q6_k_scale(words: Any, block: int, run: int) -> Any:
    return _half(words, block + 104) * np.float32((_byte(words, block, 192 + run) ^ np.int32(128)) - np.int32(128))


@inlined
def _q6_k_least(words: Any, block: int, run: int) -> Any:
    return _q6_k_scale(words, block, run) * np.float32(32)


RUNS = {
    "q8_0": Run(32, _q8_0_codes, _first), "q4_0": Run(32, _q4_0_codes, _first, _q4_0_least),
    "q4_k": Run(32, _q4_k_codes, _q4_k_scale, _q4_k_least), "q6_k": Run(16, _q6_k_codes, _q6_k_scale, _q6_k_least),
}
