"""LayerNormalization, RMSNormalization and GroupNormalization fusion: exporters' forms are fused, near misses are
not."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

X = {"x": np.random.default_rng(3).normal(1, 2, (2, 5, 8)).astype(np.float32)}


def mean(net, x, axes=(-1,), keepdims=1):
    return net.add("ReduceMean", x, net.integers(*axes), keepdims=keepdims)


def squared(net, d, how):
    return net.add("Pow", d, 2.0) if how == "pow" else net.add("Mul", d, d)


def over_root(net, top, square, how, epsilon=1e-5):
    under = (
        net.add("Add", square, epsilon)
        if how != "epsilon first"
        else net.add("Add", net.constant(np.float32(epsilon)), square)
    )
    if how == "power":
        return net.add("Mul", top, net.add("Pow", under, -0.5))
    root = net.add("Sqrt", under)
    if how == "reciprocal":
        return net.add("Mul", net.add("Reciprocal", root), top)
    if how == "one over":
        return net.add("Mul", top, net.add("Div", 1.0, root))
    return net.add("Div", top, root)


def layer_norm(
    net, x, *, square="pow", root="div", scale=(8,), bias=(8,), axes=(-1,), second=None, power=2.0, epsilon=1e-5
):
    """The usual parts; `second` are the axes of the variance."""
    d = net.add("Sub", x, mean(net, x, axes))
    squares = net.add("Pow", d, power) if power != 2 else squared(net, d, square)
    y = over_root(net, d, mean(net, squares, second or axes), root, epsilon)
    if scale is not None:
        y = net.add("Mul", net.normal(*scale), y)
    return net.add("Add", y, net.normal(*bias)) if bias is not None else y


LAYER_NORMS = {
    "torch": {},
    "squares": {"square": "mul"},
    "reciprocal": {"root": "reciprocal"},
    "one over": {"root": "one over"},
    "power": {"root": "power"},
    "epsilon first": {"root": "epsilon first"},
    "two axes": {"axes": (-2, -1), "scale": (5, 8), "bias": (5, 8)},
    "no bias": {"bias": None},
    "neither": {"scale": None, "bias": None},
    "whole rank": {"scale": (1, 1, 8), "bias": (1, 8)},
    "positive axis": {"axes": (2,)},
}


@pytest.mark.parametrize("case", LAYER_NORMS)
@pytest.mark.parametrize("dims", [(2, 5, 8), ("batch", "length", 8)], ids=["fixed", "symbolic"])
def test_layer_normalization(tmp_path, case, dims):
    if case == "two axes" and "length" in dims:
        dims = ("batch", 5, 8)
    net = Net()
    net.add("Relu", layer_norm(net, "x", **LAYER_NORMS[case]), name="y")
    graph = rewritten(net.model(X, ["y"], dims={"x": dims}), X, tmp_path)
    assert operators(graph) == ["LayerNormalization", "Relu"]


@pytest.mark.parametrize("cast_back", [True, False])
def test_layer_normalization_of_halves(tmp_path, cast_back):
    x = {"x": X["x"].astype(np.float16)}
    net = Net()
    wide = net.add("Cast", "x", to=1)
    y = layer_norm(net, wide, scale=None, bias=None)
    if cast_back:
        y = net.add("Mul", net.add("Cast", y, to=10), net.normal(8, dtype=np.float16))
        y = net.add("Add", y, net.normal(8, dtype=np.float16))
    net.add("Relu", y, name="y")
    graph = rewritten(net.model(x, ["y"]), x, tmp_path, rtol=5e-3, atol=5e-3)
    assert operators(graph) == (["LayerNormalization", "Relu"] if cast_back else ["Cast", "LayerNormalization", "Relu"])


def test_layer_normalization_of_keras(tmp_path):
    net = Net()
    m = mean(net, "x")
    root = net.add("Sqrt", net.add("Add", mean(net, squared(net, net.add("Sub", "x", m), "mul")), 1e-3))
    factor = net.add("Mul", net.add("Reciprocal", root), net.normal(8))
    net.add("Add", net.add("Mul", "x", factor), net.add("Sub", net.normal(8), net.add("Mul", m, factor)), name="y")
    assert operators(rewritten(net.model(X, ["y"]), X, tmp_path)) == ["LayerNormalization"]


LAYER_NEAR = {
    "another axis": {"axes": (1,), "scale": (1, 1, 8), "bias": (1, 1, 8)},
    "two different axes": {"second": (1,)},
    "cubes": {"power": 4.0},
    "large epsilon": {"epsilon": 0.5},
    "first axes": {"axes": (0, 1)},
}


@pytest.mark.parametrize("case", LAYER_NEAR)
def test_no_layer_normalization(tmp_path, case):
    net = Net()
    net.add("Relu", layer_norm(net, "x", **LAYER_NEAR[case]), name="y")
    assert "LayerNormalization" not in operators(rewritten(net.model(X, ["y"]), X, tmp_path))


@pytest.mark.parametrize("position", ["mean", "centred", "variance", "root", "normal"])
@pytest.mark.parametrize("result", [True, False], ids=["result", "shared"])
def test_no_normalization_where_others_see_its_inside(tmp_path, position, result):
    net = Net()
    m = mean(net, "x")
    d = net.add("Sub", "x", m)
    variance = mean(net, squared(net, d, "pow"))
    root = net.add("Sqrt", net.add("Add", variance, 1e-5))
    normal = net.add("Div", d, root)
    net.add("Add", net.add("Mul", normal, net.normal(8)), net.normal(8), name="y")
    seen = {"mean": m, "centred": d, "variance": variance, "root": root, "normal": normal}[position]
    other = seen if result else net.add("Exp", net.add("Neg", net.add("Abs", seen)))
    found = operators(rewritten(net.model(X, ["y", other]), X, tmp_path))
    expected = ["Add", "LayerNormalization", "Mul"] if position == "normal" else []
    assert [
        name for name in found if name in ("Add", "LayerNormalization", "Mul")
    ] == expected or "LayerNormalization" not in found


def rms_norm(net, x, *, square="pow", root="reciprocal", scale=(8,), axes=(-1,), epsilon=1e-6):
    return net.add(
        "Mul", net.normal(*scale), over_root(net, x, mean(net, squared(net, x, square), axes), root, epsilon)
    )


RMS_NORMS = {
    "llama": {},
    "squares": {"square": "mul"},
    "divided": {"root": "div"},
    "one over": {"root": "one over"},
    "power": {"root": "power"},
    "two axes": {"axes": (1, 2), "scale": (5, 8)},
}


@pytest.mark.parametrize("case", RMS_NORMS)
def test_rms_normalization(tmp_path, case):
    net = Net()
    net.add("Relu", rms_norm(net, "x", **RMS_NORMS[case]), name="y")
    assert operators(rewritten(net.model(X, ["y"]), X, tmp_path)) == ["RMSNormalization", "Relu"]


@pytest.mark.parametrize("narrow_scale", [True, False])
def test_rms_normalization_in_f32_of_halves(tmp_path, narrow_scale):
    x = {"x": X["x"].astype(np.float16)}
    net = Net()
    wide = net.add("Cast", "x", to=1)
    y = over_root(net, wide, mean(net, squared(net, wide, "pow")), "reciprocal", 1e-6)
    y = (
        net.add("Mul", net.normal(8, dtype=np.float16), net.add("Cast", y, to=10))
        if narrow_scale
        else net.add("Mul", net.normal(8), y)
    )
    net.add("Relu", y, name="y")
    found = operators(rewritten(net.model(x, ["y"]), x, tmp_path, rtol=5e-3, atol=5e-3))
    assert found == (["RMSNormalization", "Relu"] if narrow_scale else ["Cast", "RMSNormalization", "Relu"])


@pytest.mark.parametrize(
    "case", [{"axes": (1,), "scale": (1, 1, 8)}, {"epsilon": 0.1}, {"scale": (5, 8)}, {"scale": (2, 1, 8)}]
)
def test_no_rms_normalization(tmp_path, case):
    net = Net()
    net.add("Relu", rms_norm(net, "x", **case), name="y")
    assert "RMSNormalization" not in operators(rewritten(net.model(X, ["y"]), X, tmp_path))


def test_no_rms_normalization_below_its_opset(tmp_path):
    net = Net()
    net.add("Relu", rms_norm(net, "x"), name="y")
    assert "RMSNormalization" not in operators(rewritten(net.model(X, ["y"]), X, tmp_path, opset=22))
