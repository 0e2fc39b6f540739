"""Linear of f32 weights with GELU and a residual in its epilogue: torch is the reference."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.session import Session
from onnx import TensorProto, helper, numpy_helper, save

torch = pytest.importorskip("torch")
DEPTH, COLUMNS = 70, 300


def session(approximate, threads, path):
    """GELU of a linear layer, and another layer with a residual, whose weights lie as PyTorch has them."""
    random = np.random.default_rng(0)
    weights = {
        "up": random.normal(size=(COLUMNS, DEPTH)) / 4,
        "bias": random.normal(size=COLUMNS),
        "down": random.normal(size=(DEPTH, COLUMNS)) / 16,
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    nodes = [
        helper.make_node("Transpose", ["up"], ["up^T"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "up^T"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Gelu", ["sum"], ["hidden"], approximate=approximate),
        helper.make_node("Transpose", ["down"], ["down^T"], perm=[1, 0]),
        helper.make_node("MatMul", ["hidden", "down^T"], ["narrow"]),
        helper.make_node("Add", ["narrow", "x"], ["y"]),
    ]
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["tokens", width])
        for name, width in (("x", DEPTH), ("hidden", COLUMNS), ("y", DEPTH))
    }
    graph = helper.make_graph(
        nodes,
        "mlp",
        [values["x"]],
        [values["y"]],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    save(model, path)
    return Session(cc.open(path), threads, native=True, simplify=True), weights


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tokens", [1, 9, 101])
def test_an_mlp_is_torchs(approximate, threads, tokens, tmp_path):
    ours, weights = session(approximate, threads, tmp_path / "mlp.onnx")
    x = (4 * np.random.default_rng(1).normal(size=(tokens, DEPTH))).astype(np.float32)
    up, bias, down = (torch.tensor(weights[name]).double() for name in ("up", "bias", "down"))
    wide = torch.tensor(x).double()
    hidden = torch.nn.functional.gelu(wide @ up.T + bias, approximate=approximate)
    expected = (hidden @ down.T + wide).numpy()
    (found,) = ours.run(None, {"x": x})
    assert np.abs(found - expected).max() < 3e-6 * np.abs(expected).max()
