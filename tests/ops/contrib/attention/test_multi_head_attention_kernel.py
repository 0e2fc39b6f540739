"""Native attention operators of onnxruntime against the NumPy functions, drawn; what a cache cannot hold is refused as
there."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from candle_convert.tests.oracles.native_vs_numpy import natively


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def multi_head(rng):
    """A MultiHeadAttention node."""
    batch, heads, rows, keys, past = (int(item) for item in rng.integers(1, 9, 5))
    size, width = (int(item) for item in rng.integers(1, 20, 2))
    form = rng.integers(4)
    bias, mask = None, None
    if form == 0:
        inputs, keys, width = [floats(rng, batch, rows, heads, 3, size), None, None], rows, size
    elif form == 1:
        inputs, width = [floats(rng, batch, rows, heads * size), floats(rng, batch, keys, heads, 2, size), None], size
    elif form == 2:
        inputs = [
            floats(rng, batch, rows, heads * size),
            floats(rng, batch, heads, keys, size),
            floats(rng, batch, heads, keys, width),
        ]
    else:
        inputs = [
            floats(rng, batch, rows, heads * size),
            floats(rng, batch, keys, heads * size),
            floats(rng, batch, keys, heads * width),
        ]
        bias = floats(rng, heads * (2 * size + width)) if rng.random() < 0.5 else None
    total = keys
    olds = [None, None]
    if form != 2 and rng.random() < 0.5:
        olds, total = [floats(rng, batch, heads, past, size), floats(rng, batch, heads, past, width)], keys + past
    chance = rng.random()
    if chance < 0.3 and batch > 1:
        mask = (
            rng.integers(0, 2, (batch, total)).astype(np.int32)
            if rng.random() < 0.5
            else rng.integers(1, total + 1, batch).astype(np.int32)
        )
    added = floats(rng, int(rng.choice([1, batch])), int(rng.choice([1, heads])), rows, total) if chance > 0.6 else None
    inputs += [bias, None if mask is not None and mask.shape == (batch, 1) else mask, added, *olds]
    while inputs[-1] is None:
        inputs.pop()
    return Example(
        tuple(inputs),
        {"num_heads": heads, "unidirectional": int(rng.integers(0, 2)), "scale": float(rng.choice([0, 0.2]))},
        3,
    )


def group_query(rng):
    """A GroupQueryAttention node."""
    batch, groups, each, rows = (int(item) for item in rng.integers(1, 5, 4))
    size, heads = 2 * int(rng.integers(1, 20)), groups * each
    first, room = rng.random() < 0.4, int(rng.integers(rows, 40))
    counts = np.full(batch, rows) if first else rng.integers(rows, room + 1, batch)
    total = rows if first else int(counts.max()) + (0 if counts.max() > rows else 1)
    room = room + 1 if total > room else room
    inputs = [floats(rng, batch, rows, count * size) for count in (heads, groups, groups)]
    if rng.random() < 0.3:
        inputs = [np.concatenate(inputs, 2), None, None]
    past = None if first and rng.random() < 0.5 else [floats(rng, batch, groups, room, size) for _ in range(2)]
    inputs += [*(past or [None, None]), (counts - 1).astype(np.int32), np.array(total, np.int32)]
    rotary = rng.random() < 0.5
    inputs += [floats(rng, 50, size // 2), floats(rng, 50, size // 2)] if rotary else [None, None]
    inputs += [
        None,
        floats(rng, 1, heads, rows, total) if rng.random() < 0.3 else None,
        floats(rng, heads) if rng.random() < 0.3 else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {
        "num_heads": heads,
        "kv_num_heads": groups,
        "do_rotary": int(rotary),
        "rotary_interleaved": int(rng.integers(0, 2)),
    }
    attributes |= {
        "local_window_size": int(rng.choice([-1, 3])),
        "softcap": float(rng.choice([0, 3])),
        "smooth_softmax": int(rng.integers(0, 2)),
    }
    return Example(tuple(inputs), attributes, 3)


def self_attention(rng):
    """An Attention node of onnxruntime."""
    batch, heads, rows, size, wide = (int(item) for item in rng.integers(1, 9, 5))
    inputs = [floats(rng, batch, rows, wide), floats(rng, wide, 3 * heads * size), floats(rng, 3 * heads * size)]
    past = floats(rng, 2, batch, heads, 5, size) if rng.random() < 0.5 else None
    total = rows + (5 if past is not None else 0)
    mask = rng.integers(1, total + 1, batch).astype(np.int32) if rng.random() < 0.5 else None
    inputs += [mask, past]
    while inputs[-1] is None:
        inputs.pop()
    return Example(tuple(inputs), {"num_heads": heads, "unidirectional": int(rng.integers(0, 2))}, 2)


@pytest.mark.parametrize(
    ("name", "draw", "constant"),
    [
        ("MultiHeadAttention", multi_head, []),
        ("GroupQueryAttention", group_query, [6]),
        ("Attention", self_attention, [1, 2]),
    ],
)
def test_drawn_nodes(name, draw, constant):
    rng = np.random.default_rng(len(name))
    for _ in range(40):
        natively(name, draw(rng), 21, "com.microsoft", rtol=2e-4, atol=2e-5, constant=constant, simplify=True)


def test_more_keys_than_there_are_is_refused():
    rng = np.random.default_rng(0)
    caches = [floats(rng, 1, 1, 9, 4) for _ in range(2)]
    inputs = (
        floats(rng, 1, 1, 8),
        floats(rng, 1, 1, 4),
        floats(rng, 1, 1, 4),
        *caches,
        np.array([4], np.int32),
        np.array(5, np.int32),
    )
    made, feeds = model(
        operator("GroupQueryAttention", "com.microsoft"), Example(inputs, {"num_heads": 2, "kv_num_heads": 1}, 3), 21
    )
    session = Session(onnx_graph.graph_of(made), native=True)
    session.run(None, feeds)
    feeds["x5"] = np.array([7], np.int32)
    with pytest.raises(FormatError, match="keys of at most"):
        session.run(None, feeds)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("form", ["plain", "lengths", "flags", "past", "causal"])
def test_attention_of_bytes(kind, form):
    rng = np.random.default_rng(5)
    batch, rows, heads, size, past = 2, 5, 3, 8, 4
    wide = heads * size

    def codes(dtype, *shape):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    scales = rng.uniform(0.001, 0.01, 3 * wide).astype(np.float32) if form == "causal" else np.float32(0.004)
    mask = {"lengths": np.array([2, 5], np.int32), "flags": rng.integers(0, 2, (batch, rows)).astype(np.int32)}.get(
        form
    )
    old = floats(rng, 2, batch, heads, past, size) if form == "past" else None
    inputs = [
        codes(np.uint8, batch, rows, wide),
        codes(kind, wide, 3 * wide),
        floats(rng, 3 * wide),
        np.float32(0.02),
        scales,
        mask,
        np.uint8(120),
    ]
    inputs += [np.asarray(codes(kind)), *([] if old is None else [old])]
    attributes = {"num_heads": heads, "unidirectional": int(form == "causal")}
    example = Example(
        tuple(None if item is None else np.asarray(item) for item in inputs), attributes, 2 if form == "past" else 1
    )
    natively("QAttention", example, None, "com.microsoft", rtol=2e-4, atol=2e-5, constant=[1, 2, 4, 7])
