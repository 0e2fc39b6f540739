"""onnxruntime's linear attention, gates and causal convolution on the device, decomposed into other operators."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.plan.kernel_api import decomposed
from ...rules.decompose_cuda import Form, StaysOnCpu, dtype_of, forms, lengths
from ...rules.expression import Term
from .linear_attention import causal_conv_with_state, linear_attention, linear_attention_gate


@decomposed(linear_attention_gate)
@forms
def _gates(form: Form) -> None:
    form.give(0, form.input(2) * (form.input(0) + form.input(1)).call("Softplus"))
    if form.is_used(1) and form.optional_input(3) is not None:
        form.give(1, form.input(3).call("Sigmoid"))


@decomposed(linear_attention)
@forms
def _recurrent(form: Form) -> None:
    given = form.attributes
    heads, groups = given["q_num_heads"], given["kv_num_heads"]
    if given["state_window"]:
        raise StaysOnCpu("states after several tokens are supported on the CPU only")
    query = form.input(0)
    batch, length, width = lengths(query)
    depth = width // heads
    scale = given["scale"] or 1 / max(depth, 1) ** 0.5
    if groups > heads:
        split = form.reshaped(query, batch, length, heads, 1, depth)
        query = form.reshaped(
            split.call("Expand", form.constant([batch, length, heads, groups // heads, depth])), batch, length, -1
        )
        heads = groups
    inputs = [query, *map(form.optional_input, range(1, 6))]
    y, state = form.node_of(
        "LinearAttention",
        inputs,
        2,
        q_num_heads=heads,
        kv_num_heads=groups,
        scale=scale,
        update_rule=given["update_rule"],
    )
    form.give(0, y)
    form.give(1, state)


@decomposed(causal_conv_with_state)
@forms
def _causal(form: Form) -> None:
    given, x, weight = form.attributes, form.input(0), form.input(1)
    ndim, window, last, taps = given["ndim"], given["state_window"], given["channels_last"], lengths(weight)[2:]
    if len(lengths(x)) != ndim + 2:
        raise StaysOnCpu("channels on several axes are supported on the CPU only")
    past = form.optional_input(3)
    if past is not None and window:
        count = lengths(past)[0]
        past = form.part(past, 0, count - 1, count).call("Squeeze", form.constant([0]))

    def channels_first(term: Term) -> Term:
        return term.call("Transpose", perm=[0, 2, 1]) if last else term

    inner = channels_first(x)
    *lead, length = lengths(inner)
    carried = (taps[-1] - 1) * given["dilation"]
    old = form.constant(np.zeros((*lead, carried)), dtype_of(x).as_numpy()) if past is None else channels_first(past)
    whole = old.call("Concat", inner, axis=ndim + 1) if carried else inner
    pads = [*(tap // 2 for tap in taps[:-1]), 0, *(tap - 1 - tap // 2 for tap in taps[:-1]), 0]
    dilations = [*[1] * (ndim - 1), given["dilation"]]
    y = whole.call("Conv", weight, form.optional_input(2), group=lead[1], dilations=dilations, pads=pads)
    if given["activation"] != "none":
        y = y * y.call("Sigmoid")
    form.give(0, channels_first(y))
    if not form.is_used(1):
        return
    if not carried:
        raise StaysOnCpu("the convolution has no state")
    if not window:
        form.give(1, channels_first(form.part(whole, ndim + 1, length, length + carried)))
        return
    none = form.constant(np.zeros((*lead, carried)), dtype_of(x).as_numpy())
    stops = [length - back for back in reversed(range(window))]
    states = [
        channels_first(form.part(whole, ndim + 1, stop, stop + carried) if stop > 0 else none).call(
            "Unsqueeze", form.constant([0])
        )
        for stop in stops
    ]
    form.give(1, states[0].call("Concat", *states[1:], axis=0))
