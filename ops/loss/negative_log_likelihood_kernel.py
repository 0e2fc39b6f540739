"""Native NegativeLogLikelihoodLoss of f32 without weights of classes.

A label that is not a class sets the bailout flag; the run is repeated in NumPy, which raises the error.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, i32, i64
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from .negative_log_likelihood import negative_log_likelihood_loss

LABELS = ("int64", "int32")
EACH, SUM, MEAN = range(3)
REDUCTIONS = {"none": EACH, "sum": SUM, "mean": MEAN}


@range_kernel
def lost_of_labels(
    logs: Address,
    labels: Address,
    y: Address,
    batch: int,
    classes: int,
    inner: int,
    nbytes: int,
    ignored: int,
    reduction: int,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """The losses of `batch` times `inner` labels of `nbytes` bytes, their sum or their mean, in one part."""
    logs, y = f32(logs), f32(y)
    total, counted = 0.0, 0
    for row in range(batch):
        for column in range(inner):
            at = row * inner + column
            label = i64(labels)[at] if nbytes == 8 else np.int64(i32(labels)[at])
            loss = 0.0
            if label != ignored:
                if label < 0 or label >= classes:
                    i64(bailout)[0] = 1
                else:
                    loss = -float(logs[(row * classes + label) * inner + column])
                    counted += 1
            total += loss
            if reduction == 0:
                y[at] = loss
    if reduction == 1:
        y[0] = total
    if reduction == 2:
        y[0] = total / counted if counted > 0 else np.float32(np.nan)


@native(negative_log_likelihood_loss)
def plan_negative_log_likelihood(step: Step) -> Planned:
    """Plan i64 and i32 labels."""
    logs, labels, *weights = step.inputs
    ignored, reduction = step.attributes["ignore_index"], REDUCTIONS.get(step.attributes["reduction"])
    if logs is None or labels is None or any(each is not None for each in weights) or reduction is None:
        return None
    if logs.dtype != np.float32 or labels.dtype.name not in LABELS or len(logs.shape) < 2:
        return None
    if labels.shape != (logs.shape[0], *logs.shape[2:]):
        return None
    return Launch(
        lost_of_labels,
        1,
        logs=logs,
        labels=labels,
        y=step.output(),
        batch=logs.shape[0],
        classes=logs.shape[1],
        inner=math.prod(logs.shape[2:]),
        nbytes=labels.dtype.itemsize,
        ignored=-(1 << 62) if ignored is None else ignored,
        reduction=reduction,
        bailout=step.bailout,
    )
