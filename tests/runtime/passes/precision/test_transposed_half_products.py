"""f16 exports of transposed values times constant matrices: onnxruntime 1.32 crashes on them as they are."""

import subprocess
import sys

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from onnx import TensorProto, helper, numpy_helper

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
dtype = numpy.float16 if "16" in session.get_inputs()[0].type else numpy.float32
numpy.save(sys.argv[3], session.run(None, {"x": numpy.load(sys.argv[2]).astype(dtype)})[0])
"""
NORMED = "LayerNormalization"


BETWEEN = {
    "nothing": lambda order: [],
    "a Transpose": lambda order: [helper.make_node("Transpose", ["t"], ["s"], perm=order)],
    "Identity and Transpose": lambda order: [
        helper.make_node("Identity", ["t"], ["i"]),
        helper.make_node("Transpose", ["i"], ["s"], perm=order),
    ],
    "Concat": lambda order: [helper.make_node("Concat", ["t", "t"], ["s"], axis=0)],
}
"""What follows the first Transpose; ONNX Runtime moves Transposes through it, or composes them."""


def network(path, rank, order, first, right, opset, between="nothing"):
    """A norm or nothing, a Transpose and what follows it, and a MatMul with a constant matrix on either side."""
    rng = np.random.default_rng(0)
    shape = [2, 3, 4, 8][-rank:] if rank == 4 else [2, 3, 8]
    transposed = [shape[axis] for axis in order]
    steps = BETWEEN[between](order)
    if "Transpose" in between:
        transposed = [transposed[axis] for axis in order]
    matrix = (transposed[-1], 6) if right else (6, transposed[-2])
    constants = {"g": rng.normal(size=8), "b": rng.normal(size=8), "w": rng.normal(size=matrix)}
    value = "s" if steps else "t"
    nodes = [helper.make_node(NORMED, ["x", "g", "b"], ["n"], axis=-1)] if first else []
    nodes += [
        helper.make_node("Transpose", ["n" if first else "x"], ["t"], perm=order),
        *steps,
        helper.make_node("MatMul", [value, "w"] if right else ["w", value], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("command", ["convert", "quantize"])
@pytest.mark.parametrize(
    ("order", "right"),
    [((1, 0, 2), True), ((1, 2, 0), True), ((1, 2, 0, 3), True), ((1, 2, 3, 0), True), ((1, 0, 2), False)],
)
@pytest.mark.parametrize("first", [True, False], ids=["norm", "input"])
def test_onnxruntime_runs_f16_exports(command, order, right, first, tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    x = network(source, len(order), order, first, right, 17)
    if command == "convert":
        cc.convert(source, out, dtype="f16")
    else:
        assert run(["quantize", str(source), str(out), "fp16", "-q"]) == 0
    assert_runs(source, out, x, tmp_path)


@pytest.mark.parametrize(
    ("between", "order", "right"),
    [
        ("a Transpose", (1, 0, 2), True),
        ("a Transpose", (2, 0, 1), False),
        ("a Transpose", (2, 0, 1, 3), True),
        ("Identity and Transpose", (2, 0, 1), True),
        ("Concat", (1, 0, 2), True),
        ("Concat", (1, 2, 0), False),
    ],
)
def test_onnxruntime_runs_f16_exports_whose_transposes_it_moves(between, order, right, tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    x = network(source, len(order), order, True, right, 17, between)
    cc.convert(source, out, dtype="f16")
    assert_runs(source, out, x, tmp_path)


def assert_runs(source, out, x, folder):
    """onnxruntime computes `out` as `source`, in a process of its own, which may crash."""
    fed, result = folder / "x.npy", folder / "y.npy"
    np.save(fed, x)
    onnx.checker.check_model(str(out), full_check=True)
    subprocess.run([sys.executable, "-c", RUN, str(out), str(fed), str(result)], check=True)
    expected = onnxruntime.InferenceSession(str(source)).run(None, {"x": x})[0]
    got = np.load(result)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 1e-2 * np.abs(expected).max()
