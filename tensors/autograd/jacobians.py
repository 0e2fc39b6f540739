"""`cc.autograd.functional`: Jacobians, Hessians, and products with them, by PyTorch's names.

Functions take tensors and return tensors; `inputs` is one tensor or a tuple of them. Rows of a Jacobian are gradients
of one element each, so that its cost grows with the number of elements of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.grad_mode import set_grad_enabled
from ..core.tensor import Tensor
from ..operations.creation import ones_like, zeros_like
from ..operations.joining import stack
from .functional import gradients

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
CODE = "E-TENSOR-GRAD"


def _tuple(given: Any) -> tuple[Tensor, ...]:
    found = given if isinstance(given, tuple) else (given,)
    if not found or not all(isinstance(each, Tensor) for each in found):
        raise UsageError(CODE, None, f"{type(given).__name__} is neither a tensor nor a tuple of tensors")
    return found


def stand_ins(inputs: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """Tensors of the same values by which is differentiated; with `create_graph` they depend on the inputs."""
    return tuple(
        [
            each.view_as(each) if create_graph and each.requires_grad else each.detach().requires_grad_()
            for each in inputs
        ]
    )


def _as_given(found: Any, given: Any) -> Any:
    return found if isinstance(given, tuple) else found[0]


def _weights(v: Any, like: tuple[Tensor, ...], what: str) -> tuple[Tensor, ...]:
    """The vector that is multiplied, ones for results of one element."""
    if v is None:
        if len(like) > 1 or like[0].numel() != 1:
            why = f"{what} of a result of several elements needs v"
            raise UsageError(CODE, None, why, hint="Pass a tensor of its shape")
        return (ones_like(like[0]),)
    found = _tuple(v)
    if [each.shape for each in found] != [each.shape for each in like]:
        shapes = [[list(each.shape) for each in group] for group in (found, like)]
        raise UsageError(CODE, None, f"v of {what} has the wrong shape", expected=shapes[1], found=shapes[0])
    return found


def _called(
    func: Callable[..., Any], inputs: Any, create_graph: bool
) -> tuple[tuple[Tensor, ...], Any, tuple[Tensor, ...]]:
    """Stand-ins for the inputs, and what a function makes of them: as it is, and as a tuple."""
    with set_grad_enabled(True):
        sources = stand_ins(_tuple(inputs), create_graph)
        result = func(*sources)
    return sources, result, _tuple(result)


def _pulled(
    outputs: tuple[Tensor, ...], sources: tuple[Tensor, ...], weights: tuple[Tensor, ...],
    create_graph: bool, strict: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of the weighted sum of outputs, zeros where nothing depends on a source."""
    moving = [(one, by) for one, by in zip(outputs, weights, strict=True) if one.requires_grad]
    found: list[Tensor | None] = [None] * len(sources)
    if moving:
        with set_grad_enabled(True):
            total = (moving[0][0] * moving[0][1].conj()).sum().real
            for one, by in moving[1:]:
                total = total + (one * by.conj()).sum().real
        found = gradients(total, sources, None, create_graph)
    if strict and any(each is None for each in found):
        raise UsageError(CODE, None, "a result does not depend on one of the inputs", hint="Leave strict out")
    return tuple([zeros_like(source) if each is None else each for source, each in zip(sources, found, strict=True)])


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The derivatives of all elements of the results by all elements of the inputs.

    Args:
        create_graph: the result can be differentiated.
        strict: UsageError where a result does not depend on an input, in place of zeros.
        vectorize, strategy: PyTorch's settings of how it is computed, without effect.

    Returns a tensor of the shape of the result followed by that of the input; for a tuple of results a tuple, and for a
    tuple of inputs a tuple inside of it.
    """
    sources, result, outputs = _called(func, inputs, create_graph)
    rows = []
    for output in outputs:
        flat = output.reshape(-1)
        parts = [
            _pulled((flat[index],), sources, (ones_like(flat[index]),), create_graph, strict)
            for index in range(output.numel())
        ]
        columns = [
            stack(list(column)).reshape(*output.shape, *source.shape)
            if parts
            else source.new_zeros((*output.shape, *source.shape))
            for column, source in zip(zip(*parts, strict=True) if parts else ((),) * len(sources), sources, strict=True)
        ]
        rows.append(_as_given(tuple(columns), inputs))
    return _as_given(tuple(rows), result)


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function whose result has one element: a tensor of the shape of the input twice, for
    a tuple of inputs a tuple of tuples. Arguments are those of `jacobian`."""

    def gradient(*sources: Tensor) -> tuple[Tensor, ...]:
        output = func(*sources)
        return _pulled(_tuple(output), sources, _weights(None, _tuple(output), "hessian"), True, strict)

    found = jacobian(gradient, _tuple(inputs), create_graph, strict)
    return found if isinstance(inputs, tuple) else found[0][0]


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The results, and the product of `v`, of their shape, with the Jacobian, of the shape of the inputs."""
    sources, result, outputs = _called(func, inputs, create_graph)
    found = _pulled(outputs, sources, _weights(v, outputs, "vjp"), create_graph, strict)
    return _shown(result, create_graph), _as_given(found, inputs)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The results, and the product of the Jacobian with `v`, of the shape of the inputs."""
    sources, result, outputs = _called(func, inputs, create_graph)
    with set_grad_enabled(True):
        free = tuple([zeros_like(output).requires_grad_() for output in outputs])
        pulled = _pulled(outputs, sources, free, True, strict)
    found = _pulled(pulled, free, _weights(v, sources, "jvp"), create_graph, False)
    return _shown(result, create_graph), _as_given(found, result)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The result, which has one element, and the product of its second derivatives with `v`, both of the shape of the
    inputs."""
    sources, result, outputs = _called(func, inputs, create_graph)
    first = _pulled(outputs, sources, _weights(None, outputs, "hvp"), True, strict)
    found = _pulled(first, sources, _weights(v, sources, "hvp"), create_graph, strict)
    return _shown(result, create_graph), _as_given(found, inputs)


vhp = hvp
"""Second derivatives are symmetric, so that `v` may stand on either side."""


def _shown(result: Any, create_graph: bool) -> Any:
    if create_graph:
        return result
    return tuple([each.detach() for each in result]) if isinstance(result, tuple) else result.detach()
