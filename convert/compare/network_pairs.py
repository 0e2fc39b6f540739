"""Pairs of networks: the graphs of two models that are run on the same inputs."""

from __future__ import annotations

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph


def network_pairs(before: Graph, after: Graph) -> dict[str, tuple[Graph, Graph]]:
    """The graphs to run of two networks, by the names of the files of models that have several; empty for other
    models. UsageError for models of different graphs."""
    if before.parts and after.parts:
        if before.parts.keys() != after.parts.keys():
            why = "the models have different graphs"
            raise UsageError(
                "E-VERIFY-GRAPHS", None, why, expected=", ".join(before.parts), found=", ".join(after.parts),
                hint="Compare what they compute with --level none --prompt TEXT"
            )  # fmt: skip
        return {name: (part, after.parts[name]) for name, part in before.parts.items()}
    if (after.outputs or after.parts) and not before.outputs and not before.parts:
        from .unfolded_network import unfolded_networks

        return unfolded_networks(before, after)
    return {"": (before, after)} if before.outputs and after.outputs else {}
