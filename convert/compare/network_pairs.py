"""Pairs of networks: the graphs of two models that are run on the same inputs."""

from __future__ import annotations

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph


def network_pairs(before: Graph, after: Graph) -> dict[str, tuple[Graph, Graph]]:
    """The graphs to run of two networks, by the names of the files of models that have several; empty for other
    models. UsageError for models of different graphs."""
    one, other = _networks(before), _networks(after)
    if before.parts and after.parts and (one or other):
        if one.keys() != other.keys():
            why = "the models have different graphs"
            raise UsageError(
                "E-VERIFY-GRAPHS", None, why, expected=_named(one), found=_named(other),
                hint="Compare what they compute with --level none --prompt TEXT"
            )  # fmt: skip
        return {name: (part, other[name]) for name, part in one.items()}
    if (after.outputs or after.parts) and not before.outputs and not before.parts:
        from .unfolded_network import unfolded_networks

        return unfolded_networks(before, after)
    return {"": (before, after)} if before.outputs and after.outputs else {}


def _networks(graph: Graph, name: str = "") -> dict[str, Graph]:
    """The graphs with nodes of a model's parts, by the names of these."""
    if not graph.parts:
        return {name: graph} if graph.nodes and name else {}
    inner = ((f"{name}/{part}" if name else part, each) for part, each in graph.parts.items())
    return {key: found for part, each in inner for key, found in _networks(each, part).items()}


def _named(networks: dict[str, Graph]) -> str:
    return ", ".join(networks) or "weights without graphs"
