"""onnxruntime's LinearAttention, LinearAttentionGate and CausalConvWithState, which return the states of the last
tokens too."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...attention.linear_attention import linear_attention as standard_attention
from ...elementwise.exponential_activation import sigmoid_of
from ...rules.contrib_domain import DOMAIN
from ...rules.precision import widened
from ...rules.shape_rules import shape_error


def _infer_attention(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    heads, groups, window = (node.attributes[name] for name in ("q_num_heads", "kv_num_heads", "state_window"))
    width = v[2] // groups if v is not None and isinstance(v[2], int) and groups else None
    depth = q[2] // heads if q is not None and isinstance(q[2], int) and heads else None
    node.set(0, node.dtype(0), None if q is None else (*q[:2], None if width is None else width * max(heads, groups)))
    state = (q[0] if q is not None else None, groups, depth, width)
    node.set(1, node.dtype(3) if node.value(3) is not None else node.dtype(0), (window, *state) if window else state)


@op(
    "LinearAttention",
    DOMAIN,
    infer=_infer_attention,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "f32[2,5,12]", "f32[2,5,12]", "f32[2,5,6]", q_num_heads=3, kv_num_heads=3, update_rule="linear", outputs=2
        ),
        case(
            "f32[1,3,4]",
            "f32[1,3,4]",
            "f32[1,3,6]",
            None,
            np.full((1, 3, 2), -0.2, np.float32),
            np.full((1, 3, 2), 0.4, np.float32),
            q_num_heads=2,
            kv_num_heads=2,
            outputs=2,
        ),
    ],
)
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[np.ndarray, np.ndarray]:
    """The standard's; with `state_window` states [window, batch, heads, size, value size] after each of the last
    tokens, zero before the first.

    Where there are more key heads than query heads, each query serves several of them.
    """
    heads = q_num_heads
    if (
        query.ndim != 3
        or min(heads, kv_num_heads) < 1
        or query.shape[2] % heads
        or (kv_num_heads > heads and kv_num_heads % heads)
    ):
        raise shape_error(
            "LinearAttention",
            f"queries of shape {query.shape}, {heads} query heads and {kv_num_heads} key heads do not fit together",
        )
    depth = query.shape[2] // heads
    if kv_num_heads > heads:
        query = np.repeat(query.reshape(*query.shape[:2], heads, depth), kv_num_heads // heads, 2).reshape(
            *query.shape[:2], -1
        )
        heads = kv_num_heads
    past = past_state[-1] if past_state is not None and state_window else past_state
    length = query.shape[1]
    cuts = [0, *range(max(1, length - state_window + 1), length + 1)] if state_window and length else [0, length]
    rows, states = [], []
    assert standard_attention.compute is not None
    for start, stop in itertools.pairwise(cuts):
        part = [None if item is None else item[:, start:stop] for item in (query, key, value)]
        gates = [None if item is None else item[:, start:stop] for item in (decay, beta)]
        y, past = standard_attention.compute(
            *part,
            past,
            *gates,
            q_num_heads=heads,
            kv_num_heads=kv_num_heads,
            scale=scale or 1 / math.sqrt(max(depth, 1)),
            update_rule=update_rule,
        )
        rows.append(y)
        states.append(past)
    if not state_window:
        return rows[0], states[0]
    late = states[-state_window:]
    none = [np.zeros_like(late[0])] * (state_window - len(late))
    return np.concatenate(rows, 1), np.stack([*none, *late])


def _infer_gate(node: Inference) -> None:
    for index in (0, 1):
        node.set(index, node.dtype(0), node.shape(0))


@op(
    "LinearAttentionGate",
    DOMAIN,
    infer=_infer_gate,
    examples=[case("f32[2,3,4]", "f32[4]", "f32[4]", "f32[2,3,4]", outputs=2), case("f32[1,2,3]", "f32[3]", "f32[3]")],
)
@widened
def linear_attention_gate(
    a: np.ndarray, dt_bias: np.ndarray, decay_scale: np.ndarray, b: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """``decay_scale * softplus(a + dt_bias)`` and ``sigmoid(b)``."""
    x = a + dt_bias
    return decay_scale * (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))), None if b is None else sigmoid_of(b)


def _infer_conv(node: Inference) -> None:
    x, weight = node.shape(0), node.shape(1)
    node.set(0, node.dtype(0), x)
    taps = weight[-1] if weight else None
    carried = (taps - 1) * node.attributes["dilation"] if isinstance(taps, int) else None
    if x is None:
        node.set(1, node.dtype(0), None)
        return
    state = (x[0], carried, *x[2:]) if node.attributes["channels_last"] else (*x[:-1], carried)
    window = node.attributes["state_window"]
    node.set(1, node.dtype(0), (window, *state) if window else state)


@op(
    "CausalConvWithState",
    DOMAIN,
    infer=_infer_conv,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,7]", "f32[3,1,4]", "f32[3]", "f32[2,3,3]", outputs=2),
        case("f32[2,3,2]", "f32[3,1,5]", activation="silu", outputs=2),
        case("f32[2,6,3]", "f32[3,1,3]", "f32[3]", dilation=2, channels_last=1, outputs=2),
        case("f32[1,2,5,6]", "f32[2,1,3,3]", ndim=2, outputs=2),
    ],
)
@widened
def causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Each channel of [batch, channels, spatial...] under its kernel, causal along the last axis, centred along others;
    and the state after it.

    A state is the (taps - 1) x dilation elements before the next input. With `state_window` those after each of the
    last positions are kept. With `channels_last` input and states are [batch, length, channels...].
    """
    what = "CausalConvWithState"
    if (
        activation not in ("none", "silu", "swish")
        or dilation < 1
        or ndim not in (1, 2, 3)
        or (channels_last and ndim > 1)
    ):
        raise shape_error(
            what, f"activation {activation!r}, dilation {dilation}, {ndim} axes, channels_last {channels_last}"
        )
    inner = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1) if channels_last else x
    taps = weight.shape[2:]
    if inner.ndim != ndim + 2 or len(taps) != ndim or weight.shape[:2] != (inner.shape[1], 1):
        raise shape_error(what, f"an input of shape {x.shape} and a kernel of shape {weight.shape} do not fit together")
    carried, length = (taps[-1] - 1) * dilation, inner.shape[-1]
    past = past_state[-1] if past_state is not None and state_window else past_state
    if past is not None and channels_last:
        past = past.reshape(*past.shape[:2], -1).transpose(0, 2, 1)
    before = np.zeros((*inner.shape[:-1], carried), x.dtype) if past is None else past
    if before.shape != (*inner.shape[:-1], carried):
        raise shape_error(what, f"a state of shape {before.shape} does not go before an input of shape {x.shape}")
    line = np.concatenate([before, inner], -1)
    whole = np.pad(line, [(0, 0), (0, 0), *((tap // 2, tap - 1 - tap // 2) for tap in taps[:-1]), (0, 0)])
    y = np.zeros(inner.shape, x.dtype)
    for place in np.ndindex(*taps):
        seen = [slice(at, at + size) for at, size in zip(place[:-1], inner.shape[2:-1], strict=True)]
        at = place[-1] * dilation
        y += whole[(slice(None), slice(None), *seen, slice(at, at + length))] * weight[
            (slice(None), 0, *place)
        ].reshape(-1, *(1,) * ndim)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * ndim)
    if activation != "none":
        y *= sigmoid_of(y)

    def state(stop: int) -> np.ndarray:
        kept = line[..., stop : stop + carried] if stop >= 0 else np.zeros_like(line[..., :carried])
        return (
            kept.transpose(0, 2, 1).reshape(len(x), carried, *x.shape[2:])
            if channels_last
            else np.ascontiguousarray(kept)
        )

    present = (
        np.stack([state(length - back if length > back else -1) for back in reversed(range(state_window))])
        if state_window
        else state(length)
    )
    return y.transpose(0, 2, 1).reshape(x.shape) if channels_last else y, present
