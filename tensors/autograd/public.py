"""`cc.autograd`: gradients by PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.grad_mode import enable_grad as enable_grad
from ..core.grad_mode import no_grad as no_grad
from ..core.grad_mode import set_grad_enabled as set_grad_enabled
from ..core.lazy_tensor import LazyTensor
from .function_class import Function as Function
from .functional import gradients


def grad(
    outputs: LazyTensor, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, allow_unused: bool = False,
) -> tuple[LazyTensor | None, ...]:  # fmt: skip
    """The gradients of a tensor by others, which are not added to their `grad`.

    Args:
        grad_outputs: by what the elements are weighted; a tensor of one element needs none.
        retain_graph: what another call needs is kept either way.
        create_graph: the gradients can be differentiated again.
        allow_unused: give None for inputs that the output does not depend on.

    Raises UsageError for such inputs otherwise.
    """
    given = [inputs] if isinstance(inputs, LazyTensor) else list(inputs)
    weights = grad_outputs[0] if isinstance(grad_outputs, Sequence) else grad_outputs
    target = outputs if isinstance(outputs, LazyTensor) else outputs[0]
    if not isinstance(outputs, LazyTensor) and len(outputs) > 1:
        raise UsageError("E-TENSOR-GRAD", None, "grad of several outputs", hint="Add them up")
    found = gradients(target, given, weights, create_graph)
    if not allow_unused and any(each is None for each in found):
        why = "the output does not depend on one of the inputs"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Pass allow_unused=True to get None for it")
    return tuple(found)
