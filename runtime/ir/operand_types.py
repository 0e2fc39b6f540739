"""Operand types: whether the dtypes of a node's inputs are those that the operator definition allows.

The definitions are in the module that declares OPERAND_TYPES. Operators that it does not have, our own fused ones among
them, take anything.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..base.dataclass import dataclass
from ..plugin.discovery import OPERAND_TYPES
from ..tensor.dtype import BlockType
from .graph import Node, Value
from .op import Op

NARROW = frozenset({"i4", "u4", "i2", "u2", "f4", "f8_e4m3", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz", "f8_e8m0"})
MOVED = frozenset({"f32", "i64", "bool", "string"})
"""Operators that accept all of these dtypes only move elements; they also accept quantized weights, which few
definitions list."""
UNLIMITED = 1 << 31
"""Output count of variadic operators."""


class OperandTypes(NamedTuple):
    """What definitions of operators say of their operands.

    Attributes:
        sets: names of sets of dtypes, and what is in them.
        inputs: types of the inputs, and the operators that take them.
        outputs: how many outputs nodes may have where that is not one, and their operators.
    """

    sets: dict[str, str]
    inputs: dict[str, str]
    outputs: dict[int, str]


@dataclass(frozen=True)
class Formal:
    """The types that an operator definition allows for one input.

    Attributes:
        kinds: names of dtypes, and of containers: sequence, optional, map.
        variable: type variable; inputs with the same variable have one type; "" for none.
        text: the definition as written in the table, for messages.
    """

    kinds: frozenset[str]
    variable: str
    text: str


def mismatch(node: Node) -> str | None:
    """Why the known types of a node's inputs contradict its operator; None if they do not."""
    formals = _formals(node.op)
    if not formals:
        return None
    bound: dict[str, tuple[str, Value | None]] = {}
    for index, value in enumerate(node.inputs):
        kind = None if value is None else _kind(value)
        if kind is None:
            continue
        formal = formals[min(index, len(formals) - 1)]
        if kind not in formal.kinds and not (kind in NARROW and formal.kinds >= MOVED):
            return f"input {index}, {_named(value)}, is {kind}, the operator takes {formal.text}"
        first, other = bound.setdefault(formal.variable, (kind, value)) if formal.variable else (kind, value)
        if first != kind:
            return f"input {_named(other)} is {first} and input {_named(value)} is {kind}, which have to be of one type"
    return None


def most_outputs(operator: Op) -> int:
    """Number of outputs that a node of an operator may have."""
    key = _key(operator)
    return _outputs().get(key, 1 if key in _inputs() else UNLIMITED)


def _named(value: Value | None) -> str:
    return "" if value is None else repr(value.name)


def _kind(value: Value) -> str | None:
    """The outermost container of a value or its dtype, None if unknown; quantized weights count as f32."""
    if value.container:
        outer = value.container[0]
        return "map" if outer.startswith("map:") else None if outer == "sparse" else outer
    return None if value.dtype is None else "f32" if isinstance(value.dtype, BlockType) else value.dtype.name


def _key(operator: Op) -> str:
    return f"{operator.domain}.{operator.name}" if operator.domain else operator.name


@functools.cache
def _formals(operator: Op) -> tuple[Formal, ...]:
    """The input definitions of an operator; the last one is repeated for variadic inputs."""
    names: dict[str, Formal] = {}
    found = []
    for word in _inputs().get(_key(operator), "").split():
        name, _, types = word.rstrip("*").rpartition("=")
        if name or types not in names:
            repeated = types if word.endswith("*") and not word.endswith("**") else ""
            names[name or types] = Formal(_kinds(types), name or repeated, types.replace("+", ", "))
        found.append(names[name or types])
    return tuple(found)


def _kinds(types: str) -> frozenset[str]:
    sets = _definitions().sets
    return frozenset(kind for part in types.split("+") for kind in sets.get(part, part).split())


@functools.cache
def _definitions() -> OperandTypes:
    found: OperandTypes = OPERAND_TYPES.only()
    return found


@functools.cache
def _inputs() -> dict[str, str]:
    return {name: types for types, names in _definitions().inputs.items() for name in names.split()}


@functools.cache
def _outputs() -> dict[str, int]:
    return {name: count for count, names in _definitions().outputs.items() for name in names.split()}
