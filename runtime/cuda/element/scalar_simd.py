"""`runtime/simd/vector.py` with a single lane, for device functions: block encoders written for SIMD run on the GPU
too.

Every operation rounds by itself, as on the CPU: products and sums are never contracted, whatever the compiler's
options.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-redef"
from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..device.device import SIMULATED

LANES = 1
numbers: Any = ModuleType("numbers")
"""Replacement of NumPy in an encoder's source on the device."""

if SIMULATED:

    class Whole(int):
        """An int32 whose shift to the right fills in zeros, and whose results are of its kind."""

        def __rshift__(self, places: int) -> Whole:
            return _cut((int(self) & 0xFFFFFFFF) >> int(places))

    def _cut(value: int) -> Whole:
        """The lowest 32 bits."""
        return Whole(((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000)

    def _whole(symbol: Callable[[int, int], int]) -> Callable[[Any, Any], Whole]:
        return lambda one, other: _cut(symbol(int(one), int(other)))

    for _name in ("add", "sub", "mul", "and", "or", "xor", "lshift"):
        _made = _whole(getattr(operator, f"{_name}_" if _name in ("and", "or") else _name))
        setattr(Whole, f"__{_name}__", _made)
        setattr(Whole, f"__r{_name}__", lambda one, other, made=_made: made(other, one))

    def number(value: Any) -> Any:
        """A lane's number."""
        if isinstance(value, (bool, np.bool_)):
            return np.bool_(value)
        return Whole(value) if isinstance(value, (int, np.integer)) else np.float32(value)

    def load(array: Any, index: int) -> Any:
        """The element as a lane."""
        return number(array[index])

    def store(array: Any, index: int, value: Any) -> None:
        """Write a lane; narrow integers keep their lowest bits."""
        array[index] = value if array.dtype.kind == "f" else np.int64(value).astype(array.dtype)

    def stack_array(dtype: Any, vectors: int) -> Any:
        """An array of this thread."""
        return np.empty(vectors, dtype)

    def gather(array: Any, index: Any) -> Any:
        """The element at a lane's index."""
        return number(array[int(index)])

    def select(mask: Any, yes: Any, no: Any) -> Any:
        """One of two."""
        found = yes if mask else no
        whole = isinstance(yes, (int, np.integer)) and isinstance(no, (int, np.integer))
        return Whole(found) if whole else found if isinstance(found, np.bool_) else np.float32(found)

    def splat(value: Any) -> Any:
        """A number as a lane."""
        return number(value)

    def sqrt(value: Any) -> Any:
        """The rounded square root."""
        return np.sqrt(value)

    def bits(value: Any) -> Any:
        """The pattern of a float32."""
        return Whole(np.float32(value).view(np.int32))

    def from_bits(value: Any) -> Any:
        """The float32 of a pattern."""
        return np.uint32(int(value) & 0xFFFFFFFF).view(np.float32)

    def to_float(value: Any) -> Any:
        """The nearest float32 of an integer."""
        return np.float32(int(value))

    def to_int(value: Any) -> Any:
        """Cut towards zero."""
        return Whole(np.float32(value).astype(np.int32))

    def no_lane() -> Any:
        """A mask that is not set."""
        return np.bool_(False)

    def any_lane(mask: Any) -> bool:
        """Whether it is set."""
        return bool(mask)

    def lane_indices() -> Any:
        """Of the one lane."""
        return Whole(0)

    def lane_min(value: Any) -> Any:
        """Its number."""
        return value

else:
    from llvmlite import ir
    from numba.cuda import models, types
    from numba.cuda.core.imputils import lower_builtin, lower_cast
    from numba.cuda.cudaimpl import _generic_array
    from numba.cuda.extending import intrinsic, register_model
    from numba.cuda.typeconv import Conversion
    from numba.cuda.typing.templates import AbstractTemplate, infer_global, signature

    _NAN, _LEAST = (ir.Constant(ir.IntType(32), pattern) for pattern in (0xFFC00000, 0x80000000))
    _LLVM = {"float32": ir.FloatType(), "int32": ir.IntType(32), "bool": ir.IntType(1)}

    class Lane(types.Type):
        """One number, whose operations keep its kind."""

        def __init__(self, element: Any) -> None:
            self.element = element
            super().__init__(name=f"{element}x1")

        def can_convert_from(self, context: Any, other: Any) -> Any:
            """Plain numbers may stand for lanes."""
            return Conversion.safe if isinstance(other, types.Number) else None

    F32, I32, MASK = Lane(types.float32), Lane(types.int32), Lane(types.boolean)

    @register_model(Lane)
    class _Model(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Lane) -> None:
            super().__init__(manager, kind, _LLVM[str(kind.element)])

    @lower_cast(types.Number, Lane)
    def _fill(context: Any, builder: Any, source: Any, target: Lane, value: Any) -> Any:
        return context.cast(builder, value, source, target.element)

    def _operator(function: Any, kinds: dict[Lane, Callable[[Any, Any, Any], Any]], result: Lane | None = None) -> None:
        class Typing(AbstractTemplate):
            def generic(self, args: Any, kws: Any) -> Any:
                lanes = [each for each in args if isinstance(each, Lane)]
                fits = len(args) == 2 and lanes and lanes[0] in kinds
                if fits and all(each == lanes[0] or isinstance(each, types.Number) for each in args):
                    return signature(result or lanes[0], lanes[0], lanes[0])
                return None

        infer_global(function)(Typing)

        @lower_builtin(function, Lane, Lane)
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return kinds[sig.args[0]](builder, *args)

    def _instruction(name: str) -> Callable[[Any, Any, Any], Any]:
        return lambda builder, a, b: getattr(builder, name)(a, b)

    def _rounded(text: str, count: int) -> Callable[..., Any]:
        """A PTX instruction on floats."""
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * count)
        asm = ir.InlineAsm(
            kind, f"{text} {', '.join(f'${place}' for place in range(count + 1))};", ",".join(["=f", *["f"] * count])
        )
        return lambda builder, *args: builder.call(asm, args)

    def _comparison(symbol: str) -> dict[Lane, Callable[[Any, Any, Any], Any]]:
        def floats(builder: Any, a: Any, b: Any) -> Any:
            return (builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered)(symbol, a, b)

        return {F32: floats, I32: lambda builder, a, b: builder.icmp_signed(symbol, a, b)}

    for _function, _float, _int in (
        (operator.add, "add.rn.f32", "add"),
        (operator.sub, "sub.rn.f32", "sub"),
        (operator.mul, "mul.rn.f32", "mul"),
    ):
        for _each in (_function, getattr(operator, f"i{_function.__name__}")):
            _operator(_each, {F32: _rounded(_float, 2), I32: _instruction(_int)})
    _operator(operator.truediv, {F32: _rounded("div.rn.f32", 2)})
    for _function, _name in ((operator.and_, "and_"), (operator.or_, "or_"), (operator.xor, "xor")):
        for _each in (_function, getattr(operator, f"i{_name.rstrip('_')}")):
            _operator(_each, {I32: _instruction(_name), MASK: _instruction(_name)})
    _operator(operator.lshift, {I32: _instruction("shl")})
    _operator(operator.rshift, {I32: _instruction("lshr")})
    for _function, _symbol in zip(
        (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        ("<", "<=", ">", ">=", "==", "!="),
        strict=True,
    ):
        _operator(_function, _comparison(_symbol), MASK)

    def _unary(function: Any, kind: Lane, instruction: Callable[[Any, Any], Any]) -> None:
        class Typing(AbstractTemplate):
            def generic(self, args: Any, kws: Any) -> Any:
                return signature(kind, kind) if tuple(args) == (kind,) else None

        infer_global(function)(Typing)
        lower_builtin(function, kind)(lambda context, builder, sig, args: instruction(builder, args[0]))

    _unary(operator.neg, F32, _rounded("neg.f32", 1))
    _unary(operator.invert, MASK, lambda builder, value: builder.not_(value))
    _unary(abs, F32, _rounded("abs.f32", 1))

    def _place(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(context.make_array(sig.args[0])(context, builder, args[0]).data, [args[1]])

    @intrinsic
    def load(typing: Any, array: Any, index: Any) -> Any:
        """The element of a flat float32, int32, uint16, uint8 or int8 array as a lane."""
        kind = F32 if array.dtype == types.float32 else I32

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(_place(context, builder, sig, args))
            if array.dtype in (types.float32, types.int32):
                return value
            return (builder.sext if array.dtype.signed else builder.zext)(value, ir.IntType(32))

        return kind(array, types.intp), lower

    @intrinsic
    def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
        """Write a lane; integers into uint8 or uint16 keep their lowest bits."""
        kind = F32 if array.dtype == types.float32 else I32
        narrow = array.dtype in (types.uint8, types.uint16)

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found = builder.trunc(args[2], ir.IntType(array.dtype.bitwidth)) if narrow else args[2]
            builder.store(found, _place(context, builder, sig, args))
            return context.get_dummy_value()

        return types.void(array, types.intp, kind), lower

    @intrinsic
    def stack_array(typing: Any, dtype: Any, vectors: Any) -> Any:
        """An array of this thread; its length is a constant."""
        if not isinstance(vectors, types.IntegerLiteral):
            return None
        count, element = (
            vectors.literal_value,
            _DTYPES[dtype.typing_key] if isinstance(dtype, types.Function) else dtype.dtype,
        )

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _generic_array(context, builder, (count,), element, "stack_array", 5)

        return types.Array(element, 1, "C")(dtype, vectors), lower

    @intrinsic
    def gather(typing: Any, array: Any, index: Any) -> Any:
        """The element at a lane's index."""
        kind = F32 if array.dtype == types.float32 else I32

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.load(_place(context, builder, sig, [args[0], builder.sext(args[1], ir.IntType(64))]))

        return kind(array, I32), lower

    @intrinsic
    def select(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
        """`yes` where the mask is set, else `no`."""
        kind = (
            yes
            if isinstance(yes, Lane)
            else no
            if isinstance(no, Lane)
            else I32
            if isinstance(yes, types.Integer)
            else F32
        )
        return kind(mask, kind, kind), lambda context, builder, sig, args: builder.select(args[0], args[1], args[2])

    @intrinsic
    def splat(typing: Any, value: Any) -> Any:
        """A number as a lane."""
        kind = F32 if value == F32 or isinstance(value, types.Float) else I32
        return kind(kind), lambda context, builder, sig, args: args[0]

    @intrinsic
    def float32(typing: Any, value: Any) -> Any:
        """A number as a lane, also where the text has a plain number: so products and sums of those are not joined
        either."""
        return F32(F32), lambda context, builder, sig, args: args[0]

    @intrinsic
    def int32(typing: Any, value: Any) -> Any:
        """An integer as a lane."""
        return I32(I32), lambda context, builder, sig, args: args[0]

    vars(numbers).update(vars(np), float32=float32, int32=int32)
    _DTYPES = {float32: types.float32, int32: types.int32}

    @intrinsic
    def sqrt(typing: Any, value: Any) -> Any:
        """The rounded square root."""
        made = _rounded("sqrt.rn.f32", 1)
        return F32(F32), lambda context, builder, sig, args: made(builder, args[0])

    @intrinsic
    def bits(typing: Any, value: Any) -> Any:
        """The pattern of a float32; of NaN the one that x86 makes, since the device has another."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pattern = builder.bitcast(args[0], ir.IntType(32))
            return builder.select(builder.fcmp_unordered("uno", args[0], args[0]), _NAN, pattern)

        return I32(F32), lower

    @intrinsic
    def from_bits(typing: Any, value: Any) -> Any:
        """The float32 of a pattern."""
        return F32(I32), lambda context, builder, sig, args: builder.bitcast(args[0], ir.FloatType())

    @intrinsic
    def to_float(typing: Any, value: Any) -> Any:
        """The nearest float32 of an integer."""
        return F32(I32), lambda context, builder, sig, args: builder.sitofp(args[0], ir.FloatType())

    @intrinsic
    def to_int(typing: Any, value: Any) -> Any:
        """Cut towards zero; NaN and what does not fit is the least integer, as on x86."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            least, limit = (ir.Constant(ir.FloatType(), value) for value in (-(2.0**31), 2.0**31))
            inside = builder.and_(builder.fcmp_ordered(">=", args[0], least), builder.fcmp_ordered("<", args[0], limit))
            return builder.select(inside, builder.fptosi(args[0], ir.IntType(32)), _LEAST)

        return I32(F32), lower

    @intrinsic
    def no_lane(typing: Any) -> Any:
        """A mask that is not set."""
        return MASK(), lambda context, builder, sig, args: ir.Constant(ir.IntType(1), 0)

    @intrinsic
    def any_lane(typing: Any, mask: Any) -> Any:
        """Whether it is set."""
        return types.boolean(MASK), lambda context, builder, sig, args: args[0]

    @intrinsic
    def lane_indices(typing: Any) -> Any:
        """Of the one lane."""
        return I32(), lambda context, builder, sig, args: ir.Constant(ir.IntType(32), 0)

    @intrinsic
    def lane_min(typing: Any, value: Any) -> Any:
        """Its number."""
        return value.element(value), lambda context, builder, sig, args: args[0]

    @infer_global(operator.setitem)
    class _Put(AbstractTemplate):
        """A lane stands for its number where an array gets it."""

        def generic(self, args: Any, kws: Any) -> Any:
            array, _, value = args
            fits = isinstance(array, types.Array) and isinstance(value, Lane) and array.dtype == value.element
            return signature(types.none, array, types.intp, value) if fits else None

    @lower_builtin(operator.setitem, types.Array, types.Integer, Lane)
    def _put(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, sig, args))
