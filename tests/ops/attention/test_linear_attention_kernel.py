"""The kernel of LinearAttention: NumPy's values on one thread and on two, and a state that another run continues."""

import numpy as np
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RULES = {"linear": (0, 0), "gated": (1, 0), "delta": (0, 1), "gated_delta": (1, 1)}


def inputs(rule, heads, groups, depth, width, *, past=True, keys=False, shared=False):
    """Operands of a batch of two and nine tokens; `keys`: a decay for each element of a key."""
    rng = np.random.default_rng(0)

    def some(*shape):
        return rng.standard_normal((2, 9, *shape)).astype(np.float32)

    k = some(groups * depth) / np.float32(depth**0.5)
    gated, corrected = RULES[rule]
    state = rng.standard_normal((2, groups, depth, width)).astype(np.float32) if past else None
    decay = -np.abs(some(groups * depth if keys else groups)) if gated else None
    beta = np.abs(some(1 if shared else groups)) / 3 if corrected else None
    return some(heads * depth), k, some(groups * width), state, decay, beta


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("sizes", "kinds"),
    [
        ((2, 2, 16, 16), {}),
        ((4, 2, 7, 21), {"keys": True}),
        ((3, 3, 1, 5), {"past": False}),
        ((2, 1, 33, 40), {"shared": True}),
    ],
)
def test_as_numpy(rule, sizes, kinds):
    given = inputs(rule, *sizes, **kinds)
    example = case(
        *given, q_num_heads=sizes[0], kv_num_heads=sizes[1], update_rule=rule, scale=0.0 if kinds else 0.5, outputs=2
    )
    natively("LinearAttention", example, rtol=1e-4, atol=1e-5)


def test_tokens_one_by_one():
    """The first tokens' state and the others' outputs are those of one run."""
    q, k, v, past, decay, beta = inputs("gated_delta", 2, 2, 16, 24)
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "outputs": 2}
    want, last = natively("LinearAttention", case(q, k, v, past, decay, beta, **attributes), rtol=1e-4, atol=1e-5)
    rows = []
    for token in range(9):
        part = [each[:, token : token + 1] for each in (q, k, v, decay, beta)]
        row, past = natively("LinearAttention", case(*part[:3], past, *part[3:], **attributes), rtol=1e-4, atol=1e-5)
        rows.append(row)
    np.testing.assert_array_equal(np.concatenate(rows, 1), want)
    np.testing.assert_array_equal(past, last)
