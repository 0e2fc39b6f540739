"""AllGather: the arrays of all ranks, concatenated."""

from __future__ import annotations

import numpy as np

from ...runtime.base.communicator import communicator
from ...runtime.base.errors import UsageError
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.domain import CANDLE


def _infer(node: Inference) -> None:
    shape = node.shape(0)
    node.set(0, node.dtype(0), None if shape is None else (node.attributes["ranks"], *shape))


@op("AllGather", CANDLE, infer=_infer, examples=[case("f32[2,3]")])
def all_gather(x: np.ndarray, *, group: str = "", ranks: int = 1) -> np.ndarray:
    """[ranks, ...]: `x` of each rank of a group (`runtime.base.communicator`) in their order; the array itself behind a
    1 for the group without a name."""
    found = communicator(group).all_gather(x)
    if len(found) != ranks:
        raise UsageError(
            "E-RANK-GROUP",
            None,
            f"the group {group!r} has other ranks than the model was cut for",
            expected=ranks,
            found=len(found),
        )
    return found
