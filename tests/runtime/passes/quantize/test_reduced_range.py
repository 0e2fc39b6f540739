"""Weights of 7 bits, stacks of matrices and weights on the left: codes and results against onnxruntime and NumPy."""

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(11)
SHAPES = {
    "matrix": ((5, 32), (32, 24)),
    "stack": ((4, 5, 32), (4, 32, 24)),
    "wide stack": ((2, 4, 5, 32), (4, 32, 24)),
    "left": ((24, 32), (32, 5)),
    "left stack": ((3, 24, 32), (3, 32, 5)),
    "left of stack": ((24, 32), (3, 32, 5)),
}


def product(path, kind):
    """A network of one product; the input and the weight."""
    left, right = (RNG.standard_normal(shape).astype(np.float32) for shape in SHAPES[kind])
    weight, x, names = (left, right, ["w", "x"]) if kind.startswith("left") else (right, left, ["x", "w"])
    graph = helper.make_graph(
        [helper.make_node("MatMul", names, ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    np.savez(path.with_suffix(".npz"), x=x)
    return x, weight, left @ right


def snr(expected, found):
    return 10 * np.log10(np.square(expected).sum() / np.square(expected - found).sum())


@pytest.mark.parametrize("reduced", [False, True], ids=["8 bits", "7 bits"])
@pytest.mark.parametrize("options", [[], ["--per-channel"]], ids=["", "channels"])
@pytest.mark.parametrize("form", ["dynamic", "qdq", "qoperator"])
@pytest.mark.parametrize("kind", SHAPES)
def test_products_are_quantized(tmp_path, capsys, kind, form, options, reduced):
    """The weight is stored in bytes, and both runtimes' results are near the product's."""
    x, _, expected = product(tmp_path / "net.onnx", kind)
    calib = [] if form == "dynamic" else ["--calib", str(tmp_path / "net.npz"), "--quant-format", form]
    words = [
        "quantize",
        str(tmp_path / "net.onnx"),
        str(tmp_path / "q.onnx"),
        "int8",
        *calib,
        *options,
        "--no-fallback",
    ]
    assert run([*words, *(["--reduce-range"] if reduced else [])]) == 0, capsys.readouterr().err
    weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(tmp_path / "q.onnx").graph.initializer}
    codes = max(weights.values(), key=np.size)
    assert codes.dtype in (np.int8, np.uint8)
    if reduced:
        reach = np.abs(codes.astype(int) - (64 if codes.dtype == np.uint8 else 0)).max()
        assert 60 <= reach <= 64
    ours = cc.InferenceSession(tmp_path / "q.onnx").run(None, {"x": x})[0]
    assert snr(expected, ours) > (28 if reduced else 33)
    if codes.dtype == np.uint8 or reduced:
        theirs = onnxruntime.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"])
        assert snr(expected, theirs.run(None, {"x": x})[0]) > (28 if reduced else 33)


def test_codes_are_onnxruntimes(tmp_path, capsys):
    """The codes of a weight are those of onnxruntime's own quantizer with reduce_range, but for ties."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    product(tmp_path / "net.onnx", "matrix")
    assert run(["quantize", str(tmp_path / "net.onnx"), str(tmp_path / "q.onnx"), "int8", "--reduce-range"]) == 0
    quantization.quantize_dynamic(
        tmp_path / "net.onnx",
        tmp_path / "theirs.onnx",
        weight_type=quantization.QuantType.QInt8,
        reduce_range=True,
        extra_options={"WeightSymmetric": True},
    )
    ours, theirs = (
        next(
            numpy_helper.to_array(each).astype(int)
            for each in onnx.load(tmp_path / name).graph.initializer
            if each.data_type == TensorProto.INT8 and np.prod(each.dims) > 1
        )
        for name in ("q.onnx", "theirs.onnx")
    )
    assert np.abs(ours - theirs).max() <= 1
    assert (ours != theirs).mean() < 0.01


def test_a_note_names_the_loss_on_avx2(tmp_path, capsys):
    product(tmp_path / "net.onnx", "matrix")
    net = str(tmp_path / "net.onnx")
    assert run(["quantize", net, str(tmp_path / "q.onnx"), "int8"]) == 0
    assert "! W-QUANT-SATURATES" in capsys.readouterr().err
    for number, options in enumerate((["int8", "--reduce-range"], ["uint8"])):
        assert run(["quantize", net, str(tmp_path / f"{number}.onnx"), *options]) == 0
        assert "SATURATES" not in capsys.readouterr().err
    assert run(["quantize", net, str(tmp_path / "b.onnx"), "int4", "--reduce-range"]) == 2
    assert "--reduce-range is for int8 and uint8" in capsys.readouterr().err
