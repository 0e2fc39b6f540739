"""Products with weights as files store them, against gguf-py's decoders and NumPy in f64."""

import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.dtype import F32, I64, STORAGE_TYPES
from candle_convert.tests.builders.block_weights import close, fed, linear, model, weight

TYPES = sorted((dtype.name for dtype in codecs()), key=str)
ELEMENTS = ["f32", "f16", "bf16"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", [*ELEMENTS, *TYPES])
def test_products_are_those_of_the_decoded_weight(name, native):
    inner = 3 * max(64, STORAGE_TYPES[name].block)
    tensor, numbers = weight(name, (37, inner))
    session = Session(linear(tensor), native=native)
    rng = np.random.default_rng(1)
    for rows in (1, 2, 3, 4, 5, 7, 40):
        x = rng.standard_normal((rows, inner)).astype(np.float32)
        close(session.run(None, {"x": x})[0], x, numbers)


@pytest.mark.parametrize("name", ["f16", "q8_0", "q4_k"])
def test_stacks_and_a_bias(name):
    tensor, numbers = weight(name, (33, 256))
    rng = np.random.default_rng(2)
    x, bias = rng.standard_normal((2, 3, 256)).astype(np.float32), rng.standard_normal(33).astype(np.float32)
    session = Session(linear(tensor, 3, bias), native=True, simplify=True)
    assert [node.op.name for node in session.program.region.nodes] == ["Linear"]
    got = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(got, x @ numbers.T + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*ELEMENTS, "q8_0", "q6_k", "iq2_s", "mxfp4"])
def test_rows_are_gathered_as_they_decode(name):
    tensor, numbers = weight(name, (50, 512))
    ids = np.array([[3, -1, 49], [0, 3, 3]])

    def build(b, w):
        return [b.add("Cast", [b.add("Gather", [w, fed(b.graph, "ids", I64, ("n", 3))])], {"to": 1})]

    for native in (False, True):
        got = Session(model(tensor, build), native=native).run(None, {"ids": ids})[0]
        np.testing.assert_array_equal(got, numbers[ids])
    with pytest.raises(UsageError, match="outside"):
        Session(model(tensor, build), native=True).run(None, {"ids": ids + 50})


@pytest.mark.parametrize("name", ["q4_0", "bf16"])
def test_gemm_and_other_operators_take_quantized_weights(name):
    tensor, numbers = weight(name, (12, 64))
    x = np.random.default_rng(3).standard_normal((5, 64)).astype(np.float32)

    def build(b, w):
        x = fed(b.graph, "x", F32, (5, 64))
        transposed = b.add("Transpose", [w], {"perm": [1, 0]})
        return [
            b.add("Gemm", [x, w], {"transB": 1}),
            b.add("Gemm", [x, transposed], {"alpha": 2.0}),
            b.add("Cast", [transposed], {"to": 1}),
        ]

    one, two, transposed = Session(model(tensor, build), native=True).run(None, {"x": x})
    close(one, x, numbers)
    close(two, x, 2 * numbers)
    np.testing.assert_array_equal(transposed, numbers.T)


def experts(tensor, ids, each):
    def build(b, w):
        x = fed(b.graph, "x", F32, ("t", ids.shape[1], tensor.shape[2]) if each else ("t", tensor.shape[2]))
        return [
            b.add(
                "MatMulExperts",
                [x, w, fed(b.graph, "ids", I64, ("t", ids.shape[1]))],
                {"each": int(each)},
                domain="candle",
            )
        ]

    return model(tensor, build)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", ["f32", "f16", "q8_0", "q4_k", "mxfp4", "iq3_xxs"])
def test_experts(name, each):
    tensor, numbers = weight(name, (6, 18, 256))
    rng = np.random.default_rng(4)
    for tokens in (1, 3, 50):
        ids = rng.integers(-2, 6, (tokens, 2))
        x = rng.standard_normal((tokens, 2, 256) if each else (tokens, 256)).astype(np.float32)
        wanted = np.einsum("tkoi,tki->tko", numbers[ids].astype(np.float64), x if each else np.repeat(x[:, None], 2, 1))
        for native in (False, True):
            got = Session(experts(tensor, ids, each), native=native).run(None, {"x": x, "ids": ids})[0]
            assert np.linalg.norm(got - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", ["q8_0", "q4_k", "q6_k", "mxfp4", "iq3_xxs"])
def test_many_rows_of_experts_are_rounded_as_layers_round_them(name, each):
    """Experts with no rows, with one and with many; threads change no bit."""
    tensor, numbers = weight(name, (5, 37, 256))
    rng = np.random.default_rng(5)
    ids = rng.choice([-5, 1, 2, 2, 2, 4], (90, 2))
    ids[0, 0] = 3
    x = rng.standard_normal((90, 2, 256) if each else (90, 256)).astype(np.float32)
    wanted = np.einsum(
        "tkoi,tki->tko", numbers[ids].astype(np.float64), eighths(x) if each else np.repeat(eighths(x)[:, None], 2, 1)
    )
    sessions = [
        Session(experts(tensor, ids, each), native=native, activations="q8", threads=threads)
        for native, threads in ((False, 1), (True, 1), (True, 3))
    ]
    got = [session.run(None, {"x": x, "ids": ids})[0] for session in sessions]
    for each_of in got:
        assert np.linalg.norm(each_of - wanted) <= 2e-4 * np.linalg.norm(wanted)
    np.testing.assert_array_equal(got[1], got[2])


def eighths(x):
    """Rows rounded to 8 bits, each run of 32 with a step of its own."""
    runs = x.reshape(-1, 32)
    step = np.abs(runs).max(1, keepdims=True) / np.float32(127)
    return (np.rint(runs / step) * step).reshape(x.shape)


def test_experts_that_are_not_there():
    tensor, _ = weight("q8_0", (6, 18, 64))
    ids = np.array([[0, 6]])
    feeds = {"x": np.ones((1, 64), np.float32), "ids": ids}
    for native in (False, True):
        with pytest.raises(UsageError, match="outside"):
            Session(experts(tensor, ids, False), native=native).run(None, feeds)


@pytest.mark.parametrize(
    ("domain_op", "shapes"), [("Linear", ((5, 6), (4, 6), (4,))), ("MatMulExperts", ((3, 6), (5, 4, 6)))]
)
def test_lowered_nodes_compute_the_same(domain_op, shapes):
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if domain_op == "MatMulExperts":
        arrays.append(np.array([[0, 4], [1, 1], [2, 3]]))

    def graph_of(lowered):
        graph = Graph()
        values = [
            fed(graph, f"x{i}", I64 if array.dtype.kind == "i" else F32, array.shape) for i, array in enumerate(arrays)
        ]
        build = Builder(graph)
        node = build.node(operator(domain_op, "candle"), values)
        if lowered:
            graph.nodes.clear()
            node.op.lower(node, build)
        graph.outputs = node.outputs
        return graph

    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    one, other = (Session(graph_of(lowered)).run(None, feeds)[0] for lowered in (False, True))
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


ROUNDED = [
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "mxfp4",
    "iq2_s",
    "tq2_0",
]


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_activations_are_multiplied_exactly(name):
    tensor, numbers = weight(name, (37, 768))
    session, slow = (Session(linear(tensor), native=native, activations="q8") for native in (True, False))
    for rows in (1, 3, 20):
        x = np.random.default_rng(6).standard_normal((rows, 768)).astype(np.float32)
        x[0, :64] = 0
        step = np.abs(x.reshape(rows, -1, 32)).max(2, keepdims=True) / 127
        near = (np.rint(x.reshape(rows, -1, 32) / np.where(step == 0, 1, step)) * step).reshape(x.shape)
        for each in (session, slow):
            got = each.run(None, {"x": x})[0]
            assert np.linalg.norm(got - near @ numbers.T) <= 2e-4 * np.linalg.norm(near @ numbers.T)
            assert np.linalg.norm(got - x @ numbers.T) <= 2e-2 * np.linalg.norm(x @ numbers.T)
        np.testing.assert_allclose(
            *(each.run(None, {"x": x})[0] for each in (session, slow)), rtol=1e-4, atol=1e-5 * np.abs(got).max()
        )
    with pytest.raises(UsageError, match="f32 or q8"):
        Session(linear(tensor), activations="f8")


@pytest.mark.parametrize("name", ROUNDED)
def test_whole_numbers_are_not_rounded(name):
    """Rows of any number of blocks; runs of integers whose largest is 127 have a step of one."""
    rng = np.random.default_rng(9)
    for blocks in (2, 3, 4, 9):
        inner = blocks * STORAGE_TYPES[name].block
        tensor, numbers = weight(name, (37, inner))
        session = Session(linear(tensor), native=True, activations="q8")
        for rows in (1, 2, 4):
            x = rng.integers(-127, 128, (rows, inner)).astype(np.float32)
            x[:, ::32] = 127
            close(session.run(None, {"x": x})[0], x, numbers, 1e-6)


@pytest.mark.parametrize("activations", ["f32", "q8"])
@pytest.mark.parametrize("name", ["f16", "q4_0", "q8_0", "q6_k", "q4_k"])
def test_activations_that_are_zero_huge_tiny_or_not_finite(name, activations):
    tensor, numbers = weight(name, (37, 768))
    session = Session(linear(tensor), native=True, activations=activations)
    x = np.random.default_rng(8).standard_normal((4, 768)).astype(np.float32)
    x[0], x[1, 5], x[2, 100], x[3] = 0, np.nan, np.inf, x[3] * np.float32(1e-30)
    got = session.run(None, {"x": x})[0]
    assert (got[0] == 0).all()
    assert np.isnan(got[1]).all()
    assert not np.isfinite(got[2]).any()
    wanted = x[3] * 1e30 @ numbers.T
    assert np.linalg.norm(got[3] * 1e30 - wanted) <= (2e-2 if activations == "q8" else 1e-5) * np.linalg.norm(wanted)
    x = np.ones((1, 768), np.float32)
    x[0, 7] = 1e4
    if activations == "f32":
        close(session.run(None, {"x": x})[0], x, numbers)


def test_shapes_that_do_not_fit_are_refused():
    tensor, _ = weight("q8_0", (8, 64))

    def build(b, w):
        return [b.add("Linear", [fed(b.graph, "x", F32, (2, 32)), w], domain="candle")]

    with pytest.raises(FormatError, match="elements"):
        Session(model(tensor, build), native=True).run(None, {"x": np.ones((2, 32), np.float32)})


@pytest.mark.parametrize("name", ["f32", "f16", "q4_k", "q5_0"])
def test_results_do_not_depend_on_the_number_of_threads(name):
    tensor, _ = weight(name, (301, 768))
    for rows in (1, 4, 33):
        x = np.random.default_rng(7).standard_normal((rows, 768)).astype(np.float32)
        one, two = (Session(linear(tensor), native=True, threads=threads).run(None, {"x": x})[0] for threads in (1, 3))
        np.testing.assert_array_equal(one, two)
