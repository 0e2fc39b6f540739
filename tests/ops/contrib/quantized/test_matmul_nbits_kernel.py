"""Native MatMulNBits: NumPy's and onnxruntime's products for few rows and many, blocks that end behind the row, zero
points; rows of 8 bits near onnxruntime's."""

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.native_vs_numpy import natively
from onnx import helper, numpy_helper

CONTRIB = "com.microsoft"


def weight(rng, bits, depth, columns, size, zeros):
    """Codes, scales, and zero points where there are some."""
    blocks = -(-depth // size)
    codes = rng.integers(0, 256, (columns, blocks, size * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    return codes, scales, rng.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8) if zeros else None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "size"),
    [(1, 64, 32, 32), (3, 100, 70, 16), (7, 256, 33, 128), (20, 40, 5, 32), (70, 64, 66, 64)],
)
def test_as_numpy(bits, zeros, rows, depth, columns, size):
    rng = np.random.default_rng(rows)
    codes, scales, points = weight(rng, bits, depth, columns, size, zeros)
    inputs = (
        rng.normal(size=(rows, depth)).astype(np.float32),
        codes,
        scales,
        points,
        None,
        rng.normal(size=columns).astype(np.float32),
    )
    attributes = {"K": depth, "N": columns, "block_size": size, "bits": bits}
    constant = [1, 2, 5, *([3] if zeros else [])]
    natively("MatMulNBits", Example(inputs, attributes), None, CONTRIB, rtol=1e-4, atol=1e-4, constant=constant)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows", [2, 12])
def test_other_bits(bits, zeros, rows):
    test_as_numpy(bits, zeros, rows, 100, 70, 16)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("order", ["mixed", "plain"])
def test_columns_of_mixed_blocks(bits, rows, order):
    rng = np.random.default_rng(bits)
    depth, columns, size = 96, 40, 32
    codes, scales, points = weight(rng, bits, depth, columns, size, True)
    named = np.repeat(np.arange(3, dtype=np.int32), 32)
    named = rng.permutation(named) if order == "mixed" else named
    inputs = (rng.normal(size=(rows, depth)).astype(np.float32), codes, scales, points, named)
    attributes = {"K": depth, "N": columns, "block_size": size, "bits": bits}
    natively("MatMulNBits", Example(inputs, attributes), None, CONTRIB, rtol=1e-4, atol=1e-4, constant=[1, 2, 3, 4])


@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("level", [0, 4])
def test_rows_of_halves(rows, level):
    rng = np.random.default_rng(rows)
    codes, scales, points = weight(rng, 4, 128, 70, 32, True)
    inputs = (rng.normal(size=(rows, 128)), codes, scales, points, None, rng.normal(size=70))
    inputs = tuple(item.astype(np.float16) if item is not None and item.dtype.kind == "f" else item for item in inputs)
    attributes = {"K": 128, "N": 70, "block_size": 32, "bits": 4, "accuracy_level": level}
    near = {0: 2e-3, 4: 4e-2}[level]
    natively(
        "MatMulNBits", Example(inputs, attributes), None, CONTRIB, rtol=near, atol=10 * near, constant=[1, 2, 3, 5]
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(1, 32), (9, 32), (3, 16), (20, 64), (2, 128), (70, 256), (16, 128)])
@pytest.mark.parametrize("level", [0, 4])
def test_as_onnxruntime(bits, zeros, rows, size, level):
    rng = np.random.default_rng(bits)
    depth, columns = 640, 40
    codes, scales, points = weight(rng, bits, depth, columns, size, zeros)
    x = rng.normal(size=(rows, depth)).astype(np.float32)
    held = {"codes": codes, "scales": scales, **({"points": points} if zeros else {})}
    attributes = {"K": depth, "N": columns, "block_size": size, "bits": bits, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain=CONTRIB, **attributes)
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (rows, width))]
        for name, width in (("x", depth), ("y", columns))
    ]
    graph = helper.make_graph(
        [node], "net", *ends, [numpy_helper.from_array(array, name) for name, array in held.items()]
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)], ir_version=8
    )
    exact = Session(graph_of(model), native=False).run(None, {"x": x})[0]
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    found = [Session(graph_of(model), native=True, threads=threads).run(None, {"x": x})[0] for threads in (1, 2)]
    np.testing.assert_array_equal(*found)
    error, scale = np.abs(found[0] - exact).max(), np.abs(exact).max()
    assert (error > 1e-5 * scale) == (level == 4), "only level 4 rounds activations to 8 bits"
    assert error < (0.02 if level else 2e-6) * scale
    assert np.abs(found[0] - expected).max() < 0.02 * scale
