"""Native convolutions over one to three axes against NumPy: strides, dilations, padding, groups; what follows is taken
into the launch."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
import torch
from candle_convert.ops.conv import conv_kernel, conv_transpose_kernel
from candle_convert.ops.kernels.conv.winograd import winograd
from candle_convert.ops.kernels.conv.winograd.kernel_transform import pack_kernels
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.jit.isa import features
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.native_vs_numpy import natively
from onnx import TensorProto, helper, numpy_helper


def drawn(rng, depthwise, most=(9, 20)):
    """A Conv node with less channels and outputs in a group than `most`."""
    spatial = int(rng.integers(1, 3 if depthwise else 4))
    groups = int(rng.integers(1, 5))
    channels, outputs = (
        (1, int(rng.integers(1, 3))) if depthwise else (int(rng.integers(1, most[0])), int(rng.integers(1, most[1])))
    )
    kernel, strides, dilations = ([int(item) for item in rng.integers(1, most, spatial)] for most in (4, 4, 3))
    pads = [int(item) for item in rng.integers(0, 3, 2 * spatial)]
    sizes = [
        int(rng.integers((length - 1) * dilation + 1, 40 if spatial < 3 else 12))
        for length, dilation in zip(kernel, dilations, strict=True)
    ]
    x = rng.normal(size=(int(rng.integers(1, 3)), groups * channels, *sizes)).astype(np.float32)
    w = rng.normal(size=(groups * outputs, channels, *kernel)).astype(np.float32)
    b = [rng.normal(size=groups * outputs).astype(np.float32)] if rng.random() < 0.5 else []
    return Example(
        (x, w, *b), {"group": groups, "strides": strides, "dilations": dilations, "pads": pads, "kernel_shape": kernel}
    )


@pytest.mark.parametrize("depthwise", [False, True])
def test_drawn_convolutions(depthwise):
    rng = np.random.default_rng(depthwise)
    for _ in range(50):
        natively("Conv", drawn(rng, depthwise), 22, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_squares_by_channel(stride):
    """Rows shorter and longer than vectors; fewer than four of them, multiples of four, and some more."""
    rng = np.random.default_rng(stride)
    for height, width in ((3, 3), (7, 7), (8, 16), (9, 33), (13, 70), (120, 150)):
        x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 3, height, width), (3, 1, 3, 3), (3,)))
        attributes = {"group": 3, "strides": [stride] * 2, "pads": [1, 0, 1, 1], "kernel_shape": [3, 3]}
        natively("Conv", Example((x, w, b), attributes), 22, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [
    ((3, 3), 1, 1), ((3, 3), 2, 1), ((5, 5), 1, 1), ((5, 3), 2, 2), ((7, 7), 1, 1), ((7,), 1, 2),
])  # fmt: skip
def test_channels_in_blocks_of_16(kernel, stride, dilation):
    """Channels that fill vectors and not, planes of each tile and of several bands, what follows, and windows that see
    nothing but padding."""
    rng = np.random.default_rng(stride)
    for channels, size, pad in ((16, 7, 1), (40, 9, 2), (19, 20, 3), (17, 150, 3), (32, 5, 9)):
        sizes = [size] * len(kernel)
        if min(size + 2 * pad - dilation * (length - 1) for length in kernel) < 1:
            continue
        x, w, b = (
            rng.normal(size=shape).astype(np.float32)
            for shape in ((2, channels, *sizes), (channels, 1, *kernel), (channels,))
        )
        attributes = {
            "group": channels,
            "strides": [stride] * len(kernel),
            "pads": [pad] * 2 * len(kernel),
            "dilations": [dilation] * len(kernel),
        }
        natively("Conv", Example((x, w, b), attributes), 22, rtol=1e-4, atol=1e-4, constant=[1, 2])


def test_rows_too_long_for_channel_blocks():
    rng = np.random.default_rng(8)
    x, w = rng.normal(size=(1, 16, 9000)).astype(np.float32), rng.normal(size=(16, 1, 11)).astype(np.float32)
    natively("Conv", Example((x, w), {"group": 16}), 22, rtol=1e-4, atol=1e-4, constant=[1])


def test_panels_of_outputs():
    rng = np.random.default_rng(5)
    for _ in range(12):
        example = drawn(rng, False, (150, 60))
        natively("Conv", example, 22, rtol=1e-3, atol=1e-3, constant=range(1, len(example.inputs)))


def transposed(rng):
    """A ConvTranspose node."""
    spatial, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    channels, outputs = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    kernel, strides, dilations = ([int(item) for item in rng.integers(1, most, spatial)] for most in (4, 4, 3))
    most = [(length - 1) * dilation + 1 for length, dilation in zip(kernel, dilations, strict=True)]
    pads = [int(rng.integers(0, length)) // 2 for length in [*most, *most]]
    x = rng.normal(size=(2, groups * channels, *(int(item) for item in rng.integers(1, 9, spatial)))).astype(np.float32)
    w = rng.normal(size=(groups * channels, outputs, *kernel)).astype(np.float32)
    b = [rng.normal(size=groups * outputs).astype(np.float32)] if rng.random() < 0.5 else []
    more = [int(rng.integers(0, max(stride, dilation))) for stride, dilation in zip(strides, dilations, strict=True)]
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads, "output_padding": more}
    return Example((x, w, *b), attributes)


def test_drawn_transposed_convolutions():
    rng = np.random.default_rng(4)
    for _ in range(40):
        natively("ConvTranspose", transposed(rng), 22, rtol=1e-4, atol=1e-4, constant=[1])


@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_phases(name, monkeypatch):
    """Strides along one axis: torch is right."""
    rng, planned = np.random.default_rng(5), []
    modules = {
        "Conv": (conv_kernel, "plan_by_phases"),
        "ConvTranspose": (conv_transpose_kernel, "plan_transposed_by_phases"),
    }
    module, planner = modules[name]
    original = getattr(module, planner)
    monkeypatch.setattr(module, planner, lambda *given: planned.append(original(*given)) or planned[-1])
    for _ in range(12):
        stride, groups, batch = (int(rng.integers(*bounds)) for bounds in ((2, 9), (1, 3), (1, 3)))
        width, size = (int(rng.integers(least, least + 20)) for least in (stride, 16 * stride))
        size = size if name == "Conv" else size // stride
        pads = [int(rng.integers(0, width)) for _ in range(2)]
        channels, outputs = 3 * groups, int(rng.integers(16, 40)) * groups
        shape = (outputs, 3) if name == "Conv" else (channels, outputs // groups)
        x = rng.standard_normal((batch, channels, size)).astype(np.float32)
        w, b = (rng.standard_normal(each).astype(np.float32) for each in ((*shape, width), outputs))
        attributes = {"strides": [stride], "group": groups, "pads": pads}
        (found, *_) = natively(name, Example((x, w, b), attributes), 22, rtol=1e-4, atol=1e-4, constant=[1, 2])
        given = [torch.from_numpy(each) for each in (x, w, b)]
        if name == "Conv":
            given[0] = torch.nn.functional.pad(given[0], pads)
            want = torch.nn.functional.conv1d(*given, stride=stride, groups=groups)
        else:
            want = torch.nn.functional.conv_transpose1d(*given, stride=stride, groups=groups)
            want = want[:, :, pads[0] : want.shape[2] - pads[1]]
        np.testing.assert_allclose(found, want.numpy(), rtol=1e-4, atol=1e-4)
    assert sum(each is not None for each in planned) > 8


@pytest.mark.parametrize("sizes", [(40, 1), (1, 40), (12, 1, 9)])
def test_axes_that_are_one_element(sizes):
    rng = np.random.default_rng(6)
    kernel = [3 if size > 1 else 1 for size in sizes]
    x, w = rng.normal(size=(1, 4, *sizes)).astype("f4"), rng.normal(size=(6, 4, *kernel)).astype("f4")
    pads = [int(size > 1) for size in sizes] * 2
    natively(
        "Conv",
        Example((x, w), {"pads": pads, "dilations": [1 if size > 1 else 3 for size in sizes]}),
        22,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("kernel", [(1, 1, 3), (1, 3, 3), (1, 5, 3)])
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(4, 16, 1), (16, 32, 1), (16, 16, 16), (1, 3, 1)])
def test_padding_around_one_plane(kernel, channels, outputs, groups):
    """The first axis has one element and one tap, and its padding makes three planes of the output."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(2, channels, 1, 5, 19)).astype("f4")
    w = rng.normal(size=(outputs, channels // groups, *kernel)).astype("f4")
    attributes = {"pads": [1] * 6, "group": groups}
    (found,) = natively("Conv", Example((x, w), attributes), 22, rtol=1e-4, atol=1e-4, constant=[1])
    right = torch.nn.functional.conv3d(torch.tensor(x), torch.tensor(w), padding=1, groups=groups)
    np.testing.assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "pad", "dilation", "stride"),
    [
        ((3, 3), (1, 1), 1, 1),
        ((5, 3), (2, 1), 1, 2),
        ((3, 3), (2, 2), 2, 1),
        ((3,), (1,), 1, 1),
        ((4, 4), (2, 2), 1, 2),
    ],
)
@pytest.mark.parametrize("channels", [5, 40])
def test_planes_of_one_element(channels, kernel, pad, dilation, stride):
    rng = np.random.default_rng(9)
    x = rng.normal(size=(3, channels, *(1 for _ in kernel))).astype("f4")
    w, b = rng.normal(size=(channels, 1, *kernel)).astype("f4"), rng.normal(size=channels).astype("f4")
    attributes = {"dilations": [dilation] * len(kernel), "strides": [stride] * len(kernel), "group": channels}
    example = Example((x, w, b), {**attributes, "pads": [*pad, *pad]})
    (found,) = natively("Conv", example, 22, rtol=1e-5, atol=1e-5, constant=[1, 2])
    convolve = torch.nn.functional.conv1d if len(kernel) == 1 else torch.nn.functional.conv2d
    tensors = map(torch.tensor, (x, w, b))
    want = convolve(*tensors, padding=pad, dilation=dilation, stride=stride, groups=channels).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_a_window_that_meets_padding_alone():
    """A dilation steps over the element: what is left is the bias."""
    x, w, b = np.ones((1, 20, 1, 1), "f4"), np.ones((20, 1, 2, 2), "f4"), np.arange(20, dtype="f4")
    example = Example((x, w, b), {"dilations": [2, 2], "pads": [1] * 4, "group": 20})
    (found,) = natively("Conv", example, 22, constant=[1, 2])
    want = torch.nn.functional.conv2d(*map(torch.tensor, (x, w, b)), padding=1, dilation=2, groups=20)
    np.testing.assert_array_equal(found, want.numpy())


@pytest.mark.parametrize("biased", [True, False])
def test_few_positions(biased):
    rng = np.random.default_rng(3)
    cases = [
        (1, [1, 1], [1, 1], [0] * 4),
        (2, [5, 4], [3, 3], [1, 0, 0, 1]),
        (1, [700], [256], [0] * 2),
        (1, [2, 3, 2], [2] * 3, [1] * 6),
    ]
    for groups, sizes, kernel, pads in cases:
        strides = [128] if len(sizes) == 1 else [2] * len(sizes)
        x, w = (
            rng.normal(size=(2, 3 * groups, *sizes)).astype("f4"),
            rng.normal(size=(40 * groups, 3, *kernel)).astype("f4"),
        )
        inputs = (x, w, rng.normal(size=len(w)).astype("f4")) if biased else (x, w)
        attributes = {"group": groups, "strides": strides, "pads": pads}
        natively("Conv", Example(inputs, attributes), 22, rtol=1e-4, atol=1e-4, constant=range(1, len(inputs)))


@pytest.mark.parametrize("outputs", [5, 40])
@pytest.mark.parametrize("biased", [True, False])
def test_kernels_larger_than_the_result(outputs, biased):
    """Kernels are computed, as in the gradient of a convolution by its kernel."""
    rng = np.random.default_rng(4)
    for sizes, kernel, strides, dilations in (
        ([18, 18], [16, 16], [1, 1], [1, 1]),
        ([9, 21], [3, 16], [2, 3], [2, 1]),
        ([4, 5, 10], [3, 2, 9], [1, 2, 1], [1, 1, 1]),
        ([40], [30], [4], [1]),
    ):
        x, w = (rng.normal(size=shape).astype("f4") for shape in ((2, 3, *sizes), (outputs, 3, *kernel)))
        inputs = (x, w, rng.normal(size=outputs).astype("f4")) if biased else (x, w)
        attributes = {"strides": strides, "dilations": dilations}
        natively("Conv", Example(inputs, attributes), 22, rtol=1e-4, atol=1e-4)


SQUARES = [(14, 14), (13, 17), (9, 130), (40, 9), (7, 300)]
"""Sizes of which there are enough squares, in panels of 16 and 32 columns, one row and several."""


@pytest.mark.parametrize("sizes", SQUARES)
@pytest.mark.parametrize("biased", [True, False])
def test_winograd(sizes, biased):
    rng = np.random.default_rng(8)
    for pads, channels, outputs in (([1, 1, 1, 1], 24, 25), ([0, 2, 1, 0], 30, 60)):
        x, w = (
            rng.normal(size=(2, channels, *sizes)).astype("f4"),
            (rng.normal(size=(outputs, channels, 3, 3)) / 16).astype("f4"),
        )
        inputs = (x, w, rng.normal(size=outputs).astype("f4")) if biased else (x, w)
        natively("Conv", Example(inputs, {"pads": pads}), 22, rtol=1e-4, atol=1e-4, constant=range(1, len(inputs)))


@pytest.mark.skipif("avx2" not in features(), reason="Winograd's method is used with AVX2")
@pytest.mark.parametrize("shared", [0, 1 << 30], ids=["streamed", "shared"])
@pytest.mark.parametrize("sizes", [(6, 9), (20, 20), (9, 130), (40, 50)])
def test_kernels_transformed_in_each_run(sizes, shared, monkeypatch):
    """As large ones are for large images: a panel at a time for few tiles, all of them ahead for many."""
    for name, value in (("LARGE_BYTES", 0), ("MANY_TILES", 1), ("SHARED_CACHE_BYTES", shared), ("STREAMED_TILES", 60)):
        monkeypatch.setattr(winograd, name, value)
    packed = []
    monkeypatch.setattr(winograd, "pack_kernels", lambda w: packed.append(w) or pack_kernels(w))
    rng = np.random.default_rng(8)
    x, w = rng.normal(size=(2, 24, *sizes)).astype("f4"), (rng.normal(size=(60, 24, 3, 3)) / 16).astype("f4")
    natively("Conv", Example((x, w), {"pads": [1] * 4}), 22, rtol=1e-4, atol=1e-4, constant=[1])
    assert packed


@pytest.mark.parametrize("sizes", [(7, 7), (8, 5), (11, 9)])
def test_small_squares(sizes):
    rng = np.random.default_rng(10)
    x, w = rng.normal(size=(2, 90, *sizes)).astype("f4"), (rng.normal(size=(100, 90, 3, 3)) / 30).astype("f4")
    natively(
        "Conv",
        Example((x, w, rng.normal(size=100).astype("f4")), {"pads": [1] * 4}),
        22,
        rtol=1e-4,
        atol=1e-4,
        constant=[1, 2],
    )


def test_winograd_is_nearly_as_exact_as_the_sum():
    rng = np.random.default_rng(9)
    x, w = rng.normal(size=(1, 256, 20, 20)).astype("f4"), (rng.normal(size=(64, 256, 3, 3)) / 48).astype("f4")
    (found,) = natively("Conv", Example((x, w), {"pads": [1] * 4}), 22, rtol=1, atol=1, constant=[1])
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    exact = np.einsum("nchwij,ocij->nohw", windows, w.astype("f8"), optimize=True)
    assert np.abs(found - exact).max() < 5e-6 * np.abs(exact).max()


FOLLOWING = [
    [("Relu", [], {})],
    [("Clip", [-0.5, 0.7], {})],
    [("LeakyRelu", [], {"alpha": 0.3})],
    [("HardSwish", [], {})],
    [("Sigmoid", [], {})],
    [("HardSigmoid", [], {"alpha": 0.3, "beta": 0.4})],
    [("Swish", [], {"alpha": 1.5})],
    [("Tanh", [], {})],
    [("Add", ["like"], {})],
    [("Add", ["like"], {}), ("Relu", [], {})],
    [("Add", ["like"], {}), ("HardSwish", [], {})],
    [("Add", ["row"], {}), ("Add", ["like"], {}), ("Clip", [0.0, 6.0], {})],
]


def with_following(kind, following, rng):
    """A model of a product and what follows it, and its feeds."""
    shape, node, weight = {
        "conv": ([2, 5, 9, 11], helper.make_node("Conv", ["x", "w"], ["y0"], pads=[1, 1, 1, 1]), (7, 5, 3, 3)),
        "squares": ([2, 24, 14, 15], helper.make_node("Conv", ["x", "w"], ["y0"], pads=[1, 1, 1, 1]), (26, 24, 3, 3)),
        "few": ([2, 5, 3, 4], helper.make_node("Conv", ["x", "w"], ["y0"], pads=[1, 1, 1, 1]), (33, 5, 3, 3)),
        "transposed": (
            [2, 5, 3, 4],
            helper.make_node("ConvTranspose", ["x", "w"], ["y0"], strides=[2, 2]),
            (5, 7, 2, 2),
        ),
        "depthwise": (
            [2, 5, 9, 11],
            helper.make_node("Conv", ["x", "w"], ["y0"], pads=[1, 1, 1, 1], group=5),
            (5, 1, 3, 3),
        ),
        "matmul": ([2, 9, 40], helper.make_node("MatMul", ["x", "w"], ["y0"]), (40, 37)),
        "gemm": ([130, 40], helper.make_node("Gemm", ["x", "w"], ["y0"], transB=1), (45, 40)),
    }[kind]
    out = {
        "conv": [2, 7, 9, 11],
        "squares": [2, 26, 14, 15],
        "few": [2, 33, 3, 4],
        "transposed": [2, 7, 6, 8],
        "depthwise": shape,
        "matmul": [2, 9, 37],
        "gemm": [130, 45],
    }[kind]
    weights = {"w": rng.normal(size=weight).astype("f4"), "row": rng.normal(size=out[-1]).astype("f4")}
    nodes = [node]
    for operator, others, attributes in following:
        names = [other if isinstance(other, str) else f"c{other}" for other in others]
        weights |= {f"c{other}": np.array(other, "f4") for other in others if not isinstance(other, str)}
        nodes.append(helper.make_node(operator, [f"y{len(nodes) - 1}", *names], [f"y{len(nodes)}"], **attributes))
    used = {name for node in nodes for name in node.input}
    inputs = {"x": rng.normal(size=shape).astype("f4")} | (
        {"like": rng.normal(size=out).astype("f4")} if "like" in used else {}
    )
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, item.shape) for name, item in inputs.items()],
        [helper.make_tensor_value_info(f"y{len(nodes) - 1}", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(item, name) for name, item in weights.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), inputs


@pytest.mark.parametrize("following", FOLLOWING, ids=lambda item: "-".join(name for name, *_ in item))
@pytest.mark.parametrize("kind", ["conv", "squares", "few", "transposed", "depthwise", "matmul", "gemm"])
def test_what_follows_adds_no_launch(kind, following):
    rng = np.random.default_rng(0)
    model, feeds = with_following(kind, following, rng)
    expected = Session(onnx_graph.graph_of(model), native=False).run(None, feeds)[0]
    for threads in (1, 2):
        session = Session(onnx_graph.graph_of(model), native=True, threads=threads, simplify=False)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
        plan = session.program.plans[0]
        assert not any(isinstance(step, PythonStep) for step in plan.steps)
        alone, fed = with_following(kind, [], rng)
        product = Session(onnx_graph.graph_of(alone), native=True, threads=threads, simplify=False)
        product.run(None, fed)
        whole = kind in ("matmul", "gemm") or following[0][1] != ["row"]
        assert (len(plan.code) == len(product.program.plans[0].code)) == whole


@pytest.mark.parametrize(("stride", "axis"), [(256, 1), (16, 1), (16, 0)])
def test_phases_of_planes_with_one_line(stride, axis):
    """The filter bank of basic-pitch: kernels over two axes, one of which has a single element; torch is the oracle."""
    rng, lengths = np.random.default_rng(6), np.eye(2, dtype=int)[axis]
    x = rng.standard_normal((1, 1, *np.where(lengths, 256 + 20 * stride, 1))).astype(np.float32)
    w = rng.standard_normal((36, 1, *np.where(lengths, 256, 1))).astype(np.float32)
    b = rng.standard_normal(36).astype(np.float32)
    strides = [int(step) for step in np.where(lengths, stride, 1)]
    (found, *_) = natively("Conv", Example((x, w, b), {"strides": strides}), 22, rtol=1e-4, atol=1e-4, constant=[1, 2])
    expected = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w, b)), stride=strides)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
