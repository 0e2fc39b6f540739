"""Pooling kernels against the reference: edges, padding that counts, strides, special values; and onnxruntime's results
for whole planes."""

import numpy as np
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.session import Session
from onnx import TensorProto, helper

WINDOWS = ((1, 1, 0, 1, 0), (2, 2, 0, 1, 0), (3, 2, 1, 1, 1), (3, 1, 1, 1, 0), (3, 3, 1, 2, 1), (5, 4, 2, 1, 1))
"""Kernel, stride, padding, dilation, whether lengths are rounded up."""


def pooled(operator, x, **attributes):
    """What kernels, NumPy and onnxruntime make of `x`."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x.shape), ("y", None))
    ]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "net", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    return [
        Session(graph_of(model), native=native, simplify=False).run(None, {"x": x})[0] for native in (True, False)
    ] + [theirs]


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("width", [1, 5, 17, 40])
def test_windows(operator, width):
    rng = np.random.default_rng(width)
    for kernel, stride, pad, dilation, up in WINDOWS:
        if width + 2 * pad < (kernel - 1) * dilation + 1:
            continue
        x = rng.normal(size=(2, 3, width, width)).astype(np.float32)
        attributes = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "ceil_mode": up,
            "dilations": [dilation] * 2,
        }
        for padded in (0, 1) if operator == "AveragePool" else (None,):
            found, plain, theirs = pooled(
                operator, x, **attributes, **({} if padded is None else {"count_include_pad": padded})
            )
            np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-6)
            if not up:  # onnxruntime counts what lies behind the padding there
                np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=1e-6)


def test_special_values():
    x = np.random.default_rng(1).normal(size=(1, 4, 20, 20)).astype(np.float32)
    x.reshape(-1)[::37], x.reshape(-1)[5::41], x.reshape(-1)[3::43] = np.nan, -np.inf, np.inf
    for operator in ("MaxPool", "AveragePool"):
        found, plain, _ = pooled(operator, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 7, 14), (5, 16, 16), (2, 130, 33), (2, 9, 300)])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), (3, 2)])
def test_small_squares(kernel, stride, shape):
    """Rows shorter and longer than vectors, planes of several bands, paddings that differ, NaN and infinities in some
    of the bands."""
    x = np.random.default_rng(kernel).normal(size=(1, *shape)).astype(np.float32)
    special = x.copy()
    special[0, 1, 2, 3:9], special[0, 0, 5, 0], special[0, 1, -1, -1] = (
        (np.nan, np.inf, -np.inf, 0, np.nan, -0.0),
        -np.inf,
        np.nan,
    )
    for pads in ([0] * 4, [1] * 4, [1, 0, 0, 1], [0, 1, 1, 0]):
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        for values in (x, special):
            found, plain, _ = pooled("MaxPool", values, **attributes)
            np.testing.assert_array_equal(found, plain)
            for padded in (0, 1):
                found, plain, theirs = pooled("AveragePool", values, **attributes, count_include_pad=padded)
                np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-6)
                np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=1e-6)


def test_one_axis_and_unequal_ones():
    rng = np.random.default_rng(2)
    for operator in ("MaxPool", "AveragePool"):
        for x, attributes in (
            (rng.normal(size=(2, 3, 30)), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
            (rng.normal(size=(2, 3, 9, 30)), {"kernel_shape": [2, 3], "strides": [1, 2], "auto_pad": "SAME_UPPER"}),
        ):
            found, plain, theirs = pooled(operator, x.astype(np.float32), **attributes)
            np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [((5, 5), 1, 1), ((5, 5), 3, 1), ((3, 2), 2, 1), ((7, 7), 7, 1), ((3, 4), 1, 2)]
)
def test_channels_in_blocks_of_16(operator, kernel, stride, dilation):
    """Channels that fill vectors and not, planes of several bands, paddings that differ, rows shorter than four
    outputs."""
    for channels, height, width in ((16, 14, 14), (37, 9, 8), (20, 130, 90)):
        x = np.random.default_rng(channels).normal(size=(1, channels, height, width)).astype(np.float32)
        for pads in ([0] * 4, [2, 1, 2, 1], [0, 1, 2, 0]):
            pads = [min(pad, min(kernel) - 1) for pad in pads]
            attributes = {"kernel_shape": kernel, "strides": [stride] * 2, "pads": pads, "dilations": [dilation] * 2}
            for padded in (0, 1) if operator == "AveragePool" else (None,):
                found, plain, theirs = pooled(
                    operator, x, **attributes, **({} if padded is None else {"count_include_pad": padded})
                )
                np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-6)
                if not np.isnan(x).any():  # onnxruntime's largest is not NaN
                    np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=1e-6)
            x[0, 3, 2, 3:6] = np.nan, np.inf, -np.inf
