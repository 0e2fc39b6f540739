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


def network(path, rank, order, first, right, opset):
    """A norm or nothing, a Transpose, a MatMul with a constant matrix on either side, and a bias."""
    rng = np.random.default_rng(0)
    shape = [2, 3, 4, 8][-rank:] if rank == 4 else [2, 3, 8]
    transposed = [shape[axis] for axis in order]
    matrix = (transposed[-1], 6) if right else (6, transposed[-2])
    constants = {"g": rng.normal(size=8), "b": rng.normal(size=8), "w": rng.normal(size=matrix)}
    nodes = [helper.make_node(NORMED, ["x", "g", "b"], ["n"], axis=-1)] if first else []
    nodes += [
        helper.make_node("Transpose", ["n" if first else "x"], ["t"], perm=order),
        helper.make_node("MatMul", ["t", "w"] if right else ["w", "t"], ["y"]),
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
    source, out, fed, result = (tmp_path / name for name in ("in.onnx", "out.onnx", "x.npy", "y.npy"))
    x = network(source, len(order), order, first, right, 17)
    np.save(fed, x)
    if command == "convert":
        cc.convert(source, out, dtype="f16")
    else:
        assert run(["quantize", str(source), str(out), "fp16", "-q"]) == 0
    onnx.checker.check_model(str(out), full_check=True)
    subprocess.run([sys.executable, "-c", RUN, str(out), str(fed), str(result)], check=True)
    expected = onnxruntime.InferenceSession(str(source)).run(None, {"x": x})[0]
    got = np.load(result)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 1e-2 * np.abs(expected).max()
