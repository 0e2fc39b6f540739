"""Attention of every version against the reference evaluator and onnxruntime, drawn; blocks, dtypes, subgraphs, states
that are carried on."""

import candle_convert as cc
import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from candle_convert.ops.attention import scaled_dot_product
from candle_convert.runtime.base.errors import FormatError, LimitError
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import compared, ours, single
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

DRAWS = 60


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def drawn(rng, opset):
    """Inputs, attributes and number of outputs of an Attention node."""
    batch, groups, each, queries, keys, past, size, width = (int(value) for value in rng.integers(1, 6, 8))
    heads, carried = groups * each, rng.random() < 0.4
    flat, counted = rng.random() < 0.4, opset >= 24 and not carried and rng.random() < 0.4
    inputs = [
        floats(rng, batch, heads, queries, size),
        floats(rng, batch, groups, keys, size),
        floats(rng, batch, groups, keys, width),
    ]
    if flat:
        inputs = [item.transpose(0, 2, 1, 3).reshape(batch, item.shape[2], -1) for item in inputs]
    total = keys + past * carried
    shapes = [
        None,
        (queries, total),
        (batch, heads, queries, total),
        (1, 1, queries, total),
        (heads, queries, total),
        (batch, 1, queries, total),
    ]
    shape = shapes[rng.integers(len(shapes))]
    inputs.append(None if shape is None else floats(rng, *shape) if rng.random() < 0.5 else rng.random(shape) < 0.7)
    inputs += (
        [floats(rng, batch, groups, past, size), floats(rng, batch, groups, past, width)] if carried else [None, None]
    )
    inputs += [rng.integers(1, keys + 1, batch)] if counted else []
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"is_causal": int(rng.integers(0, 2)), "qk_matmul_output_mode": int(rng.integers(0, 4))}
    attributes |= {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    attributes |= (
        {"softcap": float(rng.uniform(0.5, 2))} if attributes["qk_matmul_output_mode"] and rng.random() < 0.3 else {}
    )
    attributes |= {"scale": float(rng.uniform(0.1, 1))} if rng.random() < 0.3 else {}
    if opset >= 25 and rng.random() < 0.5:
        attributes |= {name: int(rng.integers(-1, 4)) for name in ("left_window_size", "right_window_size")}
    return inputs, attributes, 1 if counted else int(rng.choice([3, 4]))


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_drawn_attention_as_the_reference_evaluator(opset):
    rng = np.random.default_rng(opset)
    for _ in range(DRAWS):
        inputs, attributes, outputs = drawn(rng, opset)
        made, feeds = single("Attention", Example(tuple(inputs), attributes, outputs), opset)
        for one, other in zip(ours(made, feeds), ReferenceEvaluator(made).run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=str(attributes))


@pytest.mark.parametrize("opset", [23, 24])
def test_drawn_attention_as_onnxruntime(opset):
    """Scores with the mask are left out, which onnxruntime writes as the lowest number, and so is its causal frontier
    after a past."""
    rng = np.random.default_rng(opset)
    for _ in range(DRAWS):
        inputs, attributes, outputs = drawn(rng, opset)
        if attributes["qk_matmul_output_mode"] != 2 and not (attributes["is_causal"] and len(inputs) == 6):
            compared("Attention", *inputs, opset=opset, outputs=outputs, rtol=1e-4, atol=1e-5, **attributes)


@pytest.mark.parametrize("score_bytes", [1, 100, 900])
def test_blocks_of_every_size_give_the_same(score_bytes, monkeypatch):
    rng = np.random.default_rng(5)
    cases = [drawn(rng, 25) for _ in range(20)]

    def run():
        return [
            ours(*single("Attention", Example(tuple(inputs), attributes, outputs), 25))
            for inputs, attributes, outputs in cases
        ]

    whole = run()
    monkeypatch.setattr(scaled_dot_product, "SCORE_BYTES", score_bytes)
    for one, other in zip(run(), whole, strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float16, 3e-3), (ml_dtypes.bfloat16, 3e-2), (np.float64, 1e-5)],
    ids=["f16", "bf16", "f64"],
)
@pytest.mark.parametrize("precision", [None, 1, 10, 11, 16])
def test_dtypes_and_precisions(dtype, tolerance, precision):
    rng = np.random.default_rng(6)
    inputs = tuple(floats(rng, *shape).astype(dtype) for shape in ((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 4), (3, 5)))
    attributes = {} if precision is None else {"softmax_precision": precision}
    found = ours(*single("Attention", Example(inputs, attributes), 23))[0]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(item.astype(np.float64)) for item in inputs)
    ).numpy()
    assert found.dtype == dtype
    rough = max(tolerance, {10: 3e-3, 16: 3e-2}.get(precision, 0))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=rough, atol=rough)


def test_hidden_rows_are_zero_and_infinite_scores_stay_hidden():
    q, k, v = (
        np.full((1, 1, 2, 2), 1e30, np.float32),
        np.full((1, 1, 3, 2), 1e30, np.float32),
        np.ones((1, 1, 3, 2), np.float32),
    )
    mask = np.array([[-np.inf, -np.inf, -np.inf], [0, -np.inf, -np.inf]], np.float32)
    with np.errstate(all="ignore"):
        y = ours(*single("Attention", Example((np.zeros_like(q), np.zeros_like(k), v, mask), {}), 23))[0]
        boolean = ours(*single("Attention", Example((q, k, v, np.zeros((2, 3), bool)), {}), 23))[0]
    np.testing.assert_array_equal(y, [[[[0, 0], [1, 1]]]])
    np.testing.assert_array_equal(boolean, np.zeros((1, 1, 2, 2)))


def test_short_masks_hide_the_keys_beyond_them():
    rng = np.random.default_rng(8)
    inputs = floats(rng, 2, 2, 3, 4), floats(rng, 2, 2, 6, 4), floats(rng, 2, 2, 6, 4)
    for mask in (floats(rng, 3, 4), rng.random((2, 1, 3, 4)) < 0.8):
        made, feeds = single("Attention", Example((*inputs, mask, None, None, np.array([2, 4])), {}), 24)
        np.testing.assert_allclose(
            ours(made, feeds)[0], ReferenceEvaluator(made).run(None, feeds)[0], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    "inputs",
    [
        ("f32[1,2,3,4]", "f32[1,2,5,5]", "f32[1,2,5,4]"),
        ("f32[1,3,3,4]", "f32[1,2,5,4]", "f32[1,2,5,4]"),
        ("f32[1,2,3,4]", "f32[1,2,5,4]", "f32[1,2,6,4]"),
        ("f32[1,2,3,4]", "f32[1,2,5,4]", "f32[1,2,5,4]", None, "f32[1,2,2,4]"),
        ("f32[2,2,3,4]", "f32[2,2,5,4]", "f32[2,2,5,4]", None, None, None, np.array([1])),
    ],
)
def test_what_does_not_fit_is_refused(inputs):
    with pytest.raises(FormatError, match="Attention"):
        ours(*single("Attention", Example(inputs, {}), 24))


def test_scores_beyond_the_limit_are_refused():
    made, feeds = single(
        "Attention",
        Example(("f32[1,8,9000,1]", "f32[1,8,9000,1]", "f32[1,8,9000,1]"), {"qk_matmul_output_mode": 0}, 4),
        23,
    )
    with pytest.raises(LimitError), cc.limits(memory=1 << 30):
        ours(made, feeds)


def modifier(op, constant):
    """A subgraph of one node that combines a tensor with a constant."""
    node = helper.make_node(op, ["t", "c"], ["u"])
    held = helper.make_tensor("c", TensorProto.FLOAT, np.shape(constant), np.ravel(constant))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in "tu"]
    return helper.make_graph([node], "mod", ends[:1], ends[1:], [held])


@pytest.mark.parametrize(
    "mods",
    [
        {},
        {"score_mod": ("Add", [[-1.0, 0.5, -np.inf, 0.25, 0.0]])},
        {"prob_mod": ("Mul", 0.5), "score_mod": ("Mul", 1.5)},
    ],
)
def test_flex_attention_as_the_reference_evaluator(mods):
    rng = np.random.default_rng(9)
    attributes = {name: modifier(*what) for name, what in mods.items()}
    feeds = {"q": floats(rng, 2, 4, 3, 8), "k": floats(rng, 2, 2, 5, 8), "v": floats(rng, 2, 2, 5, 6)}
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in feeds.items()]
    graph = helper.make_graph(
        [node], "one", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 3, 6])]
    )
    opsets = [helper.make_opsetid("", onnx.defs.onnx_opset_version()), helper.make_opsetid("ai.onnx.preview", 1)]
    made = helper.make_model(graph, opset_imports=opsets)
    np.testing.assert_allclose(ours(made, feeds)[0], ReferenceEvaluator(made).run(None, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("heads", "groups", "by_key"), [(4, 2, False), (3, 3, True)])
def test_linear_attention_in_parts_is_the_whole(rule, heads, groups, by_key):
    rng = np.random.default_rng(10)
    tokens = 7
    inputs = [
        floats(rng, 2, tokens, heads * 4),
        floats(rng, 2, tokens, groups * 4) / 2,
        floats(rng, 2, tokens, groups * 3),
        None,
    ]
    inputs.append(
        -rng.random((2, tokens, groups * (4 if by_key else 1))).astype(np.float32) if "gated" in rule else None
    )
    inputs.append(rng.random((2, tokens, groups if by_key else 1)).astype(np.float32) if "delta" in rule else None)
    attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}

    def run(start, stop, state):
        part = [None if item is None else item[:, start:stop] for item in inputs]
        part[3] = state
        while part[-1] is None:
            part.pop()
        return single("LinearAttention", Example(tuple(part), attributes, 2))

    made, feeds = run(0, tokens, None)
    whole = ours(made, feeds)
    for one, other in zip(whole, ReferenceEvaluator(made).run(None, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    first, state = ours(*run(0, 3, None))
    rest, state = ours(*run(3, tokens, state))
    np.testing.assert_allclose(np.concatenate((first, rest), 1), whole[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, whole[1], rtol=1e-4, atol=1e-5)


def test_causal_convolution_in_parts_is_the_whole():
    rng = np.random.default_rng(11)
    x, weight, bias = floats(rng, 2, 3, 9), floats(rng, 3, 1, 4), floats(rng, 3)
    whole = ours(*single("CausalConvWithState", Example((x, weight, bias), {"activation": "silu"}, 2)))
    parts, state = [], None
    for start, stop in ((0, 2), (2, 3), (3, 9)):
        part, state = ours(
            *single(
                "CausalConvWithState", Example((x[..., start:stop], weight, bias, state), {"activation": "silu"}, 2)
            )
        )
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, 2), whole[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state, whole[1])
    before = torch.nn.functional.pad(torch.from_numpy(x), (3, 0))
    padded = torch.nn.functional.conv1d(before, torch.from_numpy(weight), torch.from_numpy(bias), groups=3)
    np.testing.assert_allclose(whole[0], torch.nn.functional.silu(padded).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("flat", [False, True])
def test_rotary_embedding_as_onnxruntime(interleaved, rotated, flat):
    rng = np.random.default_rng(12)
    x, half = floats(rng, 2, 3, 5, 8), (rotated or 8) // 2
    cos, sin, places = floats(rng, 9, half), floats(rng, 9, half), rng.integers(0, 9, (2, 5))
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": rotated} | ({"num_heads": 3} if flat else {})
    x = x.transpose(0, 2, 1, 3).reshape(2, 5, 24) if flat else x
    if rotated:
        attributes["num_heads"] = 3
    found = compared("RotaryEmbedding", x, cos, sin, places, opset=23, rtol=1e-4, **attributes)[0]
    direct = ours(*single("RotaryEmbedding", Example((x, cos[places], sin[places]), attributes), 23))[0]
    np.testing.assert_array_equal(found, direct)


@pytest.mark.parametrize("place", [-1, 9])
def test_positions_outside_the_caches_are_refused(place):
    example = Example(("f32[1,2,1,4]", "f32[9,2]", "f32[9,2]", np.array([[place]])), {})
    with pytest.raises(FormatError, match="positions"):
        ours(*single("RotaryEmbedding", example, 23))
