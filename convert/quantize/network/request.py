"""Options of quantizing an ONNX network: the type, the kind, and the nodes."""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass
from ....runtime.base.untrusted.regex import compiled
from ....runtime.ir.graph import Node

REQUANTIZE_HINT = "Start from the original model, or use --allow-requantize, which loses more quality"
"""Hint for weights that are quantized already, also those of models without a graph."""


@dataclass(frozen=True)
class Request:
    """How to quantize a network.

    Attributes:
        type: int8, uint8, int4, fp8 (of weights), f16 or bf16.
        kind: dynamic (activations rounded on every run), static (with ranges), blocks and float8 (weights alone), half.
        activation: uint8 or int8, of static quantization.
        form: nbits or qdq, of blocks; qdq or qoperator, of static quantization.
        block: weights that share a scale, of blocks.
        nodes, excluded: patterns of names of nodes to quantize, by default all, and of nodes to skip.
        reduce_range: whether 8-bit weights use 7 bits.
        no_fallback: whether a selected node that stays in floating point is an error.
        wide: values that the type cannot hold; nodes that make or read them stay as they are.
        allow_requantize: whether weights that the file holds quantized are quantized again.
        tables: how lookup tables are quantized, of blocks: in blocks too, or in rows of int8.
    """

    type: str
    kind: str
    activation: str = "uint8"
    form: str = "nbits"
    block: int = 32
    per_channel: bool = False
    symmetric: bool = False
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    no_fallback: bool = False
    reduce_range: bool = False
    wide: frozenset[str] = frozenset()
    allow_requantize: bool = False
    tables: str = "blocks"

    def selects(self, node: Node) -> bool:
        """Whether the name of a node, or of its first output, is among those asked for, and its values have room."""
        return self.names(node) and not self.overflows(node)

    def overflows(self, node: Node) -> bool:
        """Whether the type cannot hold the node's values."""
        return any(value is not None and value.name in self.wide for value in (*node.inputs, *node.outputs))

    def names(self, node: Node) -> bool:
        """Whether the name of a node, or of its first output, is among those asked for."""
        names = [name for name in (node.name, *(value.name for value in node.outputs[:1])) if name]

        def among(patterns: tuple[str, ...]) -> bool:
            return any(compiled(pattern).search(name) for pattern in patterns for name in names)

        return (not self.nodes or among(self.nodes)) and not among(self.excluded)
