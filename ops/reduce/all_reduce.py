"""AllReduce: the sum of an array over the ranks that compute a model together."""

from __future__ import annotations

import numpy as np

from ...runtime.infer import Inference
from ...runtime.op import case, op
from ...runtime.ranks import communicator
from ..domain import CANDLE


def _infer(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


@op("AllReduce", CANDLE, infer=_infer, examples=[case("f32[2,3]")])
def all_reduce(x: np.ndarray, *, group: str = "") -> np.ndarray:
    """The sum of `x` over all ranks of a group (`runtime.ranks`), the same at each; the array itself for the group without a name."""
    return communicator(group).all_reduce(x)
