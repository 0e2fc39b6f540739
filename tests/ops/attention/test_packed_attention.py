"""PackedAttention against torch's attention of each sequence alone."""

import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from candle_convert.tests.oracles.native_vs_numpy import natively


def alone(q, k, v, ends, heads, groups, scale=None):
    """Outputs [tokens, heads x value size] by torch, sequence by sequence."""
    import torch

    tokens, found, begin = q.shape[1], [], 0
    for end in dict.fromkeys([*(end for end in ends if end), tokens]):
        parts = [
            torch.tensor(x[0, begin:end].reshape(end - begin, count, x.shape[2] // count)).transpose(0, 1)
            for x, count in ((q, heads), (k, groups), (v, groups))
        ]
        y = torch.nn.functional.scaled_dot_product_attention(*parts, scale=scale, enable_gqa=True)
        found.append(y.transpose(0, 1).reshape(end - begin, -1).numpy())
        begin = end
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("tokens", "heads", "groups", "size", "width", "ends"),
    [
        (9, 3, 3, 8, 8, [4, 5, 9]),
        (7, 4, 2, 4, 3, [3]),
        (40, 2, 2, 32, 32, [0, 33, 33]),
        (300, 12, 12, 32, 32, [50, 100, 170, 171, 300]),
        (200, 4, 2, 64, 80, [100, 149]),
        (130, 2, 1, 20, 33, [130]),
    ],
)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_sequences_alone(tokens, heads, groups, size, width, ends, scale):
    rng = np.random.default_rng(tokens)
    q, k, v = (
        rng.normal(size=(1, tokens, count)).astype(np.float32)
        for count in (heads * size, groups * size, groups * width)
    )
    attributes = {"q_num_heads": heads, "kv_num_heads": groups} | ({} if scale is None else {"scale": scale})
    example = Example((q, k, v, np.array(ends, np.int64)), attributes, 1)
    (found,) = natively("PackedAttention", example, domain="candle", rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0], alone(q, k, v, ends, heads, groups, scale), rtol=1e-4, atol=1e-5)


def test_ends_that_do_not_ascend():
    """The kernel leaves them to NumPy, which counts the ends before each token."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 40, 32)).astype(np.float32) for _ in range(3))
    attributes = {"q_num_heads": 2, "kv_num_heads": 2}
    for ends in ([30, 20], [10, 50], [-3, 20]):
        example = Example((q, k, v, np.array(ends, np.int64)), attributes, 1)
        made, feeds = model(operator("PackedAttention", "candle"), example)
        (found,) = Session(graph_of(made), threads=2, native=True).run(None, feeds)
        kept = sorted(end for end in ends if 0 < end < 40)
        np.testing.assert_allclose(found[0], alone(q, k, v, kept, 2, 2), rtol=1e-4, atol=1e-5)
