"""Inputs whose shapes or modes contradict each other are refused by kernels as they are by NumPy: a kernel that takes
them reads past the end of an array."""

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

IDS = np.array([0, 3, 5, 1, 9, 2, 2, 7])
CASES = {
    ("", "SwiGLU"): [case("f32[2,6]", "f32[2,3]"), case("f32[2,3]", "f32[1,3]"), case("f32[2,3]", "f32[2,3000]")],
    ("", "PRelu"): [case("f32[2,3,4]", "f32[3]"), case("f32[2,2,4]", "f32[3,1]"), case("f32[2,3]", "f32[3,1,1]")],
    ("", "RotaryEmbedding"): [
        case("f32[2,3,4,8]", "f32[10,4]", "f32[10,4]", IDS),
        case("f32[2,3,4,8]", "f32[10,4]", "f32[10,4]", IDS.reshape(1, 2, 4)),
    ],
    ("", "Attention"): [
        case("f32[2,3,4,8]", "f32[2,3,6,8]", "f32[2,3,6,5]", "f32[4,12]"),
        *(
            case("f32[2,3,4,8]", "f32[2,3,6,8]", "f32[2,3,6,5]", **{name: value})
            for name, value in (("qk_matmul_output_mode", 7), ("left_window_size", -2), ("right_window_size", -1000))
        ),
    ],
    ("", "GroupNormalization"): [
        case("f32[2,6,4,3]", "f32[1,6]", "f32[6]", num_groups=3),
        case("f32[2,6,4,3]", "f32[6]", "f32[1,6]", num_groups=3),
    ],
    ("", "InstanceNormalization"): [
        case("f32[2,3,4,5]", "f32[1,3]", "f32[3]"),
        case("f32[2,3,4]", "f32[3]", "f32[3,1]"),
    ],
    ("", "MeanVarianceNormalization"): [
        case("f32[120]"),
        case("f32[2,3,4,5]", axes=[0, -1, 3]),
        case("f32[2,3,4,5]", axes=[0, 4]),
    ],
    ("", "GlobalLpPool"): [case("f32[2,3,4,5]", p=0)],
    ("", "Squeeze"): [case("f32[]", np.array([0, 2])), case("f32[1]", np.array([0, 0]))],
    ("com.microsoft", "BiasGelu"): [
        case("f32[2,3,8]", "f32[4]"),
        case("f32[2,3,4]", "f32[3]"),
        case("f32[24]", "f32[4]"),
        case("f32[4]", "f32[2,4]"),
    ],
    ("com.microsoft", "FastGelu"): [case("f32[2,3,8]", "f32[4]"), case("f32[2,3,4]", "f32[8]")],
    ("com.microsoft", "SkipLayerNormalization"): [case("f32[2,3,4]", "f32[1,2,3,4]", "f32[4]")],
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): [case("f32[2,3,4]", "f32[1,2,3,4]", "f32[4]")],
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("key", CASES, ids="/".join)
def test_inputs_that_contradict_each_other(key, symbolic):
    """Of shapes in the model, and of shapes that only the arrays have."""
    for example in CASES[key]:
        made, feeds = model(operators()[key], example)
        for number, value in enumerate(made.graph.input if symbolic else ()):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.CopyFrom(onnx.TensorShapeProto.Dimension(dim_param=f"n{number}_{axis}"))
        for native in (False, True):
            with pytest.raises(cc.Error) as caught:
                Session(graph_of(made), 1, native=native, simplify=native).run(None, feeds)
            assert caught.value.exit_code in (2, 3, 4), (example, native)
