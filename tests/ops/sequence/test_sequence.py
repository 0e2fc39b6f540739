"""Sequences and optionals: against the reference evaluator and onnxruntime, types in inference, refusals."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx
import pytest
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32, I64
from candle_convert.tests.builders.single_node import model, with_reference
from onnx import parser

TWO = [np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32)]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(name, example):
    made, feeds = model(operator(name), example)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)[0]


def parsed(text, opset=21):
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(made)
    return onnx_graph.graph_of(made)


SPLITS = [
    case(X, np.array(2)),
    case(X, np.array(5), axis=1),
    case(X, np.array([3, 0, 1]), axis=1),
    case(X, axis=1),
    case(X, axis=-1, keepdims=0),
    case(X, np.array(2), keepdims=0),
    case(X[:, :0], np.array([0, 0]), axis=1),
    case(X[:0], keepdims=0),
    case(X.astype(np.int64), np.array([1, 2], np.int32)),
]


@pytest.mark.parametrize("example", SPLITS, ids=range(len(SPLITS)))
def test_parts(example):
    expected = with_reference(operator("SplitToSequence"), example)
    assert not isinstance(expected, str), expected
    got = run("SplitToSequence", example)
    assert [item.shape for item in got] == [np.asarray(item).shape for item in expected[0]]
    for one, other in zip(got, expected[0], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_sequences_are_not_changed_in_place():
    sequence = list(TWO)
    assert len(run("SequenceInsert", case(sequence, TWO[0], np.array(1)))) == 3
    assert len(run("SequenceErase", case(sequence, np.array(-2)))) == 1
    assert [item.tolist() for item in sequence] == [item.tolist() for item in TWO]


REFUSED = [
    ("SequenceAt", case(TWO, np.array(2))),
    ("SequenceAt", case(TWO, np.array(-3))),
    ("SequenceErase", case(TWO, np.array(2))),
    ("SequenceInsert", case(TWO, TWO[0], np.array(3))),
    ("SequenceInsert", case(TWO, np.array([1], np.int64))),
    ("ConcatFromSequence", case(TWO, axis=0, new_axis=1)),
    ("ConcatFromSequence", case(TWO, axis=1)),
    ("SplitToSequence", case(X, np.array([1, 1]))),
    ("SplitToSequence", case(X, np.array(0))),
    ("SplitToSequence", case(X, axis=2)),
    ("SequenceConstruct", case(TWO[0], np.array([1], np.int64))),
]


@pytest.mark.parametrize(("name", "example"), REFUSED, ids=[f"{row[0]}-{index}" for index, row in enumerate(REFUSED)])
def test_refused(name, example):
    with pytest.raises((UsageError, FormatError)):
        run(name, example)


MAPPED = """
g (seq(float[n]) s, seq(float[n]) t, float[1] k) => (seq(float[m]) y, seq(float[l]) z) {
  y, z = SequenceMap (s, t, k) <
    body = b (float[a] p, float[c] q, float[1] r) => (float[d] u, float[e] v) {
      u = Mul (p, r) v = Concat <axis = 0> (p, q) }
  >
}"""


def test_a_body_for_each_tensor():
    graph = parsed(MAPPED)
    infer(graph)
    assert [value.container for value in graph.outputs] == [("sequence",)] * 2
    session = Session(graph)
    y, z = session.run(None, {"s": TWO, "t": TWO[::-1], "k": np.array([2], np.float32)})
    assert [item.tolist() for item in y] == [[0, 2, 4], [0, 2]]
    assert [item.tolist() for item in z] == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]]
    assert session.run(None, {"s": [], "t": [], "k": np.array([2], np.float32)}) == [[], []]
    with pytest.raises(UsageError):
        session.run(None, {"s": TWO, "t": TWO[:1], "k": np.array([2], np.float32)})


OPTIONALS = """
g (float[2] x) => (float[2] y, bool a, bool b, bool c, seq(float[2]) z) {
  o = Optional (x)
  s = SequenceConstruct (x, x)
  p = Optional (s)
  y = OptionalGetElement (o)
  z = OptionalGetElement (p)
  a = OptionalHasElement (o)
  b = OptionalHasElement (x)
  c = OptionalHasElement ()
}"""


def test_optionals():
    graph = parsed(OPTIONALS)
    infer(graph)
    assert [value.container for value in graph.outputs] == [(), (), (), (), ("sequence",)]
    containers = {value.name: value.container for value in graph.values.values() if value.name in ("o", "p")}
    assert containers == {"o": ("optional",), "p": ("optional", "sequence")}
    y, a, b, c, z = Session(graph).run(None, {"x": TWO[1]})
    assert y.tolist() == TWO[1].tolist()
    assert (bool(a), bool(b), bool(c)) == (True, True, False)
    assert len(z) == 2


def test_an_empty_optional():
    graph = parsed("g (optional(float[2]) o) => (bool a) { a = OptionalHasElement (o) }")
    assert not Session(graph).run(None, {"o": None})[0]
    graph = parsed("g (optional(float[2]) o) => (float[2] a) { a = OptionalGetElement (o) }")
    with pytest.raises(UsageError):
        Session(graph).run(None, {"o": None})


def test_types():
    graph = parsed("""g (float[2, n] x, float[3, n] w, int64 i) =>
      (seq(float[a, b]) s, float[c, d] e, float[f, h] t, int64 l, seq(int64[k]) v) {
      s = SequenceConstruct (x, w)
      e = SequenceAt (s, i)
      t = ConcatFromSequence <axis = 0> (s)
      l = SequenceLength (s)
      v = SequenceEmpty <dtype = 7> ()
    }""")
    for value in graph.outputs:
        value.shape = None
    infer(graph)
    assert [(value.dtype, value.shape, value.container) for value in graph.outputs] == [
        (F32, (None, "n"), ("sequence",)),
        (F32, (None, "n"), ()),
        (F32, (None, "n"), ()),
        (I64, (), ()),
        (I64, None, ("sequence",)),
    ]
