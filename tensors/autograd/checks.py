"""gradcheck: gradients are compared with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..complex import numbers
from ..core.tensor import Tensor
from ..operations.creation import tensor
from ..operations.random import randn_like
from .jacobians import _pulled as pulled
from .jacobians import jacobian

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient differs from finite differences."""


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, **options: Any,
) -> bool:  # fmt: skip
    """Whether the gradients of a function of f64 or c128 tensors are those of central differences. A complex number is
    checked as two real ones.

    Args:
        inputs: a tensor, or a tuple of arguments; checked are tensors that require gradients.
        eps: half of the difference of each element.
        atol, rtol: gradients may differ by ``atol + rtol * |difference quotient|``.
        raise_exception: raise GradcheckError where they differ more, in place of returning False.
        options: PyTorch's settings of the kind of check; this one compares all elements.
    """
    given = tuple(inputs) if isinstance(inputs, Sequence) else (inputs,)
    places = [n for n, each in enumerate(given) if isinstance(each, Tensor) and each.requires_grad]
    if not places:
        raise UsageError("E-TENSOR-GRAD", None, "gradcheck of inputs none of which requires gradients")

    def results(*sources: Tensor) -> tuple[Tensor, ...]:
        arguments = list(given)
        for index, source in zip(places, sources, strict=True):
            arguments[index] = numbers.view_as_complex(source) if given[index].dtype.is_complex else source
        found = func(*arguments)
        parts = [_apart(each) for each in (found if isinstance(found, tuple) else (found,))]
        return tuple([part for part in parts if part.dtype.kind == "float"])

    sources = tuple([_apart(given[index].detach()).requires_grad_() for index in places])
    analytic = jacobian(results, sources)
    for number, source in enumerate(sources):
        base = np.array(source.detach().array(), np.float64)
        for index in range(base.size):
            moved = []
            for step in (eps, -eps):
                changed = base.copy()
                changed.reshape(-1)[index] += step
                arguments = [each.detach().requires_grad_() for each in sources]
                arguments[number] = tensor(changed.astype(source.dtype.as_numpy())).requires_grad_()
                moved.append([np.asarray(each.detach().array(), np.float64) for each in results(*arguments)])
            for output, (high, low) in enumerate(zip(*moved, strict=True)):
                numeric = ((high - low) / (2 * eps)).reshape(-1)
                found = analytic[output][number].detach().array().reshape(numeric.size, -1)[:, index]
                if not np.allclose(found, numeric, rtol, atol):
                    if not raise_exception:
                        return False
                    worst = int(np.abs(found - numeric).argmax())
                    raise GradcheckError(
                        f"the gradient of element {worst} of result {output} by element {index} of input "
                        f"{places[number]} is {found[worst]:.6g}, and {numeric[worst]:.6g} by finite differences"
                    )
    return True


def _apart(value: Tensor) -> Tensor:
    return numbers.view_as_real(value) if value.dtype.is_complex else value


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, **options: Any) -> bool:
    """As `gradcheck`, of the gradients of a function, which are weighted by `grad_outputs` or by random numbers."""
    given = tuple(inputs) if isinstance(inputs, Sequence) else (inputs,)
    moving = [n for n, each in enumerate(given) if isinstance(each, Tensor) and each.requires_grad]
    first = func(*given)
    outputs = first if isinstance(first, tuple) else (first,)
    weights = grad_outputs or tuple([randn_like(output) for output in outputs])
    weights = weights if isinstance(weights, tuple) else (weights,)

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        found = func(*arguments)
        sources = tuple([arguments[index] for index in moving])
        return pulled(found if isinstance(found, tuple) else (found,), sources, weights, True)

    return gradcheck(gradient, given, **options)
