"""GEMV of block codes with rows of one int8 digit by vpmaddubsw: the products of a group are folded to a lane or two,
which are converted and scaled once.

A fold adds the units of two vectors; a unit of 32 bits is two sums of 16 bits as long as these fit, or one of 32. Units
that are added belong to one group.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ....runtime.simd.dot_product import PAIR_LIMIT, dot2_s8, dot2_u8s8, half_pairs
from ....runtime.simd.llvm_vector import I16, I32, Bytes, Code, vector_type
from ...quants.llvm import Codes, Numbers, build_mask, codes
from .gemv import WeightRows, multiply_add
from .gemv_int8 import BYTES, VECTOR, Int8Products, Record, lane_groups, max_pairs, record_layout

UNITS = 8
INTS, SHORTS = vector_type(I32, UNITS), vector_type(I16, 2 * UNITS)
FOLDS = (
    ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
"""For each fold the units of two vectors that are added: those 64 bits apart, neighbours, those of both halves."""
Groups = tuple[int, ...]
"""The group of each unit of a vector."""


def max_signed_pairs(name: str) -> int:
    """As `max_pairs`, of codes less their zero."""
    kind = codes()[name]
    return PAIR_LIMIT // (2 * 127 * max(kind.zero, kind.top - kind.zero))


def _halves(kind: Codes) -> list[tuple[Groups, int, int]]:
    """The two vectors of each sum in order of their groups: groups, number of the sum, first unit."""
    return sorted(
        (tuple(lane_groups(kind, index)[first : first + UNITS]), index, first)
        for index in range(len(kind.order))
        for first in (0, UNITS)
    )


def _folded_groups(kind: Codes) -> list[list[Groups]]:
    """The groups of the vectors that each fold takes, and of those that are left by the last one."""
    stages = [[groups for groups, _, _ in _halves(kind)]]
    for low, high in FOLDS:
        joined = [one + other for one, other in zip(stages[-1][::2], stages[-1][1::2], strict=False)]
        left, right = ([tuple(both[unit] for unit in units) for both in joined] for units in (low, high))
        if len(stages[-1]) % 2 or left != right:
            break
        stages.append(left)
    return stages


class PairProducts(Int8Products):
    """Integer products of codes below 8 bits by AVX2."""

    width = UNITS
    max_pairs = staticmethod(max_pairs)
    """Number of sums of two products that fit 16 bits, for a storage type."""

    @classmethod
    def layout(cls, name: str) -> Record:
        """Records with an initial value for each unit that is left."""
        kind = codes()[name]
        units = [group for groups in _folded_groups(kind)[-1] for group in groups]
        return record_layout(name, cls.digits, tuple(units) if kind.zero else ())

    def __init__(self, code: Code, stored: WeightRows, xs: list[Any], length: Any, streams: int) -> None:
        super().__init__(code, stored, xs, length, streams)
        self.stages, self.limit = _folded_groups(self.kind), self.max_pairs(stored.name)
        self.minima = [[] for _ in range(streams)]

    def _record(self, address: Any) -> Any:
        return self.code.opaque(address)  # or the digits that several rows meet stay in registers, and others do not

    def _add(self, numbers: Numbers, scales: Any, place: Any, totals: list[Any]) -> None:
        build = self.code.builder
        total = build.load(totals[0])
        for index, (sums, groups) in enumerate(zip(self._folded(numbers, place), self.stages[-1], strict=True)):
            if self.record_layout.lanes:
                starts = self.code.load(place, INTS, self.record_layout.starts + 4 * UNITS * index)
                sums = build.add(sums, starts)
            spread = build.shuffle_vector(scales, scales, build_mask(list(groups)))
            total = multiply_add(self.code, build.sitofp(sums, spread.type), spread, total)
        build.store(total, totals[0])

    def _folded(self, numbers: Numbers, place: Any) -> list[Any]:
        """Sums of products, of which each unit has a group."""
        code, build = self.code, self.code.builder
        sums, terms = self._sums_of_pairs(numbers, place)
        vectors = [sums[index, first] for _, index, first in _halves(self.kind)]
        for low, high in FOLDS[: len(self.stages) - 1]:
            terms *= 2
            if terms > self.limit:
                vectors = [_as_ints(code, vector) for vector in vectors]
            left = []
            for pair in zip(vectors[::2], vectors[1::2], strict=True):
                units = [build.bitcast(vector, INTS) for vector in pair]
                parts = (build.shuffle_vector(*units, build_mask(list(order))) for order in (low, high))
                left.append(build.add(*(build.bitcast(part, pair[0].type) for part in parts)))
            vectors = left
        return [_as_ints(code, vector) for vector in vectors]

    def _sums_of_pairs(self, numbers: Numbers, place: Any) -> tuple[dict[tuple[int, int], Any], int]:
        """The halves of each sum of `Codes.order`, by its number and their first unit, and how many pairs they add."""
        code, terms, offset = self.code, max(map(len, self.kind.order)), 0
        found = {}
        for index, vectors in enumerate(numbers.codes):
            pairs = []
            for vector in vectors:
                pairs.append(self._multiply(vector, code.load(place, BYTES, offset)))
                offset += VECTOR
            for first in (0, UNITS):
                halves = [_part(code, pair, 2 * first, 2 * UNITS) for pair in pairs]
                if terms > self.limit:
                    halves = [_as_ints(code, half) for half in halves]
                found[index, first] = functools.reduce(code.builder.add, halves)
        return found, terms

    def _multiply(self, vector: Bytes, digits: Any) -> Any:
        """Sums of two products of codes and digits, i16 [32]."""
        return dot2_u8s8(self.code, vector.value, digits)

    def _subtract(self, minima: Any, sums: Any, stream: int, t: int) -> None:
        build, total = self.code.builder, self.sums[stream][t][0]
        for first in range(0, minima.type.count, UNITS):
            one, other = (_part(self.code, vector, first, UNITS) for vector in (build.fneg(minima), sums))
            build.store(multiply_add(self.code, one, other, build.load(total)), total)


class SignedPairProducts(PairProducts):
    """Integer products of signed codes of 8 bits by AVX2: of their magnitudes with digits that take their signs."""

    max_pairs = staticmethod(max_signed_pairs)

    @classmethod
    def layout(cls, name: str) -> Record:
        """Records without initial values."""
        return record_layout(name, cls.digits, ())

    def _multiply(self, vector: Bytes, digits: Any) -> Any:
        zero = ir.Constant(BYTES, [self.kind.zero] * VECTOR)
        return dot2_s8(self.code, self.code.builder.sub(vector.value, zero), digits)


def _as_ints(code: Code, vector: Any) -> Any:
    return half_pairs(code, vector) if vector.type == SHORTS else vector


def _part(code: Code, vector: Any, first: int, count: int) -> Any:
    """Neighbouring elements of a vector, zeros past its end."""
    length = vector.type.count
    order = [min(index, length) for index in range(first, first + count)]
    return code.builder.shuffle_vector(vector, ir.Constant(vector.type, None), build_mask(order))
