"""PyTorch's second names: copies where another function returns a view, and methods that change their tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.registry import FUNCTIONS, attribute, function, method, operation
from ..core.tensor import Tensor
from ..operations import indexing
from . import strides

NEEDED = strides
"""Its function is taken from the registry below."""


def _copying(name: str) -> Callable[..., Any]:
    view: Callable[..., Any] = FUNCTIONS[name] if name in FUNCTIONS else getattr(Tensor, name)

    def made(input: Tensor, *arguments: Any, **options: Any) -> Any:
        found = view(input, *arguments, **options)
        return tuple(each.clone() for each in found) if isinstance(found, tuple) else found.clone()

    made.__name__ = made.__qualname__ = f"{name}_copy"
    made.__doc__ = f"As `{name}`, in memory of its own."
    return made


for _name in (
    "as_strided", "detach", "diagonal", "expand", "permute", "select", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unfold", "unsqueeze", "view",
):  # fmt: skip
    function(f"{_name}_copy")(_copying(_name))
operation()(_copying("narrow"))


method("mvlgamma")(FUNCTIONS["mvlgamma"])


@method()
def polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of `digamma`."""
    found: Tensor = FUNCTIONS["polygamma"](n, self)
    return found


@function()
def alias_copy(input: Tensor) -> Tensor:
    """The same values in memory of its own."""
    return input.clone()


for _name, _made in (("unsafe_chunk", "chunk"), ("unsafe_split", "split"),
                     ("unsafe_split_with_sizes", "split_with_sizes")):  # fmt: skip
    function(_name)(FUNCTIONS[_made])
    method(_name)(FUNCTIONS[_made])


@operation()
def adjoint(input: Tensor) -> Tensor:
    """Matrices with rows and columns exchanged, of conjugate elements."""
    return input.mT.conj()


attribute("mH", adjoint)
attribute("H", adjoint)
attribute("retains_grad", lambda self: self._keeps_grad)


@operation()
def rsub(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha * input."""
    found: Tensor = FUNCTIONS["sub"](other, input, alpha=alpha)
    return found


@method("__rdiv__")
def _reflected(self: Tensor, other: Any) -> Tensor:
    found: Tensor = FUNCTIONS["div"](other, self)
    return found


@operation()
def fill(input: Tensor, value: Any) -> Tensor:
    """A copy full of one number, which is a number or a tensor without dims."""
    return indexing.like(value, input).broadcast_to(input.shape).clone()


@method()
def new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
    """A tensor of a shape in the dtype of this one; strides in memory are always those of rows."""
    found: Tensor = self.new_empty(size, **options)
    return found


@operation()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


@method("is_conj")
@method("is_distributed")
@method("is_inference")
@method("is_neg")
@method("is_pinned")
@method("is_shared")
def never(self: Tensor, *given: Any) -> bool:
    """False: tensors have none of PyTorch's marks of memory and of lazy signs."""
    return False


for _name in ("detach", "detach_", "get_device", "is_conj", "is_neg", "is_signed"):
    function(_name)(getattr(Tensor, _name))
