"""Weight quantization: blocks equal libggml's, in any read ranges; weights that cannot be encoded are errors."""

from concurrent.futures import ThreadPoolExecutor

import gguf
import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.passes.quantize.block_weights import SCALE_OFFSET, Quantize
from candle_convert.runtime.tensor.block_codec import codec_of, codecs, decoded, encoded
from candle_convert.runtime.tensor.dtype import DTYPES, F16
from candle_convert.runtime.tensor.storage import Costly, Derived
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

RNG = np.random.default_rng(0)
Q8_0, Q4_0, Q4_K, IQ2_XXS = (DTYPES[name] for name in ("q8_0", "q4_0", "q4_k", "iq2_xxs"))


def run(array, dtype, **options):
    """The quantized tensor of one array, and the pass."""
    graph = Graph(weights={"w": array if isinstance(array, StoredTensor) else StoredTensor.of(array)})
    made = Quantize({"w": dtype}, codec_of, **options)
    assert made.run(graph)
    return graph.weights["w"], made


@pytest.mark.parametrize("name", ["q4_0", "q5_0", "q8_0"])
def test_the_blocks_are_those_of_gguf_py(name):
    values = RNG.standard_normal((3, 40, 256), np.float32)
    tensor, _ = run(values, DTYPES[name])
    kind = gguf.GGMLQuantizationType[name.upper()]
    assert bytes(tensor.raw()) == gguf.quants.quantize(values.reshape(-1, 256), kind).tobytes()
    assert (tensor.shape, tensor.dtype.name) == ((3, 40, 256), name)


def test_importance_belongs_to_its_matrix():
    values = RNG.standard_normal((3, 5, 512), np.float32)
    importance = RNG.random((3, 512), np.float32)
    tensor, _ = run(values, Q4_K, importance={"w": importance})
    expected = [encoded(codec_of(Q4_K), values[i], importance[i]).tobytes() for i in range(3)]
    assert bytes(tensor.raw()) == b"".join(expected)


def test_any_range_of_rows_from_any_thread():
    values = RNG.standard_normal((2000, 512), np.float32).astype(np.float16)
    importance = RNG.random((1, 512), np.float32)
    tensor, _ = run(values, Q4_0, importance={"w": importance})
    whole = bytes(tensor.raw())
    row = 512 // 32 * 18
    assert tensor.storage.step == row
    ranges = [(start * row, min(2000, start + 33) * row) for start in range(0, 2000, 33)]
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda span: bytes(tensor.storage.read(*span)), ranges))
    assert b"".join(parts) == whole
    assert b"".join(map(bytes, tensor.chunks(10_000))) == whole


def test_sources_that_can_only_be_cut_in_places():
    values = RNG.standard_normal((64, 96), np.float32)
    data = values.tobytes()

    def read(start, stop):
        assert start % (96 * 4 * 5 // 2) == 0
        assert stop % (96 * 4 * 5 // 2) == 0 or stop == len(data)
        return data[start:stop]

    tensor, _ = run(
        StoredTensor(DTYPES["f32"], values.shape, Derived(len(data), 96 * 4 * 5 // 2, read, sequential=True)), Q8_0
    )
    assert tensor.storage.step == 5 * 102
    assert tensor.storage.sequential
    assert bytes(tensor.raw()) == encoded(codec_of(Q8_0), values).tobytes()


def test_quantized_tensors_are_decoded_first():
    values = RNG.standard_normal((8, 256), np.float32)
    first, _ = run(values, Q8_0)
    second, _ = run(first, Q4_K)
    assert (
        bytes(second.raw()) == encoded(codec_of(Q4_K), decoded(codec_of(Q8_0), first.raw()).reshape(8, 256)).tobytes()
    )
    plain, _ = run(first, F16)
    assert np.array_equal(plain.numpy(), decoded(codec_of(Q8_0), first.raw()).reshape(8, 256).astype(np.float16))


@pytest.mark.parametrize("shape", [(0, 256), (4, 0), (0,)])
def test_tensors_without_elements(shape):
    tensor, _ = run(np.zeros(shape, np.float32), Q4_K)
    assert (tensor.nbytes, tensor.shape) == (0, shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "error", "code"),
    [
        ((4, 100), Q4_K, {}, FormatError, "E-QUANT-SHAPE"),
        ((), Q8_0, {}, FormatError, "E-QUANT-SHAPE"),
        ((4, 256), IQ2_XXS, {}, UnsupportedError, "E-QUANT-IMPORTANCE"),
        ((4, 32), DTYPES["q4_0_v1"], {}, UnsupportedError, "E-QUANT-ENCODE"),
        ((4, 256), Q4_K, {"importance": {"w": np.ones((1, 128), np.float32)}}, FormatError, "E-IMATRIX-SHAPE"),
        ((2, 4, 256), Q4_K, {"importance": {"w": np.ones((1, 256), np.float32)}}, FormatError, "E-IMATRIX-SHAPE"),
    ],
)
def test_what_cannot_be_encoded(shape, dtype, options, error, code):
    with pytest.raises(error) as refused:
        run(np.ones(shape, np.float32), dtype, **options)
    assert refused.value.code == code


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_element_that_is_not_finite_is_named(value):
    values = RNG.standard_normal((600, 512), np.float32)
    values[577, 3] = value
    tensor, _ = run(values, Q4_0)
    with pytest.raises(FormatError) as error:
        tensor.raw()
    assert error.value.code == "E-NAN"
    assert "'w'" in error.value.why
    assert f"{577 * 512 + 3:,}" in error.value.why


ENCODABLE = [codec.dtype for codec in codecs().values() if codec.encoder is not None and codec.dtype.ggml is not None]


@pytest.mark.parametrize("dtype", [dtype for dtype in ENCODABLE if dtype.name not in ("q8_1", "q8_k")], ids=str)
def test_kept_nan_makes_its_block_nan(dtype):
    columns = 512
    values = RNG.standard_normal((3, columns), np.float32)
    values[1, 300] = np.nan
    tensor, made = run(values, dtype, nan="keep", importance={"w": np.ones((1, columns), np.float32)})
    if dtype.name not in SCALE_OFFSET:
        with pytest.raises(FormatError):
            tensor.raw()
        return
    back = decoded(codec_of(dtype), tensor.raw()).reshape(3, columns)
    block = 300 // dtype.block
    assert np.isnan(back[1, block * dtype.block : (block + 1) * dtype.block]).all()
    assert np.isnan(back).sum() == dtype.block
    assert made.blocks[0].nans == 1


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "iq4_nl"])
def test_values_whose_scale_overflows_are_refused(name):
    values = np.full((2, 256), 3e9, np.float32) * RNG.standard_normal((2, 256), np.float32)
    tensor, _ = run(values, DTYPES[name])
    with pytest.raises(FormatError) as error:
        tensor.raw()
    assert error.value.code == "E-NAN"


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in ENCODABLE if dtype.name not in ("q8_1", "q8_k", "mxfp4", "nvfp4")], ids=str
)
def test_without_any_importance_the_blocks_hold_numbers_or_are_refused(dtype):
    importance = np.zeros((1, 512), np.float32)
    tensor, _ = run(RNG.standard_normal((2, 512), np.float32), dtype, importance={"w": importance})
    try:
        data = tensor.raw()
    except FormatError as error:
        assert error.code == "E-NAN"
    else:
        assert np.isfinite(decoded(codec_of(dtype), data)).all()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("dtype", ENCODABLE, ids=str)
def test_narrow_numbers_are_encoded_as_their_values(dtype, kind):
    values = RNG.standard_normal((37, 512), np.float32) * 10.0 ** RNG.integers(-7, 2, (37, 1))
    values[3], values[5, ::3] = 0, -0.0
    narrow = values.astype(kind)
    importance = {"w": RNG.random((1, 512), np.float32)}
    wanted, _ = run(narrow.astype(np.float32), dtype, importance=importance)
    found, _ = run(narrow, dtype, importance=importance)
    assert bytes(found.raw()) == bytes(wanted.raw())


@pytest.mark.parametrize("dtype", ENCODABLE, ids=str)
def test_any_bits_are_encoded_within_bounds(dtype):
    rows = np.random.default_rng(3).integers(0, 1 << 32, (40, 512), np.uint32).view(np.float32)
    rows[:20] = np.where(np.random.default_rng(4).random((20, 512)) < 0.01, rows[:20], RNG.standard_normal((20, 512)))
    rows[7, :256], rows[8, :256], rows[9] = np.nan, np.inf, -np.inf
    nbytes = 512 // dtype.block * dtype.block_nbytes
    for importance in (np.ones(512, np.float32), np.full(512, np.nan, np.float32), np.zeros(0, np.float32)):
        if importance.size or not codec_of(dtype).needs_importance:
            out = np.full((42, nbytes), 0xA5, np.uint8)
            codec_of(dtype).encoder(rows, importance, out[1:41], 0, 40)
            assert (out[[0, 41]] == 0xA5).all()


def test_errors_are_measured():
    values = RNG.standard_normal((700, 512), np.float32)
    tensor, made = run(values, Q4_0, measure=True)
    for _ in range(2):
        back = decoded(codec_of(Q4_0), tensor.raw()).reshape(values.shape)
    errors = made.blocks[0].errors
    difference = values.astype(np.float64) - back
    assert errors.count == values.size
    assert errors.rmse == pytest.approx(np.sqrt((difference**2).mean()), rel=1e-6)
    assert errors.largest == pytest.approx(np.abs(difference).max(), rel=1e-6)
    assert errors.snr == pytest.approx(
        10 * np.log10((values.astype(np.float64) ** 2).sum() / (difference**2).sum()), rel=1e-6
    )


def test_checksums_cover_what_was_read():
    storage = Costly(100, 10, lambda start, stop: bytes(range(start, stop)))
    for span in ((0, 40), (60, 100), (0, 10)):
        storage.read(*span)
    assert storage.covered() is None
    storage.read(40, 60)
    assert storage.covered() == [(0, 40), (40, 60), (60, 100)]
