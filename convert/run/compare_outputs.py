"""Comparison of two models by their outputs, and the first value that differs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.units import signal_to_noise
from ...runtime.ir.graph import Graph
from ...runtime.session import Session

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Compared:
    """How far the second model's value is from the first's.

    Attributes:
        max_abs, max_rel: greatest difference, and that relative to the greatest magnitude of the first.
        snr_db: power of the first over power of the difference, infinite where they are equal.
        cosine: of the angle between both as vectors.
        same: whether the difference stays within the tolerance, and special values stand at the same positions.
    """

    name: str
    max_abs: float
    max_rel: float
    snr_db: float
    cosine: float
    same: bool

    def to_json(self) -> dict[str, Any]:
        """Its fields; infinities as texts."""
        return {
            key: value if not isinstance(value, float) or math.isfinite(value) else str(value)
            for key, value in asdict(self).items()
        }


def compare(name: str, first: np.ndarray, second: np.ndarray, rtol: float, atol: float) -> Compared:
    """Compare two arrays; other shapes or positions of NaN are an infinite difference."""
    import numpy

    if first.shape != second.shape:
        return Compared(name, math.inf, math.inf, -math.inf, 0.0, False)
    if first.dtype.kind in "OUSb" or second.dtype.kind in "OUSb":
        same = bool((first == second).all())
        return Compared(name, float(not same), float(not same), math.inf if same else -math.inf, float(same), same)
    one, other = first.astype(numpy.float64).reshape(-1), second.astype(numpy.float64).reshape(-1)
    special = ~numpy.isfinite(one) | ~numpy.isfinite(other)
    if not numpy.array_equal(one[special], other[special], equal_nan=True):
        return Compared(name, math.inf, math.inf, -math.inf, 0.0, False)
    one, other = one[~special], other[~special]
    gap = numpy.abs(one - other)
    most = float(numpy.abs(one).max(initial=0))
    noise, power = float((gap**2).sum()), float((one**2).sum())
    snr = signal_to_noise(power, noise)
    length = math.sqrt(power) * math.sqrt(float((other**2).sum()))
    largest = float(gap.max(initial=0))
    cosine = float(one @ other) / length if length else 1.0
    return Compared(name, largest, largest / most if most else largest, snr, cosine, largest <= atol + rtol * most)


def outputs(
    first: Graph,
    second: Graph,
    feeds: Mapping[str, Any],
    *,
    rtol: float,
    atol: float,
    threads: int | None = None,
    placed: Mapping[str, Any] | None = None,
) -> list[Compared]:
    """Run both on the same inputs and compare the outputs, by name where both have the same names, else in order.

    Args:
        placed: where the second one runs, as options of `Session`; the first one runs on the CPU.
    """
    if len(first.outputs) != len(second.outputs):
        found = (len(first.outputs), len(second.outputs))
        raise UsageError(
            "E-VERIFY-OUTPUTS", None, "the models have different numbers of outputs", expected=found[0], found=found[1]
        )
    names = [value.name for value in first.outputs]
    others = (
        names if set(names) == {value.name for value in second.outputs} else [value.name for value in second.outputs]
    )
    one = Session(first, threads=threads).run(names, feeds)
    other = Session(second, threads=threads, **(placed or {})).run(others, _renamed(first, second, feeds))
    pairs = [(name, *pair) for name, a, b in zip(names, one, other, strict=True) for pair in _leaves(a, b)]
    return [compare(name, a, b, rtol, atol) for name, a, b in pairs]


def _leaves(one: Any, other: Any) -> Sequence[tuple[Any, Any]]:
    return list(zip(one, other, strict=True)) if isinstance(one, list) and isinstance(other, list) else [(one, other)]


def _renamed(first: Graph, second: Graph, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs under the second model's names, which may differ from the first's in the same order."""
    names = [value.name for value in second.inputs if value.name not in second.weights]
    if set(names) <= set(feeds):
        return feeds
    given = [value.name for value in first.inputs if value.name in feeds]
    return {name: feeds[old] for name, old in zip(names, given, strict=False)}


def first_difference(
    first: Graph,
    second: Graph,
    feeds: Mapping[str, Any],
    *,
    rtol: float,
    atol: float,
    threads: int | None = None,
    placed: Mapping[str, Any] | None = None,
) -> Compared | None:
    """The first value, in the order of computation, that differs while the one before it does not; None where none
    differs.

    Values that both models have under one name are looked at, a few in each run, so that memory stays bounded: about
    log2 of their number runs.
    """
    common = {value.name for node in second.nodes for value in node.outputs if value.name}
    names = [value.name for node in first.nodes for value in node.outputs if value.name in common]
    if not names:
        raise UsageError(
            "E-VERIFY-NODES", None, "the models share no value names", hint="Omit --nodes to compare outputs only"
        )
    sessions = Session(first, threads=threads), Session(second, threads=threads, **(placed or {}))
    inputs = [feeds, _renamed(first, second, feeds)]

    def look(name: str) -> Compared:
        seen: list[Any] = []
        for session, fed in zip(sessions, inputs, strict=True):
            session.run_with_taps(fed, taps=f"^{re.escape(name)}$", on_tap=lambda _, array: seen.append(array))
        return compare(name, seen[0], seen[1], rtol, atol)

    low, high, found = 0, len(names), None
    while low < high:
        middle = (low + high) // 2
        result = look(names[middle])
        if result.same:
            low = middle + 1
        else:
            high, found = middle, result
    return found
