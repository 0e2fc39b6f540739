"""Tensors: packing, slicing and casts against numpy, ml_dtypes and torch."""

import ml_dtypes  # noqa: F401 (registers its dtypes with numpy)
import numpy as np
import pytest
import torch
from candle_convert.runtime.tensor.dtype import BLOCK_TYPES, DTYPES, ELEMENT_TYPES
from candle_convert.runtime.tensor.element_packing import nbytes, pack, unpack
from candle_convert.runtime.tensor.storage import Derived, Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

NUMERIC = [dtype for dtype in ELEMENT_TYPES if dtype.numpy is not None]
FLOATS = [dtype for dtype in NUMERIC if dtype.kind == "float"]
RNG = np.random.default_rng(0)


def _random(dtype, count):
    raw = RNG.integers(0, 256, dtype.nbytes(count), dtype=np.uint8)
    if dtype.kind == "bool":
        raw &= 1
    return raw.tobytes()


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_packing_keeps_every_bit(dtype):
    data = _random(dtype, 96)
    assert bytes(pack(unpack(data, dtype, 96), dtype)) == data


@pytest.mark.parametrize(("name", "codes"), [("f4", "80"), ("f6_e2m3", "01 00 00"), ("i4", "f1"), ("u2", "e4")])
def test_first_element_is_in_the_lowest_bits(name, codes):
    dtype = DTYPES[name]
    values = unpack(bytes.fromhex(codes.replace(" ", "")), dtype, dtype.block).astype(np.float32)
    expected = {"f4": [0, 0], "f6_e2m3": [0.125, 0, 0, 0], "i4": [1, -1], "u2": [0, 1, 2, 3]}[name]
    assert np.array_equal(values, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_casts_round_as_ml_dtypes_does(source, dtype):
    values = unpack(_random(source, 4096), source, 4096)
    if source.name in ("f32", "f64"):
        values = (RNG.standard_normal(4096) * 10.0 ** RNG.integers(-8, 8, 4096)).astype(source.as_numpy())
    with np.errstate(all="ignore"):
        exact = values if values.dtype.itemsize > 1 or source is dtype else values.astype(np.float32)
        expected = exact.astype(dtype.as_numpy())
    tensor = StoredTensor(source, (64, 64), Held(bytes(pack(values, source)))).cast(dtype)
    found = b"".join(bytes(chunk) for chunk in tensor.chunks(1000))
    assert found == bytes(pack(expected, dtype))
    assert len(found) == tensor.nbytes == nbytes(dtype, (64, 64))


@pytest.mark.parametrize("name", ["f16", "bf16", "f8_e4m3", "f8_e5m2"])
def test_casts_round_as_torch_does(name):
    values = (RNG.standard_normal(4096) * 10.0 ** RNG.integers(-6, 2, 4096)).astype(np.float32)
    expected = torch.from_numpy(values).to(getattr(torch, DTYPES[name].torch)).float().numpy()
    found = StoredTensor.of(values).cast(name).cast("f32").numpy()
    assert np.array_equal(found, expected, equal_nan=True)


ARRAYS = [
    np.arange(24).reshape(2, 3, 4),
    np.zeros((0, 3), np.float16),
    np.float32(2.5).reshape(()),
    np.arange(5, dtype=">i4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_of_numpy_and_back(array):
    tensor = StoredTensor.of(array)
    assert tensor.shape == array.shape
    assert np.array_equal(tensor.numpy(), array)
    assert tensor.torch().shape == array.shape


def test_slices_read_only_their_rows():
    asked = []
    data = np.arange(120, dtype=np.int16).tobytes()
    storage = Derived(240, 2, lambda start, stop: asked.append((start, stop)) or data[start:stop])
    tensor = StoredTensor(DTYPES["i16"], (10, 12), storage)
    assert np.array_equal(tensor[3:5].numpy(), np.arange(36, 60).reshape(2, 12))
    assert np.array_equal(tensor[-1].numpy(), np.arange(108, 120))
    assert tensor[7:3].shape == (0, 12)
    assert asked == [(72, 120), (216, 240)]
    assert np.array_equal(tensor[::-4, 0].numpy(), [108, 60, 12])
    assert asked[2:] == [(216, 240), (120, 144), (24, 48)]
    with pytest.raises(IndexError):
        tensor[10]


def test_block_types_count_whole_blocks():
    for dtype in BLOCK_TYPES:
        assert nbytes(dtype, (3, 2 * dtype.block)) == 6 * dtype.block_nbytes
        assert nbytes(dtype, (3, dtype.block + 1)) is None
        assert nbytes(dtype, ()) is None


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in ELEMENT_TYPES if dtype.torch is not None and dtype.numpy is not None], ids=str
)
def test_torch_has_the_same_bits(dtype):
    data = _random(dtype, 64)
    tensor = StoredTensor(dtype, (8, 8), Held(data))
    assert bytes(tensor.torch().contiguous().view(torch.uint8).numpy().tobytes()) == data
    cc_back = StoredTensor.of_torch(tensor.torch())
    assert (cc_back.dtype, cc_back.shape, bytes(cc_back.raw())) == (dtype, (8, 8), data)
