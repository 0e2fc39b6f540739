"""Sessions: results against onnxruntime and NumPy for several shapes and thread counts, feeds that do not fit, threads,
taps, memory."""

import concurrent.futures
import dataclasses
import gc
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.jit.range_kernel import RangeKernel
from candle_convert.runtime.session import Session
from candle_convert.runtime.session_options import SessionKeywords, SessionOptions
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(7)


def made(nodes, inputs, outputs, weights=(), opset=17, functions=()):
    """A model; inputs as (name, element type, shape)."""
    held = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    described = [helper.make_tensor_value_info(*item) for item in inputs]
    graph = helper.make_graph(nodes, "g", described, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def expected(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


F = TensorProto.FLOAT


def network():
    """Convolution, normalization, residual, pooling, product: with a symbolic batch and image."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["d"], group=13),
        helper.make_node("Sigmoid", ["d"], ["g"]),
        helper.make_node("Mul", ["d", "g"], ["silu"]),
        helper.make_node("Add", ["silu", "r"], ["sum"]),
        helper.make_node("Transpose", ["sum"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Concat", ["t", "t"], ["cat"], axis=-1),
        helper.make_node("Softmax", ["cat"], ["soft"], axis=-1),
        helper.make_node("Transpose", ["soft"], ["back"], perm=[0, 3, 1, 2]),
        helper.make_node("MaxPool", ["back"], ["p"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        helper.make_node("GlobalAveragePool", ["p"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    weights = {
        "w1": normal(13, 3, 3, 3),
        "b1": normal(13),
        "s": normal(13),
        "b": normal(13),
        "m": normal(13),
        "v": np.abs(normal(13)) + 0.5,
        "w2": normal(13, 1, 1, 1),
        "w3": normal(37, 26),
        "b3": normal(37),
    }
    return made(nodes, [("x", F, ["n", 3, "h", "w"])], ["y", "p"], weights)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_network_for_several_shapes(threads):
    model = network()
    session = cc.InferenceSession(model.SerializeToString(), threads=threads)
    for shape in [(1, 3, 9, 8), (2, 3, 40, 33), (1, 3, 9, 8), (5, 3, 64, 65)]:
        feeds = {"x": normal(*shape)}
        found = session.run(None, feeds)
        for one, other in zip(found, expected(model, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        again = session.run(None, feeds)
        assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
    (only,) = session.run(["p"], feeds)
    assert np.array_equal(only, found[1])


def held():
    """Bytes of this process that no file is behind."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what a process holds")
def test_shapes_that_came_before_hold_no_memory_to_run_in():
    session = cc.InferenceSession(network().SerializeToString(), threads=1)
    feeds = [{"x": normal(1, 3, 500 + 8 * number, 500)} for number in range(10)]
    first = session.run(["p"], feeds[0])[0]
    session.run(["p"], feeds[1])
    gc.collect()
    before = held()
    for each in feeds[2:]:
        session.run(["p"], each)
    gc.collect()
    assert held() - before < 3 * 13 * 500 * 500 * 4, "eight shapes more, of which each needs two such pictures"
    assert np.array_equal(session.run(["p"], feeds[0])[0], first)


@pytest.mark.usefixtures("unfrozen")
def test_shapes_share_the_kernels_of_the_first():
    session = cc.InferenceSession(network().SerializeToString(), threads=2)
    counts = []
    for shape in [(1, 3, 40, 33), (2, 3, 41, 47), (5, 3, 64, 65)]:
        session.run(None, {"x": normal(*shape)})
        gc.collect()  # kernels of sessions that are gone do not count
        counts.append(sum(type(item) is RangeKernel and "address" in vars(item) for item in gc.get_objects()))
    assert counts[0] == counts[1] == counts[2] > 0


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 2048), (2048, 40)),
        ((70, 33), (33, 65)),
        ((3, 2, 50, 64), (3, 2, 64, 31)),
        ((4, 17, 9), (9, 100)),
        ((2, 5, 7), (1, 7, 96)),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_products(a, b, constant, threads):
    left, right = normal(*a), normal(*b)
    inputs = [("a", F, list(a))] + ([] if constant else [("b", F, list(b))])
    model = made([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, ["y"], {"b": right} if constant else {})
    feeds = {"a": left} if constant else {"a": left, "b": right}
    found = Session(graph_of(model), threads=threads, native=True).run(None, feeds)[0]
    np.testing.assert_allclose(found, left @ right, rtol=1e-4, atol=1e-4)


CONVOLUTIONS = [
    ((2, 4, 19, 23), (6, 4, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((1, 8, 31, 9), (12, 2, 5, 3), {"group": 4, "dilations": [2, 1], "pads": [4, 1, 4, 1]}),
    ((3, 6, 40), (10, 6, 4), {"strides": [3], "pads": [5, 2]}),
    ((1, 16, 28, 28), (16, 1, 3, 3), {"group": 16, "pads": [1, 1, 1, 1]}),
    ((2, 6, 11, 30), (12, 1, 3, 5), {"group": 6, "pads": [0, 2, 1, 3], "strides": [2, 3], "dilations": [2, 1]}),
    ((1, 5, 3, 2), (7, 5, 3, 3), {"pads": [3, 4, 4, 3]}),
    ((2, 33, 14, 14), (50, 33, 1, 1), {}),
]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_convolutions(x, w, attributes, threads):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    model = made([node], [("x", F, list(x))], ["y"], {"w": normal(*w), "b": normal(w[0])})
    feeds = {"x": normal(*x)}
    found = Session(graph_of(model), threads=threads, native=True).run(None, feeds)[0]
    np.testing.assert_allclose(found, expected(model, feeds)[0], rtol=1e-4, atol=1e-4)


def chain():
    nodes = [helper.make_node("Exp", ["x"], ["e"])]
    names = ["Tanh", "Erf", "Abs", "Sqrt", "Neg", "Sigmoid", "Log", "Floor", "Softplus"]
    before = "e"
    for index, name in enumerate(names):
        nodes.append(helper.make_node(name, [before], [f"v{index}"]))
        before = f"v{index}"
    nodes.append(helper.make_node("Add", [before, "row"], ["added"]))
    nodes.append(helper.make_node("Mul", ["added", "column"], ["y"]))
    return made(nodes, [("x", F, ["a", "b"])], ["y"], {"row": normal(1, 70), "column": normal(90, 1)})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_chain_with_broadcasting(threads):
    model, feeds = chain(), {"x": normal(90, 70)}
    found = Session(graph_of(model), threads=threads).run(None, feeds)[0]
    np.testing.assert_allclose(found, expected(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_shapes_that_depend_on_data():
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Cast", ["where"], ["f"], to=F),
        helper.make_node("Shape", ["f"], ["s"]),
        helper.make_node("Expand", ["one", "s"], ["ones"]),
        helper.make_node("Add", ["f", "ones"], ["a"]),
        helper.make_node("Exp", ["a"], ["e"]),
        helper.make_node("Neg", ["e"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Sub", ["r", "t"], ["y"]),
    ]
    model = made(nodes, [("x", F, [4, 5])], ["y"], {"one": np.ones(1, np.float32)})
    session = cc.InferenceSession(model.SerializeToString())
    for count in (3, 7, 0, 3):
        x = np.zeros((4, 5), np.float32)
        x.reshape(-1)[:count] = 2
        found, right = session.run(None, {"x": x})[0], expected(model, {"x": x})[0]
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_many_threads_at_once():
    model = network()
    session = cc.InferenceSession(model.SerializeToString(), threads=2)
    feeds = [{"x": normal(1, 3, 20 + index, 30)} for index in range(6)]
    alone = [session.run(None, feed) for feed in feeds]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            for one, other in zip(pool.map(lambda feed: session.run(None, feed), feeds), alone, strict=True):
                assert all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


def test_results_are_the_callers():
    session = Session(graph_of(chain()), threads=1)
    first = session.run(None, {"x": np.zeros((90, 70), np.float32)})[0]
    kept = first.copy()
    session.run(None, {"x": normal(90, 70)})
    assert np.array_equal(first, kept)
    first[:] = 5
    assert np.array_equal(session.run(None, {"x": np.zeros((90, 70), np.float32)})[0], kept)


WRONG = [
    ({}, "E-RUN-INPUT"),
    ({"y": np.zeros((90, 70), np.float32)}, "E-RUN-INPUT"),
    ({"x": np.zeros((90, 70))}, "E-RUN-DTYPE"),
    ({"x": np.zeros(70, np.float32)}, "E-RUN-SHAPE"),
    ({"x": np.array([["a"]])}, "E-RUN-DTYPE"),
]


@pytest.mark.parametrize(("feeds", "code"), WRONG)
def test_feeds_that_do_not_fit(feeds, code):
    with pytest.raises(cc.UsageError) as caught:
        Session(graph_of(chain())).run(None, feeds)
    assert caught.value.code == code


def test_other_libraries_arrays():
    session = Session(graph_of(chain()))
    x = normal(90, 70)
    right = session.run(None, {"x": x})[0]
    for fed in (torch.from_numpy(x), torch.from_numpy(x).requires_grad_(), cc.StoredTensor.of(x), np.asfortranarray(x)):
        assert np.array_equal(session.run(None, {"x": fed})[0], right)


def test_taps():
    model, seen = network(), {}
    x = normal(1, 3, 9, 8)
    session = cc.InferenceSession(model.SerializeToString())
    session.run_with_taps({"x": x}, "^(r|soft|n)$", seen.__setitem__)
    assert set(seen) == {"r", "soft", "n"}
    np.testing.assert_allclose(seen["r"], np.maximum(seen["n"], 0))
    np.testing.assert_allclose(seen["soft"].sum(-1), 1, rtol=1e-5)


def test_too_much_memory_is_refused():
    session = Session(graph_of(chain()))
    with cc.limits(memory="10KB"), pytest.raises(cc.LimitError) as caught:
        session.run(None, {"x": normal(90, 70)})
    assert caught.value.code == "E-RUN-MEMORY"


def test_what_a_session_says_of_itself():
    session = cc.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 3, "h", "w"])
    assert [item.name for item in session.get_outputs()] == ["y", "p"]
    with pytest.raises(cc.UsageError), pytest.warns(UserWarning, match="Abacus"):
        cc.InferenceSession(network().SerializeToString(), providers=["AbacusExecutionProvider"])
    with pytest.raises(cc.UsageError):
        session.run(["z"], {"x": normal(1, 3, 9, 8)})


def test_inplace_inputs_are_overwritten_and_others_are_not():
    nodes = [
        helper.make_node("TensorScatter", ["past", "new", "place"], ["whole"], axis=1),
        helper.make_node("Identity", ["whole"], ["present"]),
        helper.make_node("ReduceSum", ["whole"], ["total"], keepdims=0),
    ]
    inputs = [("past", F, [1, 6, 4]), ("new", F, [1, 1, 4]), ("place", TensorProto.INT64, [1])]
    model = made(nodes, inputs, ["present", "total"], opset=24)
    new, place = normal(1, 1, 4), np.array([2], np.int64)
    for inplace_inputs in ((), ("past",)):
        past = normal(1, 6, 4)
        want = past.copy()
        want[:, 2] = new[:, 0]
        session = Session(graph_of(model), native=True, threads=1, inplace_inputs=inplace_inputs)
        present, total = session.run(None, {"past": past, "new": new, "place": place})
        np.testing.assert_array_equal(present, want)
        np.testing.assert_allclose(total, want.sum(), rtol=1e-5)
        assert (present is past) == bool(inplace_inputs)
        assert (past == want).all() == bool(inplace_inputs)


DEFAULTED = """
<ir_version: 9, opset_import: ["" : 18]> g (float[n,4] x, float[4] w) => (float[n,4] y)
<float[4] w = {1.0, 2.0, 3.0, 4.0}> { y = Mul (x, w) }
"""


def test_inputs_with_defaults_are_fed_or_not():
    session = Session(graph_of(onnx.parser.parse_model(DEFAULTED)), native=True, threads=1)
    ones, twos = np.ones((2, 4), "f4"), np.full(4, 2, "f4")
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": ones})[0], [[1, 2, 3, 4]] * 2)
        np.testing.assert_array_equal(session.run(None, {"x": ones, "w": twos})[0], [[2] * 4] * 2)
        np.testing.assert_array_equal(session.run(None, {"x": ones[:1]})[0], [[1, 2, 3, 4]])
        with pytest.raises(cc.UsageError, match="E-RUN-INPUT"):
            session.run(None, {"w": twos})


def test_defaults_are_constants_until_they_are_fed():
    weights = {"w": RNG.normal(size=(32, 4, 3, 3)).astype(np.float32), "b": RNG.normal(size=32).astype(np.float32)}
    model = made(
        [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        [("x", TensorProto.FLOAT, [1, 4, 12, 12])],
        ["y"],
        weights,
    )
    model.graph.input.extend(helper.make_tensor_value_info(name, 1, array.shape) for name, array in weights.items())
    session, peer = Session(graph_of(model), native=True), onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {"x": RNG.normal(size=(1, 4, 12, 12)).astype(np.float32)}
    for changes in ({}, {"b": weights["b"] + 1}, {"w": 2 * weights["w"], "b": weights["b"]}, {}):
        (expected,) = peer.run(None, feeds | changes)
        np.testing.assert_allclose(session.run(None, feeds | changes)[0], expected, rtol=1e-5, atol=1e-5)
        tapped = {}
        session.run_with_taps(feeds | changes, "^y$", tapped.__setitem__)
        np.testing.assert_allclose(tapped["y"], expected, rtol=1e-5, atol=1e-5)
    assert [value.name for value in session.program.inputs] == ["x"]


def test_new_shapes_pack_no_weight_again():
    weights = {
        "one": RNG.normal(size=(64, 96)).astype(np.float32),
        "other": RNG.normal(size=(96, 32)).astype(np.float32),
    }
    steps = ("MatMul", ["x", "one"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "other"], ["y"])
    nodes = [helper.make_node(*step) for step in steps]
    session = Session(graph_of(made(nodes, [("x", TensorProto.FLOAT, ["rows", 64])], ["y"], weights)), native=True)
    counts = []
    for rows in (20, 30, 40):
        session.run(None, {"x": np.ones((rows, 64), np.float32)})
        counts.append(len(session.packed))
    assert len(set(counts)) == 1


def test_keywords_for_type_checkers_are_the_options():
    fields = {field.name: field.type for field in dataclasses.fields(SessionOptions)}
    assert {"threads": "int | None", **SessionKeywords.__annotations__}.keys() == fields.keys()
    for name, declared in SessionKeywords.__annotations__.items():
        assert declared.__forward_arg__ == fields[name]


def test_a_keyword_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="threds"):
        Session(graph_of(chain()), threds=1)
