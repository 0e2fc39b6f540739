"""Models with If, Loop and Scan, as text, and their outputs in our session and in onnxruntime."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx
from candle_convert.runtime.session import Session
from onnx import parser

OPSET = 18
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def model(text, opset=OPSET):
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(made)
    return made


def run(made, native=None, **feeds):
    return Session(onnx_graph.graph_of(made), native=native).run(None, feeds)


def by_onnxruntime(made, **feeds):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def same(made, **feeds):
    expected = by_onnxruntime(made, **feeds)
    for native in (False, True):
        got = run(made, native, **feeds)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            if isinstance(other, list):
                assert [item.tolist() for item in one] == [item.tolist() for item in other]
            else:
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(one, other, rtol=1e-6)
    return got


BRANCHES = """
g (bool c, float[2, 3] x) => (float[a, b] y, float[2, 3] z) {
  k = Constant <value = float[1] {2.0}> ()
  y, z = If (c) <
    then_branch = g1 () => (float[2, 3] a, float[2, 3] b) { a = Mul (x, k) b = Identity (x) },
    else_branch = g2 () => (float[3, 2] a2, float[2, 3] b2) {
      a2 = Transpose (x)
      b2 = If (c) <
        then_branch = g3 () => (float[2, 3] d) { d = Neg (x) },
        else_branch = g4 () => (float[2, 3] e) { e = Add (x, k) }
      >
    }
  >
}"""
