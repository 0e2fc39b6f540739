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
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into tensors, one after the other.

    Raises UsageError if it does not have as many elements.
    """
    tensors = list(parameters)
    count = sum(tensor.numel() for tensor in tensors)
    if vec.shape != (count,):
        raise shape_error(f"a vector of shape {list(vec.shape)} for parameters of {counted(count, 'element')}")
    begin = 0
    with no_grad():
        for tensor in tensors:
            tensor.become(vec[begin : begin + tensor.numel()].reshape(tensor.shape))
            begin += tensor.numel()
