"""Layers of neural networks against onnxruntime: drawn attributes at every opset, all dtypes, statistics of the oldest
opsets, edge values."""

import contextlib

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from candle_convert.ops.conv import conv as conv_module
from candle_convert.runtime.base.errors import FormatError, LimitError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.tests.oracles.onnxruntime import compared, ours, single, theirs
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NotImplemented, RuntimeException

DRAWS = 60
RNG = np.random.default_rng


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def whole(rng, low, high, count):
    return [int(value) for value in rng.integers(low, high, count)]


def padding(rng, rank, limit):
    """Attributes for one of the ways to pad; `limit` for each end of each axis."""
    mode = rng.choice(["pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "pads":
        return {"pads": [int(rng.integers(0, end + 1)) for end in [*limit, *limit]]}
    return {} if mode == "none" else {"auto_pad": str(mode)}


def drawn_conv(rng):
    rank, group = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4]))
    each, kernels = (int(value) for value in rng.integers(1, 4, 2))
    taps = whole(rng, 1, 4, rank)
    attributes = {"group": group, **padding(rng, rank, [2] * rank)}
    if rng.random() < 0.5:
        attributes |= {"strides": whole(rng, 1, 4, rank), "dilations": whole(rng, 1, 3, rank)}
    if rng.random() < 0.5:
        attributes["kernel_shape"] = taps
    x, w = (
        floats(rng, int(rng.integers(1, 3)), group * each, *whole(rng, 7, 12, rank)),
        floats(rng, group * kernels, each, *taps),
    )
    return (
        "Conv",
        [x, w, *([floats(rng, group * kernels)] if rng.random() < 0.5 else [])],
        attributes,
        int(rng.choice([1, 8, 11, 22])),
        1,
    )


def drawn_transpose(rng):
    rank, group = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    each, kernels = (int(value) for value in rng.integers(1, 4, 2))
    taps, strides, dilations = whole(rng, 1, 4, rank), whole(rng, 1, 4, rank), whole(rng, 1, 3, rank)
    sizes = whole(rng, 3, 6, rank)
    attributes = {"group": group, "strides": strides, "dilations": dilations, **padding(rng, rank, [1] * rank)}
    if "pads" in attributes:
        attributes["output_padding"] = [
            int(rng.integers(0, max(pair))) for pair in zip(strides, dilations, strict=True)
        ]
    elif "auto_pad" not in attributes:
        full = [
            step * (size - 1) + gap * (tap - 1) + 1
            for step, size, gap, tap in zip(strides, sizes, dilations, taps, strict=True)
        ]
        attributes["output_shape"] = [length - int(rng.integers(0, 2)) if length > 4 else length for length in full]
    x, w = floats(rng, int(rng.integers(1, 3)), group * each, *sizes), floats(rng, group * each, kernels, *taps)
    return (
        "ConvTranspose",
        [x, w, *([floats(rng, group * kernels)] if rng.random() < 0.5 else [])],
        attributes,
        int(rng.choice([1, 11, 22])),
        1,
    )


def drawn_pool(name, opsets):
    def drawn(rng):
        rank, opset, outputs = int(rng.integers(1, 4)), int(rng.choice(opsets)), 1
        taps = whole(rng, 1, 4, rank)
        attributes = {
            "kernel_shape": taps,
            "strides": whole(rng, 1, 4, rank),
            **padding(rng, rank, [tap - 1 for tap in taps]),
        }
        if "auto_pad" in attributes:
            attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], taps, strict=True)]
        if opset >= (18 if name == "LpPool" else 10) and rng.random() < 0.5:
            attributes["ceil_mode"] = 1
        if (
            opset >= (10 if name == "MaxPool" else 19)
            and rng.random() < 0.5
            and "SAME" not in attributes.get("auto_pad", "")
        ):
            attributes["dilations"] = whole(rng, 1, 3, rank)
        if name == "MaxPool" and opset >= 8:
            outputs, attributes["storage_order"] = 2, int(rng.integers(0, 2))
        if name == "AveragePool" and opset >= 7:
            attributes["count_include_pad"] = int(rng.integers(0, 2))
        if name == "LpPool":
            attributes["p"] = int(rng.integers(1, 4))
        return name, [floats(rng, *whole(rng, 1, 4, 2), *whole(rng, 7, 12, rank))], attributes, opset, outputs

    return drawn


KINDS = {
    "Conv": drawn_conv,
    "ConvTranspose": drawn_transpose,
    "MaxPool": drawn_pool("MaxPool", [1, 8, 10, 11, 12, 22]),
    "AveragePool": drawn_pool("AveragePool", [7, 10, 11, 19, 22]),
    "LpPool": drawn_pool("LpPool", [2, 11, 18, 22]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_windows(kind):
    rng, agreed = RNG(7), 0
    for _ in range(DRAWS):
        name, inputs, attributes, opset, outputs = KINDS[kind](rng)
        with contextlib.suppress(InvalidArgument, RuntimeException, NotImplemented):
            compared(name, *inputs, opset=opset, outputs=outputs, rtol=1e-4, atol=1e-5, **attributes)
            agreed += 1
    assert agreed > DRAWS // 2


CHANNELS = 3
SINGLES = [
    ("GlobalAveragePool", (1, 22), ["f32[2,3,4,5]"], {}),
    ("GlobalMaxPool", (1, 22), ["f32[2,3,4]"], {}),
    ("GlobalLpPool", (2,), ["f32[2,3,4,5]"], {"p": 3}),
    ("InstanceNormalization", (6, 22), ["f32[2,3,4,5]", "f32[3]", "f32[3]"], {"epsilon": 0.01}),
    ("LayerNormalization", (17,), ["f32[2,3,4,5]", "f32[4,5]", "f32[5]"], {"axis": 2}),
    ("LRN", (1, 13), ["f32[2,7,3,4]"], {"size": 5, "alpha": 0.3}),
    ("LpNormalization", (1, 22), ["f32[2,3,4]"], {"axis": 1, "p": 1}),
    ("MeanVarianceNormalization", (9, 13), ["f32[2,3,4,5]"], {}),
    ("GroupNormalization", (18,), ["f32[2,6,4,5]", "f32[3]", "f32[3]"], {"num_groups": 3}),
    ("GroupNormalization", (21,), ["f32[2,6,4,5]", "f32[6]", "f32[6]"], {"num_groups": 3}),
    ("RMSNormalization", (23,), ["f32[2,3,4,5]", "f32[4,5]"], {"axis": -2}),
    (
        "MaxRoiPool",
        (1,),
        ["f32[1,2,6,7]", np.array([[0, 1, 2, 5, 4], [0, 0, 0, 3, 5]], np.float32)],
        {"pooled_shape": [2, 2]},
    ),
    ("MaxUnpool", (9, 11, 22), ["f32[1,1,2]", np.array([[[1, 3]]])], {"kernel_shape": [2], "strides": [2]}),
    ("DeformConv", (19, 22), ["f32[1,2,5,6]", "f32[3,2,2,3]", "f32[1,12,4,4]", "f32[3]"], {}),
]


@pytest.mark.parametrize(
    ("name", "opset", "inputs", "attributes"),
    [(name, opset, inputs, attributes) for name, opsets, inputs, attributes in SINGLES for opset in opsets],
)
def test_every_opset(name, opset, inputs, attributes):
    compared(name, *inputs, opset=opset, rtol=1e-4, atol=1e-5, **attributes)


def test_float_powers_of_the_first_opset():
    made, feeds = single("LpPool", Example(("f32[1,2,6]",), {"kernel_shape": [2], "p": 3.0}), 1)
    newer, _ = single("LpPool", Example(("f32[1,2,6]",), {"kernel_shape": [2], "p": 3}), 11)
    np.testing.assert_array_equal(ours(made, feeds)[0], theirs(newer, feeds)[0])


def test_hints_of_the_first_opset_are_forgotten():
    values = Example(("f32[2,3,4]", "f32[3]", "f32[3]"), {"epsilon": 0.1, "consumed_inputs": [0, 0, 0]})
    plain = Example(values.inputs, {"epsilon": 0.1})
    np.testing.assert_allclose(
        ours(*single("InstanceNormalization", values, 1))[0],
        theirs(*single("InstanceNormalization", plain, 6))[0],
        rtol=1e-4,
    )


def statistics(rng, *shape):
    """Scale, bias, mean and variance."""
    return [
        floats(rng, *shape),
        floats(rng, *shape),
        floats(rng, *shape),
        rng.uniform(0.5, 2, shape).astype(np.float32),
    ]


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 14, 15])
def test_batch_normalization_at_inference(opset):
    rng = RNG(opset)
    compared(
        "BatchNormalization",
        floats(rng, 2, 3, 4, 5),
        *statistics(rng, 3),
        opset=opset,
        epsilon=0.01,
        momentum=0.4,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("opset", [7, 8])
def test_batch_normalization_of_elements(opset):
    rng = RNG(opset)
    compared(
        "BatchNormalization",
        floats(rng, 2, 3, 4, 5),
        *statistics(rng, 3, 4, 5),
        opset=opset,
        spatial=0,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("spatial", [1, 0])
@pytest.mark.parametrize(("opset", "is_test"), [(1, 1), (6, 1), (1, 0), (6, 0)])
def test_batch_normalization_of_the_first_opsets(opset, is_test, spatial):
    rng = RNG(opset)
    shape = (3,) if spatial else (3, 4)
    x, values = floats(rng, 2, 3, 4), statistics(rng, *shape)
    attributes = {"is_test": is_test, "spatial": spatial, "epsilon": 1e-3, "momentum": 0.7} | (
        {"consumed_inputs": [0] * 5} if opset == 1 else {}
    )
    found = ours(*single("BatchNormalization", Example((x, *values), attributes, 1 if is_test else 5), opset))
    tensors = [torch.from_numpy(item.reshape(-1)) for item in values]
    rows = torch.from_numpy(x if spatial else x.reshape(2, -1))
    mean, var = tensors[2].clone(), tensors[3].clone()
    expected = torch.nn.functional.batch_norm(rows, mean, var, tensors[0], tensors[1], not is_test, 1 - 0.7, 1e-3)
    np.testing.assert_allclose(found[0].reshape(rows.shape), expected.numpy(), rtol=1e-4, atol=1e-5)
    if not is_test:
        axes = (0, 2) if spatial else (0,)
        batch = [rows.numpy().mean(axes), rows.numpy().var(axes)]
        running = [old.numpy() * 0.7 + new * 0.3 for old, new in zip(tensors[2:], batch, strict=True)]
        for one, other in zip(found[1:], [*running, *batch], strict=True):
            assert one.shape == shape
            np.testing.assert_allclose(one.reshape(-1), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 13])
def test_training_with_the_batchs_own_statistics(opset):
    rng = RNG(3)
    x, values = floats(rng, 4, 3, 5), statistics(rng, 3)
    old = ours(*single("BatchNormalization", Example((x, *values), {"momentum": 0.6}, 5), opset))
    new = theirs(*single("BatchNormalization", Example((x, *values), {"momentum": 0.6, "training_mode": 1}, 3), 15))
    for one, other in zip(old, [*new, x.mean((0, 2)), x.var((0, 2))], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


NARROW = [
    ("Conv", ["f32[1,4,5,6]", "f32[6,2,3,3]", "f32[6]"], {"group": 2}, 22),
    ("ConvTranspose", ["f32[1,4,3,4]", "f32[4,2,3,3]"], {}, 22),
    ("MaxPool", ["f32[1,2,6]"], {"kernel_shape": [3]}, 22),
    ("AveragePool", ["f32[1,2,6]"], {"kernel_shape": [3]}, 22),
    ("GlobalAveragePool", ["f32[2,3,4]"], {}, 22),
    ("LayerNormalization", ["f32[2,3,4]", "f32[4]", "f32[4]"], {}, 17),
    ("RMSNormalization", ["f32[2,3,4]", "f32[4]"], {}, 23),
    ("InstanceNormalization", ["f32[2,3,4]", "f32[3]", "f32[3]"], {}, 22),
    ("GroupNormalization", ["f32[2,4,3]", "f32[4]", "f32[4]"], {"num_groups": 2}, 21),
    ("LRN", ["f32[2,5,3]"], {"size": 3}, 13),
    ("BatchNormalization", ["f32[2,3,4]", "f32[3]", "f32[3]", "f32[3]", np.ones(3, np.float32)], {}, 15),
    ("LpPool", ["f32[1,2,6]"], {"kernel_shape": [3]}, 22),
    ("Col2Im", ["f32[1,6,4]", np.array([6]), np.array([3])], {}, 18),
    ("SwiGLU", ["f32[2,3]", "f32[2,3]"], {}, 28),
]


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-5)], ids=["f16", "bf16", "f64"]
)
@pytest.mark.parametrize(("name", "inputs", "attributes", "opset"), NARROW, ids=[row[0] for row in NARROW])
def test_other_floats_agree_with_f32(name, inputs, attributes, opset, dtype, rtol):
    made, feeds = single(name, Example(tuple(inputs), attributes), opset)
    rounded = {
        key: value.astype(dtype).astype(np.float32) if value.dtype == np.float32 else value
        for key, value in feeds.items()
    }
    expected = ours(made, rounded)[0]
    narrow = tuple(value.astype(dtype) if value.dtype == np.float32 else value for value in rounded.values())
    found = ours(*single(name, Example(narrow, attributes), opset))[0]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_small_integers(dtype):
    x = RNG(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 7, 6)).astype(dtype)
    compared("MaxPool", x, opset=12, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1])


@pytest.mark.parametrize("column_bytes", [1, 700, 4 << 20])
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_blocks_of_every_size_give_the_same(name, column_bytes, monkeypatch):
    monkeypatch.setattr(conv_module, "COLUMN_BYTES", column_bytes)
    monkeypatch.setattr("candle_convert.ops.conv.conv_transpose.COLUMN_BYTES", column_bytes)
    shape = "f32[6,2,3,2]" if name == "Conv" else "f32[4,3,3,2]"
    compared(
        name,
        "f32[2,4,9,8]",
        shape,
        opset=11,
        group=2,
        strides=[2, 1],
        pads=[1, 0, 1, 1],
        dilations=[1, 2],
        rtol=1e-4,
        atol=1e-5,
    )


def test_indices_of_a_padded_pool_lie_in_the_input():
    x = np.full((1, 2, 3, 3), -1, np.float32)
    values, places = ours(*single("MaxPool", Example((x,), {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, 2), 12))
    assert values.max() == -1
    np.testing.assert_array_equal(x.reshape(-1)[places], values)


def test_nan_and_infinity_go_through_pools():
    x = np.array([[[1, np.nan, 3, np.inf, -np.inf, 2]]], np.float32)
    largest = ours(*single("MaxPool", Example((x,), {"kernel_shape": [2]}), 12))[0]
    np.testing.assert_array_equal(largest, torch.nn.functional.max_pool1d(torch.from_numpy(x), 2, 1).numpy())
    average = ours(*single("AveragePool", Example((x,), {"kernel_shape": [2]}), 12))[0]
    np.testing.assert_array_equal(average, torch.nn.functional.avg_pool1d(torch.from_numpy(x), 2, 1).numpy())


def test_even_windows_of_local_response():
    x = RNG(1).normal(size=(2, 6, 3)).astype(np.float32)
    found = ours(*single("LRN", Example((x,), {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 2.0}), 13))[0]
    for channel in range(6):
        near = np.square(x[:, max(0, channel - 1) : channel + 3]).sum(1)
        np.testing.assert_allclose(found[:, channel], x[:, channel] / (2 + 0.5 / 4 * near) ** 0.6, rtol=1e-5)


def test_deformed_volumes_with_no_offset_are_convolved():
    rng = RNG(2)
    x, w = floats(rng, 1, 2, 4, 5, 3), floats(rng, 3, 2, 2, 2, 2)
    found = ours(*single("DeformConv", Example((x, w, np.zeros((1, 24, 3, 4, 2), np.float32)), {}), 22))[0]
    np.testing.assert_allclose(found, ours(*single("Conv", Example((x, w), {}), 22))[0], rtol=1e-4, atol=1e-5)


REFUSED = [
    ("Conv", ["f32[1,3,5,5]", "f32[2,2,3,3]"], {}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,6,3]"], {}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,3,3]"], {"strides": [0, 1]}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,3,3]"], {"pads": [1, 1]}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,3,3]"], {"auto_pad": "BEST"}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,3,3]", "f32[3]"], {}),
    ("Conv", ["f32[1,2,5,5]", "f32[2,2,3,3]"], {"kernel_shape": [2, 2]}),
    ("ConvTranspose", ["f32[1,2,5,5]", "f32[3,2,3,3]"], {}),
    ("ConvTranspose", ["f32[1,2,1,1]", "f32[2,2,1,1]"], {"pads": [2, 2, 2, 2]}),
    ("MaxPool", ["f32[1,2,5]"], {"kernel_shape": [6]}),
    ("MaxPool", ["f32[2,5]"], {"kernel_shape": [2]}),
    ("AveragePool", ["f32[1,2,5]"], {"kernel_shape": [0]}),
    ("BatchNormalization", ["f32[2,3,4]", "f32[4]", "f32[3]", "f32[3]", "f32[3]"], {}),
    ("LayerNormalization", ["f32[2,3]", "f32[4]"], {}),
    ("LayerNormalization", ["f32[2,3]", "f32[3]"], {"axis": 2}),
    ("GroupNormalization", ["f32[2,3,4]", "f32[3]", "f32[3]"], {"num_groups": 2}),
    ("RMSNormalization", ["f32[2,3]", "f32[2]"], {}),
    ("MaxUnpool", ["f32[1,1,2]", np.array([[[1, 9]]])], {"kernel_shape": [2], "strides": [2]}),
    ("Col2Im", ["f32[1,6,5]", np.array([6]), np.array([3])], {}),
    ("MaxRoiPool", ["f32[1,2,6,7]", np.ones((1, 5), np.float32)], {"pooled_shape": [2, 2]}),
    ("DeformConv", ["f32[1,2,5,6]", "f32[3,2,2,3]", "f32[1,11,4,4]"], {}),
    ("SwiGLU", ["f32[2,3]", "f32[1,3]"], {}),
    ("LRN", ["f32[2,3,4]"], {"size": 0}),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"), REFUSED, ids=[f"{row[0]}-{index}" for index, row in enumerate(REFUSED)]
)
def test_what_does_not_fit_is_refused(name, inputs, attributes):
    with pytest.raises(FormatError) as caught:
        ours(*single(name, Example(tuple(inputs), attributes)))
    assert name in str(caught.value)


def test_results_beyond_the_limit_are_refused():
    made, feeds = single("Conv", Example(("f32[1,1,2,2]", "f32[1,1,1,1]"), {"pads": [1 << 20] * 4}))
    with pytest.raises(LimitError), cc.limits(memory=1 << 30):
        ours(made, feeds)


def symbolic(name, shapes, attributes):
    """What inference says of a node whose inputs have these dims."""
    node = helper.make_node(name, [f"x{index}" for index in range(len(shapes))], ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(f"x{index}", onnx.TensorProto.FLOAT, shape) for index, shape in enumerate(shapes)
    ]
    made = helper.make_model(
        helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")]),
        opset_imports=[helper.make_opsetid("", 22)],
    )
    graph = onnx_graph.graph_of(made)
    infer(graph)
    return graph.outputs[0].shape


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "shape"),
    [
        ("Conv", [["n", 3, "h", "w"], [8, 3, 3, 3]], {"pads": [1, 1, 1, 1]}, ("n", 8, "h", "w")),
        ("Conv", [["n", 3, "h", 9], [8, 3, 3, 3]], {"strides": [2, 2]}, ("n", 8, None, 4)),
        ("Conv", [[2, 3, "h", 9], ["m", 3, 3, 3]], {"auto_pad": "SAME_UPPER", "strides": [1, 2]}, (2, "m", "h", 5)),
        ("MaxPool", [["n", "c", 7, "w"]], {"kernel_shape": [2, 3], "pads": [0, 1, 0, 1]}, ("n", "c", 6, "w")),
        ("ConvTranspose", [["n", 4, "h", 5], [4, 2, 3, 3]], {"group": 2}, ("n", 4, None, 7)),
        ("GlobalMaxPool", [["n", 4, "h", 5]], {}, ("n", 4, 1, 1)),
    ],
)
def test_symbolic_lengths(name, shapes, attributes, shape):
    assert symbolic(name, shapes, attributes) == shape


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool", "LpPool"])
def test_taps_that_see_only_padding_cost_nothing(name):
    reach = 1 << 40
    attributes = {"kernel_shape": [reach], "pads": [reach - 1, 0]}
    found = ours(*single(name, Example((np.array([[[3, 1, 4, 1, 5]]], np.float32),), attributes), 22))[0]
    expected = {
        "MaxPool": [3, 3, 4, 4, 5],
        "AveragePool": [3, 2, 8 / 3, 9 / 4, 14 / 5],
        "LpPool": np.sqrt([9, 10, 26, 27, 52]),
    }[name]
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-6)
