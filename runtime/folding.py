"""Folding: nodes whose results are known while a plan is made, because all that they take is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .applying import applied
from .blocks import Blocks, Packed, Unread, taken
from .graph import Node, Value
from .known import FOLDED_ELEMENTS, Known
from .plan import known, size


def folded(node: Node, facts: Known, constants: Mapping[Value, np.ndarray | Blocks | Packed | Unread]) -> dict[Value, np.ndarray] | None:
    """The results of an inferred node by its outputs, None where they are not known or too large to be computed ahead."""
    if node.subgraphs or node.op.asks or node.op.compute is None or not node.op.repeatable:
        return None
    outputs = [value for value in node.outputs if value.name]
    for value in outputs:
        found = facts.array(value)
        if found is not None and len(outputs) == 1 and value.dtype is not None and value.dtype.kind in ("int", "uint", "bool"):
            return {value: found.astype(value.dtype.as_numpy(), copy=False)}
    inputs = [value for value in node.inputs if value is not None]
    if any(value not in constants for value in inputs):
        return None
    if any(not known(value.shape) or size(value.shape) > FOLDED_ELEMENTS for value in outputs):
        return None
    if sum(constants[value].size for value in inputs) > FOLDED_ELEMENTS:
        return None
    take = taken(node.op)
    results = applied(node, [None if value is None else take(constants[value]) for value in node.inputs], node.attributes)
    results = results if isinstance(results, tuple) else (results,)
    if any(isinstance(result, list | dict) or result is None for result in results):
        return None
    return {value: np.asarray(result) for value, result in zip(node.outputs, results, strict=False) if value.name}
