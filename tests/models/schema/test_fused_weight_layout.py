"""Weights that a file stores in one tensor, joined again: the bytes of torch.cat, in the dtype of the parts."""

import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.models.schema.fused_weight_layout import qkv_rows
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def parts(dtype, *tail):
    random = np.random.default_rng(5)
    return [random.standard_normal((rows, *tail)).astype(DTYPES[dtype]) for rows in (6, 2, 2)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tail", [(), (4,), (3, 2)])
def test_parts_keep_their_dtype(dtype, tail):
    arrays = parts(dtype, *tail)
    found = qkv_rows("q").together([StoredTensor.of(array) for array in arrays])
    right = torch.cat([torch.tensor(array.astype(np.float64)).to(TORCH[dtype]) for array in arrays])
    assert (found.dtype.name, found.shape) == (dtype, tuple(right.shape))
    assert bytes(found.storage.read(0, found.nbytes)) == right.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("tail", [(), (4,)])
def test_parts_of_several_dtypes_become_f32(tail):
    arrays = [*parts("bf16", *tail)[:2], parts("f16", *tail)[2]]
    found = qkv_rows("q").together([StoredTensor.of(array) for array in arrays])
    assert found.dtype.name == "f32"
    np.testing.assert_array_equal(found.numpy(), np.concatenate([array.astype(np.float32) for array in arrays]))
