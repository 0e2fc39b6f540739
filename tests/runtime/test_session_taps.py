"""Taps: intermediate values in the order of computation, one at a time, from subgraphs and functions too, in memory
that does not grow with them."""

import tracemalloc
import weakref

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.session import Session
from onnx import parser

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


def model(text, opset=18, functions=""):
    imports = f'["" : {opset}, "f" : 1]' if functions else f'["" : {opset}]'
    return parser.parse_model(f"<ir_version: 8, opset_import: {imports}> {text} {functions}")


def tapped(made, pattern, native, **feeds):
    seen = []
    found = Session(graph_of(made), threads=1, native=native).run_with_taps(
        feeds, pattern, lambda name, array: seen.append((name, array))
    )
    return found, seen


def by_onnxruntime(made, names, **feeds):
    wider = onnx.ModelProto()
    wider.CopyFrom(made)
    del wider.graph.output[:]
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(wider.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )


CHAIN = """g (float[2, n] x) => (y, z) {
  a = Exp (x) b = Neg (a) c = Add (a, b) d = Tanh (b) t = Transpose (d) e = MatMul (d, t) f = Softmax (e) y = Relu (f)
  one = Constant <value = int64[1] {1}> () z, i = TopK (d, one)
}"""


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("pattern", [".", "^[bdf]$", "^t$|y", "nothing"])
def test_values_come_in_order(pattern, native):
    made = model(CHAIN)
    found, seen = tapped(made, pattern, native, x=X)
    order = [value.name for node in graph_of(made).nodes for value in node.outputs]
    names = [name for name, _ in seen]
    assert names == [name for name in order if name in names]
    assert pattern != "." or len(names) == 10
    for array, right in zip(
        [array for _, array in seen], by_onnxruntime(made, names, x=X) if names else [], strict=True
    ):
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-7)
    for one, other in zip(found, Session(graph_of(made), native=native).run(None, {"x": X}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


CONTROL = """g (bool c, float[2, 3] x) => (y, rows) {
  three = Constant <value = int64 {3}> ()
  [choice] u = If (c) <
    then_branch = t () => (float[2, 3] a) { v = Neg (x) a = Mul (v, v) },
    else_branch = e () => (float[2, 3] b) { v = Abs (x) b = Add (v, v) }
  >
  y, rows = Loop (three, , u) <
    body = body (int64 i, bool goes, float[2, 3] s) => (bool next, float[2, 3] s2, float[2, 3] out) {
      next = Identity (goes)
      [inner] w = If (c) < then_branch = p () => (float[2, 3] h) { h = Exp (s) },
                          else_branch = q () => (float[2, 3] k) { k = Neg (s) } >
      s2 = Tanh (w)
      out = Identity (s)
    }
  >
}"""


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("condition", [True, False])
def test_subgraphs_have_their_path(condition, native):
    made = model(CONTROL.replace("[choice] ", "").replace("[inner] ", ""))
    made.graph.node[1].name = "choice"
    made.graph.node[2].attribute[0].g.node[1].name = "inner"
    (y, rows), seen = tapped(made, "", native, c=np.array(condition), x=X)
    chosen, other = ("then_branch", "else_branch") if condition else ("else_branch", "then_branch")
    branch, result = f"choice/{chosen}/", "a" if condition else "b"
    each = ["y/body/next", f"y/body/inner/{chosen}/{'h' if condition else 'k'}", "y/body/w", "y/body/s2", "y/body/out"]
    assert [name for name, _ in seen if name != "three"] == [branch + "v", branch + result, "u", *each * 3, "y", "rows"]
    assert not any(other in name for name, _ in seen)
    values = dict(seen)
    np.testing.assert_array_equal(values[branch + "v"], -X if condition else X)
    states = [array for name, array in seen if name == "y/body/s2"]
    np.testing.assert_array_equal(states[-1], y)
    np.testing.assert_array_equal(rows[1:], states[:-1])
    for one, right in zip((y, rows), by_onnxruntime(made, ["y", "rows"], c=np.array(condition), x=X), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5)


CALL = '<domain: "f", opset_import: ["" : 18]> Twice (p) => (q) { r = Exp (p) q = Add (r, r) }'


@pytest.mark.parametrize("native", [False, True])
def test_functions_have_the_name_of_their_call(native):
    made = model("g (float[2, 3] x) => (y) { z = f.Twice (x) y = f.Twice (z) }", functions=CALL)
    made.graph.node[0].name = "first"
    made.graph.node[1].name = "second"
    (y,), seen = tapped(made, "", native, x=X)
    assert [name for name, _ in seen] == ["first/r", "z", "second/r", "y"]
    np.testing.assert_allclose(y, 2 * np.exp(2 * np.exp(X)), rtol=1e-5)
    np.testing.assert_array_equal(seen[-1][1], y)


SHAPED = """g (float[2, 3] x) => (y) {
  w = NonZero (x) a = Cast <to = 1> (w) b = Exp (a) c = Neg (b) d = Relu (c)
  e = Tanh (d) f = Abs (e) h = Exp (f) y = Sin (h)
}"""


def test_values_behind_a_shape_that_depends_on_data():
    made = model(SHAPED)
    _, seen = tapped(made, "^[abfh]$", True, x=X)
    assert [name for name, _ in seen] == ["a", "b", "f", "h"]
    for (_, array), right in zip(seen, by_onnxruntime(made, ["a", "b", "f", "h"], x=X), strict=True):
        np.testing.assert_allclose(array, right, rtol=1e-5)


def deep(count, operator):
    nodes = "".join(f"v{k + 1} = {operator} (v{k}{', axis' if operator == 'CumSum' else ''}) " for k in range(count))
    return model(f"g (float[n, n] v0) => (v{count}) {{ axis = Constant <value = int64 {{0}}> () {nodes} }}")


@pytest.mark.parametrize("operator", ["Neg", "CumSum"])
def test_memory_does_not_grow_with_the_number_of_taps(operator):
    x = np.ones((300, 300), np.float32)
    peaks = []
    for count in (10, 120):
        session = Session(graph_of(deep(count, operator)), threads=1, native=True)
        alive: list[weakref.ref] = []
        session.run_with_taps({"v0": x}, "v", lambda name, array, alive=alive: alive.append(weakref.ref(array)))
        assert len(alive) == count
        tracemalloc.start()
        session.run_with_taps({"v0": x}, "v", lambda name, array, alive=alive: alive.append(weakref.ref(array)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert not any(ref() is not None for ref in alive)
    assert peaks[1] < peaks[0] + x.nbytes
    assert peaks[1] < 8 * x.nbytes


def test_what_a_tap_keeps_is_its_own():
    session = Session(graph_of(deep(6, "Neg")), threads=1, native=True)
    kept = {}
    x = np.ones((3, 3), np.float32)
    (y,) = session.run_with_taps({"v0": x}, "v", kept.__setitem__)
    for name, array in kept.items():
        assert array.max() == (1 if int(name[1:]) % 2 == 0 else -1)
        array[:] = 7
    assert y.max() == 1
    assert session.run(None, {"v0": x})[0].max() == 1


def test_a_tap_that_raises_ends_the_run():
    session = Session(graph_of(deep(50, "CumSum")), threads=1, native=True)
    seen = []

    def stop(name, array):
        seen.append(name)
        if len(seen) == 3:
            raise KeyError(name)

    x = np.ones((3, 3), np.float32)
    with pytest.raises(KeyError):
        session.run_with_taps({"v0": x}, "v", stop)
    assert seen == ["v1", "v2", "v3"]
    assert (
        cc.InferenceSession(graph_of(deep(2, "Neg"))).run_with_taps({"v0": x}, "v", lambda name, array: None)[0].max()
        == 1
    )
