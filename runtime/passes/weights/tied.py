"""Tied weights: several names for the same bytes of a file, such as an embedding shared with the output matrix."""

from __future__ import annotations

from collections.abc import Hashable

from ...base.dataclass import dataclass
from ...base.errors import UnsafeFileError
from ...ir.graph import Graph


@dataclass(frozen=True)
class Tied:
    """Policy for tied weights.

    Attributes:
        policy: ``clone`` writes the bytes under every name, ``dedupe`` keeps the first name and records the others in
            the metadata (dropped name: kept name, as safetensors' save_model does), ``error`` refuses.
    """

    policy: str = "clone"

    def run(self, graph: Graph) -> bool:
        """Change `graph.weights`; return whether any were tied."""
        first: dict[Hashable, str] = {}
        tied: dict[str, str] = {}
        for name, tensor in graph.weights.items():
            if tensor.storage.key is not None and tensor.nbytes:
                key = (tensor.storage.key, tensor.dtype, tensor.shape)
                kept = first.setdefault(key, name)
                if kept != name:
                    tied[name] = kept
        if tied and self.policy == "error":
            name, kept = next(iter(tied.items()))
            raise UnsafeFileError(
                "E-TIED", None, f"{name!r} shares its bytes with {kept!r}", hint="--tied clone or --tied dedupe"
            )
        for name, kept in tied.items():
            if self.policy == "dedupe":
                del graph.weights[name]
                graph.metadata[name] = kept
            graph.event(
                "W-TIED",
                f"shares its bytes with {kept!r}; {'dropped' if self.policy == 'dedupe' else 'written twice'}",
                name,
            )
        return bool(tied)
