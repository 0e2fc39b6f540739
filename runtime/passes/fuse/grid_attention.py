"""Attention over keys after which one-hot vectors of their row and column in a grid stand becomes GridAttention, whose
products are shorter."""

from __future__ import annotations

import numpy as np

from ...base.dataclass import dataclass
from ...ir import registry
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import F32
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, rewrite
from ..pattern.stage import PipelinePass

LANES = 16
"""Keys of a row come in multiples of these; otherwise the kernel of Attention is used."""


@dataclass(frozen=True)
class FuseGridAttention:
    """Rewrite in place."""

    def run(self, graph: Graph) -> bool:
        """Whether any were replaced."""
        if not any(node.op is onnx.Attention for node in graph.nodes):
            return False
        infer(graph)
        return rewrite(graph, _replace) and RemoveDeadCode().run(graph)


def _replace(node: Node, build: Builder) -> bool:
    plain = {"is_causal": 0, "left_window_size": -1, "right_window_size": -1, "softcap": 0.0, "softmax_precision": None}
    if node.op is not onnx.Attention or len(node.outputs) > 1 or any(node.inputs[3:]):
        return False
    if any(node.attributes.get(name, value) != value for name, value in plain.items()):
        return False
    q, k, v = node.inputs[:3]
    scale, joined = node.attributes.get("scale"), None if k is None else k.producer
    if scale is None or q is None or v is None or joined is None or joined.op is not onnx.Concat:
        return False
    if len(joined.inputs) != 2 or joined.attributes.get("axis") not in (3, -1):
        return False
    keys, behind = joined.inputs
    grid = None if keys is None or behind is None else _grid(build.graph, behind)
    if grid is None or keys is None or any(value.dtype is not F32 for value in (q, keys, v)):
        return False
    if q.shape is None or keys.shape is None or (len(q.shape), len(keys.shape), q.shape[1]) != (4, 4, keys.shape[1]):
        return False
    operator = registry.operator("GridAttention", CANDLE)
    assert operator is not None
    attributes = {"rows": grid[0], "columns": grid[1], "scale": scale}
    build.add(operator, [q, keys, v], attributes, outputs=node.outputs, name=node.name)
    return True


def _grid(graph: Graph, behind: Value) -> tuple[int, int] | None:
    """Rows and columns of a grid whose positions, one-hot, a value repeats for each head; None for other values."""
    maker = behind.producer
    value = maker.inputs[0] if maker is not None and maker.op is onnx.Expand else behind
    held = constant(graph, value)
    if held is None or held.dtype is not F32 or len(held.shape) != 4 or held.shape[:2] != (1, 1):
        return None
    keys, width = held.shape[2:]
    marks = held.numpy()[0, 0]
    columns = int(np.argmax(marks[:, width - 1])) + 1 if keys and width else 0
    rows = width - columns
    if columns % LANES or rows < 1 or rows * columns != keys:
        return None
    row, column = np.divmod(np.arange(keys), columns)
    wanted = np.zeros_like(marks)
    wanted[np.arange(keys), row] = wanted[np.arange(keys), rows + column] = 1
    return (rows, columns) if columns and np.array_equal(marks, wanted) else None


PIPELINE = (PipelinePass("regions", lambda options: FuseGridAttention(), backends=("cpu",)),)
