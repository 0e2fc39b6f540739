"""Causal depthwise convolution that carries its last inputs to the next call, as in state-space models."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term
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


def causal_conv(
    x: Term, weight: Term, bias: Term | None, past: Term | None, *, activation: str, dilation: int = 1
) -> tuple[Term, Term, int]:
    """Each channel of [batch, channels, spatial...] under its kernel, causal along the last axis and centred along
    others; the state and the input, one after the other along the last axis; and the length of a state."""
    what, taps = "CausalConvWithState", weight.lengths[2:]
    if len(taps) != x.axes - 2 or weight.lengths[:2] != [x.lengths[1], 1] or not taps[-1]:
        shapes = f"an input of shape {x.value.shape} and a kernel of shape {weight.value.shape}"
        raise shape_error(what, f"{shapes} do not fit together")
    state = [*x.lengths[:-1], (taps[-1] - 1) * dilation]
    if past is not None and past.lengths != state:
        raise shape_error(
            what, f"a state of shape {past.value.shape} does not go before an input of shape {x.value.shape}"
        )
    before = x.constant(np.zeros(state), x.dtype.as_numpy()) if past is None else past
    line = before.concatenated(x, axis=x.axes - 1) if state[-1] else x
    y = line.call(
        "Conv",
        weight,
        bias,
        group=state[1],
        dilations=[*[1] * (x.axes - 3), dilation],
        pads=[*(tap // 2 for tap in taps[:-1]), 0, *(tap - 1 - tap // 2 for tap in taps[:-1]), 0],
    )
    return y if activation == "none" else y * y.call("Sigmoid"), line, state[-1]


@composed(
    "CausalConvWithState",
    since=27,
    types="T=real T T T -> 2",
    infer=_infer,
    examples=[
        case("f32[2,3,7]", "f32[3,1,4]", "f32[3]", "f32[2,3,3]", outputs=2),
        case("f32[2,3,2]", "f32[3,1,5]", activation="silu", outputs=2),
        case("f32[1,4,6]", "f32[4,1,1]", activation="swish", outputs=2),
        case("f32[0,3,4]", "f32[3,1,2]"),
    ],
)
def causal_conv_with_state(
    x: Term, weight: Term, bias: Term | None = None, past_state: Term | None = None, *, activation: str = "none"
) -> tuple[Term, Term]:
    """Each channel of [batch, channels, length] under its kernel of [channels, 1, taps], the state before it, and the
    state after it.

    A state is the taps - 1 elements that come before the next input.
    """
    y, line, carried = causal_conv(x, weight, bias, past_state, activation=activation)
    return y, line.part(2, x.lengths[2], x.lengths[2] + carried)
