"""Block types against gguf-py's and libggml's codecs."""

import gguf
import libggml
import numpy as np
import pytest
from candle_convert.ops.quants import codec_of, codecs, dequantized
from candle_convert.runtime.dtype import BF16, F32
from candle_convert.runtime.errors import FormatError
from candle_convert.runtime.quant import block_type, decoded
from candle_convert.runtime.storage import Derived, Held
from candle_convert.runtime.tensor import Tensor

TYPES = sorted((codec.dtype for codec in codecs().values() if codec.dtype.ggml is not None), key=lambda dtype: dtype.name)
GGML = libggml.load()
KNOWN_TO_GGUF = {kind.value for kind in gguf.quants._type_traits}


def same(ours, theirs):
    """Equal bit patterns; any NaN equals any NaN."""
    ours, theirs = ours.ravel(), theirs.ravel()
    return ours.shape == theirs.shape and bool(((ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))).all())


def random_blocks(dtype, count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, dtype.block_nbytes), dtype=np.uint8)


@pytest.mark.parametrize("dtype", [each for each in TYPES if each.ggml in KNOWN_TO_GGUF], ids=str)
def test_random_blocks_decode_as_gguf_py_does(dtype):
    blocks = random_blocks(dtype, 3000)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(dtype.ggml))
    assert same(decoded(codec_of(dtype), blocks.tobytes()), theirs)


@pytest.mark.skipif(GGML is None, reason="CANDLE_LIBGGML does not name libggml")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_random_blocks_decode_as_libggml_does(dtype):
    if not GGML.traits(dtype).to_float:
        pytest.skip("libggml only encodes this type")
    blocks = random_blocks(dtype, 20000, seed=2)
    assert same(decoded(codec_of(dtype), blocks.tobytes()), GGML.decode(dtype, blocks))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_ranges_of_a_dequantized_tensor(dtype):
    blocks = random_blocks(dtype, 6, seed=1)
    whole = decoded(codec_of(dtype), blocks.tobytes())
    asked = []

    def read(start, stop):
        asked.append((start, stop))
        return blocks.tobytes()[start:stop]

    tensor = Tensor(dtype, (3, 2 * dtype.block), Derived(blocks.size, 1, read))
    plain = dequantized(tensor)
    assert (plain.dtype, plain.shape) == (F32, tensor.shape)
    assert same(plain[1].numpy(), whole.reshape(3, -1)[1])
    assert asked == [(2 * dtype.block_nbytes, 4 * dtype.block_nbytes)]
    assert dequantized(tensor, BF16).nbytes == 2 * tensor.count


def test_empty_tensors_and_partial_blocks():
    dtype = block_type("q4_0")
    assert dequantized(Tensor(dtype, (0, 32), Held(b""))).numpy().shape == (0, 32)
    with pytest.raises(FormatError):
        decoded(codec_of(dtype), bytes(17))
