"""Cost model: multiplications of a node computed from shapes; one per element for operators without a rule."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..base.process_cache import FILES, process_cache
from ..plugin import discovery
from .graph import Node, Value

Lengths = tuple[int, ...]
Rule = Callable[[list[Lengths | None], list[Lengths | None]], float]
"""Multiplications of a node from the shapes of its inputs and outputs (None for absent or unknown ones); a lower
bound."""

ITERATION = 2e4
"""Cost of a loop iteration with any body, in multiplications: about ten nanoseconds."""


def operations(node: Node) -> float:
    """Multiplications of a node with known shapes; 0 if unknown, infinite beyond the range of a float."""
    results = [_lengths(value) for value in node.outputs]
    rule = _rules().get(f"{node.op.domain}.{node.op.name}")
    try:
        least = float(sum(math.prod(shape) for shape in results if shape is not None))
        return least if rule is None else max(least, rule([_lengths(value) for value in node.inputs], results))
    except OverflowError:
        return math.inf


@process_cache(kept=FILES)
def _rules() -> dict[str, Rule]:
    found: dict[str, Rule] = discovery.COST_RULES.only()
    return found


def _lengths(value: Value | None) -> Lengths | None:
    if value is None or value.shape is None:
        return None
    known = tuple(length for length in value.shape if isinstance(length, int))
    return known if len(known) == len(value.shape) else None
