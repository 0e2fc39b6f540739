"""Evaluation of a network on data: metrics with confidence intervals, and their difference from another network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.session import Session
from .dataset import Batch
from .metric import Metric

DRAWS = 1000
COSTLY = 200
"""Selections of samples that an interval is computed from: of means, and of figures that take longer."""
COVERED = 0.95


@dataclass(frozen=True)
class Figure:
    """One metric of a model, and of another one on the same samples.

    Attributes:
        low, high: where 95 of 100 repetitions with other samples would lie (percentiles of the bootstrap, Efron 1979).
        difference: of the other model's value from this one's, with an interval over the same samples.
        better: whether the difference is one to the better, None where its interval holds 0 or nothing is known.
    """

    metric: str
    value: float
    low: float
    high: float
    samples: int
    against: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    better: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields, with None for values that are not numbers."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass
class Scores:
    """The contributions of the samples to one metric."""

    metric: Metric
    ours: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)


def evaluate(
    graph: Graph,
    data: Iterable[Batch],
    metrics: Sequence[Metric],
    *,
    against: Graph | None = None,
    chosen: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    placed: Mapping[str, Any] | None = None,
) -> list[Figure]:
    """Run the model, and the other one, on all batches, and compute every metric.

    Args:
        chosen: the output that is scored, None for the first.
        seed: of the selections that intervals are made of.
        placed: where both run, as options of `Session`.

    Raises UsageError if the data does not match the models, or is empty.
    """
    models = Models(graph, against, chosen, threads, placed)
    return figures(metrics, (contributions(metrics, *models.outputs(batch), batch) for batch in data), seed)


class Models:
    """A model and perhaps another one, which run on batches; arguments as of `evaluate`."""

    def __init__(
        self,
        graph: Graph,
        against: Graph | None,
        chosen: str | None,
        threads: int | None,
        placed: Mapping[str, Any] | None,
    ) -> None:
        graphs = [graph] if against is None else [graph, against]
        self._sessions = [(Session(each, threads=threads, **(placed or {})), each) for each in graphs]
        self._chosen = chosen

    def outputs(self, batch: Batch) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The outputs of both, the scored one first; None without another model."""
        ours, *theirs = (_outputs(session, graph, batch, self._chosen) for session, graph in self._sessions)
        return ours, theirs[0] if theirs else None


Contribution = tuple[list[Any], list[Any]]
"""Contributions of a batch's samples to a metric, for both models."""


def contributions(
    metrics: Sequence[Metric], ours: Mapping[str, Any], theirs: Mapping[str, Any] | None, batch: Batch
) -> list[Contribution]:
    """The contributions of a batch to each metric."""
    return [
        (_scored(metric, ours, batch), [] if theirs is None else _scored(metric, theirs, batch)) for metric in metrics
    ]


def figures(metrics: Sequence[Metric], found: Iterable[Sequence[Contribution]], seed: int = 0) -> list[Figure]:
    """The metrics of the contributions of all batches, in order. UsageError without samples."""
    kept = [Scores(metric) for metric in metrics]
    for batch in found:
        for scores, (ours, others) in zip(kept, batch, strict=True):
            scores.ours += ours
            scores.others += others
    if not kept or not kept[0].ours:
        raise UsageError("E-EVAL-DATA", None, "the data has no samples")
    return [_figure(scores, seed) for scores in kept]


def _outputs(session: Session, graph: Graph, batch: Batch, chosen: str | None) -> dict[str, Any]:
    names = [value.name for value in graph.outputs]
    if chosen is not None and chosen not in names:
        raise UsageError("E-RUN-OUTPUT", None, f"no output named {chosen!r}", expected=", ".join(names))
    feeds = batch.feeds
    wanted = [value.name for value in session.get_inputs()]
    if set(wanted) != set(feeds):
        if len(wanted) != len(feeds):
            why = "the models have different inputs"
            raise UsageError("E-EVAL-INPUT", None, why, expected=", ".join(feeds), found=", ".join(wanted))
        feeds = dict(zip(wanted, feeds.values(), strict=True))
    results = session.run(None, feeds)
    order = names if chosen is None else [chosen, *(name for name in names if name != chosen)]
    named = dict(zip(names, results, strict=True))
    return {name: _counted(named[name], batch.count) for name in order}


def _counted(result: Any, count: int) -> Any:
    return result[:count] if getattr(result, "ndim", 0) else result


def _scored(metric: Metric, outputs: Mapping[str, Any], batch: Batch) -> list[Any]:
    found = list(metric.score(outputs, batch.targets))
    if len(found) != batch.count:
        why = f"{metric.name} gives {counted(len(found), 'number')} for {counted(batch.count, 'sample')}"
        raise UsageError("E-EVAL-SHAPE", None, why, hint="Return one number per sample")
    return found


def _figure(scores: Scores, seed: int) -> Figure:
    import numpy

    from .metric import mean

    metric, count = scores.metric, len(scores.ours)
    draws = DRAWS if metric.combine is mean else COSTLY
    chosen = numpy.random.default_rng(seed).integers(0, count, (draws, count)) if count * draws <= 1 << 26 else None
    value = metric.combine(scores.ours)
    low, high = _interval(metric, chosen, scores.ours, None)
    if not scores.others:
        return Figure(metric.name, value, low, high, count)
    other = metric.combine(scores.others)
    difference = value - other
    least, most = _interval(metric, chosen, scores.ours, scores.others)
    certain = metric.greater is not None and (least > 0 or most < 0)
    return Figure(
        metric.name,
        value,
        low,
        high,
        count,
        other,
        difference,
        least,
        most,
        (difference > 0) == metric.greater if certain else None,
    )


def _interval(metric: Metric, chosen: Any, ours: Sequence[Any], others: Sequence[Any] | None) -> tuple[float, float]:
    """Percentiles over selections of samples with replacement; for more samples than fit, the normal distribution's of
    the mean."""
    import numpy

    from .metric import mean

    if metric.combine is mean:
        numbers = numpy.asarray(ours, numpy.float64) - (0 if others is None else numpy.asarray(others, numpy.float64))
        if chosen is None:
            half = 1.96 * float(numbers.std()) / math.sqrt(len(numbers))
            return float(numbers.mean()) - half, float(numbers.mean()) + half
        drawn = numbers[chosen].mean(axis=1)
    elif chosen is None:
        return math.nan, math.nan
    else:
        drawn = numpy.array(
            [_over(metric, row, ours) - (0 if others is None else _over(metric, row, others)) for row in chosen]
        )
    if numpy.isnan(drawn).all():
        return math.nan, math.nan
    low, high = numpy.nanquantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)


def _over(metric: Metric, row: Any, parts: Sequence[Any]) -> float:
    return metric.combine([parts[index] for index in row])
