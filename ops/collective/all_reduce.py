"""AllReduce: the sum of an array over all ranks."""

from __future__ import annotations

import numpy as np

from ...runtime.base.communicator import communicator
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.domain import CANDLE


def _infer(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


@op("AllReduce", CANDLE, infer=_infer, examples=[case("f32[2,3]")])
def all_reduce(x: np.ndarray, *, group: str = "") -> np.ndarray:
    """The sum of `x` over all ranks of a group (`runtime.base.communicator`), the same at each; the array itself for
    the group without a name."""
    return communicator(group).all_reduce(x)
