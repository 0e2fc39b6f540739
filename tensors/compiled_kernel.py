"""Compiled kernels: operators whose kernels are made of a Python function of the user's."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.custom.rows_kernel import ROWS, Rows, register_rows
from ..ops.elementwise.declare import broadcast_to_one
from ..ops.rules.expression import Term
from ..runtime.base.errors import UsageError
from ..runtime.base.process_cache import owned
from ..runtime.ir.builder import Builder
from ..runtime.ir.graph import Graph, Node, Value
from ..runtime.ir.op import Op, Undecomposable
from ..runtime.ir.shape_inference import Inference
from ..runtime.plan.elementwise_fusion import FUNCTIONS, code_digest
from ..runtime.session import Session
from ..runtime.tensor.dtype import of_numpy
from .autograd.traced import Traced
from .core.expression import TensorType, apply_all, type_of
from .core.tensor import Tensor
from .operations.operands import default_float, expression_of, promoted

DOMAIN, CODE = "kernel", "E-TENSOR-KERNEL"
Body = Callable[..., Any]
MAX_SESSIONS = 256
"""Sessions of single operators that are kept; all are dropped when there are more."""
COMPILED = ("f32", "f64", "i64", "i32", "i16", "i8", "u8")
_sessions: dict[Any, Session] = owned({})


class _Running(threading.local):
    def __init__(self) -> None:
        self.operators: set[Op] = set()


_running = _Running()
"""Operators that this thread computes by their kernels."""


class Kernel:
    """An operation whose body is compiled; `gradient` adds its derivative."""

    def __init__(self, body: Body) -> None:
        if body.__closure__:
            names = ", ".join(body.__code__.co_freevars)
            why = f"the body of {body.__name__} uses {names} of the function around it"
            raise UsageError(CODE, None, why, hint="Define it at the top of a module, and pass arguments")
        self.body = body
        self._derivative: Body | None = None
        self._traced: dict[Any, Traced] = {}
        functools.update_wrapper(self, body)  # type: ignore[arg-type]
        digest = hashlib.sha256(f"{body.__module__} {body.__qualname__} {code_digest(body)}".encode()).hexdigest()
        self.name = f"{body.__name__}_{digest[:12]}"

    def gradient(self, derivative: Body) -> Body:
        """Decorate the derivative: a function of tensors that takes the gradient of the result, or a tuple of gradients
        if there are several, and the arguments and options; it returns the gradient of each argument, None for those
        without one: a tensor if there is one argument, a tuple otherwise."""
        self._derivative = derivative
        self._traced.clear()
        return derivative

    def _grads(self, node: Node, build: Builder, grads: Sequence[Value | None], *, several: bool) -> list[Value | None]:
        derivative, name = self._derivative, self.body.__name__
        if derivative is None:
            raise Undecomposable("it has no gradient; decorate one with its `gradient`")
        inputs = [value for value in node.inputs if value is not None]
        given = [
            Term(output, build).filled(0).value if grad is None else grad
            for grad, output in zip(grads, node.outputs, strict=True)
        ]
        types = [_type(value) for value in (*given, *inputs)]
        key = tuple([each.number for each in types]), tuple(node.attributes.items())
        traced = self._traced.get(key)
        if traced is None:
            count = len(given)

            def of_tensors(*tensors: Tensor) -> Any:
                grad = tensors[:count] if several else tensors[0]
                return derivative(grad, *tensors[count:], **node.attributes)

            traced = self._traced[key] = Traced(of_tensors, types, f"the gradient of {name}")
        found = traced.built([*given, *inputs], build)
        if len(found) != len(inputs):
            why = f"the gradient of {name} returned {len(found)} gradients of {len(inputs)} arguments"
            raise UsageError(CODE, None, why, hint="Return None for arguments without a gradient")
        return [
            None if grad is None else Term(grad, build).summed_to(Term(value, build)).value
            for grad, value in zip(found, inputs, strict=True)
        ]


class ElementKernel(Kernel):
    """A kernel whose body computes one element of the result from one element of each argument.

    Arguments broadcast against each other, and are of one float dtype, integers are converted to it. The body is Python
    that Numba compiles: arithmetic, comparisons, conditional expressions, and functions of `math`.
    """

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        FUNCTIONS[f"{DOMAIN}.{self.name}"] = body
        arity = len(inspect.signature(body).parameters)
        grads = functools.partial(self._grads, several=False)
        self.op = Op(self.name, DOMAIN, compute=self._compute, infer=broadcast_to_one, scalar=body, gradients=[grads])
        self._arity = arity

    def __call__(self, *arguments: Any) -> Tensor:
        if len(arguments) != self._arity:
            why = f"{self.body.__name__} takes {self._arity} arguments, {len(arguments)} are given"
            raise UsageError(CODE, None, why, hint="Pass tensors or numbers")
        inputs = [default_float(each) for each in promoted(arguments)]
        return Tensor(apply_all(self.op, inputs, None, 1)[0])

    def _compute(self, *arrays: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*(each.shape for each in arrays))
        if math.prod(shape):
            return _run(self.op, arrays, 1)[0]
        return np.zeros(shape, arrays[0].dtype)


class RowKernel(Kernel):
    """A kernel whose body computes one row of its results; all rows are computed in parallel.

    The body takes the number of the row, each argument as an array of all its dims, each result as an array to write
    to, and options: numbers with defaults. It is Python that Numba compiles. On a GPU a thread computes a row.

    Args:
        rows: from the types of the arguments, which have a `shape` and a `dtype`, to the number of rows.
        results: from these to the shape of the result, or to a list of shapes of several; they have the dtype of the
            first argument.
    """

    def __init__(self, body: Body, rows: Body, results: Body) -> None:
        super().__init__(body)
        self._rows, self._results = rows, results
        given = inspect.signature(body).parameters.values()
        self._options = {each.name: each.default for each in given if each.default is not each.empty}
        self._known: dict[Any, tuple[Op, bool]] = {}

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        inputs = [expression_of(each) for each in arguments]
        wrong = [
            name for name, each in options.items() if name not in self._options or not isinstance(each, int | float)
        ]
        if wrong:
            why = f"{wrong[0]} is not an option of {self.body.__name__}, or not a number"
            raise UsageError(CODE, None, why, expected=", ".join(self._options), hint="Pass tensors by position")
        given = {**self._options, **options}
        key = tuple([(each.type.dtype, each.type.shape) for each in inputs]), tuple(given.items())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._operator([each.type for each in inputs], given)
        op, several = known
        found = [Tensor(each) for each in apply_all(op, inputs, given, len(ROWS[op].results))]
        return tuple(found) if several else found[0]

    def _operator(self, inputs: Sequence[TensorType], options: dict[str, Any]) -> tuple[Op, bool]:
        made = self._results(*inputs)
        several = isinstance(made, list)
        dtype = inputs[0].dtype
        results = tuple([type_of(dtype, tuple(shape)) for shape in (made if several else [made])])
        strange = [each for each in inputs if each.dtype.name not in COMPILED]
        if strange:
            why = f"{self.body.__name__} does not take {strange[0]}"
            raise UsageError(CODE, None, why, expected=", ".join(COMPILED), hint="Convert it with to(dtype)")
        types = tuple([(each.dtype.as_numpy(), each.shape) for each in results])
        rows = Rows(self.body, self.name, int(self._rows(*inputs)), tuple(options.values()), types)

        def infer(node: Inference) -> None:
            for index, kind in enumerate(results):
                node.set(index, kind.dtype, kind.shape)

        def compute(*arrays: np.ndarray, **attributes: Any) -> Any:
            if rows.count and all(math.prod(each.shape) for each in (*inputs, *results)):
                found = tuple(_run(op, arrays, len(results)))
            else:
                found = tuple(np.zeros(each.shape, each.dtype.as_numpy()) for each in results)
            return found if len(found) > 1 else found[0]

        name = f"{self.name}_{len(self._known)}"
        grads = functools.partial(self._grads, several=several)
        op = Op(name, DOMAIN, compute=compute, infer=infer, gradients=[grads])
        register_rows(op, rows)
        return op, several


def _run(op: Op, arrays: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
    """Compute an operator by its kernel."""
    if op in _running.operators:
        raise UsageError(CODE, None, f"the body of {op.name} could not be planned", hint="Report this")
    key = tuple([(each.dtype.str, each.shape) for each in arrays])
    session = _sessions.get((op, key))
    if session is None:
        if len(_sessions) >= MAX_SESSIONS:
            _sessions.clear()
        graph = Graph()
        graph.inputs = [Value(f"x{index}", of_numpy(each.dtype), each.shape) for index, each in enumerate(arrays)]
        graph.outputs = [Value(f"y{index}") for index in range(outputs)]
        node = Node(op, list(graph.inputs), list(graph.outputs), {})
        for value in graph.outputs:
            value.producer = node
        graph.nodes.append(node)
        graph.values.update((value.name, value) for value in (*graph.inputs, *graph.outputs))
        session = _sessions[op, key] = Session(graph, native=True)
    _running.operators.add(op)
    try:
        return session.run(None, {f"x{index}": each for index, each in enumerate(arrays)})
    finally:
        _running.operators.discard(op)


def _type(value: Value) -> TensorType:
    assert value.dtype is not None
    return type_of(value.dtype, tuple([length for length in value.shape or () if isinstance(length, int)]))
