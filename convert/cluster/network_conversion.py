"""Quantization of networks on a cluster: each worker quantizes the same graphs, and writes ranges of the output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...runtime.base.dataclass import dataclass
from ..open.hub import absolute
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from ..quantize.network import quantize_network
from ..write import plan as planning
from ..write.conversion_options import Options
from .conversion import ClusterCrew, Conversion
from .workers.cluster import Cluster


@dataclass(frozen=True)
class NetworkConversion(Conversion):
    """A quantization of networks that each worker carries out for itself.

    Attributes:
        steps: of each graph of the model, in their order.
    """

    steps: tuple[quantize_network.Step, ...] = ()

    def _plan(self, options: Options) -> planning.Plan:
        graph = open_model(
            whole_model(self.inputs[0]),
            options.read,
            format=options.source_format,
            revision=options.revision,
            offline=options.offline,
            parts=True,
        )
        for inner, (request, ranges) in zip(graph.parts.values() or (graph,), self.steps, strict=True):
            quantize_network.simplified(inner, request)
            quantize_network.quantize(inner, request, ranges)
        made = planning.plan_graph(graph, Path(self.output), options, self.inputs)
        made.fingerprint = planning.with_settings(made.fingerprint, *quantize_network.settings(self.steps))
        return made


def networks_on_cluster(
    workers: Cluster,
    plan: planning.Plan,
    source: str,
    output: str,
    options: Options,
    steps: Sequence[quantize_network.Step],
) -> ClusterCrew:
    """The crew that writes quantized networks; `steps` as of `NetworkConversion`."""
    paths = (absolute(source),)
    work = NetworkConversion(paths, os.path.abspath(output), options, None, plan.fingerprint, steps=tuple(steps))
    return ClusterCrew(workers, work, plan)
