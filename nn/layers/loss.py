"""Losses as modules: each calls the function of its name in `functional` with its settings."""

from __future__ import annotations

import math
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.module import Module
from ..functional import loss
from .linear import Linear

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss",
    "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
]  # fmt: skip


class Loss(Module):
    """A loss with its reduction: "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class WeightedLoss(Loss):
    """A loss with weights of classes or elements, which are a buffer."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


_Loss, _WeightedLoss = Loss, WeightedLoss
"""PyTorch's names of the base classes."""


class MSELoss(Loss):
    """The squared error."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.mse_loss(input, target, self.reduction)


class L1Loss(Loss):
    """The absolute error."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.l1_loss(input, target, self.reduction)


class SmoothL1Loss(Loss):
    """Half the squared error over `beta` below it, and the absolute error above."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(Loss):
    """Half the squared error below `delta`, and a line above."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(WeightedLoss):
    """The cross entropy of probabilities with targets from 0 to 1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """The cross entropy of logits with targets from 0 to 1; `pos_weight` counts targets of 1 so many times."""

    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class NLLLoss(WeightedLoss):
    """Minus the log-probability of the target's class."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of log-probabilities [N, C, ...] and classes [N, ...], reduced."""
        return loss.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(WeightedLoss):
    """The cross entropy of logits with classes, or with probabilities."""

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits [N, C, ...] and classes [N, ...] or probabilities [N, C, ...], reduced."""
        return loss.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class LinearCrossEntropyLoss(WeightedLoss):
    """The cross entropy of the logits of a linear layer, which is a part of the loss.

    Attributes:
        linear: the layer, of `num_classes` times the product of `out_features` results.
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, math.prod(self.out_features) * num_classes, bias, device, dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of features [N, in] and classes [N, ...] or probabilities, reduced."""
        shape = (self.num_classes, *self.out_features)
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return loss.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, -1), target, linear_bias=bias, weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
        )  # fmt: skip


class KLDivLoss(Loss):
    """The divergence of log-probabilities from the target's probabilities, or log-probabilities with `log_target`."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.kl_div(input, target, self.reduction, self.log_target)


class PoissonNLLLoss(Loss):
    """Minus the log-likelihood of counts."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.poisson_nll_loss(log_input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(Loss):
    """Minus the log-likelihood of normal variables."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """The loss, reduced."""
        return loss.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class HingeEmbeddingLoss(Loss):
    """Distances of pairs that are alike, and by how much others are nearer than the margin."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.hinge_embedding_loss(input, target, self.margin, self.reduction)


class MarginRankingLoss(Loss):
    """By how much the input that should be larger is not, by the margin."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)) of targets 1 and -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """The binary cross entropy of logits [N, C], averaged over classes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(WeightedLoss):
    """By how much other classes come nearer to the target's score than the margin."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.multi_margin_loss(input, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(Loss):
    """By how much other classes come nearer than 1 to the scores of the targets."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return loss.multilabel_margin_loss(input, target, self.reduction)
