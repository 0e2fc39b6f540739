"""function: an operation with a body and a gradient in NumPy.

@cc.function
def scaled_sine(x, scale, *, phase=0.0):
    return np.sin(x * scale + phase)

@scaled_sine.gradient
def scaled_sine_gradient(gradient, x, scale, *, phase):
    inner = gradient * np.cos(x * scale + phase)
    return inner * scale, inner * x
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Op, Undecomposable
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import of_numpy
from ..core.expression import TensorType, apply_all, type_of
from ..core.registry import function
from ..core.tensor import Tensor
from ..operations.operands import expression_of

Body = Callable[..., Any]
CODE = "E-TENSOR-FUNCTION"


@dataclass(frozen=True)
class Applied:
    """A function for inputs of certain types.

    Attributes:
        results: types of the results.
        several: whether the body returns a tuple.
    """

    op: Op
    results: tuple[TensorType, ...]
    several: bool


class Function:
    """An operation on tensors whose body is a function of NumPy arrays; `gradient` adds its derivative.

    Call it with tensors, arrays or numbers as positional arguments, and with hashable options as keywords. The dtypes
    and shapes of the results depend on those of the arguments and on the options alone: for each new ones the body is
    tried on arrays of ones. It works in `jit`, where the body runs at each call.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self._derivative: Body | Function | None = None
        self._known: dict[Any, Applied] = {}
        functools.update_wrapper(self, body)
        self._options = {
            name: each.default
            for name, each in inspect.signature(body).parameters.items()
            if each.kind is each.KEYWORD_ONLY and each.default is not each.empty
        }

    @property
    def name(self) -> str:
        """The name of the body."""
        return getattr(self._body, "__name__", "function")

    def gradient(self, derivative: Body | Function) -> Body | Function:
        """Decorate the derivative.

        It takes the gradient of the result, the arguments and the options, and returns the gradient of each argument,
        None for arguments that have none; a tuple if there are several arguments. If the body returns a tuple, the
        gradient is a tuple, too, with None for results that nothing depends on. A gradient of an argument that was
        broadcast is summed over the dims that the argument does not have.

        A `function` whose body returns a tuple of all gradients can be differentiated again by its own gradient.
        """
        self._derivative = derivative
        return derivative

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        inputs = [expression_of(argument) for argument in arguments]
        applied = self.applied([each.type for each in inputs], {**self._options, **options})
        found = [Tensor(each) for each in apply_all(applied.op, inputs, None, len(applied.results))]
        return tuple(found) if applied.several else found[0]

    def applied(self, inputs: Sequence[TensorType], options: dict[str, Any]) -> Applied:
        """The operator for inputs of these types."""
        key = tuple([(each.dtype, each.shape) for each in inputs]), tuple(sorted(options.items()))
        try:
            found = self._known.get(key)
        except TypeError as error:
            why = f"an option of {self.name} is not hashable ({error})"
            raise UsageError(CODE, None, why, hint="Pass arrays as positional arguments") from error
        if found is None:
            found = self._known[key] = self._tried(inputs, options)
        return found

    def _tried(self, inputs: Sequence[TensorType], options: dict[str, Any]) -> Applied:
        body = functools.partial(self._body, **options)
        with np.errstate(all="ignore"):
            made = body(*[np.ones(each.shape, each.dtype.as_numpy()) for each in inputs])
        several = isinstance(made, tuple)
        arrays = [np.asarray(each) for each in (made if several else (made,))]
        if not arrays or any(array.dtype.kind == "O" for array in arrays):
            raise _wrong(self.name, "something that is not an array")
        types = tuple([type_of(of_numpy(array.dtype), array.shape) for array in arrays])

        def compute(*arrays: np.ndarray) -> Any:
            made = body(*arrays)
            found = [np.asarray(each) for each in (made if several else (made,))]
            kinds = tuple([type_of(of_numpy(each.dtype), each.shape) for each in found])
            if kinds != types:
                shown, others = (", ".join(map(repr, each)) for each in (kinds, types))
                raise _wrong(self.name, f"{shown}, and {others} for other elements")
            return tuple(found) if several else found[0]

        def gradient(node: Node, build: Builder, grads: Sequence[Value | None]) -> list[Value | None]:
            return self._grads(node, build, grads, several, options)

        op = Op(self.name, "function", compute=compute, infer=_inferring(types), gradients=[gradient])
        return Applied(op, types, several)

    def _grads(
        self, node: Node, build: Builder, grads: Sequence[Value | None], several: bool, options: dict[str, Any]
    ) -> list[Value | None]:
        """A node that computes the gradients of all inputs that are floats."""
        derivative = self._derivative
        if derivative is None:
            raise Undecomposable("it has no gradient; decorate one with its `gradient`")
        inputs = [(value, _type(value)) for value in node.inputs if value is not None]
        if isinstance(derivative, Function) and not several:
            given = [grads[0], *node.inputs]
            applied = derivative.applied([_type(value) for value in given if value is not None], options)
            return list(build.node(applied.op, given, outputs=len(applied.results)).outputs)
        body = derivative._body if isinstance(derivative, Function) else derivative
        moving = [index for index, (_, kind) in enumerate(inputs) if kind.differentiable]
        count, name = len(grads), f"the gradient of {self.name}"

        def compute(*arrays: np.ndarray | None) -> Any:
            given, values = arrays[:count], arrays[count:]
            made = body(given if several else given[0], *values, **options)
            parts = made if isinstance(made, tuple) else (made,)
            if len(parts) != len(values):
                raise _wrong(name, f"{counted(len(parts), 'gradient')} of {counted(len(values), 'argument')}")
            found = tuple([_fitting(parts[index], inputs[index][1], index, name) for index in moving])
            return found if len(found) > 1 else found[0]

        types = [inputs[index][1] for index in moving]
        op = Op(f"{self.name}Gradient", "function", compute=compute, infer=_inferring(types), gradients=[_twice])
        made = iter(build.node(op, [*grads, *node.inputs], outputs=len(moving)).outputs)
        return [next(made) if index in moving else None for index in range(len(inputs))]


def _type(value: Value) -> TensorType:
    assert value.dtype is not None
    return type_of(value.dtype, tuple([length for length in value.shape or () if isinstance(length, int)]))


def _inferring(types: Sequence[TensorType]) -> Callable[[Inference], None]:
    def infer(node: Inference) -> None:
        for index, kind in enumerate(types):
            node.set(index, kind.dtype, kind.shape)

    return infer


def _twice(node: Node, build: Builder, grads: Sequence[Value | None]) -> list[Value | None]:
    raise Undecomposable("which is a gradient in NumPy; make it a `function` with a gradient")


def _fitting(part: Any, kind: TensorType, index: int, name: str) -> np.ndarray:
    """A gradient in the dtype and shape of its argument."""
    if part is None:
        return np.zeros(kind.shape, kind.dtype.as_numpy())
    grad = np.asarray(part, kind.dtype.as_numpy())
    ahead = grad.ndim - len(kind.shape)
    if ahead >= 0:
        axes = [axis for axis, length in enumerate(kind.shape, ahead) if length == 1 and grad.shape[axis] != 1]
        grad = grad.sum(tuple(range(ahead))).sum(tuple(axis - ahead for axis in axes), keepdims=True)
    if grad.shape != kind.shape:
        raise _wrong(name, f"a gradient of shape {list(np.shape(part))} of argument {index}, which is {kind}")
    return grad


def _wrong(what: str, returned: str) -> UsageError:
    return UsageError(CODE, None, f"{what} returned {returned}", hint="Correct its body")


@function("function")
def as_function(body: Body) -> Function:
    """Make an operation on tensors of a function of NumPy arrays: see `Function`."""
    return Function(body)
