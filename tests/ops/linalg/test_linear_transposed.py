"""Rows times weights of every storage type as they lie, against gguf-py's decoders and NumPy in f64."""

import numpy as np
import pytest
from candle_convert.ops.kernels.gemm.columns import transposed
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.dtype import F32, STORAGE_TYPES
from candle_convert.tests.builders.block_weights import close, fed, model, weight

TYPES = sorted((dtype.name for dtype in codecs()), key=str)


def session_of(tensor, native=True, **options):
    def build(b, w):
        x = fed(b.graph, "x", F32, ("rows", tensor.shape[0]))
        return [b.add("LinearTransposed", [x, w], domain="candle")]

    made = Session(model(tensor, build), native=native, **options)
    assert not native or [node.op.name for node in made.program.region.nodes] == ["LinearTransposed"]
    return made


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["f16", "bf16", *TYPES])
def test_products_are_those_of_the_decoded_weight(name):
    """300 rows of a weight are a whole piece and a part of one."""
    tensor, numbers = weight(name, (300, 3 * max(64, STORAGE_TYPES[name].block)))
    session = session_of(tensor)
    rng = np.random.default_rng(1)
    for rows in (1, 2, 3, 7, 12, 31):
        x = rng.standard_normal((rows, 300)).astype(np.float32)
        close(session.run(None, {"x": x})[0], x, numbers.T)


@pytest.mark.parametrize("shape", [(1, 32), (3, 32), (37, 288), (192, 320), (515, 1088)])
def test_sizes_do_not_matter(shape):
    """Rows behind whole vectors and pieces, columns behind whole panels, more rows of x than a piece meets."""
    tensor, numbers = weight("q8_0", shape)
    session = session_of(tensor)
    for rows in (0, 1, 13, transposed.ROW_BLOCK + 5):
        x = np.random.default_rng(rows).standard_normal((rows, shape[0])).astype(np.float32)
        close(session.run(None, {"x": x})[0], x, numbers.T)


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_plain_weights_of_odd_lengths(name):
    tensor, numbers = weight(name, (5, 45))
    x = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    for native in (False, True):
        close(session_of(tensor, native).run(None, {"x": x})[0], x, numbers.T)


def test_two_threads_compute_the_same_bits():
    tensor, numbers = weight("q8_0", (270, 896))
    x = np.random.default_rng(4).standard_normal((50, 270)).astype(np.float32)
    one, two = (session_of(tensor, threads=count).run(None, {"x": x})[0] for count in (1, 2))
    close(one, x, numbers.T)
    np.testing.assert_array_equal(one, two)


def test_weights_that_are_no_constants():
    graph = Graph()
    x, w = fed(graph, "x", F32, ("rows", 70)), fed(graph, "w", F32, (70, 45))
    graph.outputs = [Builder(graph).add("LinearTransposed", [x, w], domain="candle")]
    session, rng = Session(graph, native=True), np.random.default_rng(6)
    for rows in (2, 80):
        x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 70), (70, 45)))
        close(session.run(None, {"x": x, "w": w})[0], x, w.T)


def test_numbers_that_are_not_finite_stay_in_their_row():
    tensor, numbers = weight("q8_0", (40, 64))
    x = np.random.default_rng(5).standard_normal((14, 40)).astype(np.float32)
    x[3, 5], x[9, 7] = np.nan, np.inf
    got = session_of(tensor).run(None, {"x": x})[0]
    plain = [row for row in range(14) if row not in (3, 9)]
    close(got[plain], x[plain], numbers.T)
    assert np.isnan(got[3]).all()
    np.testing.assert_array_equal(got[9], np.where(numbers[7] == 0, np.nan, np.copysign(np.inf, numbers[7])))
