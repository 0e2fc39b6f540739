"""Derivatives of operators that compute in f32 whatever their inputs are, and of those by places: torch's."""

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx.parser
import pytest
import torch
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.tensors.core.expression import apply_all
from candle_convert.tensors.core.tensor import Tensor


def compare(op, arrays, attributes, oracle, outputs=1):
    """Gradients of the outputs' squares by all float inputs."""
    ours = [None if each is None else cc.tensor(each) for each in arrays]
    theirs = [None if each is None else torch.tensor(each) for each in arrays]
    moving = [n for n, each in enumerate(arrays) if each is not None and each.dtype == np.float32]
    for index in moving:
        ours[index].requires_grad_()
        theirs[index].requires_grad_()
    inputs = [None if each is None else each.expression for each in ours]
    made = [Tensor(each) for each in apply_all(op, inputs, attributes, outputs)]
    sum(((each + 1) ** 2).sum() for each in made).backward()
    results = oracle(*theirs)
    results = results if isinstance(results, tuple) else (results,)
    sum(((each + 1) ** 2).sum() for each in results).backward()
    for one, other in zip(results, made, strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-4, atol=1e-5)
    for index in moving:
        np.testing.assert_allclose(ours[index].grad.numpy(), theirs[index].grad.numpy(), rtol=1e-3, atol=1e-4)


def random(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule):
    q, k, v, past, decay, beta = random((2, 4, 16), (2, 4, 8), (2, 4, 6), (2, 2, 4, 3), (2, 4, 2), (2, 4, 2))
    decay, beta = (-np.abs(decay) if "gated" in rule else None), (beta if "delta" in rule else None)

    def oracle(q, k, v, state, decay, beta):
        heads = [each.reshape(2, 4, count, -1).transpose(1, 2) for each, count in ((q, 4), (k, 2), (v, 2))]
        q, k, v = heads
        found = []
        for t in range(4):
            if decay is not None:
                state = state * decay[:, t, :, None, None].exp()
            write = v[:, :, t]
            if beta is not None:
                write = beta[:, t, :, None] * (write - (k[:, :, t, None] @ state)[:, :, 0])
            state = state + k[:, :, t, :, None] * write[:, :, None]
            found.append((q[:, :, t, None] @ state.repeat_interleave(2, 1))[:, :, 0])
        y = torch.stack(found, 1) * 0.5
        return y.reshape(2, 4, -1), state

    options = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule, "scale": 0.5}
    compare(operator("LinearAttention"), [q, k, v, past, decay, beta], options, oracle, 2)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention(unidirectional):
    q, k, v, bias, added = random((2, 3, 8), (2, 3, 8), (2, 3, 8), (24,), (1, 2, 3, 3))
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)

    def oracle(q, k, v, bias, mask, added):
        parts = [
            (each + piece).reshape(2, 3, 2, 4).transpose(1, 2)
            for each, piece in zip((q, k, v), bias.split(8), strict=True)
        ]
        hidden = torch.where(mask > 0, 0.0, -10000.0)[:, None, None] + added
        if unidirectional:
            hidden = hidden.masked_fill(~torch.ones(3, 3, dtype=torch.bool).tril(), -torch.inf)
        y = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=hidden)
        return y.transpose(1, 2).reshape(2, 3, 8)

    options = {"num_heads": 2, "unidirectional": unidirectional}
    compare(operator("MultiHeadAttention", "com.microsoft"), [q, k, v, bias, mask, added], options, oracle)


@pytest.mark.parametrize(("shape", "options"), [
    ((), {}), ((5,), {"axis": 1}), ((3, 3), {"axis": 1, "block_size": 2}),
])  # fmt: skip
def test_dequantize_linear(shape, options):
    x = np.random.default_rng(1).integers(0, 255, (3, 5)).astype(np.uint8)
    (scale,) = random(shape)

    def oracle(x, scale):
        wide = scale.repeat_interleave(2, 1)[:, :5] if scale.ndim == 2 else scale
        return x.float() * wide

    compare(operator("DequantizeLinear"), [x, scale], options, oracle)


@pytest.mark.parametrize("axis", ["", "<axis = 0>"])
def test_unique(axis):
    """The gradient goes to the first one of equal elements or rows."""
    x = np.array([[3, 1], [2, 7], [3, 1]], np.float32)
    text = f"""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
    g (float[3, 2] x) => (float[n] y, float[3, 2] d) {{
        y = Unique {axis} (x)
        z = Mul (y, y)
        d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "z"> (x)
    }}"""
    _, grad = Session(onnx_graph.graph_of(onnx.parser.parse_model(text))).run(None, {"x": x})
    np.testing.assert_array_equal(grad, 2 * x * np.array([[1], [1], [0]]))


@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention(packed):
    """Four query heads share two key heads; norms of queries and keys, rotary embedding, a bias, sinks and a window."""
    q, k, v, bias, sink, gain = random((2, 5, 32), (2, 5, 16), (2, 5, 16), (1, 4, 5, 7), (4,), (8,))
    angles = np.arange(9)[:, None] / 10 ** np.arange(4)
    cos, sin = (each(angles).astype(np.float32) for each in (np.cos, np.sin))

    def oracle(q, k, v, past, _, lengths, total, cos, sin, places, bias, sink, *gains):
        if packed:
            q, k, v = q.split([32, 16, 16], 2)
        heads = [each.unflatten(2, (-1, 8)).transpose(1, 2) for each in (q, k, v)]
        q, k = (
            torch.nn.functional.rms_norm(x, (8,), gain, 1e-6) for x, gain in zip(heads[:2], gains[-2:], strict=True)
        )
        q, k = (
            torch.cat([a * cos[:5] - b * sin[:5], b * cos[:5] + a * sin[:5]], -1)
            for a, b in (q.chunk(2, -1), k.chunk(2, -1))
        )
        v = heads[2]
        scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) * 0.3
        scores = (scores / 5).tanh() * 5 + bias[..., :5]
        apart = torch.arange(5)[:, None] - torch.arange(5)
        scores = scores.masked_fill((apart < 0) | (apart >= 3), -torch.inf)
        scores = torch.cat([scores, sink[None, :, None, None].expand(2, 4, 5, 1)], -1)
        y = scores.softmax(-1)[..., :-1] @ v.repeat_interleave(2, 1)
        return y.transpose(1, 2).flatten(2)

    inputs = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs += [
        None,
        None,
        np.full(2, 4, np.int32),
        np.array(5, np.int32),
        cos,
        sin,
        None,
        bias,
        sink,
        None,
        None,
        gain,
        gain,
    ]
    options = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 3, "softcap": 5.0, "scale": 0.3}
    compare(operator("GroupQueryAttention", "com.microsoft"), inputs, options, oracle)


@pytest.mark.parametrize(
    ("activation", "fusion", "k", "normalize"),
    [("silu", 0, 2, 1), ("gelu", 0, 1, 0), ("swiglu", 1, 2, 0), ("swiglu", 2, 3, 1)],
)
def test_experts(activation, fusion, k, normalize):
    wide = 12 if fusion else 6
    shapes = (2, 3, 8), (6, 4), (4, wide, 8), (4, wide), (4, 8, 6), (4, 8)
    third = [] if fusion else random((4, 6, 8), (4, 6))

    def oracle(x, scores, fc1, b1, fc2, b2, *third):
        shares, chosen = scores.softmax(1).topk(k, 1)
        shares = shares / shares.sum(1, keepdim=True) if normalize else shares
        found = []
        for token, places, weights in zip(x.flatten(0, 1), chosen, shares, strict=True):
            y = 0
            for expert, weight in zip(places, weights, strict=True):
                inner = fc1[expert] @ token + b1[expert]
                if fusion:
                    a, b = (inner[::2], inner[1::2]) if fusion == 1 else inner.chunk(2)
                    a, b = a.clamp(max=1.5), b.clamp(-1.5, 1.5)
                    inner = a * (1.7 * a).sigmoid() * (b + 1)
                else:
                    gate = {
                        "silu": torch.nn.functional.silu,
                        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                    }
                    inner = gate[activation](inner) * (third[0][expert] @ token + third[1][expert])
                y = y + weight * (fc2[expert] @ inner + b2[expert])
            found.append(y)
        return torch.stack(found).reshape(x.shape)

    options = {"activation_type": activation, "k": k, "normalize_routing_weights": normalize}
    if fusion:
        options |= {"swiglu_fusion": fusion, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 1.5}
    compare(operator("MoE", "com.microsoft"), [*random(*shapes), *third], options, oracle)
