"""Parts of a tensor are NumPy's, and only the rows that they need are read."""

import itertools

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Derived
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.sampling import every

SLICES = [
    slice(*words) for words in ((None,), (1, 3), (None, None, 2), (None, None, -1), (-2, None), (3, 1), (5, 0, -2))
]
WORDS = [0, -1, np.int64(2), *SLICES, ...]
SHAPES = [(7,), (5, 6), (4, 5, 6), (3, 1, 4, 5)]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.complex64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_numpy(shape, dtype):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    tensor = StoredTensor.of(array)
    words = WORDS if len(shape) < 3 else every(2, WORDS)
    for count in range(1, len(shape) + 1):
        for index in itertools.product(words, repeat=count):
            if sum(word is ... for word in index) > 1:
                continue
            try:
                want = array[index]
            except IndexError:
                with pytest.raises(IndexError):
                    tensor[index]
                continue
            found = tensor[index]
            assert found.shape == want.shape, index
            assert np.array_equal(found.numpy(), want), index
            assert found.nbytes == want.nbytes


@pytest.mark.parametrize("index", [None, [0, 1], np.array([True, False]), 1.0, "a", True, (0, None)], ids=str)
def test_what_is_not_an_index_says_what_to_do(index):
    with pytest.raises(cc.UsageError, match=r"numpy\(\)"):
        StoredTensor.of(np.ones((3, 2)))[index]


@pytest.mark.parametrize("index", [3, -4, (0, 2), (0, 0, 0), (..., ...)], ids=str)
def test_places_out_of_range(index):
    with pytest.raises(IndexError):
        StoredTensor.of(np.ones((3, 2)))[index]


def watched(array):
    """A tensor that notes the ranges of bytes that are read."""
    data, seen = array.tobytes(), []

    def read(first, last):
        seen.append((first, last))
        return data[first:last]

    return StoredTensor(DTYPES["f32"], array.shape, Derived(len(data), 1, read)), seen


def test_only_what_is_needed_is_read():
    tensor, seen = watched(np.arange(64 * 32 * 1024, dtype=np.float32).reshape(64, 32, 1024))
    found = tensor[1:3, :, 5]
    assert (seen, found.shape) == ([], (2, 32))
    assert np.array_equal(found.numpy(), np.arange(64 * 32 * 1024).reshape(64, 32, 1024)[1:3, :, 5])
    assert sum(last - first for first, last in seen) <= 2 * 32 * 1024 * 4
    seen.clear()
    tensor[::-16, 4, 8:10].numpy()
    assert sum(last - first for first, last in seen) <= 4 * 1024 * 4
    wide, seen = watched(np.arange(2 * 1_000_000, dtype=np.float32).reshape(2, 1_000_000))
    assert float(wide[1, 500_000]) == 1_500_000
    assert wide[:, ::100_000].tolist()[1][3] == 1_300_000
    assert seen[0] == (6_000_000, 6_000_004)


def test_blocks_are_cut_between_rows_and_blocks(tmp_path):
    array = np.random.default_rng(0).standard_normal((3, 4, 64)).astype(np.float32)
    cc.save_file({"blk.0.ffn_gate_exps.weight": array}, tmp_path / "m.safetensors")
    cc.quantize(tmp_path / "m.safetensors", tmp_path / "m.gguf", cc.Recipe("Q8_0", pure=True))
    tensor = cc.open(tmp_path / "m.gguf")["blk.0.ffn_gate_exps.weight"]
    assert tensor.qtype is DTYPES["q8_0"]
    whole = tensor.dequantize().numpy()
    for index in (
        1,
        slice(None, None, -1),
        (1, 2),
        (slice(1, 3), 0),
        (0, slice(0, 4, 3)),
        (..., slice(32, 64)),
        (0, 0, slice(0, 32)),
    ):
        assert np.array_equal(tensor[index].dequantize().numpy(), whole[index])
    assert np.array_equal(np.asarray(tensor), whole)
    with pytest.raises(cc.UsageError, match="dequantize"):
        tensor[0, 0, 3:40]
    assert np.array_equal(tensor.dequantize()[0, ::2, 3:40:5].numpy(), whole[0, ::2, 3:40:5])


def test_it_is_like_an_array():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = StoredTensor.of(array)
    assert (tensor.ndim, tensor.size, len(tensor), tensor.shape, tensor.nbytes) == (2, 12, 3, (3, 4), 48)
    assert [row.tolist() for row in tensor] == array.tolist() == tensor.tolist()
    assert np.array_equal(np.asarray(tensor), array)
    assert np.asarray(tensor, dtype=np.int64).dtype == np.int64
    assert np.array_equal(np.stack([tensor, tensor]), np.stack([array, array]))
    assert (float(tensor[1, 1]), int(tensor[1, 1]), tensor[1, 1].item()) == (5.0, 5, 5.0)
    assert torch.equal(torch.as_tensor(np.asarray(tensor)), tensor.torch())
    for dtype in ("fp16", np.float16, torch.float16):
        assert tensor.astype(dtype).dtype.name == "f16"
    with pytest.raises(cc.UsageError, match="12 elements"):
        tensor.item()
    assert StoredTensor.of(np.array(3.5)).item() == 3.5
