"""Losses of predictions. `reduction` is "mean", "sum", or "none" for a loss of each element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError, UsageIndexError
from ...tensors.autograd.custom_function import as_function
from ...tensors.core.expression import shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE
from ...tensors.operations.activation import log_softmax, logsigmoid, softplus
from ...tensors.operations.indexing import where
from ...tensors.operations.operands import broadcast

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy", "margin_ranking_loss",
    "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
]  # fmt: skip
LOG_FLOOR = -100.0
"""Logarithms of probabilities below it are raised to it, as in torch."""


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or the losses themselves.

    Raises UsageError for another word.
    """
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise UsageError("E-NN-VALUE", None, f"{reduction!r} is not a reduction", expected="mean, sum or none")
    return loss.mean() if reduction == "mean" else loss.sum()


def _pair(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions and targets of one shape."""
    if input.shape == target.shape:
        return input, target
    shape = broadcast((input.shape, target.shape), "loss of prediction and target")
    return input.broadcast_to(shape), target.broadcast_to(shape)


def _same(what: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise shape_error(f"{what}: prediction {list(input.shape)} and target {list(target.shape)} differ")


def _weighted(loss: Tensor, weight: Tensor | None) -> Tensor:
    return loss if weight is None else loss * weight


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The squared error."""
    one, two = _pair(input, target)
    return reduced(_weighted((one - two).square(), weight), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The absolute error."""
    one, two = _pair(input, target)
    return reduced(_weighted((one - two).abs(), weight), reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Half the squared error over `beta` below it, and the absolute error above."""
    if beta == 0:
        return l1_loss(input, target, reduction)
    one, two = _pair(input, target)
    error = (one - two).abs()
    return reduced(where(error < beta, error.square() * (0.5 / beta), error - 0.5 * beta), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Half the squared error below `delta`, and a line above."""
    one, two = _pair(input, target)
    error = (one - two).abs()
    loss = where(error < delta, error.square() * 0.5, (error - 0.5 * delta) * delta)
    return reduced(_weighted(loss, weight), reduction)


def _check_probabilities(x: np.ndarray) -> np.ndarray:
    """0; UsageError unless all elements are from 0 to 1."""
    if not x.size or (x.min() >= 0 and x.max() <= 1):
        return np.zeros((), x.dtype)
    wrong = x[~((x >= 0) & (x <= 1) | np.isnan(x))]
    if wrong.size:
        why = f"binary_cross_entropy of {wrong.flat[0]:g}, which is not a probability"
        hint = "Use sigmoid(), or binary_cross_entropy_with_logits for logits"
        raise UsageError("E-NN-VALUE", None, why, expected="0 to 1", hint=hint)
    return np.zeros((), x.dtype)


_while_computed = as_function(_check_probabilities)


def _checked(input: Tensor) -> Tensor:
    """Probabilities, checked now if they are known, else when they are computed; in traced functions never."""
    known = input.expression.data
    if known is not None:
        _check_probabilities(known)
        return input
    return input if TRACE.changes is not None else input + _while_computed(input.detach())


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities with targets from 0 to 1."""
    _same("binary_cross_entropy", input, target)
    input = _checked(input)
    yes, no = input.log().clamp(min=LOG_FLOOR), (1 - input).log().clamp(min=LOG_FLOOR)
    return reduced(_weighted((target - 1) * no - target * yes, weight), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The cross entropy of logits with targets from 0 to 1; `pos_weight` counts targets of 1 so many times."""
    _same("binary_cross_entropy_with_logits", input, target)
    log_yes = logsigmoid(input)
    scaled = log_yes if pos_weight is None else log_yes * ((pos_weight - 1) * target + 1)
    return reduced(_weighted((1 - target) * input - scaled, weight), reduction)


def _by_class(input: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Predictions [N, C, ...] and classes [N, ...], of single samples too; classes that are known are checked."""
    if input.ndim == 1 and target.ndim == 0:
        return _by_class(input.reshape(1, -1), target.reshape(1), ignore_index)
    if input.ndim < 2 or input.shape[0:1] + input.shape[2:] != target.shape:
        why = f"predictions of shape {list(input.shape)} do not fit classes of shape {list(target.shape)}"
        raise shape_error(f"{why}; they are [N, C, ...] and [N, ...]")
    if target.dtype.kind not in ("int", "uint"):
        raise UsageError("E-TENSOR-DTYPE", None, f"classes are integers, not {target.dtype}", hint="Use long()")
    known = target.expression.data
    if known is not None:
        beyond = known[((known < 0) | (known >= input.shape[1])) & (known != ignore_index)]
        if beyond.size:
            why = f"the target has the class {beyond.flat[0]} of {input.shape[1]} classes"
            hint = "Give that class as ignore_index, if it does not count"
            raise UsageIndexError("E-NN-VALUE", None, why, expected=f"0 to {input.shape[1] - 1}", hint=hint)
    return input, target.long()


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-probability of the target's class.

    Args:
        input: log-probabilities [N, C, ...] or [C].
        target: classes [N, ...] or [].
        weight: of each class, [C]; the mean is weighted too.
        ignore_index: a target that does not count.
    """
    logs, classes = _by_class(input, target, ignore_index)
    kept = classes.ne(ignore_index)
    chosen = where(kept, classes, 0)
    if classes.expression.data is None:
        chosen = where(chosen < 0, logs.shape[1], chosen)
    loss = -logs.gather(1, chosen.unsqueeze(1)).squeeze(1)
    share = kept.to(logs.dtype) if weight is None else where(kept, weight[chosen], 0.0)
    loss = where(kept, loss if weight is None else loss * share, 0.0)
    if reduction == "mean":
        return loss.sum() / share.sum()
    return loss.reshape(target.shape) if reduction == "none" else reduced(loss, reduction)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The cross entropy of logits with the target.

    Args:
        input: logits [N, C, ...] or [C].
        target: classes [N, ...] or []; or probabilities in the shape of `input`.
        weight: of each class, [C]; the mean over classes is weighted too.
        ignore_index: a class that does not count.
        label_smoothing: the share of the target that is spread over all classes, 0 to 1.
    """
    if target.shape == input.shape and target.dtype.kind == "float":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    scores, classes = _by_class(input, target, ignore_index)
    logs = log_softmax(scores, 1)
    if not label_smoothing:
        loss = nll_loss(logs, classes, weight, ignore_index, reduction)
        return loss.reshape(target.shape) if reduction == "none" else loss
    hard = nll_loss(logs, classes, weight, ignore_index, reduction)
    kept = classes.ne(ignore_index)
    spread = -_of_classes(logs, weight).sum(1) * kept.to(logs.dtype)
    if reduction == "mean":
        counted = kept.to(logs.dtype)
        if weight is not None:
            counted = counted * weight[where(kept, classes, 0)]
        spread = spread.sum() / counted.sum()
    elif reduction == "sum":
        spread = spread.sum()
    loss = hard * (1 - label_smoothing) + spread * (label_smoothing / scores.shape[1])
    return loss.reshape(target.shape) if reduction == "none" else loss


def _of_classes(x: Tensor, weight: Tensor | None) -> Tensor:
    """[N, C, ...] times the weights of classes [C]."""
    return x if weight is None else x * weight.reshape([-1] + [1] * (x.ndim - 2))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = 1 if input.ndim > 1 else 0
    count = input.shape[dim]
    wanted = target * (1 - smoothing) + smoothing / count if smoothing else target
    logs = log_softmax(input, dim)
    parts = logs * wanted
    loss = -(parts * weight if weight is not None and dim == 0 else _of_classes(parts, weight)).sum(dim)
    if reduction != "mean":
        return reduced(loss, reduction)
    return loss.sum() / max(1, input.numel() // max(1, count))


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """The cross entropy of the logits input @ linear_weight.T + linear_bias; `options` are PyTorch's of memory.

    Args:
        linear_weight: [C, in], or [C, d1, ..., in] for logits [N, C, d1, ...]; `linear_bias` is without the last dim.
    """
    logits = input @ linear_weight.reshape(-1, linear_weight.shape[-1]).mT
    logits = logits.unflatten(-1, linear_weight.shape[:-1]) if linear_weight.ndim > 2 else logits
    logits = logits if linear_bias is None else logits + linear_bias
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, ignored, reduction, label_smoothing)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The divergence of log-probabilities from the target's probabilities, or log-probabilities with `log_target`;
    reduction "batchmean" is the sum over the length of the first dim."""
    if log_target:
        loss = target.exp() * (target - input)
    else:
        is_zero = target.eq(0)
        entropy = where(is_zero, 0.0, target * where(is_zero, 1.0, target).log())
        loss = entropy - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-likelihood of counts; `full` adds Stirling's approximation of the constant."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        above = where(target > 1, target, 1.0)
        stirling = above * above.log() - above + 0.5 * (above * 6.283185307179586).log()
        loss = loss + where(target > 1, stirling, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Minus the log-likelihood of normal variables of mean `input` and variance `var`."""
    variance = var if isinstance(var, Tensor) else input.detach() * 0 + var
    if variance.ndim == input.ndim - 1 and variance.shape == input.shape[:-1]:
        variance = variance.unsqueeze(-1)
    floor = where(variance.detach() < eps, eps - variance.detach(), 0.0) + variance
    loss = 0.5 * (floor.log() + (input - target).square() / floor)
    return reduced(loss + 0.9189385332046727 if full else loss, reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Distances of pairs that are alike (target 1), and by how much others (target -1) are nearer than the margin."""
    far = where(target.eq(1), 0.0, (margin - input).clamp(min=0))
    return reduced(where(target.eq(-1), 0.0, input) + far, reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """By how much the input that should be larger (the first where the target is 1) is not, by the margin."""
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)) of targets 1 and -1."""
    return reduced(softplus(-target * input), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The binary cross entropy of logits [N, C], averaged over classes."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced(_weighted(loss, weight).mean(-1), reduction)


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """By how much other classes come nearer to the target's score than the margin, for scores [N, C]."""
    scores = input if input.ndim == 2 else input.reshape(1, -1)
    classes = target.reshape(-1, 1).long()
    over = (margin - scores.gather(1, classes) + scores).clamp(min=0)
    over = over if p == 1 else over.square()
    if weight is not None:
        over = over * weight[classes]
    loss = over.scatter(1, classes, 0.0).sum(1) / scores.shape[1]
    return reduced(loss if input.ndim == 2 else loss.reshape([]), reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """By how much other classes come nearer than 1 to the scores of the targets, for scores [N, C] and classes [N, C]
    that end at the first -1."""
    scores = input if input.ndim == 2 else input.reshape(1, -1)
    listed = target.reshape(scores.shape).long()
    real = (listed < 0).long().cumsum(1).eq(0)
    classes = where(real, listed, 0)
    zeros = (scores * 0).detach()
    chosen = zeros.scatter_add(1, classes, real.to(scores.dtype)) > 0
    over = (1 - scores.gather(1, classes).unsqueeze(2) + scores.unsqueeze(1)).clamp(min=0)
    counted = real.unsqueeze(2) & chosen.logical_not().unsqueeze(1)
    loss = (over * counted.to(scores.dtype)).sum([1, 2]) / scores.shape[1]
    return reduced(loss if input.ndim == 2 else loss.reshape([]), reduction)


def _with_older_options(made: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that takes `size_average` and `reduce` of PyTorch before 1.0 in place of `reduction`, too."""

    @functools.wraps(made)
    def called(*arguments: Any, size_average: Any = None, reduce: Any = None, **options: Any) -> Tensor:
        if size_average is not None or reduce is not None:
            average = "sum" if size_average is False else "mean"
            options["reduction"] = "none" if reduce is False else average
        return made(*arguments, **options)

    return called


for _name in __all__:
    globals()[_name] = _with_older_options(globals()[_name])
