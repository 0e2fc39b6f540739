"""Constant folding at planning time: nodes whose inputs are known are computed by the planner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.evaluate import compute_node, input_decoder
from ..ir.graph import Node, Value
from ..region.known_values import MAX_FOLDED_ELEMENTS, KnownValues
from ..tensor.weight_array import Blocks, LazyWeight, Packed
from .plan import is_static, size


def folded(
    node: Node, facts: KnownValues, constants: Mapping[Value, np.ndarray | Blocks | Packed | LazyWeight]
) -> dict[Value, np.ndarray] | None:
    """The results of a node by output, None if its inputs are unknown or the results too large."""
    if node.subgraphs or node.op.asks or node.op.compute is None or not node.op.repeatable:
        return None
    outputs = [value for value in node.outputs if value.name]
    for value in outputs:
        found = facts.array(value)
        if (
            found is not None
            and len(outputs) == 1
            and value.dtype is not None
            and value.dtype.kind in ("int", "uint", "bool")
        ):
            return {value: found.astype(value.dtype.as_numpy(), copy=False)}
    inputs = [value for value in node.inputs if value is not None]
    if any(value not in constants for value in inputs):
        return None
    if any(not is_static(value.shape) or size(value.shape) > MAX_FOLDED_ELEMENTS for value in outputs):
        return None
    if sum(constants[value].size for value in inputs) > MAX_FOLDED_ELEMENTS:
        return None
    take = input_decoder(node.op)
    results = compute_node(
        node, [None if value is None else take(constants[value]) for value in node.inputs], node.attributes
    )
    results = results if isinstance(results, tuple) else (results,)
    if any(isinstance(result, list | dict) or result is None for result in results):
        return None
    return {value: np.asarray(result) for value, result in zip(node.outputs, results, strict=False) if value.name}
