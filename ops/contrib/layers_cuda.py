"""onnxruntime's embeddings, gated norms, recurrent states and packed weights on the device, made of other operators."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.place import composed
from ...runtime.dtype import F32, I32, I64
from ..forming_cuda import Form, Stays, dtype_of, forms, lengths
from ..term import Term
from .dynamic_products import qgemm
from .linear_attention import causal_conv_with_state, linear_attention, linear_attention_gate
from .matmul_bnb4 import TABLES, matmul_bnb4
from .norm import embed_layer_normalization, gated_rms_norm, quantized_embed_layer_normalization
from .rotary_embedding import multimodal_rotary_embedding

Table = tuple[Term, Term | None, Term | None]
"""Rows, and for bytes their scale and zero point."""


def _row(form: Form, table: Table, ids: Term | None) -> Term:
    """Rows of a table by index, or a whole one, as numbers."""
    codes, scale, zero = table
    found = codes if ids is None else codes.call("Gather", form.cast(ids, I64))
    if scale is None:
        return found
    wide = form.cast(found, F32)
    return (wide if zero is None else wide - form.cast(zero, F32)) * scale


def _embedded(form: Form, tables: list[Table | None], mask: Term | None, places: Term | None) -> None:
    words, positions, segments, gamma, beta = tables
    assert words is not None
    assert positions is not None
    assert gamma is not None
    ids = form.input(0)
    length = lengths(ids)[1]
    total = _row(form, words, ids) + _row(form, positions, form.constant([range(length)]) if places is None else places)
    segment_ids = form.given(1)
    if segments is not None and segment_ids is not None:
        total = total + _row(form, segments, segment_ids)
    shift = None if beta is None else _row(form, beta, None)
    form.give(0, total.call("LayerNormalization", _row(form, gamma, None), shift, axis=-1, epsilon=form.attributes["epsilon"]))
    if form.wanted(1):
        counted = form.constant([0] * lengths(ids)[0], "int32") if mask is None else form.cast(
            form.cast(mask.call("Equal", mask.number(1)), I32).call("ReduceSum", form.constant([1]), keepdims=0), I32)
        form.give(1, counted)
    form.give(2, total)


def _embedding(form: Form) -> None:
    tables: list[Table | None] = [None if item is None else (item, None, None) for item in map(form.given, range(2, 7))]
    _embedded(form, tables, form.given(7), form.given(8))


def _embedding_of_bytes(form: Form) -> None:
    tables: list[Table | None] = []
    for index in range(5):
        codes, scale = form.given(2 + index), form.given(8 + index)
        tables.append(None if codes is None or scale is None else (codes, scale, form.given(13 + index)))
    _embedded(form, tables, form.given(7), None)


def _opened(form: Form) -> None:
    x, scale, gate = form.input(0), form.input(1), form.input(2)
    size = int(np.prod(lengths(scale)))
    y = form.reshaped(x, *lengths(x)[:-1], -1, size).call(
        "RMSNormalization", form.reshaped(scale, -1), axis=-1, epsilon=form.attributes["epsilon"])
    opened = gate.call("Sigmoid")
    form.give(0, form.reshaped(y, *lengths(x)) * (opened if form.attributes["activation"] == "sigmoid" else gate * opened))


def _gates(form: Form) -> None:
    form.give(0, form.input(2) * (form.input(0) + form.input(1)).call("Softplus"))
    if form.wanted(1) and form.given(3) is not None:
        form.give(1, form.input(3).call("Sigmoid"))


def _turned(form: Form) -> None:
    """Angles of each axis of positions, in the sections that follow it, then the standard's rotation."""
    given, x, positions = form.attributes, form.input(0), form.cast(form.input(1), I64)
    sections, half = given["mrope_section"], lengths(form.input(2))[1]
    stream = np.repeat(np.arange(3), sections)
    if given["mrope_layout"]:
        stream = np.zeros(half, np.int64)
        for axis in (1, 2):
            stream[axis : 3 * sections[axis] : 3] = axis
    angles = []
    for cache in (form.input(2), form.input(3)):
        rows = cache.call("Gather", positions)
        time, height, width = (form.part(rows, 0, axis, axis + 1).call("Squeeze", form.constant([0])) for axis in range(3))
        angles.append(form.constant(stream == 0, "bool").where(time, form.constant(stream == 1, "bool").where(height, width)))
    heads = 0 if len(lengths(x)) == 4 else given["num_heads"] or lengths(x)[2] // (2 * half)
    form.give(0, x.call("RotaryEmbedding", *angles, interleaved=given["interleaved"], num_heads=heads, rotary_embedding_dim=2 * half))


def _recurrent(form: Form) -> None:
    given = form.attributes
    heads, groups = given["q_num_heads"], given["kv_num_heads"]
    if given["state_window"]:
        raise Stays("states after each of the last tokens are kept on the CPU")
    query = form.input(0)
    batch, length, width = lengths(query)
    depth = width // heads
    scale = given["scale"] or 1 / max(depth, 1) ** 0.5
    if groups > heads:
        split = form.reshaped(query, batch, length, heads, 1, depth)
        query = form.reshaped(split.call("Expand", form.constant([batch, length, heads, groups // heads, depth])), batch, length, -1)
        heads = groups
    inputs = [query, *map(form.given, range(1, 6))]
    y, state = form.node_of("LinearAttention", inputs, 2, q_num_heads=heads, kv_num_heads=groups, scale=scale, update_rule=given["update_rule"])
    form.give(0, y)
    form.give(1, state)


def _causal(form: Form) -> None:
    given, x, weight = form.attributes, form.input(0), form.input(1)
    ndim, window, last, taps = given["ndim"], given["state_window"], given["channels_last"], lengths(weight)[2:]
    if len(lengths(x)) != ndim + 2:
        raise Stays("channels along several axes are laid out on the CPU")
    past = form.given(3)
    if past is not None and window:
        count = lengths(past)[0]
        past = form.part(past, 0, count - 1, count).call("Squeeze", form.constant([0]))

    def turned(term: Term) -> Term:
        return term.call("Transpose", perm=[0, 2, 1]) if last else term

    inner = turned(x)
    *lead, length = lengths(inner)
    carried = (taps[-1] - 1) * given["dilation"]
    old = form.constant(np.zeros((*lead, carried)), dtype_of(x).as_numpy()) if past is None else turned(past)
    whole = old.call("Concat", inner, axis=ndim + 1) if carried else inner
    pads = [*(tap // 2 for tap in taps[:-1]), 0, *(tap - 1 - tap // 2 for tap in taps[:-1]), 0]
    dilations = [*[1] * (ndim - 1), given["dilation"]]
    y = whole.call("Conv", weight, form.given(2), group=lead[1], dilations=dilations, pads=pads)
    if given["activation"] != "none":
        y = y * y.call("Sigmoid")
    form.give(0, turned(y))
    if not form.wanted(1):
        return
    if not carried:
        raise Stays("there is no state to keep")
    if not window:
        form.give(1, turned(form.part(whole, ndim + 1, length, length + carried)))
        return
    none = form.constant(np.zeros((*lead, carried)), dtype_of(x).as_numpy())
    stops = [length - back for back in reversed(range(window))]
    states = [turned(form.part(whole, ndim + 1, stop, stop + carried) if stop > 0 else none).call("Unsqueeze", form.constant([0])) for stop in stops]
    form.give(1, states[0].call("Concat", *states[1:], axis=0))


def unpacked(form: Form, codes: Term, bits: int) -> Term:
    """Integers of so many bits, the first in the lowest ones, as u8 with the last axis longer."""
    if bits == 8:
        return codes
    parts = [
        codes.call("BitShift", form.constant(place, "uint8"), direction="RIGHT").call("BitwiseAnd", form.constant((1 << bits) - 1, "uint8"))
        for place in range(0, 8, bits)
    ]
    spread = [part.call("Unsqueeze", form.constant([-1])) for part in parts]
    return form.reshaped(spread[0].call("Concat", *spread[1:], axis=-1), *lengths(codes)[:-1], -1)


def _of_floats(form: Form) -> None:
    given = form.attributes
    inner, outer, block = given["K"], given["N"], given["block_size"]
    if inner * outer % 2 or inner * outer % block:
        raise Stays("weights that do not fill their last block are decoded on the CPU")
    a, codes = form.input(0), form.reshaped(form.input(1), -1)
    halves = [
        codes.call("BitShift", form.constant(4, "uint8"), direction="RIGHT"), codes.call("BitwiseAnd", form.constant(15, "uint8")),
    ]
    first, second = (half.call("Unsqueeze", form.constant([1])) for half in halves)
    places = form.cast(form.reshaped(first.call("Concat", second, axis=1), -1, block), I64)
    values = form.constant(TABLES[given["quant_type"]], "float32").call("Gather", places)
    weight = values * form.reshaped(form.cast(form.input(2), F32), -1, 1)
    matrix = form.cast(form.reshaped(weight, outer, inner), dtype_of(a))
    form.give(0, a.call("MatMul", matrix.call("Transpose", perm=[1, 0]) if given["transB"] else matrix))


def _gemm(form: Form) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero = (form.input(index) for index in range(6))
    given, c = form.attributes, form.given(6)
    left = a.call("Transpose", perm=[1, 0]) if given["transA"] else a
    right = b.call("Transpose", perm=[1, 0]) if given["transB"] else b
    sums = form.node_of("MatMulInteger", [left, right, a_zero, b_zero], 1)[0]
    multiplier = form.cast(a_scale, F32) * given["alpha"] * form.cast(b_scale, F32)
    real = form.cast(sums if c is None else sums + c, F32) * multiplier
    y_scale, y_zero = form.given(7), form.given(8)
    form.give(0, real if y_scale is None or y_zero is None else real.call("QuantizeLinear", y_scale, y_zero))


for _op, _formula in (
    (embed_layer_normalization, _embedding), (quantized_embed_layer_normalization, _embedding_of_bytes), (gated_rms_norm, _opened),
    (linear_attention_gate, _gates), (linear_attention, _recurrent), (causal_conv_with_state, _causal), (matmul_bnb4, _of_floats),
    (qgemm, _gemm), (multimodal_rotary_embedding, _turned),
):  # fmt: skip
    composed(_op)(forms(_formula))
