"""Field layouts of ggml blocks, for byte swapping and for checking scales.

Source: the block structures of ggml-common.h, and ggml-quants.c for byte arrays that it reads and writes as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import process_cache
from ....runtime.tensor.dtype import BlockType
from ....runtime.tensor.storage import Derived, Storage
from ....runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

FIELDS: dict[str, str] = {
    "q1_0": "d:f2 16u1",
    "q2_0": "d:f2 16u1",
    "q4_0": "d:f2 16u1",
    "q4_1": "d:f2 d:f2 16u1",
    "q5_0": "d:f2 u4 16u1",
    "q5_1": "d:f2 d:f2 u4 16u1",
    "q8_0": "d:f2 32u1",
    "q8_1": "d:f2 d:f2 32u1",
    "q2_k": "80u1 d:f2 d:f2",
    "q3_k": "108u1 d:f2",
    "q4_k": "d:f2 d:f2 140u1",
    "q5_k": "d:f2 d:f2 172u1",
    "q6_k": "208u1 d:f2",
    "q8_k": "d:f4 256u1 16u2",
    "iq1_s": "d:f2 32u1 8u2",
    "iq1_m": "48u1 4u2",
    "iq2_xxs": "d:f2 64u1",
    "iq2_xs": "d:f2 32u2 8u1",
    "iq2_s": "d:f2 80u1",
    "iq3_xxs": "d:f2 64u1 8u4",
    "iq3_s": "d:f2 108u1",
    "iq4_nl": "d:f2 16u1",
    "iq4_xs": "d:f2 u2 132u1",
    "tq1_0": "52u1 d:f2",
    "tq2_0": "64u1 d:f2",
    "mxfp4": "e:u1 16u1",
    "nvfp4": "4u1 32u1",
}
"""Fields by block type: a count and a numpy type; ``d:`` marks a scale, ``e:`` an exponent for which 255 means NaN."""

NO_BYTE_ORDER = frozenset({"iq2_xxs"})
"""Types whose reference code reads the same integer as bytes and as a number, so big-endian machines have no single
layout."""


@dataclass(frozen=True)
class BadScale:
    """The first block of a tensor with a NaN or infinite scale, and the number of such blocks."""

    block: int
    count: int


@process_cache
def layout(dtype: BlockType, order: str) -> np.dtype:
    """A block as a structured numpy dtype of byte order ``<`` or ``>``; scales are named ``d0``, ``d1``, exponents
    ``e0``."""
    import numpy

    fields = []
    for number, field in enumerate(FIELDS[dtype.name].split()):
        role, _, form = field.rpartition(":")
        count = form[:-2]
        plain = form[-2:] if role != "d" else f"u{form[-1]}"
        fields.append(
            (f"{role or 'x'}{number}", order + plain, (int(count),))
            if count
            else (f"{role or 'x'}{number}", order + plain)
        )
    made: np.dtype = numpy.dtype(fields)
    assert made.itemsize == dtype.block_nbytes, dtype
    return made


def swapped_blocks(storage: Storage, dtype: BlockType) -> Storage:
    """Big-endian blocks as little-endian ones."""

    def read(start: int, stop: int) -> memoryview:
        import numpy

        blocks = numpy.frombuffer(storage.read(start, stop), layout(dtype, ">"))
        return blocks.astype(layout(dtype, "<")).view(numpy.uint8).data

    key = None if storage.key is None else (storage.key, "swapped", dtype.name)
    return Derived(storage.nbytes, dtype.block_nbytes, read, key, sequential=storage.sequential)


def bad_scales(tensor: StoredTensor) -> BadScale | None:
    """The blocks of a quantized tensor whose scale is NaN or infinite."""
    import numpy

    dtype = tensor.qtype
    assert dtype is not None
    first, count, seen = None, 0, 0
    for data in tensor.chunks():
        blocks = numpy.frombuffer(data, layout(dtype, "<"))
        bad = numpy.zeros(blocks.size, bool)
        for flags in _not_finite(blocks, dtype):
            bad |= flags
        if bad.any():
            first = seen + int(bad.argmax()) if first is None else first
            count += int(bad.sum())
        seen += blocks.size
    return None if first is None else BadScale(first, count)


def _not_finite(blocks: np.ndarray, dtype: BlockType) -> Iterator[np.ndarray]:
    import numpy

    if dtype.name == "iq1_m":
        words = blocks["x1"]
        scale = words[:, 0] >> 12 | words[:, 1] >> 8 & 0x00F0 | words[:, 2] >> 4 & 0x0F00 | words[:, 3] & 0xF000
        yield scale & 0x7C00 == 0x7C00
    for name in blocks.dtype.names or ():
        if name.startswith("d"):
            mask = {2: 0x7C00, 4: 0x7F800000}[blocks.dtype[name].itemsize]
            yield blocks[name] & numpy.uint32(mask) == mask
        elif name.startswith("e"):
            yield blocks[name] == 255
