"""AllGather and AllReduce: the arrays of all ranks concatenated, and their sum."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.ranks.communicator import communicator


def _gathered(node: Inference) -> None:
    shape = node.shape(0)
    node.set(0, node.dtype(0), None if shape is None else (node.attributes["ranks"], *shape))


@op("AllGather", CANDLE, infer=_gathered, examples=[case("f32[2,3]")])
def all_gather(x: np.ndarray, *, group: str = "", ranks: int = 1) -> np.ndarray:
    """[ranks, ...]: `x` of each rank of a group (`runtime.ranks.communicator`) in their order; [1, ...] for the group
    without a name."""
    found = communicator(group).all_gather(x)
    if len(found) != ranks:
        why = f"the group {group!r} has other ranks than the model was cut for"
        raise UsageError("E-RANK-GROUP", None, why, expected=ranks, found=len(found))
    return found


def _summed(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


@op("AllReduce", CANDLE, infer=_summed, examples=[case("f32[2,3]")])
def all_reduce(x: np.ndarray, *, group: str = "") -> np.ndarray:
    """The sum of `x` over all ranks of a group (`runtime.ranks.communicator`), the same at each; the array itself for
    the group without a name."""
    return communicator(group).all_reduce(x)
