"""Scaled runs for dot4 products: neighbours that share a scale, read as words of four int8 codes.

An element is ``scale * code - least``. Codes are signed bytes, after subtracting a zero point. Layouts:
ops/quants/regular.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.cuda.device.mma import byte_permute, load_16_bytes
from ....runtime.cuda.element.bits import from_bits, inlined
from ....runtime.cuda.element.bits import half as of_half
from ....runtime.cuda.element.bits import less as _less
from ..layout.value_tables import E2M1, IQ4_NL


@dataclass(frozen=True)
class Run:
    """Reader of a type's runs; functions get the words, the index of the block's first word, and the run's number in
    the block.

    Attributes:
        length: elements of a run.
        unit: bytes of a word.
        codes: of four neighbours, also given by number, packed as signed bytes.
        scale: of the run; least: what is subtracted, None for nothing.
        sixteen: codes of sixteen neighbours, by number, in one load; None where blocks do not lie at multiples of 16
            bytes.
    """

    length: int
    unit: int
    codes: Callable[[Any, int, int, int], Any]
    scale: Callable[[Any, int, int], Any]
    least: Callable[[Any, int, int], Any] | None = None
    sixteen: Callable[[Any, int, int, int], Any] | None = None


@inlined
def _two(words: Any, at: int) -> Any:
    """Four bytes as an integer that is not negative: from two words of 16 bits."""
    return np.int64(words[at]) | (np.int64(words[at + 1]) << np.int64(16))


@inlined
def _one(words: Any, at: int) -> Any:
    """The same from a word of 32 bits."""
    return np.int64(words[at]) & np.int64(0xFFFFFFFF)


@inlined
def _byte(words: Any, block: int, at: int) -> Any:
    """A byte of words of 16 bits."""
    return (np.int32(words[block + at // 2]) >> np.int32(8 * (at % 2))) & np.int32(255)


@inlined
def _byte_of(words: Any, block: int, at: int) -> Any:
    """A byte of words of 32 bits."""
    return np.int32((np.int64(words[block + at // 4]) >> np.int64(8 * (at % 4))) & np.int64(255))


@inlined
def _first(words: Any, block: int, run: int) -> Any:
    """The half at the start of a block of words of 16 bits."""
    return of_half(np.uint16(words[block]))


@inlined
def _low(words: Any, at: int) -> Any:
    """The half in the lower part of a word of 32 bits."""
    return of_half(np.uint16(np.int64(words[at]) & np.int64(0xFFFF)))


@inlined
def _high(words: Any, at: int) -> Any:
    """The half in its upper part."""
    return of_half(np.uint16((np.int64(words[at]) >> np.int64(16)) & np.int64(0xFFFF)))


@inlined
def _of_block(words: Any, block: int, run: int) -> Any:
    return _low(words, block)


@inlined
def _minus_second(words: Any, block: int, run: int) -> Any:
    return -_high(words, block)


@inlined
def _spread(bits: Any) -> Any:
    """Four bits, each the lowest of a byte."""
    return ((bits & np.int64(15)) * np.int64(0x00204081)) & np.int64(0x01010101)


@inlined
def _nibbles(packed: Any, side: int) -> Any:
    """The lower or the upper four bits of each byte."""
    return (packed >> np.int64(4 * side)) & np.int64(0x0F0F0F0F)


def _looked_up(values: Any) -> Callable[[Any], Any]:
    """Four of sixteen signed bytes, by four codes."""
    words = [int(word) for word in np.asarray(values, np.int8).view(np.int32)]
    first, second, third, fourth = (np.int32(word) for word in words)

    @inlined
    def found(codes: Any) -> Any:
        two = (codes | (codes >> np.int64(4))) & np.int64(0x00FF00FF)
        chosen = np.int32((two | (two >> np.int64(8))) & np.int64(0x7777))
        low, high = np.int64(byte_permute(first, second, chosen)), np.int64(byte_permute(third, fourth, chosen))
        upper = ((codes >> np.int64(3)) & np.int64(0x01010101)) * np.int64(255)
        return np.int32(low ^ ((low ^ high) & upper))

    return found


_iq4, _fp4 = _looked_up(IQ4_NL), _looked_up(E2M1)


@inlined
def _q8_0(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32(_two(words, block + 1 + 2 * four))


@inlined
def _q4_0(words: Any, block: int, run: int, four: int) -> Any:
    return _less(_nibbles(_two(words, block + 1 + 2 * (four % 4)), four // 4), 8)


@inlined
def _q4_1(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32(_nibbles(_one(words, block + 1 + four % 4), four // 4))


@inlined
def _q5_0(words: Any, block: int, run: int, four: int) -> Any:
    low = _nibbles(_two(words, block + 3 + 2 * (four % 4)), four // 4)
    return _less(low | (_spread(_two(words, block + 1) >> np.int64(4 * four)) << np.int64(4)), 16)


@inlined
def _q5_1(words: Any, block: int, run: int, four: int) -> Any:
    low = _nibbles(_one(words, block + 2 + four % 4), four // 4)
    return np.int32(low | (_spread(_one(words, block + 1) >> np.int64(4 * four)) << np.int64(4)))


@inlined
def _q2_k(words: Any, block: int, run: int, four: int) -> Any:
    packed = _one(words, block + 4 + 8 * (run // 8) + 4 * (run % 2) + four)
    return np.int32((packed >> np.int64(2 * (run % 8 // 2))) & np.int64(0x03030303))


@inlined
def _q2_k_scale(words: Any, block: int, run: int) -> Any:
    return _low(words, block + 20) * np.float32(_byte_of(words, block, run) & np.int32(15))


@inlined
def _q2_k_least(words: Any, block: int, run: int) -> Any:
    return _high(words, block + 20) * np.float32(_byte_of(words, block, run) >> np.int32(4))


@inlined
def _q3_k(words: Any, block: int, run: int, four: int) -> Any:
    packed = _two(words, block + 16 + 16 * (run // 8) + 8 * (run % 2) + 2 * four)
    low = (packed >> np.int64(2 * (run % 8 // 2))) & np.int64(0x03030303)
    high = (_two(words, block + 8 * (run % 2) + 2 * four) >> np.int64(run // 2)) & np.int64(0x01010101)
    return _less(low | (high << np.int64(2)), 4)


@inlined
def _q3_k_scale(words: Any, block: int, run: int) -> Any:
    low = (_byte(words, block, 96 + run % 8) >> np.int32(4 * (run // 8))) & np.int32(15)
    high = (_byte(words, block, 104 + run % 4) >> np.int32(2 * (run // 4))) & np.int32(3)
    return of_half(np.uint16(words[block + 54])) * np.float32((low | (high << np.int32(4))) - np.int32(32))


@inlined
def _q4_k(words: Any, block: int, run: int, four: int) -> Any:
    return np.int32(_nibbles(_one(words, block + 4 + 8 * (run // 2) + four), run % 2))


@inlined
def _q4_k_sixteen(words: Any, block: int, run: int, side: int) -> Any:
    w0, w1, w2, w3 = load_16_bytes(words, block + 4 + 8 * (run // 2) + 4 * side)
    half = run % 2
    return (
        np.int32(_nibbles(np.int64(w0), half)),
        np.int32(_nibbles(np.int64(w1), half)),
        np.int32(_nibbles(np.int64(w2), half)),
        np.int32(_nibbles(np.int64(w3), half)),
    )


@inlined
def _six_bits(words: Any, block: int, run: int, side: int) -> Any:
    """The scale (`side` 0) or the minimum (1) of one of eight groups in Q4_K's and Q5_K's twelve bytes."""
    low = _byte_of(words, block, 4 + 4 * side + run % 4)
    late = ((_byte_of(words, block, 12 + run % 4) >> np.int32(4 * side)) & np.int32(15)) | (
        (low >> np.int32(6)) << np.int32(4)
    )
    return np.float32(low & np.int32(63) if run < 4 else late)


@inlined
def _q4_k_scale(words: Any, block: int, run: int) -> Any:
    return _low(words, block) * _six_bits(words, block, run, 0)


@inlined
def _q4_k_least(words: Any, block: int, run: int) -> Any:
    return _high(words, block) * _six_bits(words, block, run, 1)


@inlined
def _fifth(packed: Any, run: int) -> Any:
    return ((packed >> np.int64(run)) & np.int64(0x01010101)) << np.int64(4)


@inlined
def _q5_k(words: Any, block: int, run: int, four: int) -> Any:
    low = _nibbles(_one(words, block + 12 + 8 * (run // 2) + four), run % 2)
    return np.int32(low | _fifth(_one(words, block + 4 + four), run))


@inlined
def _q5_k_sixteen(words: Any, block: int, run: int, side: int) -> Any:
    w0, w1, w2, w3 = load_16_bytes(words, block + 12 + 8 * (run // 2) + 4 * side)
    f0, f1, f2, f3 = load_16_bytes(words, block + 4 + 4 * side)
    half = run % 2
    return (
        np.int32(_nibbles(np.int64(w0), half) | _fifth(np.int64(f0), run)),
        np.int32(_nibbles(np.int64(w1), half) | _fifth(np.int64(f1), run)),
        np.int32(_nibbles(np.int64(w2), half) | _fifth(np.int64(f2), run)),
        np.int32(_nibbles(np.int64(w3), half) | _fifth(np.int64(f3), run)),
    )


@inlined
def _q6_k(words: Any, block: int, run: int, four: int) -> Any:
    side, rest = run // 8, 16 * (run % 8) + 4 * four
    low = _nibbles(_two(words, block + 32 * side + (rest % 64) // 2), rest // 64)
    high = (_two(words, block + 64 + 16 * side + (rest % 32) // 2) >> np.int64(2 * (rest // 32))) & np.int64(0x03030303)
    return _less(low | (high << np.int64(4)), 32)


@inlined
def _q6_k_scale(words: Any, block: int, run: int) -> Any:
    return of_half(np.uint16(words[block + 104])) * np.float32(
        (_byte(words, block, 192 + run) ^ np.int32(128)) - np.int32(128)
    )


@inlined
def _iq4_nl(words: Any, block: int, run: int, four: int) -> Any:
    return _iq4(_nibbles(_two(words, block + 1 + 2 * (four % 4)), four // 4))


@inlined
def _iq4_xs(words: Any, block: int, run: int, four: int) -> Any:
    return _iq4(_nibbles(_one(words, block + 2 + 4 * run + four % 4), four // 4))


@inlined
def _iq4_xs_scale(words: Any, block: int, run: int) -> Any:
    low = (_byte_of(words, block, 4 + run // 2) >> np.int32(4 * (run % 2))) & np.int32(15)
    high = np.int32((np.int64(words[block]) >> np.int64(16 + 2 * run)) & np.int64(3))
    return _low(words, block) * np.float32((low | (high << np.int32(4))) - np.int32(32))


@inlined
def _mxfp4(words: Any, block: int, run: int, four: int) -> Any:
    at = block + 1 + 4 * (four % 4)
    packed = np.int64(words[at]) | (np.int64(words[at + 1]) << np.int64(8)) | (np.int64(words[at + 2]) << np.int64(16))
    return _fp4(_nibbles(packed | (np.int64(words[at + 3]) << np.int64(24)), four // 4))


@inlined
def _mxfp4_scale(words: Any, block: int, run: int) -> Any:
    """``2 ** (e - 128)``, whose two lowest exponents are below the normal numbers."""
    exponent = np.int32(words[block])
    return from_bits(np.int32(0x200000 << exponent if exponent < 2 else (exponent - np.int32(1)) << np.int32(23)))


RUNS = {
    "q8_0": Run(32, 2, _q8_0, _first),
    "q4_0": Run(32, 2, _q4_0, _first),
    "q4_1": Run(32, 4, _q4_1, _of_block, _minus_second),
    "q5_0": Run(32, 2, _q5_0, _first),
    "q5_1": Run(32, 4, _q5_1, _of_block, _minus_second),
    "q2_k": Run(16, 4, _q2_k, _q2_k_scale, _q2_k_least),
    "q3_k": Run(16, 2, _q3_k, _q3_k_scale),
    "q4_k": Run(32, 4, _q4_k, _q4_k_scale, _q4_k_least, _q4_k_sixteen),
    "q5_k": Run(32, 4, _q5_k, _q4_k_scale, _q4_k_least, _q5_k_sixteen),
    "q6_k": Run(16, 2, _q6_k, _q6_k_scale),
    "iq4_nl": Run(32, 2, _iq4_nl, _first),
    "iq4_xs": Run(32, 4, _iq4_xs, _iq4_xs_scale),
    "mxfp4": Run(32, 1, _mxfp4, _mxfp4_scale),
}
