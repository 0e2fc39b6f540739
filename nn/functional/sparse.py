"""Embeddings: rows of a table by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf, shape_error
from ...tensors.core.grad_mode import GRAD_MODE, no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import arange
from ...tensors.operations.indexing import where

__all__ = ["embedding", "embedding_bag", "one_hot"]


def _renormalized(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Shorten the rows that are looked up to a norm."""
    with no_grad():
        sizes = weight.norm(norm_type, 1)
        zeros = Tensor(leaf(np.zeros(weight.shape[0], weight.dtype.as_numpy())))
        used = zeros.scatter(0, input.reshape(-1).long(), 1.0)
        scale = where((used > 0) & (sizes > max_norm), max_norm / (sizes + 1e-7), 1.0)
        weight.become(weight * scale.unsqueeze(1))


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of `weight` [rows, width] by the numbers `input` [...]: [..., width].

    Args:
        padding_idx: a row that has no gradient.
        max_norm: longer rows that are looked up are shortened to it, in `weight` itself.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
    """
    if input.dtype.kind not in ("int", "uint"):
        raise UsageError("E-TENSOR-DTYPE", None, f"rows are numbered by integers, not {input.dtype}")
    if max_norm is not None:
        _renormalized(weight, input, max_norm, norm_type)
    if weight.ndim != 2:
        raise shape_error(f"embedding: a weight of shape {list(weight.shape)} is not [rows, width]")
    numbers = input
    if input.expression.data is None and GRAD_MODE.enabled:  # a number that no row has, which is an error when it runs
        numbers = where(input < 0, weight.shape[0], input)
    found = weight.index_select(0, numbers.reshape(-1)).reshape(*input.shape, weight.shape[1])
    if scale_grad_by_freq:
        flat = input.reshape(-1).long()
        zeros = Tensor(leaf(np.zeros(weight.shape[0], weight.dtype.as_numpy())))
        counts = zeros.scatter_add(0, flat, (flat * 0 + 1).to(weight.dtype))[flat].reshape(*input.shape, 1)
        found = found.detach() + (found - found.detach()) / counts
    if padding_idx is None:
        return found
    row = padding_idx % weight.shape[0]
    return where(input.eq(row).unsqueeze(-1), found.detach(), found)


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Sums, means or largest elements of rows of bags: `input` [bags, rows each], or all in a row with `offsets`, where
    each bag begins.

    Args:
        max_norm: rows that are looked up and whose `norm_type`-norm is larger are scaled to it, in place.
        scale_grad_by_freq: gradients of rows are divided by how often they are looked up.
        mode: "sum", "mean" or "max".
        sparse: taken for PyTorch's sake; gradients are dense.
        per_sample_weights: of the rows, for "sum".
        include_last_offset: whether the last offset is where the last bag ends.
        padding_idx: a row that does not count.
    """
    if mode not in ("sum", "mean", "max"):
        raise UsageError("E-NN-VALUE", None, f"{mode!r} is not a mode", expected="sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise UsageError("E-NN-VALUE", None, f"per_sample_weights with mode {mode!r}", expected='mode "sum"')
    if (input.ndim == 1) != (offsets is not None):
        raise UsageError("E-NN-VALUE", None, f"offsets belong to rows of one dim, not {list(input.shape)}")
    if offsets is None:
        bags = input.shape[0]
        numbers = np.repeat(np.arange(bags), input.shape[1])
    else:
        begins = np.asarray(offsets.array())[: -1 if include_last_offset else None]
        bags = len(begins)
        numbers = np.repeat(np.arange(bags), np.diff([*begins, input.shape[0]]))
    flat = input.reshape(-1)
    rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counted = None if padding_idx is None else flat.ne(padding_idx % weight.shape[0])
    tensor = Tensor(leaf(numbers.astype(np.int64)))
    if mode == "max":
        return _largest(rows, counted, numbers, bags)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if counted is not None:
        rows = rows * counted.to(rows.dtype).unsqueeze(1)
    zeros = Tensor(leaf(np.zeros((bags, weight.shape[1]), weight.dtype.as_numpy())))
    total = zeros.index_add(0, tensor, rows)
    if mode == "sum":
        return total
    ones = (flat.eq(flat) if counted is None else counted).to(weight.dtype)
    sizes = Tensor(leaf(np.zeros(bags, weight.dtype.as_numpy()))).scatter_add(0, tensor, ones)
    return total / sizes.clamp(min=1).unsqueeze(1)


def _largest(rows: Tensor, counted: Tensor | None, numbers: np.ndarray, bags: int) -> Tensor:
    """The largest elements of the rows of each bag, 0 of empty ones."""
    sizes = np.bincount(numbers, minlength=bags)
    longest = max(1, int(sizes.max(initial=0)))
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    steps = np.arange(longest)
    real = steps < sizes[:, None]
    places = np.where(real, first[:, None] + steps, 0)
    windows = rows[Tensor(leaf(places.astype(np.int64)))] if rows.shape[0] else rows
    kept = Tensor(leaf(real))
    if counted is not None:
        kept = kept & counted[Tensor(leaf(places.astype(np.int64)))]
    found = where(kept.unsqueeze(-1), windows, -float("inf")).max(1)[0]
    return where(kept.any(1).unsqueeze(1), found, 0.0)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the number of each element, 0 elsewhere, in a new last dim; -1: as many classes as the largest number
    needs."""
    if tensor.dtype.kind not in ("int", "uint"):
        raise UsageError("E-TENSOR-DTYPE", None, f"classes are numbered by integers, not {tensor.dtype}")
    numbers = tensor.array()
    if not numbers.size and num_classes < 1:
        raise UsageError("E-TENSOR-VALUE", None, "one_hot of no elements", hint="Give num_classes")
    least, most = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    count = most + 1 if num_classes < 0 else num_classes
    if least < 0 or most >= max(count, 1):
        why = f"one_hot of class {least if least < 0 else most}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected=f"0 to {count - 1}")
    found: Any = tensor.unsqueeze(-1).eq(arange(count))
    return found.long()
