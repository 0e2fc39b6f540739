"""Applying: an operator's function called for a node, with an error that says what it was given where it cannot take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import UsageError
from .graph import Node
from .infer import MALFORMED

HINT = "Compare shapes and values with the definition of the operator; where they fit, please report it"


def applied(node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What the node's operator computes; UsageError where shapes or values do not fit each other in a way that NumPy finds."""
    assert node.op.compute is not None
    try:
        return node.op.compute(*inputs, **attributes)
    except MALFORMED as error:
        name = node.name or next((value.name for value in node.outputs if value.name), "")
        given = ", ".join(_described(item) for item in inputs)
        why = f"{node.op.name} {name!r} cannot be computed from {given} ({type(error).__name__}: {error})"
        raise UsageError("E-OP-INPUTS", None, why, hint=HINT) from error


def _described(item: Any) -> str:
    if item is None:
        return "nothing"
    return f"{item.dtype}{list(item.shape)}" if hasattr(item, "shape") and hasattr(item, "dtype") else type(item).__name__
