"""onnxruntime's LinearAttention, LinearAttentionGate and CausalConvWithState, which return the states of the last
tokens too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case
from ....runtime.ir.shape_inference import Inference
from ...attention.causal_conv import causal_conv
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import shape_error


def _infer_attention(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    heads, groups, window = (node.attributes[name] for name in ("q_num_heads", "kv_num_heads", "state_window"))
    width = v[2] // groups if v is not None and isinstance(v[2], int) and groups else None
    depth = q[2] // heads if q is not None and isinstance(q[2], int) and heads else None
    node.set(0, node.dtype(0), None if q is None else (*q[:2], None if width is None else width * max(heads, groups)))
    state = (q[0] if q is not None else None, groups, depth, width)
    node.set(1, node.dtype(3) if node.value(3) is not None else node.dtype(0), (window, *state) if window else state)


@composed(
    "LinearAttention",
    MICROSOFT,
    types="T=real T T real T T -> 2",
    infer=_infer_attention,
    in_f32=False,
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
    query: Term,
    key: Term,
    value: Term,
    past_state: Term | None = None,
    decay: Term | None = None,
    beta: Term | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Term, Term]:
    """The standard's; with `state_window` states [window, batch, heads, size, value size] after each of the last
    tokens, zero before the first.

    Where there are more key heads than query heads, each query serves several of them.
    """
    heads, groups = q_num_heads, kv_num_heads
    if query.axes != 3 or min(heads, groups) < 1 or query.lengths[2] % heads or (groups > heads and groups % heads):
        what = f"queries of shape {query.value.shape}, {heads} query heads and {groups} key heads"
        raise shape_error("LinearAttention", f"{what} do not fit together")
    batch, length, width = query.lengths
    depth = width // heads
    if groups > heads:
        split = query.reshaped(batch, length, heads, 1, depth)
        query = split.call("Expand", query.integers([1, 1, 1, groups // heads, 1])).reshaped(batch, length, -1)
        heads = groups
    past = past_state
    if past is not None and state_window:
        past = past.entry(0, past.lengths[0] - 1)
    cuts = [0, *range(max(1, length - state_window + 1), length + 1)] if state_window and length else [0, length]
    rows, states = [], []
    for start, stop in itertools.pairwise(cuts):
        q, k, v, gate, rate = (
            item if item is None or len(cuts) == 2 else item.part(1, start, stop)
            for item in (query, key, value, decay, beta)
        )
        assert q is not None
        y, past = q.calls(
            "LinearAttention",
            k,
            v,
            past,
            gate,
            rate,
            outputs=2,
            q_num_heads=heads,
            kv_num_heads=groups,
            scale=scale or 1 / math.sqrt(max(depth, 1)),
            update_rule=update_rule,
        )
        rows.append(y)
        states.append(past)
    y = rows[0].concatenated(*rows[1:], axis=1)
    if not state_window:
        return y, states[0]
    return y, _windowed([state.unsqueezed(0) for state in states[-state_window:]], state_window)


def _windowed(states: Sequence[Term], window: int) -> Term:
    """The latest states [1, ...] as one term [window, ...], zero before the first."""
    first, *others = states
    kept = first.concatenated(*others, axis=0)
    if len(states) == window:
        return kept
    return kept.call("Pad", kept.integers([window - len(states), *[0] * (2 * kept.axes - 1)]))


def _infer_gate(node: Inference) -> None:
    for index in (0, 1):
        node.set(index, node.dtype(0), node.shape(0))


@composed(
    "LinearAttentionGate",
    MICROSOFT,
    types="T=real f32 f32 T -> 2",
    infer=_infer_gate,
    examples=[case("f32[2,3,4]", "f32[4]", "f32[4]", "f32[2,3,4]", outputs=2), case("f32[1,2,3]", "f32[3]", "f32[3]")],
)
def linear_attention_gate(a: Term, dt_bias: Term, decay_scale: Term, b: Term | None = None) -> tuple[Term, Term | None]:
    """``decay_scale * softplus(a + dt_bias)`` and ``sigmoid(b)``."""
    return decay_scale * (a + dt_bias).call("Softplus"), None if b is None else b.call("Sigmoid")


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


@composed(
    "CausalConvWithState",
    MICROSOFT,
    types="T=real T T T -> 3",
    infer=_infer_conv,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,7]", "f32[3,1,4]", "f32[3]", "f32[2,3,3]", outputs=2),
        case("f32[2,3,2]", "f32[3,1,5]", activation="silu", outputs=2),
        case("f32[2,6,3]", "f32[3,1,3]", "f32[3]", dilation=2, channels_last=1, outputs=2),
        case("f32[1,2,5,6]", "f32[2,1,3,3]", ndim=2, outputs=2),
    ],
)
def causal_conv_with_state(
    x: Term,
    weight: Term,
    bias: Term | None = None,
    past_state: Term | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Term, Term]:
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

    def channels_first(term: Term) -> Term:
        flat = term if term.axes == 3 else term.reshaped(*term.lengths[:2], -1)
        return flat.transposed([0, 2, 1])

    def laid_out(term: Term) -> Term:
        if not channels_last:
            return term
        flat = term.transposed([0, 2, 1])
        return flat if x.axes == 3 else flat.reshaped(*flat.lengths[:2], *x.lengths[2:])

    inner, past = channels_first(x) if channels_last else x, past_state
    if inner.axes != ndim + 2:
        raise shape_error(what, f"an input of shape {x.value.shape} has {ndim} spatial axes")
    if past is not None and state_window:
        past = past.entry(0, past.lengths[0] - 1)
    past = channels_first(past) if past is not None and channels_last else past
    y, line, carried = causal_conv(inner, weight, bias, past, activation=activation, dilation=dilation)
    length = inner.lengths[-1]
    if not state_window:
        return laid_out(y), laid_out(line.part(ndim + 1, length, length + carried))
    states = [
        laid_out(line.part(ndim + 1, stop, stop + carried)).unsqueezed(0)
        for stop in range(max(1, length - state_window + 1), length + 1)
    ]
    none = x.constant(np.zeros([*inner.lengths[:-1], carried]), x.dtype.as_numpy())
    return laid_out(y), _windowed(states or [laid_out(none).unsqueezed(0)], state_window)
