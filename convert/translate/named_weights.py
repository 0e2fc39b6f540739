"""Canonical names: the naming convention of a file's weights, and the architecture's weights that they store."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, UnsupportedError
from ...runtime.contract.architecture import GRAPH, HF, Architecture, Config, weight_slots
from ...runtime.contract.weight_binding import (
    Gathered,
    add_computed_weights,
    check_layers,
    config_from,
    find_architecture,
    gather,
    settle,
)
from ...runtime.ir.graph import Graph
from ...runtime.ir.registry import microsoft
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.stored_tensor import StoredTensor, equal_bytes
from ..load.canonical_names import canonical_names, origins
from ..open.prequantized import configuration


@dataclass(frozen=True)
class NamedWeights:
    """The weights of a file, bound to the weights of its architecture.

    Attributes:
        names: naming and layout convention of the file, `HF`, `GGUF` or `GRAPH`.
        weights: the file's tensors by these names.
        found: the architecture's weights among them.
        origins: names of the tensors in the file itself, if they differ.
        spare: optional weights that the architecture derives if a file lacks them.
    """

    architecture: Architecture
    names: str
    config: Config
    weights: Mapping[str, StoredTensor]
    found: Gathered
    origins: Mapping[str, str]
    spare: frozenset[str] = frozenset()

    def spelled(self, name: str) -> str:
        """The name of a tensor in the file."""
        return self.origins.get(name, name)


def identify_weights(
    graph: Graph, chosen: Mapping[str, StoredTensor] | None = None, *, text_only: bool = False
) -> NamedWeights:
    """Bind the weights of a file to the weights of its architecture; `chosen` limits them, by their names in the file.
    `text_only`: whether those of a multimodal model are those of its text part, as GGUF files have them.

    Raises UnsupportedError if the architecture is not stated or unknown, FormatError for a configuration that cannot be
    read or does not match the weights.
    """
    from ..load.recognise import NODES, identified

    newer = canonical_names(graph, text_only=text_only)
    spelled = {} if newer is graph else origins(graph)
    apart: dict[str, str] = {}
    if graph.parts:
        newer, spelled, apart = _of_parts(graph)
    if graph.format == NODES:
        architecture, names, config = _of_nodes(newer)
    else:
        architecture, names, config = identified(newer)
    every = collect_weights(newer)
    weights = {name: tensor for name, tensor in every.items() if chosen is None or spelled.get(name, name) in chosen}
    check_layers(architecture, config, every, names, graph.files[0] if graph.files else None)
    found = gather(architecture, config, weights, names)
    if not found.missing and not found.misshapen:
        add_computed_weights(architecture, config, found, names, graph.files[0] if graph.files else None)
    for name in apart.keys() & {each for _, stored in found.stored.values() for each in stored}:
        why = f"{spelled[name]!r} and {apart[name]!r} are the same weight, and differ"
        raise UnsupportedError("E-ARCH-GRAPH", graph.files[0], why, hint="Compare the files one by one")
    if names == GRAPH:
        found.extra.clear()
    return NamedWeights(
        architecture, names, config, weights, found, spelled, _derived_weights(architecture, config, found)
    )


def _of_parts(graph: Graph) -> tuple[Graph, dict[str, str], dict[str, str]]:
    """A model of several graphs as weights by the names that its graphs have for them.

    Returns: it, what each weight is called among those of all graphs, and of names that two graphs have for different
    values what the second is called.
    """
    weights: dict[str, StoredTensor] = {}
    spelled: dict[str, str] = {}
    apart: dict[str, str] = {}
    for spelling, tensor in graph.weights.items():
        name = spelling.partition("/")[2]
        first = weights.setdefault(name, tensor)
        same = (first.dtype, first.shape) == (tensor.dtype, tensor.shape) and equal_bytes(first, tensor)
        if first is not tensor and not same:
            apart[name] = spelling
        spelled.setdefault(name, spelling)
    nodes = [node for part in graph.parts.values() for node in part.nodes]
    return dataclasses.replace(graph, weights=weights, nodes=nodes, parts={}), spelled, apart


def _derived_weights(architecture: Architecture, config: Config, found: Gathered) -> frozenset[str]:
    """Complete the configuration from the weights; return the names of weights derived if a file lacks them."""
    if architecture.settle is None or found.missing or found.misshapen:
        return frozenset()
    slots = weight_slots(architecture, config)
    needed = {ours for row, _, ours in slots if not row.optional or row.compute is not None}
    without = {ours: tensor for ours, tensor in found.weights.items() if ours in needed}
    derived = dict(without)
    with contextlib.suppress(Error):  # values that settle nothing differ from those of another file
        settle(architecture, Config(dict(config.values)), derived)
        settle(architecture, config, dict(found.weights))
    return frozenset(derived.keys() - without.keys())


def _of_nodes(graph: Graph) -> tuple[Architecture, str, Config]:
    """The architecture of an exported graph, by the config.json next to it; the weights have its own names."""
    from ..load.attached_files import with_files

    path = graph.files[0] if graph.files else None
    stated = configuration(with_files(dataclasses.replace(graph, attachments=dict(graph.attachments), notes=[])))
    if stated is None:
        raise UnsupportedError(
            "E-ARCH-NONE", path, f"no config.json beside {path or 'the graph'} names the architecture of the weights"
        )
    architecture = find_architecture(HF, stated, path)
    config = config_from(architecture, HF, stated, path)
    needed = [ours for row, _, ours in weight_slots(architecture, config) if not row.optional]
    there = sum(ours in graph.weights for ours in needed)
    if there < len(needed) and any(
        node.op in (microsoft.MatMulNBits, microsoft.GatherBlockQuantized) for node in graph.nodes
    ):
        why = "the graph has quantized weights packed for its operators, without their names"
        raise UnsupportedError("E-ARCH-PACKED", path, why, hint="Use verify on two graphs to compare their outputs")
    if 2 * there < len(needed):
        raise UnsupportedError("E-ARCH-GRAPH", path, "the weights of the graph have the names of another exporter")
    return architecture, GRAPH, config
