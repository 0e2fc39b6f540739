"""Training: derivatives of every operator against finite differences, of whole models against torch.autograd,
optimizers against torch.optim."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx.parser
import pytest
import torch
from candle_convert.ops.training.gradient_rule import differentiated, differentiated_as, without_gradient
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import load, operator, operators, registering
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import NEWEST_OPSET, arrays, element
from onnx import helper, numpy_helper

TRAINING = "ai.onnx.preview.training"
STEP = 1e-6
MAX_PLACES = 24
"""Elements of an input for which differences are taken."""


def doubled(value):
    """Single precision is too rough for finite differences."""
    return (
        value.astype(np.float64) if isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32 else value
    )


def differentiable_inputs(operator, example):
    values = [
        doubled(value) if index == 0 or operator.name != "Resize" else value
        for index, value in enumerate(arrays(example))
    ]
    if operator.name in FIRST_ALONE:
        return values, [0] if values[0].dtype == np.float64 else []
    return values, [index for index, value in enumerate(values) if value is not None and value.dtype == np.float64]


FLAT = {
    "BitCast",
    "Ceil",
    "Floor",
    "Hardmax",
    "ArgMax",
    "ArgMin",
    "IsInf",
    "IsNaN",
    "Round",
    "Sign",
    "Shape",
    "Size",
    "NonZero",
    "OneHot",
    "EyeLike",
    "QuantizeLinear",
}
FLAT |= {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
"""Without gradient wherever they have one."""
SEVERAL = {"Split", "LSTM", "GRU", "RNN"}
"""Operators of which more than the first output is differentiated."""
KNOWN = {
    "AffineGrid", "Col2Im", "DFT", "Resize", "STFT",
}  # fmt: skip
"""Operators whose rules need lengths and axes as constants."""
AT_KINKS = {"Linear-4", "LpNormalization-2", "Pow-4", "Range-0", "Range-3"}
IN_F32 = {
    "Attention-5", "FlexAttention-1", "DequantizeLinear", "GroupQueryAttention", "LinearAttention", "MoE",
    "MultiHeadAttention",
}  # fmt: skip
"""Compute in f32 whatever their inputs are; `test_gradients_in_f32.py` compares them with torch."""
WITHOUT_RULE = {"RoiAlign-0", "RoiAlign-2", "RoiAlign-3", "Unique"}
FIRST_ALONE = {"Resize", "MaxRoiPool", "RoiAlign"}
"""The derivatives by other inputs are not compared: there are none, or places are at kinks."""


COMPOSED = {"BiasGelu", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "NhwcConv", "QuickGelu"}
"""Operators of onnxruntime that are differentiated by their decomposition."""


def candidates():
    load(registering(differentiated, differentiated_as, without_gradient))
    for op in operators().values():
        for index, example in enumerate(op.examples if op.gradients or op.name in COMPOSED else ()):
            values, moving = differentiable_inputs(op, example)
            small = all(
                value is None or value.dtype.kind != "f" or np.abs(value).max(initial=0) < 50 for value in values
            )
            outputs = example.outputs if op.name in SEVERAL else 1
            skipped = (
                op.name in FLAT
                or {op.name, f"{op.name}-{index}"} & (AT_KINKS | IN_F32 | WITHOUT_RULE)
                or {"seed", "to"} & set(example.attributes)
            )
            if moving and small and not skipped and (op.name != "CastLike" or index == 3):
                yield pytest.param(
                    op, case(*values, outputs=outputs, **example.attributes), moving, id=f"{op.name}-{index}"
                )


def graphs(op, example, moving, weights):
    """The operator with its outputs weighted and summed, with and without a Gradient node; feeds."""
    names = ["" if value is None else f"x{index}" for index, value in enumerate(example.inputs)]
    outputs = [f"y{index}" for index in range(example.outputs)]
    attributes = {name: value for name, value in example.attributes.items() if value is not None}
    nodes = [helper.make_node(op.name, names, outputs, domain=op.domain, **attributes)]
    parts = []
    for name in outputs:
        nodes.append(helper.make_node("Mul", [name, f"w_{name}"], [f"m_{name}"]))
        nodes.append(helper.make_node("ReduceSum", [f"m_{name}"], [f"s_{name}"], keepdims=0))
        parts.append(f"s_{name}")
    nodes.append(helper.make_node("Sum", parts, ["z"]))
    feeds = {name: value for name, value in zip(names, example.inputs, strict=True) if name}
    feeds.update({f"w_{name}": weight for name, weight in zip(outputs, weights, strict=True)})
    fixed = {
        name: feeds.pop(name) for index, name in enumerate(names) if name and index not in moving and op.name in KNOWN
    }
    constants = [numpy_helper.from_array(value, name) for name, value in fixed.items()]
    described = [helper.make_tensor_value_info(name, element(value), value.shape) for name, value in feeds.items()]
    xs = [f"x{index}" for index in moving]
    grad = helper.make_node("Gradient", xs, [f"d{name}" for name in xs], domain=TRAINING, xs=xs, y="z")
    opsets = [
        helper.make_opsetid("", NEWEST_OPSET),
        helper.make_opsetid(TRAINING, 1),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("candle", 1),
        helper.make_opsetid("ai.onnx.preview", 1),
    ]

    def session(nodes, outputs):
        proto = helper.make_graph(
            nodes, "g", described, [helper.make_empty_tensor_value_info(name) for name in outputs], constants
        )
        return Session(onnx_graph.graph_of(helper.make_model(proto, opset_imports=opsets)))

    return session(nodes, ["z"]), session([*nodes, grad], [f"d{name}" for name in xs]), feeds


def differences(run, feeds, name):
    """Central differences of a scalar by some elements of one input, NaN for the others."""
    found = np.full_like(feeds[name], np.nan)
    rng = np.random.default_rng(2)
    for flat in rng.permutation(found.size)[:MAX_PLACES]:
        place = np.unravel_index(flat, found.shape)
        ends = []
        for step in (STEP, -STEP):
            moved = feeds[name].copy()
            moved[place] += step
            ends.append(float(run({**feeds, name: moved})))
        found[place] = (ends[0] - ends[1]) / (2 * STEP)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "example", "moving"), list(candidates()))
def test_derivatives_are_those_of_finite_differences(op, example, moving):
    rng = np.random.default_rng(1)
    results = op.compute(*example.inputs, **example.attributes) if not op.asks else forward(op, example)
    results = results if isinstance(results, tuple) else (results,)
    weights = [rng.uniform(0.5, 2, np.shape(result)) for result in results[: example.outputs]]
    plain, grads, feeds = graphs(op, example, moving, weights)
    found = grads.run(None, feeds)
    for index, grad in zip(moving, found, strict=True):
        expected = differences(lambda feeds: plain.run(None, feeds)[0], feeds, f"x{index}")
        assert grad.shape == expected.shape
        assert grad.dtype == np.float64
        smooth = np.isfinite(expected)
        np.testing.assert_allclose(grad[smooth], expected[smooth], rtol=2e-5, atol=2e-6)


def forward(op, example):
    from candle_convert.tests.builders.single_node import model

    made, feeds = model(op, example)
    return tuple(Session(onnx_graph.graph_of(made)).run(None, feeds))


def run(text, feeds):
    return Session(onnx_graph.graph_of(onnx.parser.parse_model(text))).run(None, feeds)


HEAD = f'<ir_version: 10, opset_import: ["" : 21, "{TRAINING}" : 1]>'


def test_a_small_network_trains_as_in_torch():
    rng = np.random.default_rng(2)
    shapes = {"x": (4, 3, 8, 8), "k": (6, 3, 3, 3), "b": (6,), "w": (5, 54), "c": (5,)}
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["t"] = np.array([0, 3, 4, 1])
    found = run(
        HEAD
        + """
        g (float[n, 3, 8, 8] x, float[6, 3, 3, 3] k, float[6] b, float[5, 54] w, float[5] c, int64[n] t)
        => (float loss, float[6, 3, 3, 3] dk, float[6] db, float[5, 54] dw, float[5] dc) {
            h = Conv <strides = [1, 1], pads = [0, 0, 0, 0]> (x, k, b)
            r = Relu (h)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            f = Flatten (p)
            s = Gemm <transB = 1> (f, w, c)
            loss = SoftmaxCrossEntropyLoss (s, t)
            dk, db, dw, dc = ai.onnx.preview.training.Gradient <xs = ["k", "b", "w", "c"], zs = ["x", "t"], y = "loss">
              (k, b, w, c, x, t)
        }""",
        feeds,
    )
    tensors = {name: torch.from_numpy(value).requires_grad_(name in "kbwc") for name, value in feeds.items()}
    hidden = torch.nn.functional.max_pool2d(
        torch.nn.functional.conv2d(tensors["x"], tensors["k"], tensors["b"]).relu(), 2
    )
    loss = torch.nn.functional.cross_entropy(hidden.flatten(1) @ tensors["w"].T + tensors["c"], tensors["t"])
    loss.backward()
    np.testing.assert_allclose(found[0], loss.detach().numpy(), rtol=1e-5)
    for grad, name in zip(found[1:], "kbwc", strict=True):
        np.testing.assert_allclose(grad, tensors[name].grad.numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("call", "theirs"), [("ReduceProd <keepdims = 0>", "prod"), ("CumProd", "cumprod")])
@pytest.mark.parametrize("axis", [0, 1])
def test_products_with_zeros_along_an_axis_of_the_run(call, theirs, axis):
    """Rows without a 0, with one, and with two."""
    x = np.random.default_rng(0).normal(size=(4, 5))
    x[1, 2] = x[2, 1] = x[2, 3] = 0
    kind = "[1]" if "Reduce" in call else ""
    found = run(
        HEAD.replace("21", "26")
        + f"""
        g (double[4, 5] x, int64{kind} axis) => (double[4, 5] d) {{
            y = {call} (x, axis)
            z = Sin (y)
            d = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["axis"], y = "z"> (x, axis)
        }}""",
        {"x": x, "axis": np.array([axis] if kind else axis)},
    )
    tensor = torch.tensor(x, requires_grad=True)
    getattr(tensor, theirs)(axis).sin().sum().backward()
    np.testing.assert_allclose(found[0], tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_second_derivative():
    """Of x**3 * y: 6*x*y by x twice."""
    found = run(
        HEAD
        + """
        g (double[2] x, double[2] y) => (double[2] d, double[2] dd, double[2] dxy) {
            a = Mul (x, x)
            b = Mul (a, x)
            z = Mul (b, y)
            d = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["y"], y = "z"> (x, y)
            dd, dxy = ai.onnx.preview.training.Gradient <xs = ["x", "y"], y = "d"> (x, y)
        }""",
        {"x": np.array([2.0, -3]), "y": np.array([0.5, 4])},
    )
    np.testing.assert_allclose(found, [[6, 108], [6, -72], [12, 27]])


def test_at_other_values_than_the_graphs():
    found = run(
        HEAD
        + """
        g (double[2] x, double[2] y, double[2] v) => (double[2] z, double[2] d) {
            h = Exp (x)
            z = Mul (h, y)
            d = ai.onnx.preview.training.Gradient <xs = ["h"], zs = ["y"], y = "z"> (v, v)
        }""",
        {"x": np.array([0.0, 1]), "y": np.array([5.0, 6]), "v": np.array([7.0, 8])},
    )
    np.testing.assert_allclose(found, [[5, 6 * np.e], [7, 8]])


def test_by_intermediate_values_and_by_what_has_no_influence():
    found = run(
        HEAD
        + """
        g (double[2] x, double[3] u) => (double[2] d, double[3] e) {
            h = Exp (x)
            z = Mul (h, h)
            d, e = ai.onnx.preview.training.Gradient <xs = ["h", "u"], y = "z"> (h, u)
        }""",
        {"x": np.array([0.0, 1]), "u": np.zeros(3)},
    )
    np.testing.assert_allclose(found[0], [2, 2 * np.e])
    np.testing.assert_array_equal(found[1], np.zeros(3))


REFUSED = [
    ('z = Exp (x)\n d = ai.onnx.preview.training.Gradient <xs = ["q"], y = "z"> (x)', FormatError),
    ('z = Exp (x)\n d = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["x"], y = "z"> (x)', FormatError),
    (
        'q, z, o = DynamicQuantizeLinear (x)\n d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "z"> (x)',
        UnsupportedError,
    ),
]


@pytest.mark.parametrize(("body", "error"), REFUSED, ids=["name", "inputs", "operator"])
def test_what_cannot_be_derived_is_refused(body, error):
    with pytest.raises(error, match="E-O"):
        run(f"{HEAD} g (float[2, 2] x) => (float[2, 2] d) {{ {body} }}", {"x": np.eye(2, dtype=np.float32)})


X, G = np.array([[1.0, -2], [0.5, 3]]), np.array([[0.3, -0.1], [2, 0.7]])
RATE = np.array(0.1)


def stepped(optimizer, steps=3):
    """The value after some steps of a torch optimizer with one gradient."""
    value = torch.tensor(X, requires_grad=True)
    chosen = optimizer([value])
    for _ in range(steps):
        value.grad = torch.tensor(G)
        chosen.step()
    return value.detach().numpy()


def test_adam_as_torch():
    compute = operator("Adam", TRAINING).compute
    x, average, square = X, np.zeros_like(X), np.zeros_like(X)
    for count in range(1, 4):
        x, average, square = compute(RATE, np.array(count), x, G, average, square, epsilon=1e-12, norm_coefficient=0.01)
    np.testing.assert_allclose(x, stepped(lambda p: torch.optim.Adam(p, 0.1, eps=1e-12, weight_decay=0.01)), rtol=1e-8)


def test_adagrad_as_torch():
    compute = operator("Adagrad", TRAINING).compute
    x, square = X, np.zeros_like(X)
    for count in range(3):
        x, square = compute(RATE, np.array(count), x, G, square, epsilon=1e-9, norm_coefficient=0.01, decay_factor=0.2)
    np.testing.assert_allclose(
        x, stepped(lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.2, weight_decay=0.01, eps=1e-9)), rtol=1e-8
    )


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum_as_torch(mode):
    compute = operator("Momentum", TRAINING).compute
    x, velocity = X, np.zeros_like(X)
    for count in range(3):
        x, velocity = compute(
            RATE, np.array(count), x, G, velocity, alpha=0.9, beta=1.0, mode=mode, norm_coefficient=0.01
        )
    theirs = stepped(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=mode == "nesterov"))
    np.testing.assert_allclose(x, theirs, rtol=1e-8)


def test_optimizers_refuse_what_makes_no_sense():
    with pytest.raises(UsageError, match="E-OP-VALUE"):
        operator("Momentum", TRAINING).compute(
            RATE, np.array(0), X, G, X, alpha=0.9, beta=1.0, mode="fast", norm_coefficient=0.0
        )
    with pytest.raises(UsageError, match="E-OP-ARITY"):
        operator("Adam", TRAINING).compute(RATE, np.array(0), X, G, X)
