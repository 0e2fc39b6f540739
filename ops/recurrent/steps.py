"""Shared by the time steps of RNNs in training: order of times, gates, shapes and masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.ir.shape_inference import Inference
from ..rules.expression import Term

LENGTHS = np.array([3, 1], np.int32)
"""Lengths of the two sequences of examples."""


def stacked(parts: Sequence[Term]) -> Term:
    """Tensors of one shape along a new first axis."""
    first, *rest = [part.unsqueezed(0) for part in parts]
    return first.concatenated(*rest, axis=0)


def split_gates(gates: Term, count: int) -> list[Term]:
    """Gates [batch, count x hidden] one by one."""
    hidden = gates.lengths[-1] // count
    return [gates.part(1, index * hidden, (index + 1) * hidden) for index in range(count)]


def order_of_times(times: int, reverse: int) -> list[int]:
    """The times as they follow each other."""
    return [*reversed(range(times))] if reverse else [*range(times)]


def running(lengths: Term | None, time: int) -> Term | None:
    """Whether sequences have not ended at a time, bool [batch, 1]; None if all have one length."""
    return None if lengths is None else (lengths > time).unsqueezed(1)


def where_running(runs: Term | None, value: Term, other: Term | float) -> Term:
    """`value` of the sequences that have not ended, `other` of those that have."""
    return value if runs is None else runs.where(value, other)


def infer_states(node: Inference, state: int) -> None:
    """Output 0 is a state for each time, of the width of input `state`."""
    added, width = node.shape(0), node.shape(state)
    if added is not None and len(added) != 3:
        node.fail(f"gates of shape {added}; they are of rank 3")
    last = None if width is None or len(width) != 2 else width[1]
    node.set(0, node.dtype(0), None if added is None else (*added[:2], last))
