"""The oracles themselves: a library whose structures differ is found before it is asked for anything, and onnxruntime
multiplies integers exactly."""

import ctypes

import numpy as np
import onnx
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.builders.single_node import with_constants
from candle_convert.tests.oracles import libggml, libllama
from candle_convert.tests.oracles.exact_onnxruntime import exact_session, unsigned
from candle_convert.tests.oracles.llama_cpp import LayoutError
from candle_convert.tests.oracles.onnxruntime import single

GGML = pytest.mark.skipif(libggml.NAME is None, reason="xllamacpp is not installed")
LLAMA = pytest.mark.skipif(libllama.NAME is None, reason="xllamacpp is not installed")


def shifted(structure):
    """The structure with a field in front that the library does not have."""
    return type(structure.__name__, (ctypes.Structure,), {"_fields_": [("more", ctypes.c_int64), *structure._fields_]})


@GGML
def test_structures_of_libggml_are_as_declared():
    libggml.load()


@GGML
def test_other_traits_are_found(monkeypatch):
    monkeypatch.setattr(libggml, "Traits", shifted(libggml.Traits))
    with pytest.raises(LayoutError, match="ggml_type_traits reads as"):
        libggml.load()


@LLAMA
def test_structures_of_libllama_are_as_declared():
    libllama.loaded.__wrapped__()


@LLAMA
@pytest.mark.parametrize("name", ["Batch", "Memory", "ContextParams"])
def test_other_structures_of_libllama_are_found(monkeypatch, name):
    short = type(name, (ctypes.Structure,), {"_fields_": [("context", ctypes.c_uint32), ("count", ctypes.c_int32)]})
    monkeypatch.setattr(libllama, name, short)
    with pytest.raises(LayoutError, match="llama"):
        libllama.loaded.__wrapped__()


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
def test_products_of_onnxruntime_are_those_of_integers(left, right, level):
    a, b = (np.full(shape, np.iinfo(kind).max, kind) for kind, shape in ((left, (3, 70)), (right, (70, 9))))
    model, feeds = with_constants(*single("MatMulInteger", Example((a, b), {}), 21), [1])
    (found,) = exact_session(model, level).run(None, feeds)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_quantized_convolutions_of_onnxruntime_are_those_of_integers(kind):
    image, kernels = np.full((1, 8, 5, 5), np.iinfo(kind).max, kind), np.full((4, 8, 3, 3), 127, np.int8)
    scale, zero = np.float32(1), np.int8(0)
    example = Example((image, scale, kind(0), kernels, scale, zero, np.float32(20000), kind(0)), {})
    model, feeds = with_constants(*single("QLinearConv", example, 21), range(1, 8))
    (found,) = exact_session(model).run(None, feeds)
    assert (found == np.rint(72 * image.flat[0].astype(np.float64) * 127 / 20000)).all()


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, np.int8(5), np.arange(-4, 5, dtype=np.int8)])
def test_weights_made_unsigned_compute_the_same(left, zero):
    random = np.random.default_rng(1)
    a, b = random.integers(0, 100, (3, 70)).astype(left), random.integers(-128, 128, (70, 9)).astype(np.int8)
    points = () if zero is None else (left(7), zero)
    model, feeds = with_constants(*single("MatMulInteger", Example((a, b, *points), {}), 21), range(1, 2 + len(points)))
    made = unsigned(model)
    types = {item.data_type for item in made.graph.initializer if item.name in made.graph.node[0].input[1:2]}
    assert types == {onnx.TensorProto.UINT8 if left is np.uint8 else onnx.TensorProto.INT8}
    shift = 0 if zero is None else zero.astype(np.int32)
    expected = (a.astype(np.int32) - (7 if points else 0)) @ (b.astype(np.int32) - shift)
    np.testing.assert_array_equal(exact_session(made).run(None, feeds)[0], expected)
