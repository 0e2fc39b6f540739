"""SparseAttention against onnxruntime's GroupQueryAttention under the mask of the pattern, natively too; patterns and
lengths that do not fit are refused."""

import numpy as np
import pytest
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively
from candle_convert.tests.oracles.onnxruntime import ours, single, theirs

MS = "com.microsoft"
HEADS, GROUPS, SIZE, BLOCK, BLOCKS, ROOM = 4, 2, 16, 4, 6, 22
SHARED = {"num_heads": HEADS, "kv_num_heads": GROUPS}


def compressed(seen):
    """Row ends and columns of patterns [layouts, blocks, blocks]."""
    rows = np.array([np.cumsum([0, *pattern.sum(1)]) for pattern in seen], np.int32)
    columns = [np.nonzero(pattern)[1] for pattern in seen]
    longest = max(map(len, columns))
    padded = [np.pad(part, (0, longest - len(part)), constant_values=-1) for part in columns]
    return rows, np.array(padded, np.int32)


def case(rng, length, totals, layouts, rotary, packed):
    """Inputs of SparseAttention, those of GroupQueryAttention, and the attributes of both."""
    batch = len(totals)
    seen = (rng.random((layouts, BLOCKS, BLOCKS)) < 0.5) | np.eye(BLOCKS, dtype=bool)
    seen = np.tril(seen)
    new = [rng.normal(size=(batch, length, heads * SIZE)).astype("f") for heads in (HEADS, GROUPS, GROUPS)]
    new = [np.concatenate(new, 2), None, None] if packed else new
    past = rng.normal(size=(2, batch, GROUPS, ROOM, SIZE)).astype("f")
    caches = rng.normal(size=(2, ROOM, SIZE // 2)).astype("f") if rotary else [None, None]
    total, ends = np.array(max(totals), np.int32), np.array(totals, np.int32)
    whole = seen.repeat(BLOCK, 1).repeat(BLOCK, 2)[np.arange(HEADS) % layouts]
    starts = [0 if max(totals) == length else each - length for each in totals]
    bias = np.stack([whole[:, start : start + length, : max(totals)] for start in starts])
    sparse = (*new, *past, *compressed(seen), total, ends, *caches)
    dense = (*new, *past, ends - 1, total, *caches, None, np.where(bias, 0, -1e9).astype("f"))
    options = {**SHARED, "do_rotary": int(rotary), "scale": 0.3}
    return (sparse, {**options, "sparse_block_size": BLOCK}), (dense, options)


@pytest.mark.parametrize("layouts", [1, 2])
@pytest.mark.parametrize(("length", "totals"), [(7, (7, 7)), (1, (9, 14)), (3, (22,))])
@pytest.mark.parametrize(("rotary", "packed"), [(False, True), (True, False)])
def test_masked_group_query_attention(layouts, length, totals, rotary, packed):
    rng = np.random.default_rng(length)
    (sparse, attributes), (dense, options) = case(rng, length, totals, layouts, rotary, packed)
    found = natively(
        "SparseAttention",
        Example(sparse, attributes, 3),
        None,
        MS,
        rtol=1e-4,
        atol=1e-5,
        constant=[5, 6],
        simplify=True,
    )
    expected = theirs(*single("GroupQueryAttention", Example(dense, options, 3), 21, MS))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[1:], expected[1:], strict=True):
        for index, end in enumerate(totals):
            np.testing.assert_allclose(one[index, :, :end], other[index, :, :end], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("broken", ["column", "total", "blocks"])
def test_what_does_not_fit_is_refused(broken):
    rng = np.random.default_rng(0)
    (inputs, attributes), _ = case(rng, 1, (9, 14), 1, False, False)
    inputs = list(inputs)
    if broken == "column":
        inputs[6] = np.full_like(inputs[6], BLOCKS)
    elif broken == "total":
        inputs[8] = np.array([9, ROOM + 1], np.int32)
    else:
        inputs[5] = inputs[5][:, :3]
    with pytest.raises(Error, match="E-OP-INDEX"):
        ours(*single("SparseAttention", Example(tuple(inputs), attributes, 3), domain=MS))
