"""Signatures: whether a node has the inputs and attributes that its operator's function takes."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

from .graph import Graph, Node, Reference, Value
from .op import Op

WORDS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (int, ("int", "float", "bool")), (float, ("float",)), (str, ("str",)), (bytes, ("bytes", "str")), (Graph, ("Graph",)), (Value, ("Value",)),
    (list, ("list", "tuple", "Sequence")),
)  # fmt: skip
KNOWN = {"int", "float", "bool", "str", "bytes", "Graph", "list", "tuple", "Sequence", "None", "np", "ndarray"}


def refusal(node: Node) -> str | None:
    """Why a node cannot be an application of its operator; None where nothing speaks against it."""
    if node.op.compute is None:
        return None
    least, most, required, kinds = _signature(node.op)
    if not least <= len(node.inputs) <= most:
        return f"it has {len(node.inputs)} inputs, the operator takes {least}{'' if least == most else ' or more' if most > 1000 else f' to {most}'}"
    for name in required:
        if name not in node.attributes:
            return f"the attribute {name!r} is missing"
    for name, value in node.attributes.items():
        if kinds is None:
            break
        if name not in kinds:
            return f"the operator has no attribute {name!r}"
        words = set(re.findall(r"\w+", kinds[name]))
        fits = next((fitting for kind, fitting in WORDS if isinstance(value, kind)), ("ndarray",))
        if words <= KNOWN and not words & set(fits) and not isinstance(value, Reference):
            return f"the attribute {name!r} cannot be {type(value).__name__}"
    return None


@functools.cache
def _signature(operator: Op) -> tuple[int, int, tuple[str, ...], dict[str, str] | None]:
    """Fewest and most inputs, required attributes, and all attributes with their annotations, None where any are taken."""
    assert operator.compute is not None
    parameters = list(inspect.signature(operator.compute).parameters.values())
    inputs = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    variadic = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    keywords = [item for item in parameters if item.kind is item.KEYWORD_ONLY and item.name != "call"]
    least = sum(item.default is item.empty for item in inputs)
    required = tuple(item.name for item in keywords if item.default is item.empty)
    kinds = None if any(item.kind is item.VAR_KEYWORD for item in parameters) else {item.name: _text(item.annotation) for item in keywords}
    return least, 1 << 31 if variadic else len(inputs), required, kinds


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
