"""Q8_0 KV caches: keys and values that persist between runs are stored as blocks of 32 signed bytes and a scale (as by
llama.cpp's ``--cache-type-k q8_0``) and read in place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.dtype import F32, U8
from ..pattern.replace_nodes import rewrite

KEYS, VALUES = 1, 2
"""Inputs of Attention."""
ATTRIBUTES = {"scale", "softcap"}
"""Attributes of Attention that BlockAttention has, too."""
BLOCK, NBYTES = 32, 34
ROWS_AXIS = 2
"""The axis of a cache along which its rows lie."""


class StoreKVCacheAsBlocks:
    """Store f32 inputs as Q8_0 blocks if TensorScatter updates their rows and only Attention reads them, both as keys
    and as values: BlockAttention replaces it."""

    def run(self, graph: Graph) -> bool:
        """Return whether any changed."""
        uses: dict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    uses[value].append(node)
        fed, given = set(graph.inputs), set(graph.outputs)

        def is_cache(whole: Value | None) -> bool:
            """Whether a value is a cache of whole blocks that attention alone reads."""
            writer = None if whole is None else whole.producer
            if whole is None or writer is None or writer.op is not onnx.TensorScatter:
                return False
            past = writer.inputs[0]
            return (
                past in fed
                and past is not None
                and past.dtype is F32
                and len(uses[past]) == 1
                and past.shape is not None
                and len(past.shape) == 4
                and isinstance(past.shape[3], int)
                and past.shape[3] % BLOCK == 0
                and all(node.op is onnx.Attention or _passes(node, given) for node in uses[whole])
            )

        chosen = {
            node for node in graph.nodes if _attends(node) and all(is_cache(node.inputs[at]) for at in (KEYS, VALUES))
        }
        while True:
            read = {node.inputs[at] for node in chosen for at in (KEYS, VALUES)}
            caches = {
                value for value in read if value and all(node in chosen for node in uses[value] if _attends(node))
            }
            kept = {node for node in chosen if {node.inputs[KEYS], node.inputs[VALUES]} <= caches}
            if kept == chosen:
                break
            chosen = kept
        rules: dict[bool, Callable[[Node, Builder], None]] = {True: _attention, False: _scatter}

        def replace(node: Node, build: Builder) -> bool:
            if node not in chosen and node.outputs[0] not in caches:
                return False
            rules[node in chosen](node, build)
            for user in uses[node.outputs[0]] if node not in chosen else ():
                if user.op is onnx.Identity:
                    user.outputs[0].dtype, user.outputs[0].shape = node.outputs[0].dtype, node.outputs[0].shape
            return True

        return rewrite(graph, replace)


def _attends(node: Node) -> bool:
    return (
        node.op is onnx.Attention
        and len(node.outputs) == 1
        and all(value is None for value in node.inputs[4:])
        and {name for name, value in node.attributes.items() if value is not None} <= ATTRIBUTES
    )


def _passes(node: Node, given: set[Value]) -> bool:
    """Whether a reader leaves the elements alone: the next run's input, or the number of rows of a ring buffer."""
    if node.op is onnx.Shape:
        return node.attributes.get("start") == ROWS_AXIS and node.attributes.get("end") == ROWS_AXIS + 1
    return node.op is onnx.Identity and node.outputs[0] in given


def _attention(node: Node, build: Builder) -> None:
    attributes = {name: value for name, value in node.attributes.items() if value is not None}
    build.add("BlockAttention", node.inputs[:4], attributes, domain=CANDLE, outputs=node.outputs, name=node.name)


def _scatter(node: Node, build: Builder) -> None:
    past, new, *rest = node.inputs
    (whole,) = node.outputs
    assert past is not None
    assert past.shape is not None
    assert isinstance(past.shape[3], int)
    past.dtype = whole.dtype = U8
    past.shape = (*past.shape[:3], past.shape[3] // BLOCK * NBYTES)
    whole.shape = None if whole.shape is None else (*whole.shape[:3], past.shape[3])
    blocks = build.add("QuantizeBlocks", [new], domain=CANDLE)
    build.add("TensorScatter", [past, blocks, *rest], node.attributes, outputs=[whole], name=node.name)
