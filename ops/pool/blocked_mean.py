"""Means of planes in NCHW16c layout."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..reduce.reduction_axes import mean_over
from ..rules.shape_rules import shape_error


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is None:
        node.set(0, node.dtype(0), None)
        return
    if len(x) != 5:
        node.fail(f"the input has shape {x}")
    _, blocks, *_, lanes = x
    channels = blocks * lanes if isinstance(blocks, int) and isinstance(lanes, int) else None
    node.set(0, node.dtype(0), (x[0], channels, 1, 1))


@op("BlockedMean", domain=CANDLE, infer=_infer, examples=[case("f32[2,3,5,7,16]"), case("f32[1,1,1,2,16]")])
def blocked_mean(x: np.ndarray) -> np.ndarray:
    """From [n, channels / 16, height, width, 16] to means [n, channels, 1, 1]."""
    if x.ndim != 5:
        raise shape_error("BlockedMean", f"an input of shape {x.shape} is not in blocks")
    return mean_over(x, (2, 3), keepdims=False).astype(x.dtype).reshape(len(x), x.shape[1] * x.shape[4], 1, 1)
