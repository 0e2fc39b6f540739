"""Networks of newer opsets written for opset 13: onnxruntime computes the same from both, or the writer refuses."""

import candle_convert as cc
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import helper, numpy_helper

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
REGIONS = {
    "x": RNG.standard_normal((1, 2, 6, 6)).astype(np.float32),
    "rois": np.array([[0, 0, 4, 4], [1.2, 1, 3, 5.5], [2, 2, 2.3, 2.4]], np.float32),
    "batch": np.array([0, 0, 0]),
}
ROI = {"output_height": 2, "output_width": 3}


def model(path, node, feeds, constants=(), opset=18):
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(made), path)


def computed(path, feeds):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


CASES = {
    "Pad with axes": (helper.make_node("Pad", ["x", "p", "v", "a"], ["y"]), {"x": X},
                      {"p": [1, 0, 2, 1], "v": np.float32(3), "a": [-1, 0]}, 18),
    "Pad reflects": (helper.make_node("Pad", ["x", "p", "", "a"], ["y"], mode="reflect"), {"x": X},
                     {"p": [1, 2], "a": [2]}, 18),
    "Split uneven": (helper.make_node("Split", ["x"], ["a", "b", "c"], axis=-1, num_outputs=3), {"x": X}, {}, 18),
    "Shape from": (helper.make_node("Shape", ["x"], ["y"], start=1), {"x": X}, {}, 15),
    "Shape to": (helper.make_node("Shape", ["x"], ["y"], start=-2, end=-1), {"x": X}, {}, 15),
    "Reshape allowzero": (helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=1), {"x": X}, {"s": [4, -1]}, 14),
    "Clip": (helper.make_node("Clip", ["x", "lo", "hi"], ["y"]), {"x": X},
             {"lo": np.float32(-0.5), "hi": np.float32(0.5)}, 18),
    "Clip above": (helper.make_node("Clip", ["x", "", "hi"], ["y"]), {"x": X}, {"hi": np.float32(0.5)}, 18),
    "Clip bytes": (helper.make_node("Clip", ["x", "lo"], ["y"]), {"x": (X * 40).astype(np.int8)},
                   {"lo": np.int8(-5)}, 18),
    "RoiAlign corners": (
        helper.make_node("RoiAlign", [*REGIONS], ["y"], coordinate_transformation_mode="output_half_pixel", **ROI),
        REGIONS, {}, 16),
    **{
        f"{name} {dtype}": (helper.make_node(name, ["a", "b"], ["y"]),
                            {"a": (X * 90).astype(dtype), "b": (np.abs(X) * 50 + 1).astype(dtype)}, {}, 18)
        for name in ("Add", "Sub", "Mul", "Div") for dtype in ("int8", "int16", "uint8", "uint16")
    },
    "QLinearMatMul float16": (
        helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"]),
        {"a": RNG.integers(0, 255, (5, 4)).astype(np.uint8)},
        {"as": np.float16(0.02), "az": np.uint8(128), "b": RNG.integers(0, 255, (4, 3)).astype(np.uint8),
         "bs": np.float16(0.01), "bz": np.uint8(120), "ys": np.float16(0.05), "yz": np.uint8(100)}, 21),
    "DequantizeLinear float16": (helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1),
                                 {"x": RNG.integers(0, 255, (5, 4)).astype(np.uint8)},
                                 {"s": np.float16([0.01, 0.3, 1.7, 0.02]), "z": np.uint8([3, 128, 0, 255])}, 21),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_computes_the_same(case, tmp_path):
    node, feeds, constants, opset = CASES[case]
    model(tmp_path / "new.onnx", node, feeds, constants, opset)
    cc.convert(tmp_path / "new.onnx", tmp_path / "old.onnx", opset=13)
    assert onnx.load(tmp_path / "old.onnx").opset_import[0].version == 13
    onnx.checker.check_model(str(tmp_path / "old.onnx"), full_check=True)
    try:
        expected = computed(tmp_path / "new.onnx", feeds)
        found = computed(tmp_path / "old.onnx", feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        expected = onnx.reference.ReferenceEvaluator(str(tmp_path / "new.onnx")).run(None, feeds)
        found = onnx.reference.ReferenceEvaluator(str(tmp_path / "old.onnx")).run(None, feeds)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", [{}, {"coordinate_transformation_mode": "half_pixel"}], ids=["default", "named"])
def test_regions_in_half_pixels_are_refused_below_16(mode, tmp_path):
    """Opset 10 to 15 compute regions with corners: written without the attribute they would be other ones."""
    model(tmp_path / "new.onnx", helper.make_node("RoiAlign", [*REGIONS], ["y"], **ROI, **mode), REGIONS, {}, 16)
    with pytest.raises(cc.UnsupportedError, match=r"RoiAlign \(from 16 on\)"):
        cc.convert(tmp_path / "new.onnx", tmp_path / "old.onnx", opset=13)
    cc.convert(tmp_path / "new.onnx", tmp_path / "same.onnx", opset=16)
    np.testing.assert_array_equal(
        computed(tmp_path / "same.onnx", REGIONS)[0], computed(tmp_path / "new.onnx", REGIONS)[0]
    )
