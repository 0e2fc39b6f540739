"""If, Loop and Scan: against onnxruntime, in old opsets, with values from around, shapes through subgraphs, budgets."""

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError, LimitError, UsageError
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.control_flow_models import BRANCHES, OPSET, X, model, run, same
from onnx import parser


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_branches(condition, opset):
    same(model(BRANCHES, opset), c=np.array(condition), x=X)


def test_shapes_of_branches():
    graph = onnx_graph.graph_of(model(BRANCHES))
    infer(graph)
    assert [value.shape for value in graph.outputs] == [("a", "b"), (2, 3)]


IMPOSSIBLE = """
g (float[2, n] x) => (float[a, b] y) {
  s = Shape (x)
  one = Constant <value = int64 {1}> ()
  n = Gather (s, zero)
  zero = Constant <value = int64 {0}> ()
  c = Equal (n, one)
  axes = Constant <value = int64[1] {0}> ()
  y = If (c) <
    then_branch = g1 () => (float[k] a) { a = Squeeze (x, axes) },
    else_branch = g2 () => (float[2, m] b) { b = Identity (x) }
  >
}"""


@pytest.mark.parametrize("condition", [False, True])
def test_branches_of_different_ranks_that_only_the_run_decides_between(condition):
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {OPSET}]> g (bool c, float[1] x) => (y) {{
      z = If (c) <then_branch = t () => (a) {{ a = Constant <value = float {{3.0}}> () }},
                  else_branch = e () => (b) {{ b = Neg (x) }}>
      y = Abs (z)
    }}""")
    for native in (False, True):
        (y,) = run(made, native, c=np.array(condition), x=np.array([2], np.float32))
        assert (y.shape, y.tolist()) == (((), 3.0) if condition else ((1,), [2.0]))


def test_a_branch_that_cannot_be_taken_is_no_contradiction():
    graph = onnx_graph.graph_of(parser.parse_model(f'<ir_version: 8, opset_import: ["" : {OPSET}]> {IMPOSSIBLE}'))
    infer(graph)
    (got,) = Session(graph).run(None, {"x": X})
    np.testing.assert_array_equal(got, X)


def test_a_condition_of_several_elements():
    made = model(BRANCHES)
    made.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError):
        run(made, c=np.array([True, False]), x=X)


LOOP = """
g (int64 m, bool c, float[2] x) => (float[2] last, float[n, 2] all, int64[k] counts) {
  last, all, counts = Loop (m, c, x) <
    body = b (int64 i, bool goes, float[2] s) => (bool next, float[2] s2, float[2] out, int64 j) {
      s2 = Add (s, x)
      out = Mul (s2, s)
      limit = Constant <value = float {20.0}> ()
      total = ReduceSum <keepdims = 0> (s2)
      next = Less (total, limit)
      j = Identity (i)
    }
  >
}"""


@pytest.mark.parametrize("opset", [13, 16, 18])
@pytest.mark.parametrize(("trips", "condition"), [(3, True), (100, True), (3, False), (0, True)])
def test_loops(trips, condition, opset):
    same(model(LOOP, opset), m=np.array(trips), c=np.array(condition), x=np.array([1, 2], np.float32))


@pytest.mark.parametrize(("trips", "condition"), [("m", ""), ("", "c"), ("", "")])
def test_loops_without_trip_count_or_condition(trips, condition):
    text = LOOP.replace("Loop (m, c, x)", f"Loop ({trips}, {condition}, x)")
    same(model(text), m=np.array(4), c=np.array(True), x=np.array([1, 2], np.float32))


SEQUENCES = """
g (int64 m, float[2] x) => (seq(float[k]) y, int64 n) {
  none = SequenceEmpty ()
  c = Constant <value = int32 {1}> ()
  true = Cast <to = 9> (c)
  y = Loop (m, true, none) <
    body = b (int64 i, bool goes, seq(float[k]) s) => (bool next, seq(float[k]) s2) {
      next = Identity (goes)
      zero = Constant <value = int64[1] {0}> ()
      axis = Constant <value = int64[1] {0}> ()
      end = Unsqueeze (i, axis)
      part = Slice (x, zero, end)
      s2 = SequenceInsert (s, part)
    }
  >
  n = SequenceLength (y)
}"""


def test_a_sequence_as_state():
    made = model(SEQUENCES)
    _, count = same(made, m=np.array(3), x=np.array([1, 2], np.float32))
    assert int(count) == 3
    graph = onnx_graph.graph_of(made)
    infer(graph)
    assert graph.outputs[0].container == ("sequence",)


def test_nothing_is_stacked_of_no_iteration():
    last, everything, counts = run(model(LOOP), m=np.array(0), c=np.array(True), x=np.array([1, 2], np.float32))
    assert last.tolist() == [1, 2]
    assert (everything.shape, everything.dtype) == ((0, 2), np.float32)
    assert (counts.shape, counts.dtype) == ((0,), np.int64)


GROWING = """
g (int64 m, float[1] x) => (float[k] last, float[n] all) {
  c = Constant <value = int32 {1}> ()
  true = Cast <to = 9> (c)
  last, all = Loop (m, true, x) <
    body = b (int64 i, bool goes, float[k] s) => (bool next, float[l] s2, float[j] out) {
      next = Identity (goes)
      s2 = Concat <axis = 0> (s, s)
      out = Identity (s)
    }
  >
}"""


def test_state_may_change_its_shape_but_not_what_is_stacked():
    with pytest.raises(UsageError, match="between iterations"):
        run(model(GROWING), m=np.array(3), x=np.array([1], np.float32))
    text = GROWING.replace(", float[n] all", "").replace("last, all = Loop", "last = Loop")
    text = text.replace(", float[j] out", "").replace("out = Identity (s)", "")
    (got,) = same(model(text), m=np.array(5), x=np.array([1], np.float32))
    assert got.shape == (32,)


FOREVER = """
g (int64 m, float[64] x) => (float[n, 64] all) {
  c = Constant <value = int32 {1}> ()
  true = Cast <to = 9> (c)
  all = Loop (m, true) <
    body = b (int64 i, bool goes) => (bool next, float[64] out) { next = Identity (goes) out = Identity (x) }
  >
}"""


@pytest.mark.parametrize("native", [False, True])
def test_loops_that_never_end(native):
    feeds = {"m": np.array(10**9), "x": np.zeros(64, np.float32)}
    with cc.limits(memory="64KiB"), pytest.raises(LimitError) as error:
        run(model(FOREVER), native, **feeds)
    assert error.value.code == "E-RUN-MEMORY"
    text = FOREVER.replace("=> (float[n, 64] all)", "=> (float[64] all)").replace("Loop (m, true)", "Loop (m, true, x)")
    text = text.replace("(int64 i, bool goes)", "(int64 i, bool goes, float[64] s)").replace("Identity (x)", "Neg (s)")
    with cc.limits(time=0.2), pytest.raises(LimitError) as error:
        run(model(text), native, **feeds)
    assert error.value.code == "E-RUN-TIME"


SCAN = """
g (float[2] h, float[3, 2] a, float[2, 4, 3] b) => (float[2] last, float[2, n] y, float[m] z) {
  last, y, z = Scan <num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [1, 0],
    scan_output_axes = [1, 0], scan_output_directions = [0, 1],
    body = f (float[2] s, float[2] p, float[2, 4] q) => (float[2] s2, float[2] out, float r) {
      axes = Constant <value = int64[1] {1}> ()
      t = ReduceSum <keepdims = 0> (q, axes)
      u = Mul (t, p)
      s2 = Add (s, u)
      out = Sub (u, h)
      r = ReduceMax <keepdims = 0> (s2)
    }
  > (h, a, b)
}"""


@pytest.mark.parametrize("opset", [13, 16, 18])
def test_scans(opset):
    rng = np.random.default_rng(1)
    same(
        model(SCAN, opset),
        **{
            name: rng.normal(size=shape).astype(np.float32)
            for name, shape in (("h", 2), ("a", (3, 2)), ("b", (2, 4, 3)))
        },
    )


def test_shapes_of_scans():
    graph = onnx_graph.graph_of(model(SCAN))
    infer(graph)
    assert [value.shape for value in graph.outputs] == [(2,), (2, 3), (3,)]


BATCHED = """
g (int64[2] lengths, float[2, 2] h, float[2, 3, 2] x) => (float[2, 2] last, float[2, 3, 2] y) {
  last, y = Scan <num_scan_inputs = 1, directions = [DIRECTION],
    body = f (float[2] s, float[2] p) => (float[2] s2, float[2] out) { s2 = Add (s, p) out = Mul (s2, p) }
  > (LENGTHS, h, x)
}"""


@pytest.mark.parametrize("direction", ["0", "1"])
@pytest.mark.parametrize("lengths", ["", "lengths"])
def test_scans_with_a_batch_axis(lengths, direction):
    made = model(BATCHED.replace("DIRECTION", direction).replace("LENGTHS", lengths), 8)
    rng = np.random.default_rng(2)
    h, x = rng.normal(size=(2, 2)).astype(np.float32), rng.normal(size=(2, 3, 2)).astype(np.float32)
    same(made, lengths=np.array([3, 2]), h=h, x=x)


def test_bodies_that_do_not_fit():
    made = model(LOOP)
    del made.graph.node[0].attribute[0].g.output[3]
    with pytest.raises(FormatError):
        infer(onnx_graph.graph_of(made))
