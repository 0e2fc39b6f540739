"""Numba types of 16-lane vectors, and the operators between them."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, lower_cast, models, register_model

from ..jit.isa import VECTOR_LANES as LANES

SCALAR_TYPES = {types.float32: ir.FloatType(), types.int32: ir.IntType(32), types.boolean: ir.IntType(1)}


class Vector(types.Type):
    """`LANES` elements of one scalar type."""

    def __init__(self, element: types.Type) -> None:
        self.element = element
        super().__init__(name=f"{element}x{LANES}")

    def can_convert_from(self, context: Any, other: types.Type) -> Any:
        """A scalar is broadcast to all lanes."""
        return Conversion.safe if isinstance(other, types.Number) else None


F32, I32, MASK = Vector(types.float32), Vector(types.int32), Vector(types.boolean)


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, llvm(kind))


def llvm(kind: Vector) -> ir.VectorType:
    """LLVM's type of a vector."""
    return ir.VectorType(SCALAR_TYPES[kind.element], LANES)


@lower_cast(types.Number, Vector)
def _fill(context: Any, builder: Any, source: types.Type, target: Vector, value: Any) -> Any:
    return _splat(builder, context.cast(builder, value, source, target.element), target)


def _splat(builder: Any, value: Any, kind: Vector) -> Any:
    undefined = ir.Constant(llvm(kind), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _operator(function: Any, kinds: dict[Vector, Callable[[Any, Any, Any], Any]], result: Vector | None = None) -> None:
    """Type and lower a binary operator for these vectors; either operand may be a scalar."""

    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            vectors = [each for each in args if isinstance(each, Vector)]
            fits = len(args) == 2 and vectors and vectors[0] in kinds
            if fits and all(each == vectors[0] or isinstance(each, types.Number) for each in args):
                return signature(result or vectors[0], vectors[0], vectors[0])
            return None

    infer_global(function)(Typing)

    @lower_builtin(function, Vector, Vector)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return kinds[sig.args[0]](builder, *args)


def _instruction(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, a, b: getattr(builder, name)(a, b)


def _comparison(symbol: str) -> dict[Vector, Callable[[Any, Any, Any], Any]]:
    """NaN is unequal to everything and not less or greater than anything."""

    def floats(builder: Any, a: Any, b: Any) -> Any:
        return (builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered)(symbol, a, b)

    return {F32: floats, I32: lambda builder, a, b: builder.icmp_signed(symbol, a, b)}


for _function, _float, _int in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
):
    _operator(_function, {F32: _instruction(_float), I32: _instruction(_int)})
    _operator(getattr(operator, f"i{_function.__name__}"), {F32: _instruction(_float), I32: _instruction(_int)})
_operator(operator.truediv, {F32: _instruction("fdiv")})
for _function, _name in ((operator.and_, "and_"), (operator.or_, "or_"), (operator.xor, "xor")):
    _operator(_function, {I32: _instruction(_name), MASK: _instruction(_name)})
    _operator(getattr(operator, f"i{_name.rstrip('_')}"), {I32: _instruction(_name), MASK: _instruction(_name)})
_operator(operator.lshift, {I32: _instruction("shl")})
_operator(operator.rshift, {I32: _instruction("lshr")})
for _function, _symbol in zip(
    (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    ("<", "<=", ">", ">=", "==", "!="),
    strict=True,
):
    _operator(_function, _comparison(_symbol), MASK)


def _unary(function: Any, kind: Vector, instruction: Callable[[Any, Any], Any]) -> None:
    """Type and lower a unary operator for one kind of vector."""

    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            return signature(kind, kind) if tuple(args) == (kind,) else None

    infer_global(function)(Typing)
    lower_builtin(function, kind)(lambda context, builder, sig, args: instruction(builder, args[0]))


def call(builder: Any, name: str, value: Any) -> Any:
    """A function of LLVM on a vector."""
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(value.type, [value.type]), name)
    return builder.call(function, [value])


_unary(operator.neg, F32, lambda builder, value: builder.fneg(value))
_unary(operator.invert, MASK, lambda builder, value: builder.not_(value))
_unary(abs, F32, lambda builder, value: call(builder, f"llvm.fabs.v{LANES}f32", value))
