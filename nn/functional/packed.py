"""Sequences of different lengths without their padding, as recurrent layers take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import full
from ...tensors.operations.joining import cat


class PackedSequence(NamedTuple):
    """Elements of sequences, step by step; longer sequences come first.

    Attributes:
        data: [sum of lengths, ...]: the first elements of all sequences, the second ones, and so on.
        batch_sizes: i64 [longest]: how many sequences have each step.
        sorted_indices, unsorted_indices: i64 [N]: the order by length, and the way back; None where sequences were
            given in that order.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def lengths(self) -> np.ndarray:
        """The length of each sequence, i64 [N], longest first."""
        sizes = _numbers(self.batch_sizes)
        return (sizes[:, None] > np.arange(sizes.max(initial=0))).sum(0)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences [longest, N, ...], or [N, longest, ...] with `batch_first`, without their padding.

    Args:
        lengths: of the sequences, at least 1; they are read.
        enforce_sorted: whether they are given longest first; sorted otherwise.

    Raises UsageError for lengths that do not fit, or are not in this order.
    """
    x = input.transpose(0, 1) if batch_first else input
    counts = _numbers(lengths)
    if counts.shape != x.shape[1:2] or counts.min(initial=1) < 1 or counts.max(initial=0) > x.shape[0]:
        why = f"lengths {counts.tolist()} do not fit sequences of shape {list(input.shape)}"
        raise UsageError("E-NN-LENGTH", None, why, expected=f"{x.shape[1]} numbers from 1 to {x.shape[0]}")
    order = None
    if not enforce_sorted:
        order = np.argsort(-counts, kind="stable")
        counts = counts[order]
        x = x.index_select(1, Tensor(leaf(order)))
    elif (np.diff(counts) > 0).any():
        why = f"lengths {counts.tolist()} are not in descending order"
        raise UsageError("E-NN-LENGTH", None, why, hint="Pass enforce_sorted=False")
    return _packed(x, counts, order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded sequences and their lengths, in the order in which they were packed.

    Args:
        total_length: of the result, at least the longest; None for that.
    """
    counts = sequence.lengths()
    longest = int(counts.max(initial=0))
    if total_length is not None and total_length < longest:
        why = f"total_length {total_length} is less than the longest sequence"
        raise UsageError("E-NN-LENGTH", None, why, expected=f"at least {longest}")
    x = padded(sequence, padding_value, longest if total_length is None else total_length)
    if sequence.unsorted_indices is not None:
        x = x.index_select(1, sequence.unsorted_indices)
        counts = counts[_numbers(sequence.unsorted_indices)]
    return x.transpose(0, 1) if batch_first else x, Tensor(leaf(counts))


def padded(sequence: PackedSequence, value: float, length: int) -> Tensor:
    """[length, N, ...], longest sequences first."""
    sizes, data = _numbers(sequence.batch_sizes), sequence.data
    count = int(sizes.max(initial=0))
    places = np.full((length, count), data.shape[0])
    places[: len(sizes)][np.arange(count) < sizes[:, None]] = np.arange(data.shape[0])
    filler = full((1, *data.shape[1:]), value, dtype=data.dtype)
    found = cat([data, filler]).index_select(0, Tensor(leaf(places.reshape(-1))))
    return found.reshape(length, count, *data.shape[1:])


def repacked(x: Tensor, like: PackedSequence) -> PackedSequence:
    """Sequences [longest, N, ...] packed as others are."""
    return like._replace(data=_packed(x, like.lengths(), None).data)


def _packed(x: Tensor, counts: np.ndarray, order: np.ndarray | None) -> PackedSequence:
    alive = np.arange(counts.max(initial=0))[:, None] < counts
    places = Tensor(leaf(np.flatnonzero(alive)))
    data = x[: len(alive)].reshape(-1, *x.shape[2:]).index_select(0, places)
    ways = (None, None) if order is None else (Tensor(leaf(order)), Tensor(leaf(np.argsort(order))))
    return PackedSequence(data, Tensor(leaf(alive.sum(1))), *ways)


def _numbers(given: Tensor | Sequence[int] | np.ndarray) -> np.ndarray:
    return np.asarray(given.array() if isinstance(given, Tensor) else given, np.int64)
