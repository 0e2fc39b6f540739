"""Expressions: operators applied to arrays and other expressions; dtypes and shapes are inferred when one is built.

Types and signatures are interned, so that building an expression whose operator, attributes and input types were seen
before is one dictionary lookup.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.process_cache import owned, process_cache
from ...runtime.ir.complex_operators import of_elements
from ...runtime.ir.domain import COMPLEX
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Op
from ...runtime.ir.operand_types import mismatch
from ...runtime.ir.registry import operator
from ...runtime.ir.shape_inference import MAX_DATA, Facts
from ...runtime.tensor.dtype import DType, of_numpy
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor
from ...runtime.tensor.weight_array import Blocks
from .autocast import AUTOCAST, casts
from .grad_mode import GRAD_MODE
from .source_line import SourceLine, source_line

MAX_TREE = 24
"""Arrays and inner expressions of a structure that has a `Tree`."""
MAX_INTERNED = 1 << 16
"""Types, constants and signatures that each table keeps before it is emptied."""
_numbers = itertools.count()


class Size(tuple[int, ...]):
    """A shape: a tuple of the lengths of dims. Its slices and sums are shapes too, as those of torch.Size."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: SupportsIndex | slice) -> int | Size:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found  # type: ignore[return-value, arg-type]

    def __add__(self, other: tuple[int, ...]) -> Size:  # type: ignore[override]
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        return Size((*other, *self))

    def __mul__(self, count: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)


class TensorType:
    """Dtype and shape of an expression; of constants also the elements.

    Attributes:
        number: unique.
        array: the elements of a constant, which plans and shape inference know: a small array, or a quantized weight;
            None otherwise.
        differentiable: whether elements are floats or complex numbers.
    """

    __slots__ = ("array", "differentiable", "dtype", "number", "shape")

    def __init__(self, dtype: DType, shape: tuple[int, ...], array: np.ndarray | Blocks | None = None) -> None:
        self.number = next(_numbers)
        self.dtype = dtype
        self.shape = Size(shape)
        self.array = array
        self.differentiable = dtype.kind in ("float", "complex")

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Signature:
    """An operator with attributes, and the types of its inputs and outputs."""

    __slots__ = ("attributes", "inputs", "number", "op", "outputs")

    def __init__(
        self, op: Op, attributes: Mapping[str, Any], inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]
    ) -> None:
        self.number = next(_numbers)
        self.op = op
        self.attributes = dict(attributes)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)


class Expression:
    """One output of an operator that is applied to expressions; or an array.

    Attributes:
        signature, index: the operator and the number of the output; None for arrays, and for aliases of their only
            input.
        inputs: None where an optional input is absent. They are dropped when the expression is realized, if no
            gradient needs them.
        data: the array, once it is known.
        needs_grad: whether gradients flow through it.
        holder: a weak reference to the tensor that has this expression.
        aliases: weak references to an expression and all that were made of it by `alias`; unset without aliases.
        former: of a leaf, a weak reference to the tensor that had it, until it was written to; unset otherwise.
        depth: length of the longest chain of unrealized expressions that ends here.
        order: grows with every expression that is built, so inputs come before what uses them.
        line: where the user built it.
        tree: of small expressions whose inner ones are used once; see `Tree`.
        used: whether an expression that is not realized has it as an input.
        companions: of a differentiated expression and its gradients: weak references to them all. Those that tensors
            hold are realized together, because they are computed from the same values.
    """

    __slots__ = (
        "__weakref__", "aliases", "companions", "data", "depth", "former", "holder", "index", "inputs", "line",
        "needs_grad", "order", "signature", "tree", "type", "used",
    )  # fmt: skip

    def __init__(
        self,
        type: TensorType,
        signature: Signature | None = None,
        inputs: tuple[Expression | None, ...] = (),
        index: int = 0,
        data: np.ndarray | None = None,
        line: SourceLine | None = None,
    ) -> None:
        self.type = type
        self.signature = signature
        self.inputs = inputs
        self.index = index
        self.data = data
        self.line = line
        self.needs_grad = False
        self.holder: weakref.ref[Any] | None = None
        self.depth = 0
        self.order = next(_numbers)
        self.tree: Tree | None = None
        self.used = False
        self.companions: Sequence[weakref.ref[Expression]] = ()

    aliases: list[weakref.ref[Expression]]
    former: weakref.ref[Any]

    @property
    def is_leaf(self) -> bool:
        """Whether gradients that reach it stop here."""
        return not any(item is not None and item.needs_grad for item in self.inputs)

    @property
    def tensor(self) -> Any:
        """The tensor that has this expression, or had it as a leaf; None if there is none any more."""
        reference = self.holder or getattr(self, "former", None)
        return None if reference is None else reference()


Tree = tuple[int, tuple[Expression, ...], tuple[Expression, ...]]
"""A number of the structure, the arrays that it is fed in the order of their use, and the inner expressions. With it a
plan is found without a walk over the structure."""
_trees: dict[Any, int] = owned({})
_types: dict[Any, TensorType] = owned({})
_constants: dict[Any, Expression] = owned({})
_signatures: dict[Any, Signature] = owned({})


def type_of(dtype: DType, shape: tuple[int, ...]) -> TensorType:
    """The interned type."""
    key = dtype.name, shape
    found = _types.get(key)
    if found is None:
        found = _interned(_types, key, TensorType(dtype, shape))
    return found


def leaf(array: np.ndarray) -> Expression:
    """An expression of an array, which it shares."""
    key = array.dtype, array.shape
    found = _types.get(key)
    if found is None:
        found = _interned(_types, key, type_of(of_numpy(array.dtype), array.shape))
    return Expression(found, data=array)


def constant(elements: Any, dtype: Any = np.int64) -> Expression:
    """An expression of a small array whose elements plans may depend on: axes, lengths, exponents."""
    array = np.asarray(elements, dtype)
    key = array.dtype, array.shape, array.tobytes()
    found = _constants.get(key)
    if found is None:
        array = array.copy()
        array.flags.writeable = False
        kind = TensorType(of_numpy(array.dtype), array.shape, array if array.size <= MAX_DATA else None)
        found = _interned(_constants, key, Expression(kind, data=array))
    return found


def block_leaf(blocks: Blocks) -> Expression:
    """An expression of a quantized weight, which belongs to the plans that use it and stays in blocks there."""
    return Expression(TensorType(blocks.dtype, blocks.shape, blocks), data=blocks)  # type: ignore[arg-type]


def held_tensor(array: np.ndarray | Blocks) -> StoredTensor:
    """The elements of a constant as a weight of a graph; memory is shared."""
    return (
        StoredTensor(array.dtype, array.shape, Held(array.data.data))
        if isinstance(array, Blocks)
        else StoredTensor.of(array)
    )


def placeholder(type: TensorType) -> Expression:
    """An expression whose array is not known yet."""
    return Expression(type)


def alias(expression: Expression) -> Expression:
    """The same value as an own expression, through which gradients do not flow."""
    found = Expression(expression.type, None, (expression,), line=expression.line)
    found.data = expression.data
    found.depth = expression.depth
    aliases = getattr(expression, "aliases", None)
    if aliases is None:
        aliases = expression.aliases = [weakref.ref(expression)]
    elif len(aliases) & (len(aliases) - 1) == 0:
        aliases[:] = [reference for reference in aliases if reference() is not None]
    aliases.append(weakref.ref(found))
    found.aliases = aliases
    return found


def apply(op: Op, inputs: Sequence[Expression | None], attributes: Mapping[str, Any] | None = None) -> Expression:
    """Apply an operator of which only the first output is needed."""
    found = apply_all(op, inputs, attributes, 1)[0]
    key: list[Any] = [found.signature.number]  # type: ignore[union-attr]
    leaves: tuple[Expression, ...] = ()
    inner: tuple[Expression, ...] = ()
    small = True
    for item in found.inputs:
        if item is None:
            key.append(None)
        elif item.data is not None:
            key.append(item.type.number)
            if item.type.array is None:
                leaves += (item,)
        else:
            tree = item.tree
            if tree is None or item.used:
                small = False
            else:
                key.append(tree[0])
                leaves += tree[1]
                inner += (*tree[2], item)
            item.used = True
    if small and len(leaves) + len(inner) <= MAX_TREE:
        structure = tuple(key)
        number = _trees.get(structure)
        if number is None:
            number = _interned(_trees, structure, next(_numbers))
        found.tree = number, leaves, inner
    return found


def apply_all(
    op: Op, inputs: Sequence[Expression | None], attributes: Mapping[str, Any] | None = None, outputs: int = 1
) -> list[Expression]:
    """The first outputs of an operator.

    Raises UsageError if the operator does not take such inputs.
    """
    if AUTOCAST.dtype is not None:
        inputs = _autocast(op, inputs, AUTOCAST.dtype)
    types = tuple([None if item is None else item.type for item in inputs])
    key = (op, outputs, types, _attribute_key(attributes) if attributes else None)
    signature = _signatures.get(key)
    if signature is None:
        signature = _interned(_signatures, key, _inferred(op, attributes or {}, types, outputs))
    needs_grad, depth = False, 0
    for item in inputs:
        if item is not None:
            needs_grad = needs_grad or item.needs_grad
            if item.data is None and item.depth > depth:
                depth = item.depth
    needs_grad = needs_grad and GRAD_MODE.enabled
    line = source_line()
    found = []
    given = tuple(inputs)
    for index, kind in enumerate(signature.outputs):
        expression = Expression(kind, signature, given, index, None, line)
        expression.depth = depth + 1
        expression.needs_grad = needs_grad and kind.differentiable
        found.append(expression)
    return found


@process_cache
def op_named(name: str, domain: str = "") -> Op:
    """An operator, by default of ai.onnx."""
    found = operator(name, domain)
    assert found is not None
    return found


def cast(x: Expression, dtype: DType) -> Expression:
    """The elements in another dtype; real ones of complex numbers are their real parts."""
    if x.type.dtype is dtype:
        return x
    is_complex = dtype.kind == "complex" or x.type.dtype.kind == "complex"
    op = op_named("ComplexCast", COMPLEX) if is_complex else op_named("Cast")
    return apply(op, (x,), {"to": dtype.onnx})


def _autocast(op: Op, inputs: Sequence[Expression | None], narrow: DType) -> list[Expression | None]:
    """The inputs in the dtypes that an operator computes in under `autocast`."""
    wanted = casts(op, [None if item is None else item.type.dtype for item in inputs], narrow)
    return [
        item if item is None or dtype is None else cast(item, dtype) for item, dtype in zip(inputs, wanted, strict=True)
    ]


def _interned(table: dict[Any, Any], key: Any, item: Any) -> Any:
    if len(table) >= MAX_INTERNED:
        table.clear()
    return table.setdefault(key, item)


def _attribute_key(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple([(name, _hashable(value)) for name, value in attributes.items()])


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return tuple([_hashable(item) for item in value])
    return type(value), value


def _inferred(op: Op, attributes: Mapping[str, Any], types: Sequence[TensorType | None], outputs: int) -> Signature:
    """The signature with the output types of the operator's shape inference; of complex inputs that of the operator of
    complex numbers."""
    op = of_elements(op, [None if kind is None else kind.dtype for kind in types])
    graph = Graph()
    values: list[Value | None] = []
    for index, kind in enumerate(types):
        if kind is None:
            values.append(None)
            continue
        value = Value(f"input {index}", kind.dtype, kind.shape)
        graph.values[value.name] = value
        if kind.array is not None:
            graph.weights[value.name] = held_tensor(kind.array)
        values.append(value)
    node = Node(op, values, [Value(f"output {index}") for index in range(outputs)], dict(attributes))
    given = ", ".join("nothing" if kind is None else repr(kind) for kind in types)
    why = mismatch(node)
    has_complex = op.domain != COMPLEX and any(kind is not None and kind.dtype.is_complex for kind in types)
    if has_complex and (why is not None or (op.types is None and operator(op.name, op.domain) is op)):
        raise not_complex(op.name, given)
    if why is not None:
        raise UsageError("E-TENSOR-DTYPE", None, f"{op.name} of {given}: {why}", hint="Convert it with to(dtype)")
    facts = Facts()
    facts.graphs.append(graph)
    try:
        facts.infer_node(node)
    except FormatError as error:
        raise shape_error(f"{op.name} of {given}: {error.why.partition(': ')[2] or error.why}") from error
    found = []
    for value in node.outputs:
        shape = value.shape
        if value.dtype is None or shape is None or not all(isinstance(dim, int) and dim >= 0 for dim in shape):
            raise shape_error(f"{op.name} of {given} does not have a shape that is known before it is computed")
        found.append(type_of(value.dtype, tuple(dim for dim in shape if isinstance(dim, int))))
    return Signature(op, attributes, types, found)


def not_complex(what: str, given: str) -> UsageError:
    """The error of operations that complex numbers do not have."""
    why = f"{what} of {given} is not defined for complex numbers"
    return UsageError("E-TENSOR-DTYPE", None, why, hint="Take abs(), .real or .imag first")


def shape_error(why: str) -> UsageError:
    """The error of shapes that do not fit each other."""
    return UsageError("E-TENSOR-SHAPE", None, why)
