"""onnxruntime's Attention on the device: the joint projection, then attention of queries, keys and values."""

from __future__ import annotations

import math

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.tensor.dtype import F32, I64
from ...rules.contrib_domain import DOMAIN
from ...rules.decompose_cuda import Form, StaysOnCpu, dtype_of, forms, lengths
from ...rules.expression import Term
from .attention import attention, quantized_attention


def hidden_by(form: Form, mask: Term, batch: int, queries: int, keys: int, fill: float) -> Term:
    """As `heads.hidden_by`."""
    shape = lengths(mask)
    if len(shape) == 1 and shape[0] in (batch, 2 * batch, 3 * batch + 2):
        place, ends = form.constant(range(keys)), form.cast(mask, I64)
        seen = place < form.reshaped(form.part(ends, 0, 0, batch), batch, 1, 1, 1)
        if shape[0] == 2 * batch:
            seen = seen.call("And", place >= form.reshaped(form.part(ends, 0, batch, 2 * batch), batch, 1, 1, 1))
    elif len(shape) == 2 and shape[0] == batch and shape[1] <= keys:
        whole = form.cast(mask, I64)
        if shape[1] < keys:
            whole = whole.call("Pad", form.constant([0, 0, 0, keys - shape[1]]))
        seen = form.reshaped(whole, batch, 1, 1, keys) > 0
    elif shape == [batch, queries, keys]:
        seen = form.reshaped(mask, batch, 1, queries, keys) > 0
    elif len(shape) == 4 and shape[:2] == [batch, 1] and min(shape[2:]) >= keys:
        seen = form.part(form.part(mask, 2, keys - queries, keys), 3, 0, keys) > 0
    else:
        raise StaysOnCpu("unsupported mask shape")
    return seen.where(form.constant(0, "float32"), form.constant(fill, "float32"))


def _self_attention(
    form: Form, projected: Term, sizes: list[int], mask: Term | None, past: Term | None, bias: Term | None
) -> None:
    given, heads = form.attributes, form.attributes["num_heads"]
    if given["do_rotary"]:
        raise StaysOnCpu("do_rotary is supported on the CPU only")
    batch, length, _ = lengths(projected)
    keys = length + (0 if past is None else lengths(past)[3])
    shared = given["past_present_share_buffer"] and past is not None
    filled = form.optional_input(6) if shared and form.node.op is attention else None
    if shared and filled is None:
        raise StaysOnCpu("a shared past buffer requires the input past_sequence_length")
    if filled is not None:
        if mask is not None and len(lengths(mask)) > 2:
            raise StaysOnCpu("a mask over the whole shared buffer leaves the number of keys unknown")
        keys = keys - length if bias is None or lengths(bias)[-1] == 1 else lengths(bias)[-1]
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    q, k, v = (form.part(projected, 2, start, start + size) for start, size in zip(starts, sizes, strict=True))
    if mask is not None:
        hidden = form.cast(hidden_by(form, mask, batch, length, keys, given["mask_filter_value"]), dtype_of(projected))
        bias = hidden if bias is None else bias + hidden
    if bias is not None and lengths(bias)[-2:] != [length, keys]:
        bias = bias.call("Expand", form.constant([*lengths(bias)[:-2], length, keys]))
    old = [
        None if past is None else form.part(past, 0, index, index + 1).call("Squeeze", form.constant([0]))
        for index in (0, 1)
    ]
    inputs = [q, k, v, None, None, bias, *old, filled]
    scale = given["scale"] or 1 / math.sqrt(max(1, sizes[0] // heads))
    alike = sizes[0] == sizes[2]
    y, key, value = form.node_of(
        "MultiHeadAttention", inputs, 3, DOMAIN, num_heads=heads, scale=scale, unidirectional=given["unidirectional"]
    )
    form.give(0, y)
    if form.is_used(1):
        if not alike:
            raise StaysOnCpu("caches of keys and values with different head sizes are supported on the CPU only")
        form.give(
            1,
            key.call("Unsqueeze", form.constant([0])).call(
                "Concat", value.call("Unsqueeze", form.constant([0])), axis=0
            ),
        )


def _attention(form: Form) -> None:
    x, weights, bias = form.input(0), form.input(1), form.optional_input(2)
    projected = x.call("MatMul", weights)
    sizes = list(form.attributes["qkv_hidden_sizes"] or [lengths(weights)[1] // 3] * 3)
    _self_attention(
        form,
        projected if bias is None else projected + bias,
        sizes,
        form.optional_input(3),
        form.optional_input(4),
        form.optional_input(5),
    )


def _of_integers(form: Form) -> None:
    x, weight, bias, scale, steps = (form.input(index) for index in range(5))
    sums = form.node_of("MatMulInteger", [x, weight, form.optional_input(6), form.optional_input(7)], 1)[0]
    projected = form.cast(sums, F32) * (form.cast(scale, F32) * form.cast(steps, F32)) + form.cast(bias, F32)
    if dtype_of(bias) is not F32:
        raise StaysOnCpu("intermediate results are rounded to f16 on the CPU only")
    _self_attention(
        form, projected, [lengths(weight)[1] // 3] * 3, form.optional_input(5), form.optional_input(8), None
    )


decomposed(attention)(forms(_attention))
decomposed(quantized_attention)(forms(_of_integers))
