"""Networks on a cluster: contributions to metrics, and calibration histograms, by batches and samples of the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.graph import Graph
from ..evaluate import dataset
from ..evaluate.dataset import Batch
from ..evaluate.evaluate import Contribution, Models, contributions
from ..evaluate.metric import Metric, metric
from ..quantize.calibration.activation_range import Observed, Tally
from ..quantize.calibration.calibrate import Calibration, Observer, calibrate, sample_readers
from ..quantize.network.quantize_network import simplified
from ..quantize.network.request import Request
from ..run.image_preprocess import Look
from .workers.cluster import Cluster
from .workers.opening import Opening
from .workers.work import Work

PIECES = 8
"""Pieces for each thread of a cluster, so that workers of different speeds end together."""
Span = tuple[int, int]
"""The first and the last but one of some batches or samples."""
CODE = ".py"
"""Suffix of a metric that is a file of the user: this process calls it, workers run no code of files."""


@dataclass(frozen=True)
class Evaluation(Work):
    """Metrics of a network, and of another one; a piece is a span of batches.

    Attributes:
        metrics: names.
        chosen: the output that is scored, None for the first.
        placed: options of `Session`.
    """

    opening: Opening
    other: Opening | None
    source: dataset.Source
    metrics: tuple[str, ...]
    chosen: str | None
    placed: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> tuple[Graph, Models]:
        """The networks."""
        graph = self.opening.graph()
        other = None if self.other is None else self.other.graph()
        return graph, Models(graph, other, self.chosen, threads, self.placed)

    def run(self, prepared: tuple[Graph, Models], piece: Span) -> list[Any]:
        """The contributions of each batch; its outputs and targets where a metric is a file of code."""
        graph, models = prepared
        read = itertools.islice(dataset.readers(self.source, graph), *piece)
        batches = (read_batch() for read_batch in read)
        if any(name.endswith(CODE) for name in self.metrics):
            return [(*models.outputs(batch), Batch({}, batch.targets, batch.count)) for batch in batches]
        metrics = [metric(name) for name in self.metrics]
        return [contributions(metrics, *models.outputs(batch), batch) for batch in batches]

    def describe(self, piece: Span) -> str:
        return f"a run of {self.opening.path} on batches {piece[0] + 1} to {piece[1]}"


def contributions_on(
    cluster: Cluster, work: Evaluation, metrics: Sequence[Metric], graph: Graph, advance: Callable[[int], object]
) -> Iterator[Sequence[Contribution]]:
    """The contributions of all batches, in order."""
    pieces = spans(sum(1 for _ in dataset.readers(work.source, graph)), cluster)
    code = any(name.endswith(CODE) for name in work.metrics)
    for piece, found in zip(pieces, cluster.in_order(work, pieces), strict=True):
        yield from [contributions(metrics, *each) for each in found] if code else found
        advance(piece[1] - piece[0])


@dataclass(frozen=True)
class Ranges(Work):
    """Histograms of the values of a network; a piece is a span of samples and the reach of each histogram.

    Attributes:
        data: path of the samples.
        placed: options of `Session`.
        request: of the quantization that the ranges are for, which the network is simplified for.
    """

    opening: Opening
    data: str
    look: Look | None
    placed: Mapping[str, Any]
    whole: bool = False
    request: Request | None = None

    exclusive = True

    def prepare(self, threads: int) -> tuple[Graph, Observer]:
        """The simplified network."""
        graph = simplified(self.opening.graph(whole=self.whole), self.request)
        return graph, Observer(graph, {**self.placed, "threads": threads})

    def run(self, prepared: tuple[Graph, Observer], piece: tuple[Span, Mapping[str, float]]) -> dict[str, Tally]:
        """The values of all samples."""
        (graph, observer), (span, bases) = prepared, piece
        found: dict[str, Tally] = {}
        for read_sample in itertools.islice(sample_readers(self.data, graph, self.look), *span):
            observer.look(
                read_sample(), lambda name, array: found.setdefault(name, Tally(bases.get(name, 0.0))).add(array)
            )
        return found

    def describe(self, piece: tuple[Span, Mapping[str, float]]) -> str:
        return f"a run of {self.opening.path} on samples {piece[0][0] + 1} to {piece[0][1]}"


def calibrated_on(
    cluster: Cluster,
    work: Ranges,
    graph: Graph,
    onto: Calibration | None,
    told: Callable[[int], object] = lambda count: None,
) -> Calibration:
    """As `calibrate`, with the same histograms. The first sample runs in this process: it decides where histograms
    begin."""
    readers = list(sample_readers(work.data, graph, work.look))
    made = calibrate(graph, (read() for read in readers[:1]), onto, told, placed=work.placed)
    bases = {name: one.reach for name, one in made.seen.items() if one.reach}
    pieces = [((start + 1, stop + 1), bases) for start, stop in spans(len(readers) - 1, cluster)]
    for (span, _), found in zip(pieces, cluster.in_order(work, pieces), strict=True):
        late = {name for name, tally in found.items() if tally.unknown}
        for name, tally in found.items():
            if name not in late:
                made.seen.setdefault(name, Observed()).join(tally)
        if late:
            _add(made, late, graph, work, [readers[index] for index in range(*span)])
        made.samples += span[1] - span[0]
        told(made.samples)
    return made


def _add(
    made: Calibration, names: set[str], graph: Graph, work: Ranges, readers: Sequence[Callable[[], dict[str, Any]]]
) -> None:
    """See, in this process, values that were 0 in the first sample: nothing says where their histograms begin."""
    observer = Observer(graph, work.placed)

    def add(name: str, array: Any) -> None:
        if name in names:
            made.seen.setdefault(name, Observed()).add(array)

    for read_sample in readers:
        observer.look(read_sample(), add)


def spans(count: int, cluster: Cluster) -> list[Span]:
    """`count` batches or samples in pieces of about equal length."""
    size = max(1, math.ceil(count / (max(1, cluster.workers.threads) * PIECES)))
    return [(start, min(count, start + size)) for start in range(0, max(count, 0), size)]
