"""Products and combinations of whole tensors, and tensors side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...core.expression import shape_error
from ...core.registry import FUNCTIONS, function, operation
from ...core.tensor import Tensor
from ..composed import atleast_2d, of_each
from ..creation import tensor, zeros
from ..operands import promoted


@operation()
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker's product: each element of `input` times all of `other`."""
    rank = max(input.ndim, other.ndim)
    one, two = (each.reshape(*[1] * (rank - each.ndim), *each.shape) for each in (input, other))
    for dim in range(rank):
        one, two = one.unsqueeze(2 * dim + 1), two.unsqueeze(2 * dim)
    shape = [a * b for a, b in zip(one.shape[::2], two.shape[1::2], strict=True)]
    return (one * two).reshape(shape)


@function()
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of one that is 0 elsewhere."""
    blocks = [atleast_2d(Tensor(each)) for each in promoted(tensors)]
    if any(block.ndim > 2 for block in blocks):
        raise shape_error("block_diag: tensors have two dims at most")
    width, rows, before = sum(block.shape[1] for block in blocks), [], 0
    for block in blocks:
        count, own = block.shape
        ends = [zeros(count, length, dtype=block.dtype) for length in (before, width - before - own)]
        rows.append(FUNCTIONS["cat"]([ends[0], block, ends[1]], 1))
        before += own
    found: Tensor = FUNCTIONS["cat"](rows, 0)
    return found


@function()
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All rows of one element of each vector."""
    if any(each.ndim != 1 for each in tensors):
        raise shape_error("cartesian_prod: tensors have one dim each")
    grid = [each.reshape(-1) for each in FUNCTIONS["meshgrid"](*tensors, indexing="ij")]
    return FUNCTIONS["stack"](grid, 1) if len(grid) > 1 else grid[0]


@function()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All rows of r elements of a vector, in its order."""
    if input.ndim != 1:
        raise shape_error(f"combinations: a tensor of shape {list(input.shape)} is not a vector")
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(chosen(range(input.shape[0]), r))
    return input[tensor(rows, dtype="i64").reshape(len(rows), r)]


def atleast_3d(input: Tensor) -> Tensor:
    """With three dims at least: a vector is the middle one, a matrix the first two."""
    return input if input.ndim > 2 else atleast_2d(input).unsqueeze(-1)


of_each(atleast_3d)


@function()
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated, along the third dim."""
    found: Tensor = FUNCTIONS["cat"]([atleast_3d(each) for each in tensors], 2)
    return found


def _split(name: str, document: str, ranks: tuple[int, int]) -> None:
    def made(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        least, dim = ranks
        if input.ndim < least:
            raise shape_error(f"{name}: a tensor of shape {list(input.shape)} does not have {least} dims")
        axis = 0 if input.ndim == 1 else dim
        length = input.shape[axis]
        if isinstance(indices_or_sections, int) and length % indices_or_sections:
            raise shape_error(f"{name}: a dim of length {length} in {indices_or_sections} equal parts")
        found: tuple[Tensor, ...] = FUNCTIONS["tensor_split"](input, indices_or_sections, axis)
        return found

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


_split("hsplit", "Equal parts of the second dim, or the only one; or parts that begin at indices.", (1, 1))
_split("vsplit", "Equal parts of the first dim; or parts that begin at indices.", (2, 0))
_split("dsplit", "Equal parts of the third dim; or parts that begin at indices.", (3, 2))
