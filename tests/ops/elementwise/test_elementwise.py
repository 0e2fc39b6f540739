"""Math operators: every dtype of the standard, the oldest opsets, edge values, and scalar functions in Python and
Numba."""

import inspect
import math

import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numba
import numpy as np
import onnx
import pytest
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.domain import COMPLEX
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.opset_upgrade import upgrade
from candle_convert.runtime.ir.registry import operator, operators
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import BY_ONNX, DTYPES
from candle_convert.tests.builders.single_node import arrays, made_up, model, with_onnxruntime, with_reference
from candle_convert.tests.oracles.native_vs_numpy import natively

MINE = [
    op
    for op in operators().values()
    if op.compute is not None
    and op.domain != COMPLEX
    and op.compute.__module__.rsplit(".", 1)[0] == "candle_convert.ops.elementwise"
]
WITH_SCALAR = [op for op in MINE if op.scalar is not None]
ROUGH = {np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 2e-2}


def run(op, example, opset=None):
    made, feeds = model(op, example, opset)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)


def close(got, expected, rtol=1e-5):
    expected = np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if got.dtype.kind in "OUT":
        assert got.tolist() == expected.tolist()
        return
    rough = ROUGH.get(got.dtype, rtol)
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rough, atol=rough / 10)


def allowed_types(op):
    """Of the first input: our names of the standard's types that numpy and made-up values have."""
    schema = onnx.defs.get_schema(op.name, onnx.defs.onnx_opset_version(), op.domain)
    constraint = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}.get(
        schema.inputs[0].type_str, ()
    )
    names = {
        f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": dtype.name for number, dtype in BY_ONNX.items()
    }
    return [
        names[name]
        for name in constraint
        if name in names and not names[name].startswith(("c", "f4", "f8", "i2", "i4", "u2", "u4"))
    ]


def retyped(item, old, new):
    """The example's input with the dtype of the first one exchanged."""
    if isinstance(item, str):
        return item.replace(f"{old}[", f"{new}[") if item.startswith(f"{old}[") else item
    if isinstance(item, np.ndarray | np.generic) and item.dtype == DTYPES[old].as_numpy() and new != "string":
        return np.asarray(item).astype(DTYPES[new].as_numpy())
    return item


SWEEP = [
    pytest.param(op, name, id=f"{op.name}-{name}")
    for op in MINE
    if op.domain != "candle" and op.name not in ("Cast", "CastLike", "BitCast")
    for name in allowed_types(op)
    if isinstance(op.examples[0].inputs[0], str) and (op.name, name) != ("Det", "bf16")  # its only oracle gives f64
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "name"), SWEEP)
def test_every_dtype(op, name):
    first = op.examples[0]
    old = first.inputs[0].split("[")[0]
    example = case(*(retyped(item, old, name) for item in first.inputs), **first.attributes)
    (got,) = run(op, example)
    answers = [
        answer for answer in (with_onnxruntime(op, example), with_reference(op, example)) if not isinstance(answer, str)
    ]
    assert answers, "no oracle runs it"
    failures = []
    for (answer,) in answers:
        try:
            close(got, answer)
        except AssertionError as error:
            failures.append(str(error))
    assert len(failures) < len(answers), failures


A, B = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.array([1, 2, 4], np.float32)
COLUMN = B[:, None]
OLD = [
    ("Add", 6, (A, B), {"broadcast": 1, "axis": 1}, A + COLUMN),
    ("Add", 1, (A, A), {"consumed_inputs": [0, 0]}, A + A),
    ("Sub", 6, (A, A[0]), {"broadcast": 1}, A - A[0]),
    ("Mul", 6, (A, B), {"broadcast": 1, "axis": -2}, A * COLUMN),
    ("Div", 6, (A, A[:, 0, 0] + 1), {"broadcast": 1, "axis": 0}, A / (A[:, 0, 0] + 1)[:, None, None]),
    ("Pow", 1, (A, B), {"broadcast": 1, "axis": 1}, A**COLUMN),
    ("Greater", 1, (A, B), {"broadcast": 1, "axis": 1}, A > COLUMN),
    ("Less", 1, (A, B), {"broadcast": 1, "axis": 1}, A < COLUMN),
    ("Equal", 1, (A.astype(np.int32), B.astype(np.int32)), {"broadcast": 1, "axis": 1}, COLUMN == A),
    ("And", 1, (A > 3, B > 1), {"broadcast": 1, "axis": 1}, (A > 3) & (COLUMN > 1)),
    ("PRelu", 6, (A - 9, B), {}, np.where(A < 9, (A - 9) * COLUMN, A - 9)),
    ("PRelu", 6, (A - 9, B[:1] * 3), {}, np.where(A < 9, (A - 9) * 3, A - 9)),
    ("Exp", 1, (B,), {"consumed_inputs": [0]}, np.exp(B)),
    ("Selu", 1, (A - 9,), {}, (1.0507 * np.where(A > 9, A - 9, 1.6732 * np.expm1(A - 9))).astype(np.float32)),
    ("Clip", 6, (A,), {"min": 3.5}, A.clip(3.5)),
    ("Clip", 6, (A,), {"max": 7.5, "min": 2.0}, A.clip(2, 7.5)),
    ("Clip", 1, (A,), {"max": 7.5, "consumed_inputs": [0]}, A.clip(None, 7.5)),
    ("Gemm", 6, (A[0], A[1].T.copy(), B), {"broadcast": 1, "alpha": 0.5}, A[0] @ A[1].T * 0.5 + B),
    ("Cast", 1, (A,), {"to": "INT32"}, A.astype(np.int32)),
    ("Max", 6, (A, A.T.reshape(2, 3, 4)), {}, np.maximum(A, A.T.reshape(2, 3, 4))),
    ("LogSoftmax", 11, (A,), {}, np.log(np.exp(A) / np.exp(A).sum((1, 2), keepdims=True))),
    ("Hardmax", 11, (A,), {"axis": 2}, np.tile(np.array([0, 0, 0, 1], np.float32), (2, 3, 1))),
]


@pytest.mark.parametrize("shapes", [True, False], ids=["shapes", "ranks unknown"])
@pytest.mark.parametrize(
    ("name", "opset", "inputs", "attributes", "expected"), OLD, ids=[f"{row[0]}-{row[1]}-{row[3]}" for row in OLD]
)
def test_old_opsets(name, opset, inputs, attributes, expected, shapes):
    made, feeds = model(operator(name), case(*inputs, **attributes), opset)
    if not shapes:
        for item in made.graph.input:
            item.type.tensor_type.ClearField("shape")
    (got,) = Session(onnx_graph.graph_of(made)).run(None, feeds)
    close(got, expected)


ORT_OPSETS = [
    ("Clip", 7, case("f32[2,3]", min=-0.5, max=0.25)),
    ("LogSoftmax", 11, case("f32[2,3,4]", axis=-2)),
    ("LogSoftmax", 9, case("f32[2,3,4]", axis=0)),
    ("Hardmax", 11, case("f32[2,3,4]", axis=1)),
    ("Gemm", 7, case("f32[2,3]", "f32[3,4]", "f32[4]")),
    ("Cast", 9, case("f32[2,3]", to=6)),
    ("Max", 8, case("f32[2,3]", "f32[3]")),
    ("CumSum", 11, case("f32[2,3]", np.array(0))),
    ("Mod", 10, case("f32[2,3]", "f32[3]", fmod=1)),
    ("PRelu", 7, case("f32[2,3,4]", "f32[3,1]")),
]


@pytest.mark.parametrize(("name", "opset", "example"), ORT_OPSETS, ids=[f"{row[0]}-{row[1]}" for row in ORT_OPSETS])
def test_old_opsets_as_onnxruntime(name, opset, example):
    import onnxruntime

    made, feeds = model(operator(name), example, opset)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    close(Session(onnx_graph.graph_of(made)).run(None, feeds)[0], session.run(None, feeds)[0])


ONLY_FLOATS = {"Div", "Mod", "Pow"}
"""Their rules for integers are no single expression."""


def elements(op):
    """(arguments of the scalar function, what `compute` gives) for every element of the examples, floats as f64."""
    names = list(inspect.signature(op.scalar).parameters)
    named = [name for name in names if name in op.attributes]
    found = []
    for example in op.examples:
        values = arrays(example)
        kinds = {None if value is None else value.dtype.kind for value in values}
        if (
            not kinds <= set("fib")
            or len(values) != len(names) - len(named)
            or (op.name in ONLY_FLOATS and kinds != {"f"})
        ):
            continue
        wide = [value.astype(np.float64) if value.dtype.kind == "f" else value for value in values]
        attributes = {**op.defaults, **example.attributes}
        result = np.asarray(op.compute(*wide, **attributes))
        columns = np.broadcast_arrays(*wide)
        settings = [attributes[name] for name in named]
        for *row, item in zip(*(column.flat for column in columns), result.flat, strict=True):
            found.append(((*(element.item() for element in row), *settings), item))
    return found


def outcome(function, arguments):
    try:
        return float(function(*arguments))
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


@pytest.mark.parametrize(
    "op", [op for op in WITH_SCALAR if op.domain == "" and "Cast" not in op.name], ids=lambda op: op.name
)
def test_scalar_functions_are_what_compute_does(op):
    rows = elements(op)
    assert rows
    for arguments, expected in rows:
        got = outcome(op.scalar, arguments)
        if got is None:  # Python raises where IEEE arithmetic has a special value
            assert not math.isfinite(expected) or expected == 0
        else:
            np.testing.assert_allclose(
                got, float(expected), rtol=1e-12, atol=1e-300 if "erf" in op.name.lower() else 1e-14
            )


TO_COMPILE = [
    op
    for op in WITH_SCALAR
    if op.domain == "" and "Cast" not in op.name and not {"approximate", "direction"} & op.attributes
]


def test_scalar_functions_compile_to_the_same():
    """One kernel of all of them would take as long to compile; a failure names its operator."""
    for op in TO_COMPILE:
        compiled = numba.njit(error_model="numpy", cache=False)(op.scalar)
        for arguments, expected in elements(op)[:6]:
            np.testing.assert_allclose(
                float(compiled(*arguments)), float(expected), rtol=1e-12, atol=1e-14, err_msg=op.name
            )


LOWERED = [
    pytest.param(op, example, id=f"{op.name}-{index}")
    for op in MINE
    if op.lower is not None
    for index, example in enumerate(op.examples)
    if example.attributes.get("activations") != "q8"  # what other runtimes get does not round
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "example"), LOWERED)
def test_lowered_operators_compute_the_same(op, example):
    made, feeds = model(op, example)
    graph = onnx_graph.graph_of(made)
    upgrade(graph)
    (node,) = graph.nodes
    graph.nodes = []
    op.lower(node, Builder(graph))
    assert {part.op for part in graph.nodes} & {op} == set()
    (got,) = Session(graph).run(None, feeds)
    np.testing.assert_allclose(got, op.compute(*arrays(example), **example.attributes), rtol=1e-6, atol=1e-7)


EDGES = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e30, 3.5, -2.5], np.float32)
OTHER_TYPES = ("Cast", "Identity", "Not", "BitwiseNot")
ONE_INPUT = [op for op in WITH_SCALAR if op.name not in OTHER_TYPES and len(op.examples[0].inputs) == 1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ONE_INPUT, ids=lambda op: op.name)
def test_special_values(op):
    example = case(EDGES)
    (got,) = run(op, example)
    answers = [
        answer[0]
        for answer in (with_onnxruntime(op, example), with_reference(op, example))
        if not isinstance(answer, str)
    ]
    assert answers
    # their oracles multiply infinities by zero
    if op.name in ("HardSwish", "Swish", "Mish", "Softplus", "Sigmoid", "Gelu", "Softsign", "Celu"):
        keep = np.isfinite(EDGES)
        got, answers = got[keep], [answer[keep] for answer in answers]
    assert any(
        np.allclose(got.astype(float), answer.astype(float), rtol=1e-5, atol=1e-6, equal_nan=True) for answer in answers
    ), (got, answers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ONE_INPUT, ids=lambda op: op.name)
def test_special_values_in_kernels(op):
    """Kernels treat them as `test_special_values` has shown of NumPy: no zero is made of infinity times zero."""
    natively(op.name, case(np.tile(EDGES, 5)), rtol=1e-5, atol=1e-6)


BROADCASTS = [
    ((2, 1, 3), (4, 1)),
    ((), (2, 3)),
    ((1,), ()),
    ((0, 1), (1, 3)),
    ((3, 0), (0,)),
    ((5, 1, 1, 2), (1, 3, 1, 2)),
]


@pytest.mark.parametrize("name", ["Add", "Mul", "Less", "Max", "Mod", "Pow"])
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting(name, shapes):
    inputs = [np.abs(made_up(f"f32[{','.join(map(str, shape))}]", index)) + 0.5 for index, shape in enumerate(shapes)]
    example = case(*inputs, **({"fmod": 1} if name == "Mod" else {}))
    (got,) = run(operator(name), example)
    oracle = with_reference if name == "Mod" else with_onnxruntime
    close(got, oracle(operator(name), example)[0])


@pytest.mark.parametrize(
    "view", [lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a.T], ids=["reversed", "strided", "transposed"]
)
@pytest.mark.parametrize("name", ["Relu", "MatMul", "CumSum", "Det", "Erf", "BitCast"])
def test_inputs_of_any_strides(name, view):
    x = view(np.arange(36, dtype=np.float32).reshape(6, 6) / 7 - 2)
    more = {"MatMul": (np.eye(x.shape[-1], dtype=np.float32),), "CumSum": (np.array(0),)}.get(name, ())
    if name == "Det":
        x = x[:3, :3]
    attributes = {"to": 6} if name == "BitCast" else {}
    compute = operator(name).compute
    np.testing.assert_array_equal(
        compute(x, *more, **attributes), compute(np.ascontiguousarray(x), *more, **attributes)
    )


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "error"),
    [
        ("Cast", (np.array(["Hello"], object),), {"to": 1}, UsageError),
        ("Cast", (A,), {"to": 99}, UnsupportedError),
        ("Add", (A, B), {}, UsageError),
        ("Less", (A, B), {}, UsageError),
        ("Where", (A > 3, A, B), {}, UsageError),
        ("MatMul", (A, A), {}, UsageError),
        ("Gemm", (A[0], A[0]), {}, UsageError),
        ("PRelu", (A, B), {}, UsageError),
        ("BitCast", (A,), {"to": 7}, UsageError),
        ("BitShift", (np.array([1]), np.array([1])), {"direction": "UP"}, UsageError),
        ("Einsum", (A,), {"equation": "ij->ij"}, UsageError),
        ("Einsum", (A,), {"equation": "i1j->ij"}, FormatError),
        ("CumSum", (A, np.array(3)), {}, UsageError),
        ("Gelu", (A,), {"approximate": "erf"}, UsageError),
    ],
)
def test_what_makes_no_sense_is_refused(name, inputs, attributes, error):
    with pytest.raises(error, match="E-"):
        operator(name).compute(*inputs, **attributes)


CONTRADICTIONS = [
    ("MatMul", case("f32[2,3]", "f32[4,5]")),
    ("MatMul", case("f32[]", "f32[3]")),
    ("Gemm", case("f32[2,3]", "f32[3]")),
    ("Det", case("f32[2,3]")),
    ("Einsum", case("f32[2,3]", equation="ijk->i")),
    ("Clip", case("f32[2,3]", "f32[2]")),
    ("Gemm", case("f32[2,3]", "f32[3,4]", transA=1)),
    ("Add", case("f32[2,3]", "f32[2]")),
    ("Equal", case("i32[3]", "i32[2,2]")),
    ("Where", case("bool[2]", "f32[3]", "f32[1]")),
    ("Max", case("f32[2,3]", "f32[1]", "f32[4]")),
    ("LogSoftmax", case("f32[2,3]", axis=2)),
    ("Hardmax", case("f32[2,3]", axis=-3)),
    ("CumSum", case("f32[2,3]", np.array(2))),
    ("CumProd", case("f32[2,3]", np.array(-3))),
]


@pytest.mark.parametrize(
    ("name", "example"), CONTRADICTIONS, ids=[f"{row[0]}-{index}" for index, row in enumerate(CONTRADICTIONS)]
)
def test_inference_refuses_contradictions(name, example):
    made, _ = model(operator(name), example, constant=True)
    with pytest.raises(FormatError, match="E-ONNX-NODE"):
        infer(onnx_graph.graph_of(made))


def test_shape_arithmetic_is_followed():
    """Elements of integer tensors, symbolic ones included, through the operators that exporters compute shapes with."""
    import onnx.parser

    made = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 6] x) => (int64[k] r) {
            s = Shape (x)
            two = Constant <value_ints = [2, 3]> ()
            one = Constant <value_ints = [1, 0]> ()
            p = Mul (s, two)
            q = Div (p, two)
            t = Sub (q, one)
            e = Equal (one, two)
            w = Where (e, one, s)
            c = Cast <to = 6> (w)
            d = Cast <to = 7> (c)
            r = Max (t, two)
        }
    """)
    graph = onnx_graph.graph_of(made)
    facts = infer(graph)
    assert facts.data(graph.values["p"])[1] == 18
    assert facts.data(graph.values["q"])[1] == 6
    assert facts.data(graph.values["t"])[1] == 6
    assert facts.data(graph.values["d"]) == ("n", 6)
    assert facts.data(graph.values["r"])[1] == 6
