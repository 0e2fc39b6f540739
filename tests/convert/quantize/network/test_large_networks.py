"""Networks larger than the memory they are quantized in, and weights that loops carry as state."""

import tracemalloc

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.pattern.replace_nodes import graphs
from candle_convert.runtime.passes.simplify.loop_invariant import HoistLoopInvariants
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor import recomputed
from candle_convert.tests.oracles.exact_onnxruntime import exact_session
from onnx import TensorProto, helper, numpy_helper, parser

SIDE, COUNT = 640, 18
WEIGHT = 4 * SIDE * SIDE


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Products with weights of 1.6 MB, some of them transposed first."""
    rng = np.random.default_rng(3)
    nodes, weights = [], []
    for index in range(COUNT):
        weights.append(numpy_helper.from_array((rng.normal(size=(SIDE, SIDE)) / 20).astype(np.float32), f"w{index}"))
        source = f"w{index}"
        if index % 3 == 2:
            nodes.append(helper.make_node("Transpose", [source], [f"t{index}"]))
            source = f"t{index}"
        nodes.append(helper.make_node("MatMul", [f"h{index}", source], [f"p{index}"]))
        nodes.append(helper.make_node("Tanh", [f"p{index}"], [f"h{index + 1}"]))
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", SIDE]) for name in ("h0", f"h{COUNT}")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    path = tmp_path_factory.mktemp("large") / "in.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    for kind in ("int8", "f16"):  # loads what commands load
        assert (
            run(["quantize", str(path), str(path.with_name("unused.onnx")), kind, "-qf", "--max-memory", "16MB"]) == 0
        )
    return path


@pytest.mark.parametrize(
    "arguments", [["int8"], ["int4"], ["int4", "--quant-format", "qdq"], ["f16"], ["fp8"]], ids=" ".join
)
def test_weights_are_quantized_one_at_a_time(large, arguments, tmp_path, capsys):
    out = tmp_path / "out.onnx"
    recomputed.forget()
    tracemalloc.start()
    try:
        assert run(["quantize", str(large), str(out), *arguments, "--max-memory", "16MB", "--threads", "1"]) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * WEIGHT < COUNT * WEIGHT
    assert "--max-memory allows" in capsys.readouterr().out
    x = np.random.default_rng(4).normal(size=(2, SIDE)).astype(np.float32)
    (right,) = onnxruntime.InferenceSession(str(large), providers=["CPUExecutionProvider"]).run(None, {"h0": x})
    (found,) = cc.InferenceSession(out).run(None, {"h0": x})
    assert ((right - found) ** 2).sum() < 0.4 * (right**2).sum()
    if arguments[0] in ("int8", "f16"):
        (peer,) = exact_session(out, "ORT_ENABLE_ALL").run(None, {"h0": x})
        np.testing.assert_allclose(found, peer, atol=0.05)


def test_what_is_deferred_is_the_same_on_every_reading():
    calls = []

    def make():
        calls.append(1)
        return [np.arange(1 << 19, dtype=np.float32), None, np.float32(2)]

    whole, nothing, small = recomputed.tensors(make)
    recomputed.forget()
    assert nothing is None
    assert (float(small.numpy()), len(calls)) == (2, 1)
    assert whole.storage.sequential
    np.testing.assert_array_equal(whole.numpy(), np.arange(1 << 19))
    assert bytes(whole.storage.read(8, 16)) == np.array([2, 3], np.float32).tobytes()
    assert len(calls) == 2


CARRIED = """g (int64 m, float[2, 4] x) => (last, W, copy) {
  c = Constant <value = int32 {1}> () true = Cast <to = 9> (c) W = Identity (w)
  last, kept, again, copy = Loop (m, true, x, w, w, b) <
    body = f (int64 i, bool goes, float[2, 4] s, float[4, 4] u, float[4, 4] v, float[4] z) =>
      (bool next, float[2, 4] s2, float[4, 4] u2, float[4, 4] v2, float[4] z2) {
      next = Identity (goes) p = MatMul (s, u) q = MatMul (p, v) r = Add (q, z) s2 = Tanh (r)
      u1 = Identity (u) u2 = Identity (u1) v2 = Identity (v) z2 = Identity (z)
    }
  >
}"""


def carried():
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {CARRIED}')
    rng = np.random.default_rng(6)
    made.graph.initializer.extend(
        [
            numpy_helper.from_array(rng.normal(size=(4, 4)).astype(np.float32), "w"),
            numpy_helper.from_array(rng.normal(size=4).astype(np.float32), "b"),
        ]
    )
    return made


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_states_that_stay_are_values_from_around(trips):
    made, feeds = carried(), {"m": np.array(trips), "x": np.ones((2, 4), np.float32)}
    right = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    graph = graph_of(made)
    assert HoistLoopInvariants().run(graph)
    (loop,) = [node for node in graph.nodes if node.op.name == "Loop"]
    assert [value.name for value in loop.inputs[2:]] == ["x"]
    assert len(loop.attributes["body"].inputs) == 3
    for one, other in zip(Session(graph).run(None, feeds), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert not HoistLoopInvariants().run(graph)


def test_a_weight_that_loops_carry_is_quantized_once(tmp_path):
    (tmp_path / "in.onnx").write_bytes(carried().SerializeToString())
    assert run(["quantize", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), "int8", "-q"]) == 0
    graph = cc.open(tmp_path / "out.onnx")
    matrices = [tensor for inner in graphs(graph) for tensor in inner.weights.values() if len(tensor.shape) == 2]
    assert sorted(tensor.dtype.name for tensor in matrices) == ["f32", "i8"]
    feeds = {"m": np.array(2), "x": np.ones((2, 4), np.float32)}
    peer = onnxruntime.InferenceSession(tmp_path / "in.onnx", providers=["CPUExecutionProvider"])
    outputs = [session.run(None, feeds) for session in (Session(graph), exact_session(tmp_path / "out.onnx"), peer)]
    for one, other, right in zip(*outputs, strict=True):
        np.testing.assert_allclose(one, right, atol=0.02)
        np.testing.assert_allclose(other, right, atol=0.02)
