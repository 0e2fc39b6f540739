"""Weights that a file stores in one tensor, joined again: the bytes of torch.cat, in the dtype of the parts."""

import gguf
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.models.schema.fused_weight_layout import qkv_rows
from candle_convert.runtime.tensor.dtype import dtype_named
from candle_convert.runtime.tensor.storage import Held
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


@pytest.mark.parametrize("kinds", [("Q8_0", "Q8_0"), ("Q4_0", "Q4_0"), ("Q8_0", "Q4_0"), ("Q8_0", "f16")])
def test_vectors_of_blocks_become_f32(kinds):
    """Blocks run along vectors, which are joined element by element; llama.cpp's values."""
    random = np.random.default_rng(6)
    values = [random.standard_normal(64).astype(np.float32) for _ in kinds]
    pieces, want = [], []
    for kind, array in zip(kinds, values, strict=True):
        if kind == "f16":
            pieces.append(StoredTensor.of(array.astype(np.float16)))
            want.append(array.astype(np.float16).astype(np.float32))
            continue
        blocks = gguf.quantize(array[None], gguf.GGMLQuantizationType[kind])
        pieces.append(StoredTensor(dtype_named(kind), (64,), Held(blocks.tobytes())))
        want.append(gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind])[0])
    found = qkv_rows("q").together(pieces)
    assert (found.dtype.name, found.shape) == ("f32", (128,))
    np.testing.assert_array_equal(found.numpy(), np.concatenate(want))
