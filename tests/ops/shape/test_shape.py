"""Operators that move elements: old opsets and drawn arguments against their oracles, every dtype, shape arithmetic,
refusals."""

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import onnx
import pytest
from candle_convert.runtime.base.errors import FormatError, LimitError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model, with_onnxruntime, with_reference
from onnx import helper

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def run(name, example, opset=None):
    made, feeds = model(operator(name), example, opset)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)


def by_onnxruntime(name, example, opset):
    import onnxruntime

    made, feeds = model(operator(name), example, opset)
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


OLD = [
    ("Reshape", 7, case(X, np.array([0, -1]))),
    ("Squeeze", 7, case(X[:1], axes=[0])),
    ("Squeeze", 12, case(X[:, :1, :1])),
    ("Squeeze", 11, case(X[:, :, :1], axes=[-1])),
    ("Unsqueeze", 7, case(X, axes=[0, 4])),
    ("Unsqueeze", 11, case(X, axes=[-1])),
    ("Slice", 7, case(X, starts=[1, -3], ends=[9, -1], axes=[0, 2])),
    ("Slice", 9, case(X, starts=[0, 1], ends=[1, 2])),
    ("Slice", 10, case(X, np.array([0]), np.array([2]), np.array([2]), np.array([2]))),
    ("TopK", 7, case(X, k=2, outputs=2)),
    ("TopK", 10, case(X, np.array([2]), axis=1, outputs=2)),
    ("Pad", 7, case(X, pads=[0, 1, 0, 2, 0, 1], value=1.5)),
    ("Pad", 7, case(X, pads=[0, 1, 0, 0, 0, 1], mode="reflect")),
    ("Pad", 10, case(X, pads=[0, -1, 0, 0, 0, 1], mode="edge")),
    ("Pad", 13, case(X, np.array([0, 1, 0, 0, 0, 1]), np.array(2, np.float32))),
    ("Split", 7, case(X, axis=2, split=[1, 3], outputs=2)),
    ("Split", 11, case(X, axis=-1, outputs=2)),
    ("Split", 13, case(X, np.array([1, 2]), axis=1, outputs=2)),
    ("Split", 17, case(X, axis=2, outputs=4)),
    ("Scatter", 9, case(X, np.array([[[1, 0, 1, 0]]]), X[1:, 1:2], axis=0)),
    ("ScatterElements", 11, case(X, np.array([[[1, -1, 1, 0]]]), X[1:, 1:2], axis=1)),
    ("ScatterND", 11, case(X, np.array([[1, 2]]), X[0, :1])),
    ("ScatterND", 16, case(X, np.array([[1, 2], [1, 2]]), X[0, :2], reduction="add")),
    ("GatherND", 11, case(X, np.array([[1, 2]]))),
    ("Gather", 7, case(X, np.array([1, 1]), axis=1)),
    ("Concat", 7, case(X, X, axis=1)),
    ("Tile", 7, case(X, np.array([1, 2, 1]))),
    ("Expand", 8, case(X[:1], np.array([2, 1, 4]))),
    ("OneHot", 9, case(np.array([1, 2]), np.array(4), np.array([0, 1], np.float32))),
    ("DepthToSpace", 7, case(np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2), blocksize=2)),
    ("SpaceToDepth", 7, case(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), blocksize=2)),
    ("Compress", 9, case(X, np.array([True, False, True]), axis=1)),
    ("Flatten", 7, case(X, axis=2)),
    ("Shape", 13, case(X)),
    ("ConstantOfShape", 9, case(np.array([2, 3]))),
    ("EyeLike", 9, case(X[0], k=1)),
    ("Range", 11, case(np.array(1, np.float32), np.array(3, np.float32), np.array(0.7, np.float32))),
    ("Range", 11, case(np.array(7, np.int16), np.array(-3, np.int16), np.array(-4, np.int16))),
    ("NonZero", 9, case(np.array([[0, 1], [2, 0]], np.int64))),
    ("NonZero", 13, case(np.array(3.0, np.float32))),
    ("Unique", 11, case(np.array([[2, 1], [2, 1], [0, 3]], np.float32), axis=0, sorted=0, outputs=4)),
    ("ReverseSequence", 10, case(X, np.array([1, 3]), batch_axis=0, time_axis=1)),
    ("Trilu", 14, case(X, np.array(-1), upper=0)),
]


@pytest.mark.parametrize(
    ("name", "opset", "example"), OLD, ids=[f"{name}-{opset}-{index}" for index, (name, opset, _) in enumerate(OLD)]
)
def test_old_opsets(name, opset, example):
    same(run(name, example, opset), by_onnxruntime(name, example, opset))


FIRST = [
    ("Reshape", 1, case(X, shape=[4, -1]), [X.reshape(4, 6)]),
    ("Concat", 1, case(X, X), [np.concatenate([X, X], 1)]),
    (
        "Pad",
        1,
        case(X, paddings=[1, 0, 0, 0, 0, 1], value=2.0),
        [np.pad(X, ((1, 0), (0, 0), (0, 1)), constant_values=2)],
    ),
    ("Tile", 1, case(X, np.array(2, np.float32), np.array(1, np.float32)), [np.tile(X, (1, 2, 1))]),
    ("Split", 1, case(X, axis=2, split=[1, 3], outputs=2), [X[..., :1], X[..., 1:]]),
    ("Split", 1, case(X, np.array([1, 3], np.float32), axis=2, outputs=2), [X[..., :1], X[..., 1:]]),
]


@pytest.mark.parametrize(
    ("name", "opset", "example", "expected"), FIRST, ids=[f"{row[0]}-{len(row[2].inputs)}" for row in FIRST]
)
def test_the_first_opset(name, opset, example, expected):
    same(run(name, example, opset), expected)


DTYPES = [
    np.float16,
    ml_dtypes.bfloat16,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    bool,
    object,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.int4,
    ml_dtypes.uint4,
]
INDICES = np.array([[0, 2, 1], [-1, 0, 2]])
MOVES = [
    ("Concat", lambda x: case(x, x[:1], axis=0), lambda x: np.concatenate([x, x[:1]])),
    ("Transpose", lambda x: case(x), lambda x: x.T),
    ("Reshape", lambda x: case(x, np.array([-1])), lambda x: x.reshape(-1)),
    ("Slice", lambda x: case(x, np.array([2]), np.array([0]), np.array([1]), np.array([-1])), lambda x: x[:, 2:0:-1]),
    ("Gather", lambda x: case(x, np.array([1, 1, 0])), lambda x: x[[1, 1, 0]]),
    ("GatherElements", lambda x: case(x, INDICES, axis=1), lambda x: np.stack([x[0, INDICES[0]], x[1, INDICES[1]]])),
    ("GatherND", lambda x: case(x, np.array([[1, 2], [0, 0]])), lambda x: x[[1, 0], [2, 0]]),
    (
        "ScatterElements",
        lambda x: case(x, np.array([[2], [0]]), x[:, :1], axis=1),
        lambda x: _put(x, [0, 1], [2, 0], x[:, 0]),
    ),
    ("ScatterND", lambda x: case(x, np.array([[1, 2], [0, 0]]), x[0, :2]), lambda x: _put(x, [1, 0], [2, 0], x[0, :2])),
    ("Expand", lambda x: case(x, np.array([2, 1, 1])), lambda x: np.stack([x, x])),
    ("Tile", lambda x: case(x, np.array([1, 2])), lambda x: np.concatenate([x, x], 1)),
    ("Split", lambda x: case(x, np.array([1, 2]), axis=1, outputs=2), lambda x: [x[:, :1], x[:, 1:]]),
    ("Pad", lambda x: case(x, np.array([0, 1, 0, 0]), mode="edge"), lambda x: x[:, [0, 0, 1, 2]]),
    ("Compress", lambda x: case(x, np.array([False, True]), axis=0), lambda x: x[1:]),
    ("Unsqueeze", lambda x: case(x, np.array([1])), lambda x: x[:, None]),
    (
        "ReverseSequence",
        lambda x: case(x, np.array([2, 1, 2])),
        lambda x: np.stack([x[::-1, 0], x[:, 1], x[::-1, 2]], 1),
    ),
]


def _put(x, rows, columns, values):
    result = x.copy()
    result[rows, columns] = values
    return result


def values_of(dtype):
    if dtype is object:
        return np.array([["a", "", "é"], ["word", "b", "c"]], object)
    return (np.arange(6).reshape(2, 3) % (2 if dtype is bool else 6)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(("name", "example", "expected"), MOVES, ids=[row[0] for row in MOVES])
def test_dtypes(name, example, expected, dtype):
    x = values_of(dtype)
    right = expected(x)
    for got, wanted in zip(run(name, example(x)), right if isinstance(right, list) else [right], strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tolist() == wanted.tolist()


def test_slices_of_every_kind():
    rng = np.random.default_rng(5)
    for _ in range(60):
        starts, ends = rng.integers(-9, 9, (2, 3))
        steps = rng.choice([-3, -2, -1, 1, 2, 3], 3)
        example = case(X, starts, ends, np.array([2, 0, 1]), steps)
        same(run("Slice", example), with_onnxruntime(operator("Slice"), example))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pads_of_every_kind(mode):
    rng = np.random.default_rng(6)
    for _ in range(20):
        pads = rng.integers(0, 9 if mode != "reflect" else 2, 6)
        example = case(X, pads, mode=mode)
        same(run("Pad", example), with_reference(operator("Pad"), example))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("length", [7, 200])
def test_top_k_keeps_the_order_of_equals(largest, length):
    x = np.random.default_rng(7).integers(0, 9, (5, length)).astype(np.float32)
    example = case(x, np.array([5]), largest=largest, outputs=2)
    same(run("TopK", example), with_onnxruntime(operator("TopK"), example))


def test_top_k_of_nan_and_infinity():
    x = np.array([[1, np.nan, np.inf, -np.inf]], np.float32)
    values, indices = run("TopK", case(x, np.array([2]), outputs=2))
    assert indices.tolist() == [[1, 2]]
    values, indices = run("TopK", case(x, np.array([2]), largest=0, outputs=2))
    assert indices.tolist() == [[3, 0]]
    assert values.tolist() == [[-np.inf, 1.0]]


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.int32, np.uint8, ml_dtypes.bfloat16], ids=lambda dtype: np.dtype(dtype).name
)
def test_scatter_with_reduction(dtype, reduction):
    data, updates = np.array([4, 2, 8, 1]).astype(dtype), np.array([3, 5, 2]).astype(dtype)
    expected = data.astype(np.float64)
    for place, value in zip([1, 1, 3], [3.0, 5.0, 2.0], strict=True):
        expected[place] = {
            "add": expected[place] + value,
            "mul": expected[place] * value,
            "max": max(expected[place], value),
            "min": min(expected[place], value),
        }[reduction]
    for name, indices in (("ScatterElements", np.array([1, 1, 3])), ("ScatterND", np.array([[1], [1], [3]]))):
        (got,) = run(name, case(data, indices, updates, reduction=reduction))
        assert got.dtype == data.dtype
        assert got.astype(np.float64).tolist() == expected.tolist()


REFUSED = [
    ("Reshape", case(X, np.array([5, 5])), UsageError),
    ("Reshape", case(X, np.array([0, 0, 0, 0])), UsageError),
    ("Squeeze", case(X, np.array([1])), UsageError),
    ("Unsqueeze", case(X, np.array([7])), UsageError),
    ("Concat", case(X, X[:, :2], axis=2), UsageError),
    ("Slice", case(X, np.array([0]), np.array([1]), np.array([0]), np.array([0])), UsageError),
    ("Gather", case(X, np.array([2])), UsageError),
    ("GatherElements", case(X, np.array([[[9]]])), UsageError),
    ("GatherND", case(X, np.array([[0, 3]])), UsageError),
    ("ScatterElements", case(X, np.array([[[2]]]), X[:1, :1, :1]), UsageError),
    ("ScatterND", case(X, np.array([[-3]]), X[:1]), UsageError),
    ("ScatterND", case(X, np.array([[1]]), X[:, 0]), UsageError),
    ("Expand", case(X, np.array([5, 1, 1])), UsageError),
    ("Expand", case(X, np.array([2**20, 2**20, 1, 1, 1])), LimitError),
    ("Tile", case(X, np.array([2**20, 2**20, 2**20])), LimitError),
    ("Range", case(np.array(0), np.array(2**40), np.array(1)), LimitError),
    ("Range", case(np.array(0), np.array(9), np.array(0)), UsageError),
    ("Range", case(np.array(0.0), np.array(np.inf), np.array(1.0)), UsageError),
    ("ConstantOfShape", case(np.array([2**20, 2**20])), LimitError),
    ("ConstantOfShape", case(np.array([-1])), UsageError),
    ("OneHot", case(np.array([1]), np.array(2**40), np.array([0, 1])), LimitError),
    ("OneHot", case(np.array([1]), np.array(-2), np.array([0, 1])), UsageError),
    ("Pad", case(X, np.array([0, 0, 0, 2**40, 0, 0])), LimitError),
    ("Pad", case(X, np.array([0, 0, 0, -3, 0, 0])), UsageError),
    ("CenterCropPad", case(X, np.array([2**40, 1, 1])), LimitError),
    ("TopK", case(X, np.array([5]), outputs=2), UsageError),
    ("Split", case(X, np.array([1, 1]), axis=2, outputs=2), UsageError),
    ("DepthToSpace", case(np.zeros((1, 3, 2, 2), np.float32), blocksize=2), UsageError),
    ("ReverseSequence", case(X, np.array([3, 1, 1])), UsageError),
    ("TensorScatter", case(X, X, np.array([0, 1]), axis=1), UsageError),
    ("Compress", case(X, np.array([True] * 3), axis=0), UsageError),
    ("Trilu", case(X[0, 0]), UsageError),
]


def inferred_and_run(made, feeds, first_inferred):
    graph = onnx_graph.graph_of(made)
    if first_inferred:
        infer(graph)
    Session(graph).run(None, feeds)


@pytest.mark.parametrize("constant", [False, True], ids=["fed", "constant"])
@pytest.mark.parametrize(
    ("name", "example", "error"), REFUSED, ids=[f"{row[0]}-{index}" for index, row in enumerate(REFUSED)]
)
def test_refused(name, example, error, constant):
    made, feeds = model(operator(name), example, constant=constant)
    for value in made.graph.output:
        value.ClearField("type")
    with pytest.raises((error, FormatError, UsageError)):
        inferred_and_run(made, feeds, constant)


def chain(*nodes, inputs, outputs, constants=()):
    """The graph of nodes given as (operator, inputs, outputs, attributes)."""
    made = [helper.make_node(name, ins.split(), outs.split(), **attributes) for name, ins, outs, attributes in nodes]
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants]
    described = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in inputs]
    graph = helper.make_graph(made, "chain", described, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shapes(made):
    graph = onnx_graph.graph_of(made)
    infer(graph)
    return [value.shape for value in graph.outputs]


CHAINS = [
    # The flattening that exporters write: Reshape(x, Concat(Gather(Shape(x), 0), -1)).
    (
        (
            ("Shape", "x", "s", {}),
            ("Gather", "s zero", "n", {}),
            ("Unsqueeze", "n axis", "m", {}),
            ("Concat", "m rest", "t", {"axis": 0}),
            ("Reshape", "x t", "y", {}),
        ),
        [("x", ["n", 3, 4])],
        ("n", 12),
    ),
    (
        (
            ("Shape", "x", "s", {}),
            ("Slice", "s one three", "t", {}),
            ("Concat", "t s", "u", {"axis": 0}),
            ("ConstantOfShape", "u", "y", {}),
        ),
        [("x", ["n", "c", 4])],
        ("c", 4, "n", "c", 4),
    ),
    ((("Shape", "x", "s", {"start": 1}), ("Expand", "x s", "y", {})), [("x", [1, "c"])], (1, "c")),
    ((("Shape", "x", "s", {}), ("Squeeze", "s", "n", {}), ("Range", "zero n unit", "y", {})), [("x", ["n"])], ("n",)),
    ((("Size", "x", "s", {}), ("Range", "zero s unit", "y", {})), [("x", [2, 3])], (6,)),
    (
        (
            ("Shape", "x", "s", {}),
            ("Reshape", "s column", "t", {}),
            ("Transpose", "t", "v", {}),
            ("Tile", "x v", "y", {}),
        ),
        [("x", [2, 3])],
        (4, 9),
    ),
    (
        (
            ("Shape", "x", "s", {}),
            ("Split", "s", "a b", {"num_outputs": 2}),
            ("Concat", "b a", "t", {"axis": 0}),
            ("Reshape", "x t", "y", {}),
        ),
        [("x", ["n", 7])],
        (7, "n"),
    ),
    ((("Reshape", "x zeros", "y", {}),), [("x", ["n", "c", 2, 3])], ("n", "c", 6)),
    ((("Flatten", "x", "y", {}),), [("x", ["n", 2, 3])], ("n", 6)),
    ((("Slice", "x zero1 far", "y", {}),), [("x", ["n", 2])], ("n", 2)),
]
CONSTANTS = [
    ("zero", np.int64(0)),
    ("unit", np.int64(1)),
    ("axis", [0]),
    ("rest", [-1]),
    ("one", [1]),
    ("three", [3]),
    ("column", [-1]),
    ("zeros", [0, 0, -1]),
    ("zero1", [0]),
    ("far", [2**63 - 1]),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "expected"), CHAINS, ids=[" ".join(node[0] for node in row[0]) for row in CHAINS]
)
def test_shapes_that_are_computed(nodes, inputs, expected):
    (shape,) = shapes(chain(*nodes, inputs=inputs, outputs=["y"], constants=CONSTANTS))
    assert shape == expected


def test_as_much_is_known_as_to_onnx():
    for nodes, inputs, _ in CHAINS:
        made = chain(*nodes, inputs=inputs, outputs=["y"], constants=CONSTANTS)
        known = onnx.shape_inference.infer_shapes(made, data_prop=True).graph.output[0].type.tensor_type
        (ours,) = shapes(made)
        if known.HasField("shape"):
            assert len(ours) == len(known.shape.dim)
            assert all(
                own == dim.dim_value
                for own, dim in zip(ours, known.shape.dim, strict=True)
                if dim.HasField("dim_value")
            )


CONTRADICTIONS = [
    ((("Concat", "x z", "y", {"axis": 1}),), [("x", [2, 3]), ("z", [4, 3])]),
    ((("Transpose", "x", "y", {"perm": [0, 0]}),), [("x", [2, 3])]),
    ((("Gather", "x zero", "y", {"axis": 5}),), [("x", [2, 3])]),
    ((("Reshape", "x zeros", "y", {}),), [("x", [2])]),
    ((("Squeeze", "x axis", "y", {}),), [("x", [2, 3])]),
    ((("Expand", "x three", "y", {}),), [("x", [2, 2])]),
    ((("Flatten", "x", "y", {"axis": 4}),), [("x", [2, 2])]),
    ((("Trilu", "x", "y", {}),), [("x", [2])]),
    ((("DepthToSpace", "x", "y", {"blocksize": 2}),), [("x", [1, 3, 2, 2])]),
]


@pytest.mark.parametrize(("nodes", "inputs"), CONTRADICTIONS, ids=[row[0][0][0] for row in CONTRADICTIONS])
def test_contradictions(nodes, inputs):
    with pytest.raises(FormatError):
        shapes(chain(*nodes, inputs=inputs, outputs=["y"], constants=CONSTANTS))


def test_limits_decide_how_much_may_be_made():
    example = case(np.array(0, np.int64), np.array(1 << 20, np.int64), np.array(1, np.int64))
    assert run("Range", example)[0].size == 1 << 20
    with cc.limits(memory="1MiB"), pytest.raises(LimitError):
        run("Range", example)
