"""In-place methods of tensors by torch's names with an underscore, fills, and copies from another tensor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.conversion import array_of
from ..core.expression import leaf
from ..core.registry import FUNCTIONS, function, in_place, method
from ..core.tensor import Tensor
from ..operations import composed, random, sorting
from ..operations.indexing import like

NEEDED = composed, random, sorting
SAME_SHAPE = (
    "addmm", "addmv", "atan2", "baddbmm", "bitwise_not", "cumprod", "cumsum", "eq", "fmod", "ge", "gt", "hypot",
    "index_add", "index_copy", "index_fill", "le", "lt", "masked_fill", "nan_to_num", "ne", "scatter", "scatter_add",
    "scatter_reduce", "tril", "triu", "xlogy", "logit", "relu", "addbmm", "addr", "arctan2", "clip", "deg2rad",
    "digamma", "erfinv", "gcd", "greater", "greater_equal", "i0", "igamma", "igammac", "index_reduce", "lcm", "less",
    "less_equal", "lgamma", "multiply", "mvlgamma", "nextafter", "not_equal", "rad2deg", "renorm", "subtract",
    "celu", "conj_physical", "fix", "selu",
)  # fmt: skip
"""Functions whose results have the shape of the tensor."""
RESHAPING = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
"""Functions that give the tensor another shape."""

for _name in SAME_SHAPE:
    in_place(FUNCTIONS[_name], f"{_name}_")


def _reshaping(made: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(made)
    def changed(self: Tensor, *others: Any, **options: Any) -> Tensor:
        found = made(self, *others, **options).expression
        self.expression.holder = None
        self.set_expression(found)
        return self

    return changed


for _name in RESHAPING:
    method(f"{_name}_")(_reshaping(FUNCTIONS[_name]))


@method()
def fill_diagonal_(self: Tensor, fill_value: Any) -> Tensor:
    """Write one number to the diagonal of a matrix."""
    return self.become(self.masked_fill(FUNCTIONS["eye"](*self.shape[:2]).bool(), fill_value))


@method()
def exponential_(self: Tensor, lambd: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from an exponential distribution."""
    return self.become(random.exponential(self.shape, self.dtype, lambd, generator))


@method()
def bernoulli_(self: Tensor, p: Any = 0.5, generator: Any = None) -> Tensor:
    """Write 1 with the probability p, else 0."""
    if isinstance(p, Tensor):
        return self.become(FUNCTIONS["bernoulli"](p.broadcast_to(self.shape), generator=generator))
    return self.become(FUNCTIONS["rand"](self.shape, dtype="f64", generator=generator) < p)


@method()
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from a Cauchy distribution."""
    drawn = FUNCTIONS["rand"](self.shape, dtype="f64", generator=generator)
    return self.become(((drawn - 0.5) * math.pi).tan() * sigma + median)


@method()
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> Tensor:
    """Draw numbers whose logarithms are of a normal distribution."""
    return self.normal_(mean, std, generator).exp_()


@method()
def geometric_(self: Tensor, p: float, generator: Any = None) -> Tensor:
    """Draw how many attempts the first success takes, each of which succeeds with the probability p."""
    drawn = FUNCTIONS["rand"](self.shape, dtype="f64", generator=generator)
    return self.become((drawn.log() / math.log1p(-p)).ceil())


@method()
def random_(self: Tensor, *bounds: int, generator: Any = None) -> Tensor:
    """Draw integers: ``random_(high)`` or ``random_(low, high)``, of which `high` is left out."""
    if len(bounds) not in (1, 2):
        raise UsageError("E-TENSOR-VALUE", None, "random_ takes high, or low and high", hint="random_(10)")
    return self.become(FUNCTIONS["randint"](*bounds, self.shape, generator=generator))


@function()
@method()
def fill_(input: Tensor, value: Any) -> Tensor:
    """Write one number to all elements."""
    return input.become(like(value, input).broadcast_to(input.shape))


@function()
@method()
def zero_(input: Tensor) -> Tensor:
    """Write 0 to all elements."""
    return fill_(input, 0)


@method()
def copy_(self: Tensor, src: Any) -> Tensor:
    """Write the elements of another tensor, which broadcasts."""
    source = src if isinstance(src, Tensor) else Tensor(leaf(array_of(src)))
    return self.become(source.broadcast_to(self.shape))


@method()
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Give the tensor another shape; elements stay in their order, and those that are added are 0.

    Raises UsageError for views and tensors that require gradients.
    """
    shape = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    if hasattr(self, "origin") or self.requires_grad:
        why = f"resize_ of a {'view' if hasattr(self, 'origin') else 'tensor that requires gradients'}"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Use detach().clone() first")
    flat, count = self.reshape(-1), math.prod(shape)
    if count > len(flat):
        flat = FUNCTIONS["cat"]([flat, flat.new_zeros(count - len(flat))], 0)
    self.move_to(flat[:count].reshape(shape).expression)
    return self


@function()
@method()
def resize_as_(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    found: Tensor = resize_(input, *the_template.shape)
    return found
