"""Operand types: whether the dtypes of a node's inputs are those that the operator definition allows.

An operator states them as `Op.types`, the types of its inputs in order: ``"T=float T index"``. A type is a sum of
sets, dtypes and the containers sequence, optional and map. ``T=float`` names it: all inputs that say ``T`` have one and
the same type. ``*`` is any number of inputs of one type, ``**`` any number of inputs whose types may differ. ``-> 3``
at the end is the most outputs, ``-> *`` any number, where that is not one. Operators without types, our own fused ones
among them, take anything.
"""

from __future__ import annotations

from ..base.dataclass import dataclass
from ..base.process_cache import process_cache
from ..tensor.dtype import BlockType
from .graph import Node, Value
from .op import Op

SETS = {
    "half": "bf16 f16",
    "real": "bf16 f16 f32",
    "ieee": "f16 f32 f64",
    "float": "bf16 f16 f32 f64",
    "int": "i8 i16 i32 i64",
    "uint": "u8 u16 u32 u64",
    "byte": "i8 u8",
    "index": "i32 i64",
    "wide": "f32 f64",
    "complex": "c64 c128",
    "f8": "f8_e4m3 f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz",
    "short": "i16 u16",
    "integer": "i8 i16 i32 i64 u8 u16 u32 u64",
    "number": "bf16 f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    "tensor": "bf16 bool c64 c128 f16 f32 f64 i8 i16 i32 i64 string u8 u16 u32 u64",
    "any": "bf16 bool c64 c128 f4 f16 f32 f64 f8_e4m3 f8_e5m2 f8_e8m0 f8_e4m3fnuz f8_e5m2fnuz i2 i4 i8 "
    "i16 i32 i64 string u2 u4 u8 u16 u32 u64",
    "long": "i32 i64 u32 u64",
    "nibble": "i4 u4",
    "crumb": "i2 u2",
}
"""Names for sets of dtypes."""
NARROW = frozenset({"i4", "u4", "i2", "u2", "f4", "f8_e4m3", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz", "f8_e8m0"})
MOVED = frozenset({"f32", "i64", "bool", "string"})
"""Operators that accept all of these dtypes only move elements; they also accept quantized weights, which few
definitions list."""
UNLIMITED = 1 << 31
"""Output count of variadic operators."""


@dataclass(frozen=True)
class Formal:
    """The types that an operator definition allows for one input.

    Attributes:
        kinds: names of dtypes, and of containers: sequence, optional, map.
        variable: type variable; inputs with the same variable have one type; "" for none.
        text: the definition as the operator states it, for messages.
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
    if operator.types is None:
        return UNLIMITED
    most = operator.types.partition("->")[2].strip()
    return UNLIMITED if most == "*" else int(most or 1)


def _named(value: Value | None) -> str:
    return "" if value is None else repr(value.name)


def _kind(value: Value) -> str | None:
    """The outermost container of a value or its dtype, None if unknown; quantized weights count as f32."""
    if value.container:
        outer = value.container[0]
        return "map" if outer.startswith("map:") else None if outer == "sparse" else outer
    return None if value.dtype is None else "f32" if isinstance(value.dtype, BlockType) else value.dtype.name


@process_cache
def _formals(operator: Op) -> tuple[Formal, ...]:
    """The input definitions of an operator; the last one is repeated for variadic inputs."""
    names: dict[str, Formal] = {}
    found = []
    for word in (operator.types or "").partition("->")[0].split():
        name, _, types = word.rstrip("*").rpartition("=")
        if name or types not in names:
            repeated = types if word.endswith("*") and not word.endswith("**") else ""
            names[name or types] = Formal(_kinds(types), name or repeated, types.replace("+", ", "))
        found.append(names[name or types])
    return tuple(found)


def _kinds(types: str) -> frozenset[str]:
    return frozenset(kind for part in types.split("+") for kind in SETS.get(part, part).split())
