"""Losses on the device: the log-probability of each label, and their sum or mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import chain_step, elementwise_chain, elementwise_launch
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.reduce import Result, launch_of, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain
from ...runtime.plan.rows import Fold, Output, Rows, add
from ..nn.log_softmax import LOG_SUM, log_share
from .negative_log_likelihood import negative_log_likelihood_loss, softmax_cross_entropy_loss


def _class(label: int, ignored: float, given: float) -> int:
    return 0 if given != 0 and label == ignored else label


def _counted(label: int, ignored: float, given: float) -> float:
    return 0 if given != 0 and label == ignored else 1


def _weighed(label: int, weight: float, ignored: float, given: float) -> float:
    return 0 if given != 0 and label == ignored else weight


def _loss(log: float, share: float) -> float:
    return -log * share if share != 0 else 0 * share


def _element(x: float) -> float:
    return x


def _share(share: float) -> float:
    return share


def _sum(total: float) -> float:
    return total


def _mean(total: float, weight: float) -> float:
    return total / weight


def lost(
    step: Step, logs: Buffer, labels: Buffer, weights: Buffer | None, y: Buffer, compute: np.dtype[Any]
) -> list[Launch | Chain]:
    """From log-probabilities [n, classes, ...] and labels [n, ...]."""
    ignored, reduction = step.attributes["ignore_index"], step.attributes["reduction"]
    numbers = (float(ignored or 0), float(ignored is not None))
    chosen, share = step.temporary(np.int64, labels.shape), step.temporary(compute, labels.shape)
    why = f"a label of {step.node.op.name} is out of range"
    launches: list[Launch | Chain] = [elementwise_chain(_class, [labels], chosen, *numbers)]
    if weights is None:
        launches.append(elementwise_chain(_counted, [labels], share, *numbers))
    else:
        table = Lookup(chosen, chosen.strides, 1, weights.count, flag=step.flag(why))
        apply = chain_step(_weighed, (labels, weights), compute, *numbers, compute=compute)
        operands = [over(labels, labels.shape), Operand(weights, (0,) * len(labels.shape), lookups=(table,))]
        launches.append(elementwise_launch([apply], labels.shape, operands, over(share, labels.shape)))
    strides = (logs.strides[0], *logs.strides[2:])
    log = Operand(
        logs, strides, lookups=(Lookup(chosen, chosen.strides, logs.strides[1], logs.shape[1], flag=step.flag(why)),)
    )
    each = y if reduction == "none" else step.temporary(compute, labels.shape)
    apply = chain_step(_loss, (logs, share), each.dtype, compute=compute)
    launches.append(
        elementwise_launch([apply], labels.shape, [log, over(share, labels.shape)], over(each, labels.shape))
    )
    if reduction != "none":
        flat = [item.view((labels.count,)) for item in (each, share)]
        operand = {name: over(item, item.shape) for name, item in zip(("x", "share"), flat, strict=True)}
        folds = [Fold("total", _element, add), Fold("weight", _share, add)]
        result = Result(_sum if reduction == "sum" else _mean, Operand(y, (0,)), per_row=True)
        launches.append(reduce_rows([], [labels.count], operand, folds, [result], compute))
    return launches


@cuda(negative_log_likelihood_loss)
def negative_log_likelihood_on_device(step: Step) -> Planned:
    """Plan losses of log-probabilities."""
    logs = step.input(0)
    return lost(step, logs, step.input(1), step.optional_input(2), step.output(), compute_dtype(logs.dtype))


@cuda(softmax_cross_entropy_loss)
def cross_entropy_on_device(step: Step) -> Planned:
    """Compute log-softmax over the classes, then the loss."""
    x = step.input(0)
    compute = compute_dtype(x.dtype)
    logs = step.output(1) if step.is_used(1) else step.temporary(compute, x.shape)
    return [
        launch_of(Rows(x.shape, [1], {"x": x}, LOG_SUM, [Output(log_share, logs)])),
        *(lost(step, logs, step.input(1), step.optional_input(2), step.output(), compute) if step.is_used(0) else []),
    ]
