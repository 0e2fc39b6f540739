"""Causal depthwise convolution that carries its last inputs to the next call, as in state-space models."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..elementwise.exponential_activation import sigmoid_of
from ..rules.precision import widened
from ..rules.shape_rules import shape_error

ACTIVATIONS = ("none", "silu", "swish")


def _infer(node: Inference) -> None:
    x, weight, past = node.shape(0), node.shape(1), node.shape(3)
    if any(shape is not None and len(shape) != 3 for shape in (x, weight, past)):
        node.fail(f"input, weight and state have shapes {x}, {weight} and {past}; all are of rank 3")
    if node.attributes["activation"] not in ACTIVATIONS:
        node.fail(f"activation {node.attributes['activation']!r} is not one of {', '.join(ACTIVATIONS)}")
    node.set(0, node.dtype(0), x)
    taps = weight[2] if weight is not None else None
    carried = taps - 1 if isinstance(taps, int) else past[2] if past is not None else None
    node.set(1, node.dtype(0), None if x is None else (*x[:2], carried))


@op(
    "CausalConvWithState",
    since=27,
    infer=_infer,
    examples=[
        case("f32[2,3,7]", "f32[3,1,4]", "f32[3]", "f32[2,3,3]", outputs=2),
        case("f32[2,3,2]", "f32[3,1,5]", activation="silu", outputs=2),
        case("f32[1,4,6]", "f32[4,1,1]", activation="swish", outputs=2),
        case("f32[0,3,4]", "f32[3,1,2]"),
    ],
)
@quiet
@widened
def causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
) -> tuple[np.ndarray, np.ndarray]:
    """Each channel of [batch, channels, length] under its kernel of [channels, 1, taps], the state before it, and the
    state after it.

    A state is the taps - 1 elements that come before the next input.
    """
    if (
        x.ndim != 3
        or weight.ndim != 3
        or weight.shape[:2] != (x.shape[1], 1)
        or not weight.shape[2]
        or activation not in ACTIVATIONS
    ):
        raise shape_error(
            "CausalConvWithState",
            f"an input of shape {x.shape}, a kernel of shape {weight.shape} and {activation!r} do not fit together",
        )
    if bias is not None and bias.shape != x.shape[1:2]:
        raise shape_error("CausalConvWithState", f"a bias of shape {bias.shape} does not match {x.shape[1]} channels")
    carried, length = weight.shape[2] - 1, x.shape[2]
    state = np.zeros((*x.shape[:2], carried), x.dtype) if past_state is None else past_state
    if state.shape != (*x.shape[:2], carried):
        raise shape_error(
            "CausalConvWithState", f"a state of shape {state.shape} does not go before an input of shape {x.shape}"
        )
    whole = np.concatenate((state, x), 2)
    y = np.zeros(x.shape, x.dtype)
    for tap in range(carried + 1):
        y += whole[:, :, tap : tap + length] * weight[:, :, tap].reshape(-1, 1)
    if bias is not None:
        y += bias[:, None]
    if activation != "none":
        y *= sigmoid_of(y)
    return y, np.ascontiguousarray(whole[:, :, length:])
