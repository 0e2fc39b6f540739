"""Distances of vectors, and losses that are made of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import made
from ...tensors.operations.indexing import where
from ...tensors.operations.operands import broadcast, default_float, promoted
from .loss import reduced

__all__ = [
    "cdist", "cosine_embedding_loss", "cosine_similarity", "pairwise_distance", "pdist", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip
Distance = Callable[[Tensor, Tensor], Tensor]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along a dim; norms are raised to `eps`."""
    x1, x2 = (Tensor(default_float(each)) for each in promoted([x1, x2]))
    shape = broadcast((x1.shape, x2.shape), "cosine_similarity")
    x1, x2 = x1.broadcast_to(shape), x2.broadcast_to(shape)
    one, two = (each / each.norm(2, dim, keepdim=True).clamp(min=eps) for each in (x1, x2))
    return (one * two).sum(dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dim."""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of vectors: [..., P, R] of [..., P, M] and [..., R, M]."""
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows [N, M], each pair once."""
    first, second = np.triu_indices(input.shape[0], 1)
    return (input[made(first)] - input[made(second)]).norm(p, -1)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 minus the cosine of pairs that are alike (target 1), and by how much that of others (target -1) is above the
    margin."""
    cosine = cosine_similarity(input1, input2, -1, 1e-12**0.5)
    near = where(target.eq(1), 1 - cosine, 0.0)
    return reduced(near + where(target.eq(-1), (cosine - margin).clamp(min=0), 0.0), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Distance | None = None,
    margin: float = 1.0, swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """By how much the positive sample is not nearer to the anchor than the negative one, by the margin.

    Args:
        distance_function: of two tensors of vectors; the Euclidean distance by default.
        swap: take the distance of the negative sample from the positive one where that is smaller.
    """
    if margin <= 0:
        raise UsageError("E-NN-VALUE", None, f"the margin {margin} is not above 0")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """By how much the positive sample is not nearer to the anchor than the negative one in the p-norm, by the
    margin."""
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda one, two: pairwise_distance(one, two, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )
