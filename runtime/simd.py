"""Vectors of 16 lanes inside compiled kernels: arithmetic as for numbers, each lane rounding as one number would.

`F32`, `I32` and `MASK` are Numba types over LLVM's generic vectors, so that any CPU runs them and a wide one keeps them in registers.
A plain number next to a vector fills all lanes. Branches become `select`.
"""

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
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model
from numba.np.arrayobj import populate_array

LANES = 16
_LLVM = {types.float32: ir.FloatType(), types.int32: ir.IntType(32), types.boolean: ir.IntType(1)}


class Vector(types.Type):
    """`LANES` numbers of one scalar type."""

    def __init__(self, element: types.Type) -> None:
        self.element = element
        super().__init__(name=f"{element}x{LANES}")

    def can_convert_from(self, context: Any, other: types.Type) -> Any:
        """Numbers fill all lanes."""
        return Conversion.safe if isinstance(other, types.Number) else None


F32, I32, MASK = Vector(types.float32), Vector(types.int32), Vector(types.boolean)


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, _llvm(kind))


def _llvm(kind: Vector) -> ir.VectorType:
    return ir.VectorType(_LLVM[kind.element], LANES)


@lower_cast(types.Number, Vector)
def _fill(context: Any, builder: Any, source: types.Type, target: Vector, value: Any) -> Any:
    return _splat(builder, context.cast(builder, value, source, target.element), target)


def _splat(builder: Any, value: Any, kind: Vector) -> Any:
    undefined = ir.Constant(_llvm(kind), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _operator(function: Any, kinds: dict[Vector, Callable[[Any, Any, Any], Any]], result: Vector | None = None) -> None:
    """Type and lower a binary operator for these vectors, numbers on either side included."""

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


for _function, _float, _int in ((operator.add, "fadd", "add"), (operator.sub, "fsub", "sub"), (operator.mul, "fmul", "mul")):
    _operator(_function, {F32: _instruction(_float), I32: _instruction(_int)})
    _operator(getattr(operator, f"i{_function.__name__}"), {F32: _instruction(_float), I32: _instruction(_int)})
_operator(operator.truediv, {F32: _instruction("fdiv")})
for _function, _name in ((operator.and_, "and_"), (operator.or_, "or_"), (operator.xor, "xor")):
    _operator(_function, {I32: _instruction(_name), MASK: _instruction(_name)})
    _operator(getattr(operator, f"i{_name.rstrip('_')}"), {I32: _instruction(_name), MASK: _instruction(_name)})
_operator(operator.lshift, {I32: _instruction("shl")})
_operator(operator.rshift, {I32: _instruction("lshr")})
for _function, _symbol in zip(
    (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne), ("<", "<=", ">", ">=", "==", "!="), strict=True
):
    _operator(_function, _comparison(_symbol), MASK)


def _unary(function: Any, kind: Vector, instruction: Callable[[Any, Any], Any]) -> None:
    """Type and lower a unary operator for one kind of vector."""

    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            return signature(kind, kind) if tuple(args) == (kind,) else None

    infer_global(function)(Typing)
    lower_builtin(function, kind)(lambda context, builder, sig, args: instruction(builder, args[0]))


def _call(builder: Any, name: str, value: Any) -> Any:
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(value.type, [value.type]), name)
    return builder.call(function, [value])


_unary(operator.neg, F32, lambda builder, value: builder.fneg(value))
_unary(operator.invert, MASK, lambda builder, value: builder.not_(value))
_unary(abs, F32, lambda builder, value: _call(builder, f"llvm.fabs.v{LANES}f32", value))


def _address(context: Any, builder: Any, sig: Any, args: Any, pointee: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), pointee.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """Sixteen neighbours of a flat float32, int32, uint16, uint8 or int8 array from element `index`."""
    kind = F32 if array.dtype == types.float32 else I32
    narrow = None if array.dtype in _LLVM else ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, sig, args, narrow or _llvm(kind)))
        value.align = array.dtype.bitwidth // 8
        if narrow is None:
            return value
        return (builder.sext if array.dtype.signed else builder.zext)(value, _llvm(I32))

    return kind(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write sixteen neighbours from element `index`; integers into an array of uint8 or uint16 keep their lowest bits."""
    narrow = array.dtype in (types.uint8, types.uint16)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.trunc(args[2], ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)) if narrow else args[2]
        builder.store(value, _address(context, builder, sig, args, value.type), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), lower


@intrinsic(prefer_literal=True)
def room(typing: Any, dtype: Any, vectors: Any) -> Any:
    """An array of `vectors` times sixteen numbers on the stack, unfilled; `vectors` is a constant. It ends with the function that made it."""
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    count = vectors.literal_value * LANES
    kind = types.Array(dtype.dtype, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(element, count))
        place.align = 64
        array = context.make_array(kind)(context, builder)
        sizes = [ir.Constant(ir.IntType(64), each) for each in (count, context.get_abi_sizeof(element))]
        data = builder.bitcast(place, element.as_pointer())
        populate_array(array, data=data, shape=sizes[:1], strides=sizes[1:], itemsize=sizes[1], meminfo=None)
        return array._getvalue()

    return kind(dtype, vectors), lower


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Where the elements of an array lie."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(context.make_array(sig.args[0])(context, builder, args[0]).data, ir.IntType(64))

    return types.int64(array), lower


@intrinsic
def gather(typing: Any, array: Any, indices: Any) -> Any:
    """Elements of a flat float32 or int32 array, one per lane."""
    kind = {types.float32: F32, types.int32: I32}[array.dtype]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        result = ir.Constant(_llvm(kind), ir.Undefined)
        for lane in range(LANES):
            at = ir.Constant(ir.IntType(32), lane)
            element = builder.load(builder.gep(data, [builder.sext(builder.extract_element(args[1], at), ir.IntType(64))]))
            result = builder.insert_element(result, element, at)
        return result

    return kind(array, indices), lower


@intrinsic
def select(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where `mask` is set, else `no`; with a plain truth value one of two numbers."""
    kind = yes if isinstance(yes, Vector) else no if isinstance(no, Vector) else typing.unify_types(yes, no)
    if mask == MASK and not isinstance(kind, Vector):
        kind = I32 if isinstance(kind, types.Integer) else F32

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(args[0], args[1], args[2])

    return kind(mask, kind, kind), lower


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """A float32 or int32 number in all lanes."""
    kind = F32 if isinstance(value, types.Float) else I32
    return kind(kind), lambda context, builder, sig, args: args[0]


@intrinsic
def lane_numbers(typing: Any) -> Any:
    """0 to 15."""
    return I32(), lambda context, builder, sig, args: ir.Constant(_llvm(I32), list(range(LANES)))


@intrinsic
def least(typing: Any, vector: Any) -> Any:
    """The smallest number of all lanes."""
    name, kind = {F32: ("fmin", "f32"), I32: ("smin", "i32")}[vector]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        signature = ir.FunctionType(args[0].type.element, [args[0].type])
        reduce = cgutils.get_or_insert_function(builder.module, signature, f"llvm.vector.reduce.{name}.v{LANES}{kind}")
        return builder.call(reduce, args)

    return vector.element(vector), lower


@intrinsic
def sqrt(typing: Any, vector: Any) -> Any:
    """The rounded square root of each lane."""
    return F32(F32), lambda context, builder, sig, args: _call(builder, f"llvm.sqrt.v{LANES}f32", args[0])


@intrinsic
def bits(typing: Any, value: Any) -> Any:
    """The bit pattern of float32 as int32."""
    kind, target = (F32, ir.VectorType(ir.IntType(32), LANES)) if isinstance(value, Vector) else (types.float32, ir.IntType(32))
    return (I32 if kind == F32 else types.int32)(kind), lambda context, builder, sig, args: builder.bitcast(args[0], target)


@intrinsic
def from_bits(typing: Any, value: Any) -> Any:
    """The float32 with that int32 bit pattern."""
    kind, target = (I32, ir.VectorType(ir.FloatType(), LANES)) if isinstance(value, Vector) else (types.int32, ir.FloatType())
    return (F32 if kind == I32 else types.float32)(kind), lambda context, builder, sig, args: builder.bitcast(args[0], target)


@intrinsic
def to_float(typing: Any, vector: Any) -> Any:
    """Integers as float32, rounded to nearest even."""
    return F32(I32), lambda context, builder, sig, args: builder.sitofp(args[0], _llvm(F32))


@intrinsic
def to_int(typing: Any, vector: Any) -> Any:
    """Float32 in the range of int32 as integers, cut towards zero; anything outside gives any value."""
    return I32(F32), lambda context, builder, sig, args: builder.fptosi(args[0], _llvm(I32))


@intrinsic
def no_lane(typing: Any) -> Any:
    """A mask that is set nowhere."""
    return MASK(), lambda context, builder, sig, args: ir.Constant(_llvm(MASK), [0] * LANES)


@intrinsic
def any_lane(typing: Any, mask: Any) -> Any:
    """Whether any lane is set."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", word, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(mask), lower


@intrinsic
def lane_bits(typing: Any, mask: Any) -> Any:
    """A mask as an integer, lane 0 in its lowest bit."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], ir.IntType(LANES)), ir.IntType(64))

    return types.int64(mask), lower


@intrinsic
def lowest_bit(typing: Any, value: Any) -> Any:
    """The place of the lowest bit that is set in an integer other than zero."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), lower
