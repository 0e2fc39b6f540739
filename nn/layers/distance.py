"""Distances of vectors and losses of pairs, triples and unaligned sequences, as modules."""

from __future__ import annotations

from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.module import Module
from ..functional import distance
from ..functional.ctc import ctc_loss
from .loss import Loss

__all__ = [
    "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity", "PairwiseDistance", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along a dim."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The input's shape without the dim."""
        return distance.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors along the last dim."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances."""
        return distance.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineEmbeddingLoss(Loss):
    """1 minus the cosine of pairs that are alike, and by how much that of others is above the margin."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        return distance.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(Loss):
    """By how much the positive sample is not nearer to the anchor than the negative one, by the margin."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss, reduced."""
        return distance.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(Loss):
    """TripletMarginLoss with another distance."""

    def __init__(
        self, *, distance_function: distance.Distance | None = None, margin: float = 1.0, swap: bool = False,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction)
        self.distance_function = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss, reduced."""
        options: dict[str, Any] = {"margin": self.margin, "swap": self.swap, "reduction": self.reduction}
        return distance.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, **options
        )


class CTCLoss(Loss):
    """Minus the log-probability of all alignments of the targets."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        """The loss of log-probabilities [T, N, C], reduced; lengths are read."""
        return ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
