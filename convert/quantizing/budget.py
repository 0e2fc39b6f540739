"""Budgets: the type of each tensor such that the measured error is least within a number of bytes.

The loss of a tensor is its squared error relative to its squared values, both weighed by the importance matrix where there is one, times its
elements: the share of the signal that is lost. From the smallest types on, the step with the most loss saved for a byte is taken, along the
lower convex hull of each tensor's choices (which solves the Lagrangian problem for every multiplier), until the bytes are used up.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.dtype import DTYPES, DType
from ...runtime.errors import UsageError
from .rules import Recipe, Rule

CANDIDATES = (
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "q2_k", "iq3_xxs", "q3_k", "iq3_s", "iq4_xs", "q4_k", "q5_k", "q6_k",
    "q4_0", "iq4_nl", "q4_1", "q5_0", "q5_1", "q8_0", "f16",
)  # fmt: skip
"""Types to choose from."""
FOR_ODD_ROWS = frozenset({"q4_0", "q4_1", "q5_0", "q5_1"})
"""Types that are only tried for rows that are no multiple of 256, since others of their size are better."""


@dataclass(frozen=True)
class Offer:
    """A type that a tensor could have, what it costs and what it loses."""

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
    hulls = [_hull(each) for each in offers]
    chosen = [0] * len(hulls)
    left = budget - sum(hull[0].nbytes for hull in hulls)
    if left < 0:
        least = budget - left
        raise UsageError("E-BUDGET", None, f"the smallest types need {least:,} bytes, the target leaves {budget:,}", hint="Raise the target")
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
    return _filled([hull[level] for hull, level in zip(hulls, chosen, strict=True)], offers, left)


def _step(number: int, hull: Sequence[Offer], level: int) -> Iterable[tuple[float, int, int]]:
    """The next step of a tensor for a heap: most loss saved for a byte first, then the tensor that comes first."""
    if level + 1 < len(hull):
        low, high = hull[level], hull[level + 1]
        yield (high.loss - low.loss) / (high.nbytes - low.nbytes), number, level + 1


def _hull(offers: Sequence[Offer]) -> list[Offer]:
    """The offers on the lower convex hull of loss over bytes, from the smallest on, losses falling."""
    hull: list[Offer] = []
    for offer in sorted(offers, key=lambda offer: (offer.nbytes, offer.loss)):
        if hull and offer.loss >= hull[-1].loss:
            continue
        while len(hull) > 1 and _above(hull[-2], hull[-1], offer):
            hull.pop()
        hull.append(offer)
    return hull


def _above(low: Offer, middle: Offer, high: Offer) -> bool:
    """Whether the middle one is on or above the line between the others."""
    return (middle.loss - low.loss) * (high.nbytes - low.nbytes) >= (high.loss - low.loss) * (middle.nbytes - low.nbytes)


def _filled(chosen: list[Offer], offers: Sequence[Sequence[Offer]], left: int) -> list[Offer]:
    """What is left goes into the single exchange that saves most, again and again."""
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
    return Recipe(name, base, tuple(rules))


def relative_loss(error: float, value: float, count: int) -> float:
    """The loss of a tensor of `count` elements from what was measured on some of them."""
    if not math.isfinite(error):
        return math.inf
    return count * error / value if value else 0.0 if not error else float(count)
