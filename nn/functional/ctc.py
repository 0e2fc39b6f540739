"""Connectionist temporal classification (Graves et al. 2006): the loss of a sequence without an alignment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.expression import leaf, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.indexing import where
from ...tensors.operations.joining import cat, stack
from .loss import reduced

__all__ = ["ctc_loss"]
NEVER = -1e30
"""The logarithm of a probability of 0."""


def _lengths(given: Any, count: int, what: str) -> np.ndarray:
    found = np.asarray(given.array() if isinstance(given, Tensor) else given, np.int64).reshape(-1)
    if len(found) != count:
        raise shape_error(f"ctc_loss: {len(found)} {what} for {counted(count, 'sequence')}")
    return found


def _padded(targets: Any, lengths: np.ndarray, blank: int) -> np.ndarray:
    """Targets [N, S], of which those beyond the lengths are blank."""
    array = np.asarray(targets.array() if isinstance(targets, Tensor) else targets).astype(np.int64)
    longest = max(1, int(lengths.max(initial=0)))
    found = np.full((len(lengths), longest), blank, np.int64)
    begin = 0
    for row, length in enumerate(lengths):
        if array.ndim == 1:
            part = array[begin : begin + length]
            begin += length
        else:
            part = array[row, :length]
        if len(part) < length:
            raise shape_error(f"ctc_loss: target {row} has fewer than {counted(length, 'class', 'classes')}")
        found[row, :length] = part
    return found


def ctc_loss(
    log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the log-probability of all alignments of the targets.

    Args:
        log_probs: [T, N, C], or [T, C] of one sequence.
        targets: classes [N, S], or those of all sequences in a line.
        input_lengths, target_lengths: [N], whose values are read.
        blank: the class between others.
        reduction: "mean" divides by the lengths of the targets first.
        zero_infinity: losses of targets that are too long are 0 instead of infinite.
    """
    single = log_probs.ndim == 2
    logs = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = logs.shape
    if not 0 <= blank < classes:
        raise UsageError("E-NN-VALUE", None, f"the blank {blank} is not one of {classes} classes")
    given, wanted = (
        _lengths(each, batch, what)
        for each, what in ((input_lengths, "input_lengths"), (target_lengths, "target_lengths"))
    )
    if given.max(initial=0) > steps:
        raise shape_error(f"ctc_loss: an input of length {given.max()} of {steps} steps")
    labels = _padded(targets, wanted, blank)
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        why = f"ctc_loss: targets from {labels.min()} to {labels.max()} for {classes} classes"
        raise UsageError("E-NN-VALUE", None, why, expected=f"0 to {classes - 1}")
    states = np.full((batch, 2 * labels.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    emitted = logs.gather(2, _constant(np.broadcast_to(states, (steps, *states.shape)))).unbind(0)
    started = np.zeros(states.shape, bool)
    started[:, :2] = True
    alpha = where(_constant(started), emitted[0], NEVER)
    shifts = []  # alpha is kept near 0, where f32 is finest
    jumps = _constant(skips)
    never = [_constant(np.full((batch, width), NEVER, np.float32)).to(logs.dtype) for width in (1, 2)]
    for step in range(1, int(given.max(initial=1))):
        one = cat([never[0], alpha[:, :-1]], 1)
        two = where(jumps, cat([never[1], alpha[:, :-2]], 1), NEVER)
        moved = stack([alpha, one, two]).logsumexp(0) + emitted[step]
        running = given > step
        alpha = moved if running.all() else where(_constant(running[:, None]), moved, alpha)
        shifts.append(alpha.detach().amax(1, keepdim=True))
        alpha = alpha - shifts[-1]
    ends = np.stack([2 * wanted, np.maximum(2 * wanted - 1, 0)], 1)
    last = alpha.gather(1, _constant(ends))
    last = where(_constant(np.stack([wanted >= 0, wanted > 0], 1)), last, NEVER)
    valid = _constant(np.arange(steps)[:, None] < given)
    totals = where(valid, where(valid.unsqueeze(2), logs, 0.0).logsumexp(2), 0.0).sum(0)
    last = last.logsumexp(1)
    if shifts:
        last = last + cat(shifts, 1).sum(1)
    loss = totals - totals.detach() - last  # as in torch, the gradient is that of scores that sum to 1
    impossible = loss > -NEVER / 2
    loss = where(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        return (loss / _constant(np.maximum(wanted, 1)).to(loss.dtype)).mean()
    return loss.squeeze(0) if single and reduction == "none" else reduced(loss, reduction)


def _constant(array: np.ndarray) -> Tensor:
    return Tensor(leaf(np.ascontiguousarray(array)))
