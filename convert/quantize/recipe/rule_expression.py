"""Expressions in recipes: literals and names with arithmetic, comparison, ``in`` and logic."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted

LONGEST = 400
"""Characters of an expression, which also bounds how deep it can be nested."""
Value = Any
"""int, float, bool, str, or a tuple of these."""


def _numbers(function: Callable[[Any, Any], Value]) -> Callable[[Value, Value], Value]:
    def checked(left: Value, right: Value) -> Value:
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise TypeError("arithmetic needs numbers")
        return function(left, right)

    return checked


ARITHMETIC: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: _numbers(operator.add),
    ast.Sub: _numbers(operator.sub),
    ast.Mult: _numbers(operator.mul),
    ast.Div: _numbers(operator.truediv),
    ast.FloorDiv: _numbers(operator.floordiv),
    ast.Mod: _numbers(operator.mod),
}
COMPARISON: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
UNARY: dict[type[ast.unaryop], Callable[[Value], Value]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Expression:
    """A parsed condition.

    Attributes:
        text: as it was written.
        tree: of the node types that `parse` lets through.
    """

    text: str
    tree: ast.expr

    def true(self, values: Mapping[str, Value]) -> bool:
        """Whether it holds where names have these values; UsageError where it cannot be computed."""
        try:
            return bool(_evaluate(self.tree, values))
        except (TypeError, ArithmeticError) as error:
            raise _refuse(self.text, f"cannot be computed: {error}") from error


def parse(text: str, names: frozenset[str]) -> Expression:
    """An expression that uses no other names than `names`."""
    if len(text) > LONGEST:
        raise _refuse(text[:40] + "...", f"has {counted(len(text), 'character')}, {LONGEST} are allowed")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError) as error:
        raise _refuse(text, "cannot be understood") from error
    for node in ast.walk(tree):
        _check(node, text, names)
    return Expression(text, tree)


def _check(node: ast.AST, text: str, names: frozenset[str]) -> None:
    if isinstance(node, ast.Name) and node.id not in names:
        raise _refuse(text, f"uses the unknown name {node.id!r}", f"Names: {', '.join(sorted(names))}")
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str):
        raise _refuse(text, f"holds {node.value!r}")
    plain = (
        ast.Name,
        ast.Load,
        ast.Constant,
        ast.BoolOp,
        ast.boolop,
        ast.UnaryOp,
        ast.BinOp,
        ast.Compare,
        ast.Tuple,
        ast.List,
    )
    if not isinstance(node, plain) and type(node) not in {*ARITHMETIC, *COMPARISON, *UNARY}:
        raise _refuse(text, f"holds {type(node).__name__}, which is not allowed")


def _evaluate(node: ast.expr, values: Mapping[str, Value]) -> Value:
    """The value of a checked tree; its depth is bounded by `LONGEST`."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.BoolOp():
            parts = (_evaluate(part, values) for part in node.values)
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.UnaryOp():
            return UNARY[type(node.op)](_evaluate(node.operand, values))
        case ast.BinOp():
            return ARITHMETIC[type(node.op)](_evaluate(node.left, values), _evaluate(node.right, values))
        case ast.Compare():
            sides = [_evaluate(side, values) for side in (node.left, *node.comparators)]
            return all(
                COMPARISON[type(op)](*pair) for op, pair in zip(node.ops, itertools.pairwise(sides), strict=True)
            )
        case ast.Tuple() | ast.List():
            return tuple(_evaluate(item, values) for item in node.elts)
    raise AssertionError(node)


def _refuse(text: str, why: str, hint: str = "Example: layer < n//8 and experts == 0") -> UsageError:
    return UsageError("E-RECIPE-WHEN", None, f"the condition {text!r} {why}", hint=hint)
