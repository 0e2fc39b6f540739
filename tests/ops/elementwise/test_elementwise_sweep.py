"""Math operators on drawn inputs: shapes that broadcast, zero lengths, special values and negative strides, compared
with onnxruntime."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnxruntime
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from hypothesis import HealthCheck, given, settings, strategies
from hypothesis.extra import numpy as drawn

OPSET = 22
FLOATS, INTEGERS = (np.float32, np.float64), (np.int32, np.int64)
DRAWN = settings(max_examples=30, suppress_health_check=list(HealthCheck))


def values(dtype, special):
    if np.dtype(dtype).kind == "f":
        return strategies.floats(
            -8, 8, width=np.dtype(dtype).itemsize * 8, allow_subnormal=False
        ) | strategies.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan] if special else [0.0, -0.0, 1.0])
    return strategies.integers(-9, 9)


def both(name, inputs, attributes, opset=OPSET):
    """Our outputs and onnxruntime's."""
    made, _ = model(operator(name), case(*inputs, **attributes), opset)
    feeds = {f"x{index}": value for index, value in enumerate(inputs)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    contiguous = {key: np.ascontiguousarray(value).reshape(value.shape) for key, value in feeds.items()}
    return Session(onnx_graph.graph_of(made)).run(None, feeds)[0], theirs.run(None, contiguous)[0]


def agree(ours, theirs, rtol=2e-5, atol=1e-6):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


@strategies.composite
def operands(draw, dtypes, count=2, special=True):
    """Arrays that broadcast to one shape, some of them seen backwards."""
    dtype = draw(strategies.sampled_from(dtypes))
    shapes = draw(
        drawn.mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=4, max_dims=4)
    ).input_shapes
    arrays = [draw(drawn.arrays(dtype, shape, elements=values(dtype, special))) for shape in shapes]
    return [array[::-1] if array.ndim and draw(strategies.booleans()) else array for array in arrays]


BINARY = [
    ("Add", FLOATS + INTEGERS, True),
    ("Sub", FLOATS + INTEGERS, True),
    ("Mul", FLOATS + INTEGERS, True),
    ("Div", FLOATS, True),
    ("Less", FLOATS + INTEGERS, True),
    ("LessOrEqual", FLOATS + INTEGERS, True),
    ("Greater", FLOATS + INTEGERS, True),
    ("Equal", FLOATS + INTEGERS, True),
    ("Max", FLOATS + INTEGERS, True),
    ("Min", FLOATS + INTEGERS, True),
    ("Pow", FLOATS, False),
    ("And", (bool,), False),
    ("Xor", (bool,), False),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "dtypes", "special"), BINARY, ids=[row[0] for row in BINARY])
def test_two_inputs(name, dtypes, special):
    @DRAWN
    @given(operands(dtypes, special=special) if dtypes != (bool,) else truths())
    def check(inputs):
        agree(*both(name, inputs, {}))

    check()


@strategies.composite
def truths(draw):
    shapes = draw(drawn.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=3)).input_shapes
    return [draw(drawn.arrays(bool, shape)) for shape in shapes]


UNARY = [
    ("Abs", {}),
    ("Neg", {}),
    ("Exp", {}),
    ("Log", {}),
    ("Sqrt", {}),
    ("Floor", {}),
    ("Ceil", {}),
    ("Round", {}),
    ("Sign", {}),
    ("Reciprocal", {}),
    ("Sin", {}),
    ("Cos", {}),
    ("Tanh", {}),
    ("Atan", {}),
    ("Erf", {}),
    ("Relu", {}),
    ("Sigmoid", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 2.0}),
    ("Selu", {}),
    ("HardSigmoid", {"alpha": 0.3}),
    ("ThresholdedRelu", {"alpha": 0.5}),
    ("IsNaN", {}),
    ("IsInf", {}),
    ("Gelu", {}),
    ("Softplus", {}),
]
ONLY_SINGLE = {"Atan", "Erf", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "ThresholdedRelu", "Gelu", "Softplus"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "attributes"), UNARY, ids=[row[0] for row in UNARY])
def test_one_input(name, attributes):
    @DRAWN
    @given(operands((np.float32,) if name in ONLY_SINGLE else FLOATS, 1, special=name not in ("Gelu", "Softplus")))
    def check(inputs):
        agree(*both(name, inputs, attributes))

    check()


REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
]


@strategies.composite
def reduced(draw):
    """An array with at least one element, axes of it, whether they are kept."""
    x = draw(drawn.arrays(np.float32, drawn.array_shapes(max_dims=4, max_side=4), elements=values(np.float32, False)))
    axes = draw(
        strategies.lists(
            strategies.integers(-x.ndim, x.ndim - 1), unique_by=lambda axis: axis % x.ndim, max_size=x.ndim
        )
    )
    return x, np.array(axes, np.int64), draw(strategies.integers(0, 1))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    @DRAWN
    @given(reduced())
    def check(drawn):
        x, axes, keepdims = drawn
        agree(*both(name, [x, axes], {"keepdims": keepdims}), rtol=1e-4, atol=1e-4)

    check()


@strategies.composite
def matrices(draw):
    """Stacks of matrices and vectors that NumPy's rules multiply."""
    shapes = draw(
        drawn.mutually_broadcastable_shapes(signature="(m?,n),(n,p?)->(m?,p?)", min_side=1, max_side=4, max_dims=2)
    ).input_shapes
    return [draw(drawn.arrays(np.float32, shape, elements=values(np.float32, False))) for shape in shapes]


@DRAWN
@given(matrices())
def test_matrix_products(inputs):
    agree(*both("MatMul", inputs, {}), rtol=1e-4, atol=1e-4)


@DRAWN
@given(operands((np.float32,), 2), strategies.data())
def test_where(inputs, data):
    shape = np.broadcast_shapes(*(item.shape for item in inputs))
    condition = data.draw(drawn.arrays(bool, shape))
    agree(*both("Where", [condition, *inputs], {}))


@DRAWN
@given(reduced(), strategies.integers(0, 1), strategies.integers(0, 1))
def test_cumulative_sums(drawn, exclusive, reverse):
    x, axes, _ = drawn
    axis = np.array(axes[0] if axes.size else 0)
    agree(*both("CumSum", [x, axis], {"exclusive": exclusive, "reverse": reverse}), rtol=1e-4, atol=1e-4)
