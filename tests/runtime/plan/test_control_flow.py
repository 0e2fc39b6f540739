"""Plans of If, Loop and Scan: what is decided ahead, what repeats without Python, what is counted; against
onnxruntime."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.plan.plan import Branch, Loop, NativeSegment, PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.control_flow_models import BRANCHES, OPSET, X, by_onnxruntime, model, same
from onnx import parser


def steps(made, **feeds):
    """The steps of the plan that runs the model, and of those behind it."""
    session = Session(onnx_graph.graph_of(made), native=True)
    session.run(None, feeds)
    found, pending = [], [session.program]
    while pending:
        for runner in pending.pop().runners:
            found += runner.plan.steps
            pending += [runner.rest] if runner.rest is not None else []
    return found


def in_python(steps):
    return [step.node.op.name for step in steps if isinstance(step, PythonStep)]


DECIDED = """
g (float[n, m] x) => (float[k] y) {
  s = Shape (x)
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64[1] {1}> ()
  n = Gather (s, zero)
  two = Constant <value = int64 {2}> ()
  c = Equal (n, two)
  w = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
  y = If (c) <
    then_branch = g1 () => (float[k] a) { t = Mul (x, w) u = Exp (t) a = ReduceSum <keepdims = 0> (u, one) },
    else_branch = g2 () => (float[k] b) {
      minus = Constant <value = int64[1] {-1}> ()
      r = Reshape (x, minus)
      b = Neg (r)
    }
  >
}"""


def test_a_condition_on_shapes_is_decided_by_the_plan():
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {OPSET}]> {DECIDED}')
    for x in (X, np.ones((3, 4), np.float32), X):
        same(made, x=x)
        found = steps(made, x=x)
        assert not any(isinstance(step, Branch) for step in found)
        assert "If" not in in_python(found)


def test_a_condition_of_the_run_is_a_jump():
    text = BRANCHES.replace("a2 = Transpose (x)", "a2 = Exp (x)").replace("float[3, 2] a2", "float[2, 3] a2")
    for condition in (True, False, True):
        same(model(text), c=np.array(condition), x=X)
    (segment,) = steps(model(text), c=np.array(True), x=X)
    assert isinstance(segment, NativeSegment)


def test_bodies_repeat_without_python():
    text = """
g (float[2] h, float[3, 2] a) => (float[2] last, float[2, n] y) {
  last, y = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
    body = f (float[2] s, float[2] p) => (float[2] s2, float[2] out) { u = Exp (p) s2 = Add (s, u) out = Sub (u, h) }
  > (h, a)
}"""
    feeds = {"h": np.array([1, 2], np.float32), "a": np.arange(6, dtype=np.float32).reshape(3, 2)}
    same(model(text), **feeds)
    loops = [step for step in steps(model(text), **feeds) if isinstance(step, Loop)]
    assert [loop.is_native for loop in loops] == [True]


COUNTER = """
g (int64 limit, float[2] x) => (float[2] last, float[n, 2] all) {
  zero = Constant <value = int64 {0}> ()
  most = Constant <value = int64 {5}> ()
  c = Less (zero, most)
  counter, last, all = Loop ("", c, zero, x) <
    body = b (int64 i, bool goes, int64 k, float[2] s) => (bool next, int64 k2, float[2] s2, float[2] out) {
      one = Constant <value = int64 {1}> ()
      k2 = Add (k, one)
      next = Less (k2, LIMIT)
      s2 = Mul (s, x)
      out = Identity (s)
    }
  >
}"""


@pytest.mark.parametrize("limit", ["most", "limit"])
def test_counters_are_counted_ahead(limit):
    made = model(
        COUNTER.replace('""', "").replace("LIMIT", limit).replace("c = Less (zero, most)", "c = Less (zero, most)")
    )
    feeds = {"limit": np.array(3), "x": np.array([2, 3], np.float32)}
    same(made, **feeds)
    assert any(isinstance(step, Loop) for step in steps(made, **feeds))


SWAPPED = """
g (int64 m, float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] kept) {
  a, b, kept = Loop (m, , x, z, x) <
    body = b (int64 i, bool goes, float[2] s, float[2] t, float[2] u) =>
      (bool next, float[2] t2, float[2] s2, float[2] u2) {
      t2 = Identity (t)
      s2 = Identity (s)
      next = Identity (goes)
      v = Identity (u)
      u2 = Identity (v)
    }
  >
}"""


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_states_that_change_places(trips):
    same(model(SWAPPED), m=np.array(trips), x=np.array([1, 2], np.float32), z=np.array([3, 4], np.float32))


NESTED = """
g (int64 m, float[2, 3] x) => (float[2, 3] y, float[n, 2] rows) {
  y, rows = Loop (m, , x) <
    body = outer (int64 i, bool goes, float[2, 3] s) => (bool next, float[2, 3] s2, float[2] row) {
      next = Identity (goes)
      start = Constant <value = float[2] {0.5, 1.5}> ()
      row, parts = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
        body = inner (float[2] h, float[2] e) => (float[2] h2, float[2] p) {
          one = Constant <value = int64 {1}> ()
          odd = Equal (i, one)
          h2 = If (odd) <
            then_branch = t () => (float[2] a) { a = Add (h, e) },
            else_branch = f () => (float[2] b) { b = Sub (h, e) }
          >
          p = Mul (h2, e)
        }
      > (start, s)
      s2 = Add (parts, s)
    }
  >
}"""


@pytest.mark.parametrize("trips", [1, 3])
def test_control_flow_inside_control_flow(trips):
    made = model(NESTED)
    same(made, m=np.array(trips), x=X / 7)
    assert not in_python(steps(made, m=np.array(trips), x=X / 7))


def test_inputs_that_steer_are_part_of_the_plan_while_they_have_few_values():
    made = model(COUNTER.replace('""', "").replace("LIMIT", "limit"))
    session = Session(onnx_graph.graph_of(made), native=True)
    x = np.array([2, 3], np.float32)
    for limit in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 1, 11):
        feeds = {"limit": np.array(limit), "x": x}
        for one, other in zip(session.run(None, feeds), by_onnxruntime(made, **feeds), strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(session.program.plans) == 9


def test_what_a_scan_begins_with_steers_nothing():
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {OPSET}]>
    g (int64[1] start, int64[n] x) => (int64[1] last, int64[n, 1] sums) {{
      last, sums = Scan <num_scan_inputs = 1, body = b (int64[1] before, int64 item) =>
        (int64[1] after, int64[1] sum) {{
        after = Add (before, item)
        sum = Identity (after)
      }}> (start, x)
    }}""")
    session = Session(onnx_graph.graph_of(made), native=True)
    for start in (1, 2, 3):
        feeds = {"start": np.array([start]), "x": np.array([4, 5])}
        for one, other in zip(session.run(None, feeds), by_onnxruntime(made, **feeds), strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(session.program.plans) == 1
