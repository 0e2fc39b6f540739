"""Winograd's F(4 x 4, 3 x 3) and F(2 x 2, 3 x 3): squares of inputs and results transformed, sixteen channels at a time.

A result of 16 takes 36 products instead of 144, one of 4 takes 16 instead of 36. Rounding errors are about those of the sum; what is infinite or
NaN reaches all results of its squares. Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks".
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner
from ...runtime.record import dataclass
from ...runtime.simd import LANES, select, splat
from ..math.lane_kernel import load_single, store_single
from ..math.tile_kernel import PANEL

NEAR, FAR = 2 / 3, 3 / 2
"""The polynomials of 4 x 4 are known at 0, at these two numbers and their negatives, and at infinity. Errors are a third of those with 1 and 2."""
NEAR_2, FAR_2, BOTH = (np.float32(number) for number in (NEAR**2, FAR**2, NEAR**2 + FAR**2))
NEAR_1, NEAR_3, FAR_1, FAR_3 = (np.float32(number) for number in (NEAR, NEAR**3, FAR, FAR**3))
VECTOR = 4 * LANES
"""Bytes of a vector."""
COLUMNS = 512
"""Columns that are multiplied together: they stay in the cache, and BLAS starts no threads for so few, which would wait for each other."""


def _at(point: float, other: float) -> list[float]:
    """A row of what kernels are multiplied with."""
    factor = 2 * point**2 * (point**2 - other**2)
    return [1 / factor, point / factor, point**2 / factor]


NEAR_SIDES, FAR_SIDES = (tuple(np.float32(number) for number in _at(*pair)) for pair in ((NEAR, FAR), (FAR, NEAR)))


@inner
def _forth_4(source: Any, step: Any, target: Any, apart: Any) -> None:
    """Six vectors `step` bytes apart, transformed, to places `apart` bytes apart."""
    near, far, both = splat(NEAR_2), splat(FAR_2), splat(BOTH)
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    inner_even, inner_odd = e - c * far, (d - b * far) * splat(NEAR_1)
    outer_even, outer_odd = e - c * near, (d - b * near) * splat(FAR_1)
    store_single(target, a - c * both + e)
    store_single(target + apart, inner_even + inner_odd)
    store_single(target + 2 * apart, inner_even - inner_odd)
    store_single(target + 3 * apart, outer_even + outer_odd)
    store_single(target + 4 * apart, outer_even - outer_odd)
    store_single(target + 5 * apart, b - d * both + f)


@inner
def _back_4(source: Any, step: Any) -> Any:
    """Four vectors of six."""
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    total, gap, far_total, far_gap = b + c, b - c, d + e, d - e
    first = gap * splat(NEAR_1) + far_gap * splat(FAR_1)
    second = total * splat(NEAR_2) + far_total * splat(FAR_2)
    third = gap * splat(NEAR_3) + far_gap * splat(FAR_3) + f
    return a + total + far_total, first, second, third


@inner
def _put_4(vectors: Any, target: Any, apart: Any) -> None:
    store_single(target, vectors[0])
    store_single(target + apart, vectors[1])
    store_single(target + 2 * apart, vectors[2])
    store_single(target + 3 * apart, vectors[3])


@inner
def _spread_4(a: Any, b: Any, c: Any, target: Any, apart: Any) -> None:
    """Three vectors of kernels, transformed, to places `apart` bytes apart."""
    near, near_odd = a * splat(NEAR_SIDES[0]) + c * splat(NEAR_SIDES[2]), b * splat(NEAR_SIDES[1])
    far, far_odd = a * splat(FAR_SIDES[0]) + c * splat(FAR_SIDES[2]), b * splat(FAR_SIDES[1])
    store_single(target, a)
    store_single(target + apart, near + near_odd)
    store_single(target + 2 * apart, near - near_odd)
    store_single(target + 3 * apart, far + far_odd)
    store_single(target + 4 * apart, far - far_odd)
    store_single(target + 5 * apart, c)


@inner
def _forth_2(source: Any, step: Any, target: Any, apart: Any) -> None:
    """As `_forth_4`, of four vectors."""
    a, b, c, d = load_single(source), load_single(source + step), load_single(source + 2 * step), load_single(source + 3 * step)
    store_single(target, a - c)
    store_single(target + apart, b + c)
    store_single(target + 2 * apart, c - b)
    store_single(target + 3 * apart, b - d)


@inner
def _spread_2(a: Any, b: Any, c: Any, target: Any, apart: Any) -> None:
    """As `_spread_4`."""
    even, odd = (a + c) * splat(np.float32(0.5)), b * splat(np.float32(0.5))
    store_single(target, a)
    store_single(target + apart, even + odd)
    store_single(target + 2 * apart, even - odd)
    store_single(target + 3 * apart, c)


@inner
def _back_2(source: Any, step: Any) -> Any:
    """Two vectors of four."""
    a, b, c, d = load_single(source), load_single(source + step), load_single(source + 2 * step), load_single(source + 3 * step)
    return a + b + c, b - c - d


@inner
def _put_2(vectors: Any, target: Any, apart: Any) -> None:
    store_single(target, vectors[0])
    store_single(target + apart, vectors[1])


@inner
def _bounded(x: Any, bias: Any, low: Any, high: Any) -> Any:
    x = x + bias
    x = select(x < low, low, x)
    return select(x > high, high, x)


@inner
def _bounded_4(vectors: Any, bias: Any, low: Any, high: Any) -> Any:
    a, b, c, d = vectors
    return _bounded(a, bias, low, high), _bounded(b, bias, low, high), _bounded(c, bias, low, high), _bounded(d, bias, low, high)


@inner
def _bounded_2(vectors: Any, bias: Any, low: Any, high: Any) -> Any:
    a, b = vectors
    return _bounded(a, bias, low, high), _bounded(b, bias, low, high)


@dataclass(frozen=True)
class Square:
    """How squares are transformed.

    Attributes:
        edge: results along one axis.
        kernel: what a kernel is multiplied with from both sides.
        forth, back, put, bounded: vectors to transformed ones; to results; these to memory; with a bias, between limits.
        spread: vectors of kernels to transformed ones.
    """

    edge: int
    kernel: np.ndarray
    forth: Any
    back: Any
    put: Any
    bounded: Any
    spread: Any

    @property
    def side(self) -> int:
        """Inputs along one axis."""
        return self.edge + 2

    @property
    def places(self) -> int:
        """Products that make up a square."""
        return self.side**2

    def transformed(self, w: np.ndarray) -> np.ndarray:
        """Kernels [outputs, channels, 3, 3] as panels [outputs / PANEL, places, channels, PANEL]."""
        outputs, channels = w.shape[:2]
        made = np.empty((-(-outputs // PANEL), self.places, channels, PANEL), np.float32)
        both, part = np.kron(self.kernel, self.kernel), np.zeros((9, channels, PANEL))
        for index, panel in enumerate(made.reshape(len(made), self.places, -1)):
            some = w[index * PANEL : (index + 1) * PANEL]
            part[:, :, : len(some)] = some.reshape(len(some), channels, 9).transpose(2, 1, 0)
            part[:, :, len(some) :] = 0
            for start in range(0, channels * PANEL, COLUMNS):
                panel[:, start : start + COLUMNS] = both @ part.reshape(9, -1)[:, start : start + COLUMNS]
        return made


FOUR = Square(
    4, np.array([[1, 0, 0], _at(NEAR, FAR), _at(-NEAR, FAR), _at(FAR, NEAR), _at(-FAR, NEAR), [0, 0, 1]]),
    _forth_4, _back_4, _put_4, _bounded_4, _spread_4,
)
TWO = Square(
    2, np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]), _forth_2, _back_2, _put_2, _bounded_2, _spread_2,
)
