"""Casts that compiled code does, against NumPy's and ml_dtypes'."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.jit.code_cache import CachedKernel
from candle_convert.runtime.simd import half_cast_kernel as halves
from candle_convert.runtime.tensor.cast import COMPILED_FROM, convert
from candle_convert.runtime.tensor.dtype import BF16, F16, F32

CAST = CachedKernel(halves.__name__, halves.cast.name)
KINDS = {F32: np.dtype(np.float32), F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16)}
PAIRS = list(itertools.permutations(KINDS, 2))


def patterns(kind):
    """All halves; of float32 those around every half and bfloat16, halfway between them, and random ones."""
    every = np.arange(1 << 16, dtype=np.uint32)
    if kind is not F32:
        return every.astype(np.uint16).view(KINDS[kind])
    halves = every.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    middles = np.concatenate([halves, halves + 0x1000, every << 16, (every << 16) + 0x8000])
    random = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    return np.concatenate([middles - 1, middles, middles + 1, random]).view(np.float32)


def same(found, expected):
    """Equal bits."""
    integers = f"u{found.itemsize}"
    assert found.dtype == expected.dtype
    assert (found.view(integers) == expected.view(integers)).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda kind: kind.name)
def test_every_value_is_rounded_as_numpy_does(source, target):
    values = patterns(source)
    found = np.empty(values.shape, KINDS[target])
    codes = [list(KINDS).index(kind) for kind in (source, target)]
    CAST(values.ctypes.data, found.ctypes.data, values.size, *codes)
    same(found, values.astype(np.float32).astype(KINDS[target]))
    for count in (1, 15, 16, 17):
        part = np.full(count + 1, 7, KINDS[target])
        CAST(values.ctypes.data, part.ctypes.data, count, *codes)
        same(part[:count], found[:count])
        assert part[count] == 7


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("count", [COMPILED_FROM - 1, COMPILED_FROM, COMPILED_FROM + 1])
def test_large_arrays_are_converted_the_same(source, target, count):
    values = np.linspace(-9, 9, count, dtype=np.float32).astype(KINDS[source])
    found = convert(values, target)
    same(found, values.astype(np.float32).astype(KINDS[target]))
    assert found.flags.writeable
