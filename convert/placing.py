"""Placing: whose names the weights of a file have, and which weights of its architecture they are."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from ..runtime.arch import GRAPH, HF, Architecture, Config, slots
from ..runtime.binding import Gathered, check_layers, configured, gather, make, recognise
from ..runtime.errors import Error, UnsupportedError
from ..runtime.graph import Graph
from ..runtime.passes.weights import collected
from ..runtime.record import dataclass
from ..runtime.tensor import Tensor
from .legacy import modern, origins
from .prequantized import configuration

PACKED = ("MatMulNBits", "GatherBlockQuantized")
"""Operators that take a weight as codes, scales and offsets."""


@dataclass(frozen=True)
class Placed:
    """The weights of a file as an architecture's.

    Attributes:
        names: whose names and layouts the file has, `HF`, `GGUF` or `GRAPH`.
        weights: the file's tensors by these names.
        found: the architecture's weights among them.
        origins: what the file itself calls the tensors, where that is another name.
        spare: weights that the model does not compute with, which only some files have.
    """

    architecture: Architecture
    names: str
    config: Config
    weights: Mapping[str, Tensor]
    found: Gathered
    origins: Mapping[str, str]
    spare: frozenset[str] = frozenset()

    def spelled(self, name: str) -> str:
        """What the file calls a tensor."""
        return self.origins.get(name, name)


def placed(graph: Graph, chosen: Mapping[str, Tensor] | None = None) -> Placed:
    """Where the weights of a file belong, those of them that were chosen by the file's own names.

    Raises UnsupportedError where nothing says the architecture or it is not known, FormatError for a configuration that
    cannot be read or does not fit the weights.
    """
    from .modelling import NODES, identified

    newer = modern(graph)
    if graph.format == NODES:
        architecture, names, config = _of_nodes(graph)
    else:
        architecture, names, config = identified(newer)
    spelled = {} if newer is graph else origins(graph)
    every = collected(newer)
    weights = {name: tensor for name, tensor in every.items() if chosen is None or spelled.get(name, name) in chosen}
    check_layers(architecture, config, every, names, graph.files[0] if graph.files else None)
    found = gather(architecture, config, weights, names)
    if not found.missing and not found.wrong:
        make(architecture, config, found, names, graph.files[0] if graph.files else None)
    if names == GRAPH:
        found.extra.clear()
    return Placed(architecture, names, config, weights, found, spelled, _settled(architecture, config, found))


def _settled(architecture: Architecture, config: Config, found: Gathered) -> frozenset[str]:
    """Complete the configuration from the weights; the names of weights that are made up where a file lacks them."""
    if architecture.settle is None or found.missing or found.wrong:
        return frozenset()
    needed = {ours for row, _, ours in slots(architecture, config) if not row.optional}
    without = {ours: tensor for ours, tensor in found.weights.items() if ours in needed}
    made_up = dict(without)
    with contextlib.suppress(Error):  # values that settle nothing differ from those of another file
        architecture.settle(Config(dict(config.values)), made_up)
        architecture.settle(config, dict(found.weights))
    return frozenset(made_up.keys() - without.keys())


def _of_nodes(graph: Graph) -> tuple[Architecture, str, Config]:
    """The architecture of an exported graph, by the config.json beside it; the weights have its own names."""
    from .modelling import with_files

    path = graph.files[0] if graph.files else None
    said = configuration(with_files(dataclasses.replace(graph, attachments=dict(graph.attachments), notes=[])))
    if said is None:
        raise UnsupportedError(
            "E-ARCH-NONE",
            path,
            f"no config.json beside {path or 'the graph'} says which architecture the weights are of",
        )
    architecture = recognise(HF, said, path)
    config = configured(architecture, HF, said, path)
    needed = [ours for row, _, ours in slots(architecture, config) if not row.optional]
    there = sum(ours in graph.weights for ours in needed)
    if there < len(needed) and any(node.op.name in PACKED for node in graph.nodes):
        why = "the graph holds quantized weights packed for its operators, without their names"
        raise UnsupportedError("E-ARCH-PACKED", path, why, hint="verify two graphs to compare what they compute")
    if 2 * there < len(needed):
        raise UnsupportedError("E-ARCH-GRAPH", path, "the weights of the graph have the names of another exporter")
    return architecture, GRAPH, config
