"""Native products of matrices that are no constants against NumPy: transposed ones, rows of whole pages, and columns
that do not fill the last panel."""

import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.ops.linalg import panel_product
from candle_convert.runtime.execute.timing import Clock
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.jit.isa import features
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.before_and_after_pass import Net, in_onnxruntime
from candle_convert.tests.oracles.native_vs_numpy import natively


@pytest.mark.parametrize(("rows", "depth", "columns"), [(70, 64, 96), (64, 1024, 65), (65, 100, 64), (20, 64, 33)])
@pytest.mark.parametrize("flipped", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_variable_factors(rows, depth, columns, flipped):
    rng = np.random.default_rng(rows)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    factors = tuple(
        np.ascontiguousarray(matrix.T) if turn else matrix for matrix, turn in zip((a, b), flipped, strict=True)
    )
    natively("Gemm", Example(factors, {"transA": flipped[0], "transB": flipped[1]}), 22, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [65, 96])
def test_rows_of_a_variable_weight(columns):
    """Linear, with a row that is added to each of the product where all panels are full."""
    rng = np.random.default_rng(1)
    x, weight = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 40, 100), (columns, 100)))
    natively("Linear", Example((x, weight), {}), domain="candle", rtol=1e-4, atol=1e-4)
    net, feeds = Net(), {"x": x, "w": weight, "b": weight[:, 0].copy()}
    net.add("Add", net.add("MatMul", "x", net.add("Transpose", "w")), "b", name="y")
    model, clock = net.model(feeds, ["y"]), Clock()
    (found,) = Session(graph_of(model), native=True, simplify=True).run(None, feeds, clock=clock)
    np.testing.assert_allclose(found, in_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-4)
    assert {event.node.op.name for event in clock.events} == {"Linear"}


def test_stacks_times_one_matrix():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 40, 64), (64, 70)))
    natively("MatMul", Example((a, b), {}), 22, rtol=1e-4, atol=1e-4)


def test_depth_in_pieces():
    """Constant weights deeper than a piece that stays in the second cache, and a panel that is not full; Relu limits
    complete sums only. onnxruntime is the oracle."""
    rng, net = np.random.default_rng(2), Net()
    x = rng.normal(size=(2, 101, 2000)).astype(np.float32)
    product = net.add("Add", net.add("MatMul", "x", net.normal(2000, 70)), net.normal(70))
    net.add("Relu", product, name="y")
    model = net.model({"x": x}, ["y"])
    (found,) = Session(graph_of(model), native=True, simplify=True).run(None, {"x": x})
    np.testing.assert_allclose(found, in_onnxruntime(model, {"x": x})[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", range(1, 14))
def test_rows_left_over_of_tiles(rows):
    """Every height of a tile, over a piece of the depth and more, with what a panel of 16 and of 32 columns leaves."""
    rng, net = np.random.default_rng(rows), Net()
    x = rng.normal(size=(rows, 800)).astype(np.float32)
    model = net.model({"x": x}, [net.add("MatMul", "x", net.normal(800, 51))])
    (found,) = Session(graph_of(model), native=True).run(None, {"x": x})
    np.testing.assert_allclose(found, in_onnxruntime(model, {"x": x})[0], rtol=1e-4, atol=1e-3)


def test_lines_of_panels():
    """A tile of AVX2 reads lines of 16 columns, which are adjacent; others read lines of 32."""
    width = panel_product.PRODUCT_PANEL
    assert width == (16 if "avx2" in features() and "avx512f" not in features() else 32)
    matrix = np.arange(3 * 40, dtype=np.float32).reshape(3, 40)
    packed = panel_product.product_panels(matrix)
    assert packed.shape == (-(-40 // width), 3, width)
    np.testing.assert_array_equal(packed.transpose(1, 0, 2).reshape(3, -1)[:, :40], matrix)
