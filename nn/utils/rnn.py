"""Sequences of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from ...tensors.operations.joining import stack
from ..functional.conv import pad
from ..functional.packed import PackedSequence as PackedSequence
from ..functional.packed import pack_padded_sequence as pack_padded_sequence
from ..functional.packed import pad_packed_sequence as pad_packed_sequence


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors [length, ...] as one [longest, N, ...], or [N, longest, ...] with `batch_first`."""
    if padding_side not in ("left", "right"):
        raise UsageError("E-NN-VALUE", None, f"{padding_side!r} is not a side", expected="left or right")
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        ends = [0, missing] if padding_side == "right" else [missing, 0]
        padded.append(pad(sequence, [0, 0] * (sequence.ndim - 1) + ends, "constant", padding_value))
    return stack(padded, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors [length, ...] as one packed sequence."""
    return pack_padded_sequence(
        pad_sequence(sequences), [sequence.shape[0] for sequence in sequences], False, enforce_sorted
    )


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors that `pack_sequence` joined."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The tensors that `pad_sequence` joined; lengths are read."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[index, :length] for index, length in enumerate(np.asarray(lengths.array()).tolist())]


def length_mask(lengths: Tensor, longest: int | None = None) -> Tensor:
    """Booleans [N, longest] that are true beyond the lengths [N], as `key_padding_mask` of attention has them."""
    found = np.asarray(lengths.array())
    count = int(found.max(initial=0)) if longest is None else longest
    return Tensor(leaf(np.arange(count) >= found[:, None]))
