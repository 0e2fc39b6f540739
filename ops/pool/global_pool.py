"""Global pooling: one value per channel and image."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.p_norm import powers, root
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from .pool import lowest, whole_power

CASES = [case("f32[2,3,4,5]"), case("f32[1,2,7]"), case("f32[0,2,3,2,2]")]


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and len(x) < 2:
        node.fail(f"the input has shape {x}, a batch axis and a channel axis are needed")
    node.set(0, node.dtype(0), None if x is None else (*x[:2], *(1,) * (len(x) - 2)))


def spatial(x: np.ndarray, what: str) -> tuple[int, ...]:
    """The axes after the batch and the channels."""
    if x.ndim < 2:
        raise shape_error(what, f"an input of shape {x.shape} has no channels")
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool", since=22, types="float", infer=_infer, examples=CASES)
@quiet
@widened
def global_average_pool(x: np.ndarray) -> np.ndarray:
    """From [n, channels, spatial...] to [n, channels, 1...]."""
    made: np.ndarray = np.mean(x, spatial(x, "GlobalAveragePool"), keepdims=True)
    return made


@op("GlobalMaxPool", since=22, types="float", infer=_infer, examples=CASES)
@quiet
@widened
def global_max_pool(x: np.ndarray) -> np.ndarray:
    """From [n, channels, spatial...] to [n, channels, 1...]."""
    made: np.ndarray = np.max(x, spatial(x, "GlobalMaxPool"), keepdims=True, initial=lowest(x.dtype))
    return made


@op(
    "GlobalLpPool",
    since=22,
    types="float",
    infer=_infer,
    examples=[*CASES, case("f32[2,3,4,5]", p=1), case("f32[2,3,4,5]", p=3)],
)
@quiet
@widened
def global_lp_pool(x: np.ndarray, *, p: int = 2) -> np.ndarray:
    """The p-norm of each channel, from [n, channels, spatial...] to [n, channels, 1...]."""
    return root(np.sum(powers(x, p), spatial(x, "GlobalLpPool"), keepdims=True), p)


upgrade(global_lp_pool, below=2)(whole_power)
