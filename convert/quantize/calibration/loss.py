"""Output loss of a quantized network relative to the original, on data or random inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error
from ....runtime.base.units import signal_to_noise
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...run.feeds import feeds

if TYPE_CHECKING:
    import numpy as np

RUNS = 4
"""Made-up inputs of a loss: that of one alone depends on its values by several dB."""
SIDES = (64, 1, 512)
"""Lengths that made-up inputs get where the model leaves them open; the first that the model runs with. The leading one
is 1."""


@dataclass
class Loss:
    """Of one output: greatest difference, and powers of the values and of the differences, over all runs."""

    name: str
    max_abs: float = 0.0
    power: float = 0.0
    noise: float = 0.0

    @property
    def snr_db(self) -> float:
        """Decibels of signal over noise, infinite where nothing differs."""
        return signal_to_noise(self.power, self.noise)

    def add(self, expected: np.ndarray, found: np.ndarray) -> None:
        """See one run's output; positions where both are the same special value count as equal."""
        import numpy

        one, other = expected.astype(numpy.float64), found.astype(numpy.float64)
        same = (one == other) | (numpy.isnan(one) & numpy.isnan(other))
        with numpy.errstate(invalid="ignore"):
            gap = numpy.where(same, 0, numpy.abs(one - other))
        gap = numpy.where(numpy.isnan(gap), numpy.inf, gap)
        self.max_abs = max(self.max_abs, float(gap.max(initial=0)))
        self.power += float((one[numpy.isfinite(one)] ** 2).sum())
        self.noise += float((gap**2).sum())

    def to_json(self) -> dict[str, Any]:
        """Infinities as None: nothing differs where snr_db is None and max_abs is 0."""
        numbers = {"snr_db": self.snr_db, "max_abs": self.max_abs}
        return {"output": self.name, **{key: each if math.isfinite(each) else None for key, each in numbers.items()}}


def losses(before: Graph, after: Graph, inputs: Iterable[dict[str, Any]]) -> list[Loss]:
    """Run both on all inputs; a loss for every output that is an array of numbers."""
    one, other = Session(before), Session(after)
    found: dict[str, Loss] = {}
    for fed in inputs:
        for value, expected, result in zip(before.outputs, one.run(None, fed), other.run(None, fed), strict=True):
            if (
                getattr(expected, "dtype", None) is not None
                and expected.dtype.kind not in "OUS"
                and expected.shape == result.shape
            ):
                found.setdefault(value.name, Loss(value.name)).add(expected, result)
    return list(found.values())


def random_inputs(graph: Graph) -> Iterator[dict[str, Any]]:
    """The inputs of `RUNS` runs that the graph accepts, the same every time.

    Raises:
        Error: without inputs.
    """
    session = Session(graph)
    for side in SIDES:
        free = {str(dim): side for value in graph.inputs for dim in (value.shape or ())[1:] if not isinstance(dim, int)}
        free |= {
            str(dim): 1
            for value in graph.inputs
            for dim in (value.shape or ())[:1]
            if not isinstance(dim, int) and dim is not None
        }
        fed, _ = feeds(graph, [], lengths=free)
        try:
            session.run(None, fed)
        except Error:
            if side == SIDES[-1]:
                raise
            continue
        yield fed
        for seed in range(1, RUNS):
            yield feeds(graph, [], seed, free)[0]
        return
