"""Weights of every storage type with the values that gguf-py decodes, and graphs of one such weight."""

import gguf
import numpy as np
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.tensor.block_codec import codecs, decoded
from candle_convert.runtime.tensor.dtype import F32, GROUPED_BLOCK_TYPES, STORAGE_TYPES, BlockType
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

KNOWN_TO_GGUF = {kind.value for kind in gguf.quants._type_traits}


def weight(name, shape, seed=0):
    """A tensor of random blocks whose scales are small, and its numbers by gguf-py where that knows the type."""
    rng = np.random.default_rng(seed)
    dtype = STORAGE_TYPES[name]
    if not isinstance(dtype, BlockType):
        tensor = StoredTensor.of(rng.standard_normal(shape).astype(np.float32).astype(dtype.as_numpy()))
        return tensor, tensor.numpy().astype(np.float32)
    data = rng.integers(0, 256, (*shape[:-1], dtype.nbytes(shape[-1])), dtype=np.uint8)
    blocks = data.reshape(-1, dtype.block_nbytes)
    if dtype in GROUPED_BLOCK_TYPES:  # scales and minima, f32, before the integers
        factors = blocks[:, : dtype.block_nbytes - 16 * dtype.bits].view(np.float32)
        factors[:] = rng.uniform(0.01, 0.1, factors.shape)
    codec = next(codec for codec in codecs().values() if codec.dtype == dtype)
    with np.errstate(all="ignore"):
        values = codec.decode(blocks)
        good = np.isfinite(values).all(1) & (np.abs(values).max(1) < 100) & (np.abs(values).max(1) > 1e-3)
    blocks[~good] = blocks[good][np.arange((~good).sum()) % good.sum()]
    known = dtype.ggml in KNOWN_TO_GGUF
    numbers = (
        gguf.quants.dequantize(data, gguf.GGMLQuantizationType(dtype.ggml)) if known else decoded(codec, data.tobytes())
    )
    return StoredTensor(dtype, shape, Held(data.tobytes())), numbers.reshape(shape)


def model(tensor, build):
    """A graph of one weight, whose outputs `build(builder, weight)` makes."""
    graph = Graph()
    value = graph.values["weight"] = Value("weight", tensor.dtype, tensor.shape)
    graph.weights["weight"] = tensor
    graph.outputs = build(Builder(graph), value)
    return graph


def fed(graph, name, dtype, shape):
    value = graph.values[name] = Value(name, dtype, shape)
    graph.inputs.append(value)
    return value


def linear(tensor, rank=2, bias=None):
    def build(b, w):
        x = fed(b.graph, "x", F32, ("a", "b", "c")[: rank - 1] + tensor.shape[1:])
        y = b.add("MatMul", [x, b.add("Transpose", [w], {"perm": [1, 0]})])
        return [y if bias is None else b.add("Add", [y, b.constant(bias)])]

    return model(tensor, build)


def close(got, x, numbers, bound=1e-5):
    """Within `bound` of the sum of magnitudes, which rounding is relative to; f64 is the reference."""
    wanted = x.astype(np.float64) @ numbers.astype(np.float64).T
    spread = np.abs(x).astype(np.float64) @ np.abs(numbers).astype(np.float64).T
    assert got.dtype == np.float32
    assert (np.abs(got - wanted) <= bound * spread + 1e-30).all(), float(
        np.abs((got - wanted) / (spread + 1e-30)).max()
    )
    assert np.linalg.norm(got - wanted) <= max(bound, 1e-5) * np.linalg.norm(wanted)
