"""Bit allocation: tensor types with the least measured error within a number of bytes.

The loss of a tensor is its squared error relative to its squared values, both weighed by the importance matrix where
there is one, times its elements: the share of the signal that is lost. Choosing one type for each tensor within a
number of bytes is a multiple-choice knapsack: it is solved by dynamic programming over bytes, counted in units so that
the table stays small, which is exact where all sizes are multiples of the unit; and by steps along the lower convex
hull of each tensor's choices, from the smallest types on, most loss saved for a byte first. What bytes are left go into
single exchanges, and the better of the two is taken.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.tensor.dtype import DTYPES, DType
from ...translate.gguf_file_type import BY_TYPE
from .rule import Recipe, Rule

CANDIDATES = (
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "q2_k",
    "iq3_xxs",
    "q3_k",
    "iq3_s",
    "iq4_xs",
    "q4_k",
    "q5_k",
    "q6_k",
    "q4_0",
    "iq4_nl",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "f8_e4m3",
    "f16",
)
"""Types to choose from."""
FOR_ODD_ROWS = frozenset({"q4_0", "q4_1", "q5_0", "q5_1"})
"""Types that are only tried for rows that are not a multiple of 256, since others of their size are better."""


@dataclass(frozen=True)
class Offer:
    """A candidate type of a tensor with its size and its loss."""

    dtype: DType
    nbytes: int
    loss: float


def candidates(columns: int, *, importance: bool, bits: float) -> list[DType]:
    """Types for rows of that length, without those far below `bits` a weight."""
    found = []
    for name in CANDIDATES:
        dtype = DTYPES[name]
        cost = dtype.block_nbytes * 8 / dtype.block
        odd = columns % 256 != 0
        if columns % dtype.block or (name in FOR_ODD_ROWS and not odd) or (cost < bits / 2 and not odd):
            continue
        if not importance and name.startswith(("iq1", "iq2", "iq3_xxs")):
            continue
        found.append(dtype)
    return found


def allocate(offers: Sequence[Sequence[Offer]], budget: int) -> list[Offer]:
    """One offer for each tensor; UsageError when even the smallest ones exceed `budget` bytes."""
    useful = [_useful(each) for each in offers]
    left = budget - sum(each[0].nbytes for each in useful)
    if left < 0:
        least = budget - left
        why = f"the smallest types need {least:,} bytes, the target leaves {budget:,}"
        raise UsageError("E-BUDGET", None, why, hint="Raise the target")
    found = [_filled(chosen, useful, budget) for chosen in (_by_steps(useful, left), _by_table(useful, left))]
    return min(found, key=lambda chosen: math.fsum(offer.loss for offer in chosen))


def _useful(offers: Sequence[Offer]) -> list[Offer]:
    """The offers of which none is both smaller and better, from the smallest on."""
    useful: list[Offer] = []
    for offer in sorted(offers, key=lambda offer: (offer.nbytes, offer.loss)):
        if not useful or offer.loss < useful[-1].loss:
            useful.append(offer)
    return useful


def _by_table(offers: Sequence[Sequence[Offer]], left: int) -> list[Offer]:
    """The exact choice by dynamic programming: the least loss for every number of extra bytes, tensor by tensor, then
    traced back from the best."""
    import numpy

    extras = [[offer.nbytes - each[0].nbytes for offer in each] for each in offers]
    room = min(left, sum(extra[-1] for extra in extras))
    most = min(1 << 16, (1 << 24) // max(1, len(offers)))
    unit = max(1, math.gcd(*(cost for extra in extras for cost in extra)), -(-room // most))
    places = room // unit + 1
    best = numpy.zeros(places)
    picks = numpy.zeros((len(offers), places), numpy.uint8)
    for number, each in enumerate(offers):
        following = numpy.full(places, numpy.inf)
        for index, offer in enumerate(each):
            cost = -(-extras[number][index] // unit)
            if cost < places:
                losses = best[: places - cost] + offer.loss
                better = losses < following[cost:]
                following[cost:][better] = losses[better]
                picks[number, cost:][better] = index
        best = following
    place = int(best.argmin())
    chosen: list[Offer] = []
    for number in reversed(range(len(offers))):
        index = int(picks[number, place])
        chosen.append(offers[number][index])
        place -= -(-extras[number][index] // unit)
    return chosen[::-1]


def _by_steps(offers: Sequence[Sequence[Offer]], left: int) -> list[Offer]:
    """The offers that the steps along the hulls lead to."""
    hulls = [_hull(each) for each in offers]
    chosen = [0] * len(hulls)
    steps = [entry for number, hull in enumerate(hulls) for entry in _step(number, hull, 0)]
    heapq.heapify(steps)
    while steps:
        _, number, level = heapq.heappop(steps)
        hull = hulls[number]
        cost = hull[level].nbytes - hull[level - 1].nbytes
        if cost <= left:
            left -= cost
            chosen[number] = level
            for entry in _step(number, hull, level):
                heapq.heappush(steps, entry)
    return [hull[level] for hull, level in zip(hulls, chosen, strict=True)]


def _step(number: int, hull: Sequence[Offer], level: int) -> Iterable[tuple[float, int, int]]:
    """The next step of a tensor for a heap: most loss saved for a byte first, then the tensor that comes first."""
    if level + 1 < len(hull):
        low, high = hull[level], hull[level + 1]
        yield (high.loss - low.loss) / (high.nbytes - low.nbytes), number, level + 1


def _hull(offers: Sequence[Offer]) -> list[Offer]:
    """The useful offers on the lower convex hull of loss over bytes."""
    hull: list[Offer] = []
    for offer in offers:
        while len(hull) > 1 and _above(hull[-2], hull[-1], offer):
            hull.pop()
        hull.append(offer)
    return hull


def _above(low: Offer, middle: Offer, high: Offer) -> bool:
    """Whether the middle one is on or above the line between the others."""
    return (middle.loss - low.loss) * (high.nbytes - low.nbytes) >= (high.loss - low.loss) * (
        middle.nbytes - low.nbytes
    )


def _filled(chosen: list[Offer], offers: Sequence[Sequence[Offer]], budget: int) -> list[Offer]:
    """Spend the rest on the single exchange that saves most, again and again."""
    left = budget - sum(offer.nbytes for offer in chosen)
    while True:
        best = (0.0, -1, -1)
        for number, now in enumerate(chosen):
            for index, offer in enumerate(offers[number]):
                saved = now.loss - offer.loss
                if offer.nbytes - now.nbytes <= left and saved > best[0]:
                    best = (saved, number, index)
        _, number, index = best
        if number < 0:
            return chosen
        left -= offers[number][index].nbytes - chosen[number].nbytes
        chosen[number] = offers[number][index]


def as_recipe(types: Mapping[str, DType], counts: Mapping[str, int], name: str = "auto") -> Recipe:
    """A recipe that gives each tensor its type; blocks of one kind and type share a rule.

    Args:
        types: by tensor name.
        counts: elements by tensor name, which decide the base type.
    """
    sizes: dict[DType, int] = {}
    for tensor, dtype in types.items():
        sizes[dtype] = sizes.get(dtype, 0) + counts[tensor]
    base = max(sizes, key=lambda dtype: (sizes[dtype], dtype.name))
    groups: dict[tuple[str, str, DType], list[str]] = {}
    for tensor, dtype in types.items():
        match = re.search(r"\.(\d+)\.", tensor)
        key = (tensor[: match.start(1)], tensor[match.end(1) :], dtype) if match else (tensor, "", dtype)
        groups.setdefault(key, []).append(match[1] if match else "")
    rules = []
    for (before, after, dtype), numbers in groups.items():
        if dtype != base:
            middle = "" if numbers == [""] else numbers[0] if len(numbers) == 1 else f"({'|'.join(numbers)})"
            rules.append(Rule(f"^{re.escape(before)}{middle}{re.escape(after)}$", dtype.name))
    return Recipe(name, base, tuple(rules), file_type=BY_TYPE[base.name].number if base.name in BY_TYPE else None)


def relative_loss(error: float, value: float, count: int) -> float:
    """The loss of a tensor of `count` elements from what was measured on some of them."""
    if not math.isfinite(error):
        return math.inf
    return count * error / value if value else 0.0 if not error else float(count)
