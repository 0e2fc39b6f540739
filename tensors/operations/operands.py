"""Operands: arguments of operations as expressions of one dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.ir.complex_operators import of_elements
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Op
from ...runtime.ir.operand_types import mismatch
from ...runtime.tensor.dtype import BOOL, F32, I64, DType
from ..core.autocast import AUTOCAST
from ..core.conversion import array_of
from ..core.expression import MAX_INTERNED, Expression, apply, cast, constant, leaf, not_complex, shape_error
from ..core.promotion import category, dtype_of_scalar, result_type
from ..core.tensor import Tensor

NUMBERS = (bool, int, float, complex, np.bool_, np.integer, np.floating, np.complexfloating)


@process_cache
def takes(op: Op, dtype: DType, index: int = 0) -> bool:
    """Whether input `index` of an operator may be of a dtype."""
    op = of_elements(op, [dtype])
    values = [None] * index + [Value("x", dtype)]
    return mismatch(Node(op, list(values), [])) is None


def expression_of(item: Any) -> Expression:
    """A tensor's expression; arrays, lists and numbers become tensors."""
    return item.expression if isinstance(item, Tensor) else leaf(array_of(item))


def scalar(value: Any, dtype: DType) -> Expression:
    """A number as a 0-d expression; integers wrap around, and floats that are too large are infinite.

    Raises UsageError for a complex number in a real dtype.
    """
    kind = dtype.as_numpy()
    if dtype.kind in ("int", "uint") and isinstance(value, int | np.integer):
        value = int(value) & ((1 << dtype.bits) - 1)
        return leaf(np.array(value, f"u{dtype.bits // 8}").view(kind))
    if isinstance(value, complex | np.complexfloating) and dtype.kind != "complex":
        if value.imag:
            why = f"a tensor of {dtype} cannot hold {value}"
            raise UsageError("E-TENSOR-VALUE", None, why, hint="Convert it with to(cc.complex64)")
        value = value.real
    with np.errstate(over="ignore"):
        return leaf(np.asarray(value).astype(kind))


def common_dtype(items: Sequence[Any]) -> DType:
    """The dtype of an operation on tensors and numbers."""
    dims: list[DType] = []
    zero: list[DType] = []
    scalars: list[type] = []
    for item in items:
        if isinstance(item, Expression):
            (dims if item.type.shape else zero).append(item.type.dtype)
        else:
            scalars.append(type(item))
    return result_type(dims, zero, scalars)


def promoted(items: Sequence[Any]) -> list[Expression]:
    """Tensors and numbers as expressions of one dtype."""
    first, second = items[0], items[-1]
    if len(items) == 2 and isinstance(first, Tensor) and isinstance(second, Tensor):
        one, other = first.expression, second.expression
        if one.type.dtype is other.type.dtype:
            return [one, other]
    found = [item if isinstance(item, NUMBERS) else expression_of(item) for item in items]
    dtype = common_dtype(found)
    return [cast(item, dtype) if isinstance(item, Expression) else scalar(item, dtype) for item in found]


def fitting(op: Op, dtype: DType, index: int = 0) -> DType:
    """The nearest dtype to one that an operator takes."""
    if takes(op, dtype, index):
        return dtype
    if dtype.kind == "complex":
        raise not_complex(op.name, dtype.name)
    wider = (I64,) if category(dtype) < 2 else (F32,)
    for found in (*wider, F32):
        if takes(op, found, index):
            return found
    raise UsageError("E-TENSOR-DTYPE", None, f"{op.name} does not take {dtype}", hint="Convert it with to(dtype)")


def apply_in(
    op: Op, inputs: Sequence[Expression | None], attributes: dict[str, Any] | None = None, *, back: bool = True
) -> Expression:
    """An operator on inputs of one dtype, computed in the nearest dtype that it takes; `back`: in theirs again."""
    first = inputs[0]
    assert first is not None
    dtype = first.type.dtype
    near = fitting(op, dtype)
    if near is dtype:
        return apply(op, inputs, attributes)
    widened = [item if item is None or item.type.dtype is not dtype else cast(item, near) for item in inputs]
    found = apply(op, widened, attributes)
    return cast(found, dtype) if back and found.type.dtype is near else found


def require_one_dtype(items: Sequence[Expression], what: str) -> None:
    """Raise UsageError unless operands are of one dtype, or are floats that `autocast` converts."""
    dtypes = {item.type.dtype for item in items}
    if len(dtypes) > 1 and (AUTOCAST.dtype is None or any(dtype.kind != "float" for dtype in dtypes)):
        why = f"{what} of {' and '.join(map(repr, [item.type for item in items]))}"
        hint = "Convert one of them with to(dtype)"
        raise UsageError("E-TENSOR-DTYPE", None, why, expected="equal dtypes", hint=hint)


def integers(items: Sequence[int] | int) -> Expression:
    """An i64 constant."""
    return constant(items)


def copied(view: Tensor) -> Tensor:
    """A view as a tensor of its own: what is written into it changes no other tensor."""
    view.origin = ()
    if hasattr(view, "alias_set"):
        del view.alias_set
    return view


def dim_of(dim: int, rank: int) -> int:
    """A dim as a number from 0 on."""
    if not isinstance(dim, int | np.integer):
        raise UsageError("E-TENSOR-DIM", None, f"{dim!r} is not a dim", expected="an integer")
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise UsageError(
            "E-TENSOR-DIM", None, f"dim {dim} is out of range", expected=f"{-max(rank, 1)} to {max(rank, 1) - 1}"
        )
    return int(dim) % max(rank, 1)


def dims_of(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Dims as numbers from 0 on, in order; None stands for all."""
    if dims is None:
        return list(range(rank))
    found = [dim_of(dim, rank) for dim in ([dims] if isinstance(dims, int | np.integer) else dims)]
    if len(set(found)) < len(found):
        raise UsageError("E-TENSOR-DIM", None, f"dims {dims} name one dim twice")
    return sorted(found)


def broadcast(shapes: Sequence[tuple[int, ...]], what: str) -> tuple[int, ...]:
    """The shape of an operation on these shapes."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise shape_error(f"{what}: shapes {listed} cannot be broadcast") from None


def memoized(compute: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """An operation of two operands that skips checks and promotion of types for which it was a single operator."""
    known: dict[tuple[Any, Any], Op] = {}

    def made(input: Any, other: Any) -> Tensor:
        if not isinstance(input, Tensor) or not isinstance(other, Tensor):
            return compute(input, other)
        one, two = input.expression, other.expression
        op = known.get((one.type, two.type))
        if op is not None:
            return Tensor(apply(op, (one, two)))
        result = compute(input, other)
        found = result.expression
        signature = found.signature
        if signature is not None and not signature.attributes and found.inputs == (one, two):
            if len(known) >= MAX_INTERNED:
                known.clear()
            known[one.type, two.type] = signature.op
        return result

    return made


def lengths_of(given: Sequence[Any]) -> tuple[int, ...]:
    """Lengths that are given one by one, or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], int | np.integer | Tensor):
        given = given[0]
    return tuple(int(length) for length in given)


def default_float(x: Expression) -> Expression:
    """Floats as they are, and integers in the default float dtype."""
    return x if category(x.type.dtype) >= 2 else cast(x, dtype_of_scalar(float))


def require_real(what: str, *items: Any) -> None:
    """Raise UsageError for complex numbers, of tensors, arrays or a number."""
    for item in items:
        dtype = dtype_of_scalar(type(item)) if isinstance(item, NUMBERS) else expression_of(item).type.dtype
        if dtype.is_complex:
            raise not_complex(what, dtype.name)


def real_float(item: Any, what: str) -> Tensor:
    """Floats as they are, and integers in the default float dtype.

    Args:
        what: the function that takes them, for the UsageError of complex numbers.
    """
    x = default_float(expression_of(item))
    if x.type.dtype.is_complex:
        raise not_complex(what, x.type.dtype.name)
    return Tensor(x)


def without_booleans(input: Any, what: str) -> Any:
    """The input; UsageError for booleans, which torch does not order either."""
    if expression_of(input).type.dtype is BOOL:
        raise UsageError("E-TENSOR-DTYPE", None, f"{what} of booleans is not defined", hint="Convert it with long()")
    return input
