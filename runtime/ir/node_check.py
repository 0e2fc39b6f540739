"""Node check: whether a node's inputs and attributes fit the signature of its operator's function."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ..base.process_cache import process_cache
from ..base.units import counted
from .graph import Function, Graph, Node, Reference, Value
from .op import Op
from .operand_types import most_outputs

WORDS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (int, ("int", "float", "bool")),
    (float, ("float",)),
    (str, ("str",)),
    (bytes, ("bytes", "str")),
    (Graph, ("Graph",)),
    (Value, ("Value",)),
    (list, ("list", "tuple", "Sequence")),
)
KNOWN = {"int", "float", "bool", "str", "bytes", "Graph", "list", "tuple", "Sequence", "None", "np", "ndarray"}


def invalid_reason(node: Node) -> str | None:
    """Why a node violates the signature of its operator; None if it does not."""
    if isinstance(node.op, Function):
        return _of_call(node, node.op)
    if node.op.compute is None:
        return None
    least, most, required, kinds = _signature(node.op)
    if not len(least) <= len(node.inputs) <= most:
        fewest = len(least)
        more = "" if fewest == most else " or more" if most > 1000 else f" to {most}"
        return f"it has {counted(len(node.inputs), 'input')}, the operator takes {fewest}{more}"
    absent = next((index for index, needed in enumerate(least) if needed and node.inputs[index] is None), None)
    if absent is not None:
        return f"input {absent}, which the operator needs, is absent"
    if not node.outputs or len(node.outputs) > most_outputs(node.op):
        return (
            f"it has {counted(len(node.outputs), 'output')}, "
            f"the operator has 1{'' if most_outputs(node.op) == 1 else f' to {most_outputs(node.op)}'}"
        )
    for name in required:
        if name not in node.attributes:
            return f"the attribute {name!r} is missing"
    for name, value in node.attributes.items():
        if kinds is None:
            break
        if name not in kinds:
            return f"unknown attribute {name!r}"
        words = set(re.findall(r"\w+", kinds[name]))
        if words <= KNOWN and not _fits(value, words):
            return f"the attribute {name!r} cannot be {type(value).__name__}"
    return None


def _of_call(node: Node, function: Function) -> str | None:
    """As `invalid_reason`, for a call of a function that the model defines."""
    for what, given, most in (
        ("inputs", node.inputs, function.body.inputs),
        ("outputs", node.outputs, function.body.outputs),
    ):
        if len(given) > len(most):
            return f"it has {len(given)} {what}, the function has {len(most)}"
    return None


def _fits(value: Any, words: set[str]) -> bool:
    """Whether an attribute can be what an annotation of these words says; what a `Reference` stands for is looked at
    where it is known."""
    if isinstance(value, Reference):
        return True
    fitting = next((fitting for kind, fitting in WORDS if isinstance(value, kind)), ("ndarray",))
    if words.isdisjoint(fitting):
        return False
    return not isinstance(value, list) or all(_fits(item, words - {"list", "tuple", "Sequence"}) for item in value)


@process_cache
def _signature(operator: Op) -> tuple[tuple[bool, ...], int, tuple[str, ...], dict[str, str] | None]:
    """For each input that a node must have whether it may not be empty, the most inputs, required attributes, and all
    attributes with their annotations, None where any are taken."""
    assert operator.compute is not None
    parameters = list(inspect.signature(operator.compute).parameters.values())
    inputs = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    variadic = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    keywords = [item for item in parameters if item.kind is item.KEYWORD_ONLY and item.name != "call"]
    least = tuple("None" not in _text(item.annotation) for item in inputs if item.default is item.empty)
    required = tuple(item.name for item in keywords if item.default is item.empty)
    kinds = (
        None
        if any(item.kind is item.VAR_KEYWORD for item in parameters)
        else {item.name: _text(item.annotation) for item in keywords}
    )
    return least, 1 << 31 if variadic else len(inputs), required, kinds


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
