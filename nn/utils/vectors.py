"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.base.units import counted
from ...tensors.core.expression import shape_error
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.joining import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all tensors in a row."""
    return cat([each.reshape(-1) for each in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into tensors, one after the other.

    Raises UsageError if it does not have as many elements.
    """
    tensors = list(parameters)
    count = sum(each.numel() for each in tensors)
    if vec.shape != (count,):
        raise shape_error(f"a vector of shape {list(vec.shape)} for parameters of {counted(count, 'element')}")
    begin = 0
    with no_grad():
        for each in tensors:
            each.become(vec[begin : begin + each.numel()].reshape(each.shape))
            begin += each.numel()
