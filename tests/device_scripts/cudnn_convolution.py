"""cuDNN convolutions, with a Python stand-in for the library that reads arguments as the headers declare them and
computes with torch.

Prints every call with its number of arguments, as JSON.
"""

import ctypes
import itertools
import json
import re

import candle_convert.formats.containers.onnx.reader as onnx_graph
import candle_convert.runtime.cuda.matmul.cudnn as cudnn
import ml_dtypes
import numpy as np
import torch
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.session import Session
from onnx import helper, numpy_helper

NUMPY = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 9: np.dtype(ml_dtypes.bfloat16)}


class Library:
    """What cuDNN does, for descriptors that are numbered dictionaries."""

    def __init__(self):
        self.held, self.numbers, self.calls = {}, itertools.count(1), []
        self.algorithms = [(5, 0, 1, 3), (6, 0, 0, 3), (6, 3000, 1, 3), (1, 0, 1, 0), (1, 0, 1, 3), (0, 0, 1, 3)]
        self.room, self.stream, self.knows_fused = 1024, None, True

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, len(arguments)))
            kind = name.removeprefix("cudnn").removesuffix("Descriptor")
            if kind.startswith("Create"):
                arguments[0]._obj.value = next(self.numbers)
                self.held[arguments[0]._obj.value] = {}
                return 0
            if kind.startswith("Destroy"):
                del self.held[arguments[0].value]
                return 0
            return getattr(self, re.sub("([A-Z])", r"_\1", name.removeprefix("cudnn")).lower())(*arguments)

        return call

    def _of(self, *pointers):
        return [self.held[pointer.value] for pointer in pointers]

    def _set_tensor_nd_descriptor(self, made, dtype, rank, shape, strides):
        shape, strides = list(shape), list(strides)
        assert (rank, strides) == (len(shape), [int(np.prod(shape[axis + 1 :])) for axis in range(rank)])
        self._of(made)[0].update(dtype=NUMPY[dtype], shape=shape)
        return 0

    def _set_filter_nd_descriptor(self, made, dtype, layout, rank, shape):
        assert (layout, rank) == (0, len(shape))
        self._of(made)[0].update(dtype=NUMPY[dtype], shape=list(shape))
        return 0

    def _set_convolution_nd_descriptor(self, made, rank, pads, strides, dilations, mode, dtype):
        assert (mode, dtype, rank) == (1, 0, len(pads))
        self._of(made)[0].update(padding=list(pads), stride=list(strides), dilation=list(dilations))
        return 0

    def _set_convolution_group_count(self, made, groups):
        self._of(made)[0]["groups"] = groups
        return 0

    def _set_convolution_math_type(self, made, math):
        self._of(made)[0]["math"] = math
        return 0

    def _set_activation_descriptor(self, made, mode, nan, ceiling):
        assert (nan, ceiling.value) == (0, 0)
        self._of(made)[0]["relu"] = {1: True, 5: False}[mode]
        return 0

    def _set_stream(self, handle, stream):
        self.stream = stream.value or 0
        return 0

    def _offered(self, made, most, count, found):
        offers = [offer for offer in self.algorithms if offer[3] == 3 or made["dtype"].itemsize == 2]
        for place, (algorithm, status, determinism, math) in enumerate(offers[:most]):
            found[place].algorithm, found[place].status = algorithm, status
            found[place].determinism, found[place].math = determinism, math
        count._obj.value = len(offers)
        return 0

    def _get_convolution_forward_algorithm_v7(self, handle, x, w, convolution, y, most, count, found):
        self._checked(x, w, convolution, y)
        return self._offered(self._of(y)[0], most, count, found)

    def _get_convolution_backward_data_algorithm_v7(self, handle, w, y, convolution, x, most, count, found):
        self._checked(x, w, convolution, y)
        return self._offered(self._of(x)[0], most, count, found)

    def _checked(self, x, w, convolution, y):
        x, w, settings, y = self._of(x, w, convolution, y)
        each = zip(
            x["shape"][2:], w["shape"][2:], settings["padding"], settings["stride"], settings["dilation"], strict=True
        )
        outs = [
            (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1 for size, taps, pad, stride, dilation in each
        ]
        assert (y["shape"], x["shape"][1]) == (
            [x["shape"][0], w["shape"][0], *outs],
            w["shape"][1] * settings["groups"],
        )

    def _get_convolution_forward_workspace_size(self, handle, x, w, convolution, y, algorithm, size):
        self._checked(x, w, convolution, y)
        size._obj.value = self.room
        return 0

    def _get_convolution_backward_data_workspace_size(self, handle, w, y, convolution, x, algorithm, size):
        self._checked(x, w, convolution, y)
        size._obj.value = self.room
        return 0

    def _array(self, described, pointer):
        count, dtype = int(np.prod(described["shape"])), described["dtype"]
        return self._bytes(pointer.value, count * dtype.itemsize).view(dtype).reshape(described["shape"])

    def _bytes(self, address, count):
        return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)

    def _convolved(self, settings, x, w, transposed=False):
        x, w = (torch.from_numpy(array.astype(np.float64)) for array in (x, w))
        rank = x.dim() - 2
        given = {name: settings[name] for name in ("padding", "stride", "dilation", "groups")}
        if not transposed:
            return [None, torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d][rank](
                x, w, **given
            ).numpy()
        return [
            None,
            torch.nn.functional.conv_transpose1d,
            torch.nn.functional.conv_transpose2d,
            torch.nn.functional.conv_transpose3d,
        ][rank](x, w, **given, output_padding=settings["more"]).numpy()

    def _convolution_forward(
        self, handle, alpha, x_at, x, w_at, w, convolution, algorithm, room, nbytes, beta, y_at, y
    ):
        assert (alpha._obj.value, beta._obj.value, nbytes.value) == (1, 0, self.room)
        self._bytes(room.value, self.room)[...] = 255
        self._checked(x_at, w_at, convolution, y_at)
        x_is, w_is, settings, y_is = self._of(x_at, w_at, convolution, y_at)
        self._array(y_is, y)[...] = self._convolved(settings, self._array(x_is, x), self._array(w_is, w)).astype(
            y_is["dtype"]
        )
        return 0

    def _convolution_backward_data(
        self, handle, alpha, w_at, w, y_at, y, convolution, algorithm, room, nbytes, beta, x_at, x
    ):
        assert (alpha._obj.value, beta._obj.value, nbytes.value) == (1, 0, self.room)
        self._bytes(room.value, self.room)[...] = 255
        self._checked(x_at, w_at, convolution, y_at)
        w_is, y_is, settings, x_is = self._of(w_at, y_at, convolution, x_at)
        each = zip(
            y_is["shape"][2:],
            w_is["shape"][2:],
            settings["padding"],
            settings["stride"],
            settings["dilation"],
            strict=True,
        )
        plain = [(out - 1) * stride - 2 * pad + dilation * (taps - 1) + 1 for out, taps, pad, stride, dilation in each]
        more = {"more": [size - least for size, least in zip(x_is["shape"][2:], plain, strict=True)]}
        self._array(x_is, x)[...] = self._convolved(
            settings | more, self._array(y_is, y), self._array(w_is, w), True
        ).astype(x_is["dtype"])
        return 0

    def _convolution_bias_activation_forward(
        self,
        handle,
        alpha,
        x_at,
        x,
        w_at,
        w,
        convolution,
        algorithm,
        room,
        nbytes,
        more,
        z_at,
        z,
        bias_at,
        bias,
        activation,
        y_at,
        y,
    ):
        if not self.knows_fused:
            return 3000
        assert (algorithm, z_at.value) == (1, y_at.value)
        assert more._obj.value == (z.value != y.value)
        zero = ctypes.byref(ctypes.c_float(0))
        self._convolution_forward(handle, alpha, x_at, x, w_at, w, convolution, algorithm, room, nbytes, zero, y_at, y)
        self._add_tensor(handle, alpha, bias_at, bias, alpha, y_at, y)
        if more._obj.value:
            self._add_tensor(handle, alpha, z_at, z, alpha, y_at, y)
        if self._of(activation)[0]["relu"]:
            self._activation_forward(handle, activation, alpha, y_at, y, zero, y_at, y)
        return 0

    def _add_tensor(self, handle, alpha, bias_at, bias, beta, y_at, y):
        y_is, bias_is = self._of(y_at, bias_at)
        assert (alpha._obj.value, beta._obj.value) == (1, 1)
        assert bias_is["shape"] in ([1, y_is["shape"][1], *[1] * (len(y_is["shape"]) - 2)], y_is["shape"])
        made = self._array(y_is, y)
        made[...] = (made.astype(np.float64) + self._array(bias_is, bias).astype(np.float64)).astype(made.dtype)
        return 0

    def _activation_forward(self, handle, activation, alpha, x_at, x, beta, y_at, y):
        y_is, act = self._of(y_at, activation)
        assert (alpha._obj.value, beta._obj.value, x_at.value, x.value, act["relu"]) == (
            1,
            0,
            y_at.value,
            y.value,
            True,
        )
        made = self._array(y_is, y)
        made[...] = np.where(made > 0, made, made * 0)
        return 0


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model(op, x, w, bias, behind, attributes):
    """Conv or ConvTranspose, with what stands behind it: an Add of what was computed from the input before, Relu."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    weights = {"w": w} | ({} if bias is None else {"b": bias})
    nodes = [helper.make_node("Neg", ["x"], ["z"])] if "Add" in behind else []
    nodes.append(helper.make_node(op, ["x", *weights], [f"y{len(behind)}"], **attributes))
    for left, name in zip(range(len(behind), 0, -1), behind, strict=True):
        nodes.append(helper.make_node(name, [f"y{left}", *(["z"] if name == "Add" else [])], [f"y{left - 1}"]))
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        op,
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y0", kind, None)],
        held,
    )
    return onnx_graph.graph_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))


F16, BF16 = np.float16, ml_dtypes.bfloat16
OURS, FUSED, PLAIN, BACK, ADD, ACTIVATE = (
    (),
    (cudnn.FUSED,),
    (cudnn.FORWARD.run(),),
    (cudnn.BACKWARD.run(),),
    (cudnn.ADD,),
    (cudnn.ACTIVATE,),
)
CASES = {
    "two axes": ("Conv", (2, 4, 7, 5), (6, 4, 3, 2), True, (), {"strides": [2, 1], "pads": [1, 0, 1, 0]}, FUSED),
    "one axis": ("Conv", (2, 3, 11), (5, 3, 4), False, (), {"strides": [3], "pads": [1, 1], "dilations": [2]}, PLAIN),
    "three axes": (
        "Conv",
        (1, 2, 5, 4, 6),
        (3, 2, 2, 3, 1),
        False,
        (),
        {"pads": [1, 0, 2, 1, 0, 2], "strides": [1, 2, 3]},
        PLAIN,
    ),
    "groups, Relu": ("Conv", (1, 6, 9, 8), (4, 3, 3, 3), True, ("Relu",), {"group": 2, "dilations": [2, 1]}, FUSED),
    "sum, Relu": ("Conv", (1, 3, 6, 5), (3, 3, 3, 3), True, ("Add", "Relu"), {"pads": [1, 1, 1, 1]}, FUSED),
    "sum": ("Conv", (1, 3, 6), (3, 3, 1), False, ("Add",), {}, FUSED, F16),
    "each channel": ("Conv", (1, 4, 6, 5), (8, 1, 3, 3), False, ("Relu",), {"group": 4}, FUSED),
    "f16": ("Conv", (1, 3, 6, 5), (4, 3, 3, 3), True, ("Relu",), {"pads": [1, 1, 1, 1]}, FUSED, F16),
    "bf16": ("Conv", (1, 3, 6, 5), (4, 3, 3, 3), True, (), {"pads": [1, 1, 1, 1]}, FUSED, BF16),
    "padded more before": (
        "Conv",
        (1, 2, 6, 6),
        (3, 2, 3, 3),
        False,
        (),
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        PLAIN,
    ),
    "padded more behind": (
        "Conv",
        (1, 2, 6, 6),
        (3, 2, 3, 3),
        False,
        (),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        OURS,
    ),
    "one end": ("Conv", (1, 2, 6, 6), (3, 2, 2, 2), True, ("Relu",), {"pads": [0, 0, 1, 1]}, OURS),
    "one end, to no use": (
        "Conv",
        (1, 2, 5, 5),
        (3, 2, 2, 2),
        False,
        (),
        {"pads": [0, 0, 1, 1], "strides": [3, 3]},
        PLAIN,
    ),
    "four axes": ("Conv", (1, 2, 3, 2, 3, 2), (2, 2, 2, 1, 2, 1), False, (), {}, OURS),
    "f64": ("Conv", (1, 2, 4, 4), (3, 2, 2, 2), False, (), {}, OURS, np.float64),
    "transposed": (
        "ConvTranspose",
        (2, 4, 5, 3),
        (4, 3, 3, 2),
        True,
        (),
        {"strides": [2, 1], "output_padding": [1, 0]},
        BACK,
    ),
    "transposed, groups": (
        "ConvTranspose",
        (1, 4, 5),
        (4, 2, 3),
        False,
        (),
        {"group": 2, "dilations": [2], "pads": [1, 1]},
        BACK,
    ),
    "transposed, uneven": (
        "ConvTranspose",
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        False,
        (),
        {"pads": [1, 1, 0, 0], "strides": [2, 2]},
        BACK,
    ),
    "transposed, cut": ("ConvTranspose", (1, 2, 4, 4), (2, 3, 3, 3), False, (), {"pads": [0, 0, 1, 1]}, OURS),
    "transposed, three axes": (
        "ConvTranspose",
        (1, 2, 3, 2, 2),
        (2, 3, 2, 2, 1),
        False,
        ("Relu",),
        {"strides": [2, 1, 1]},
        BACK,
        F16,
    ),
}


def check(library, name, op, x_shape, w_shape, with_bias, behind, attributes, calls, dtype=np.float32):
    """The plan calls what it should, and computes what the CPU does."""
    x, w = numbers(*x_shape, dtype=dtype), numbers(*w_shape, dtype=dtype, seed=1)
    channels = w_shape[0] if op == "Conv" else w_shape[1] * attributes.get("group", 1)
    graph = (op, x, w, numbers(channels, dtype=dtype, seed=2) if with_bias else None, behind, attributes)
    before = len(library.calls)
    session = Session(model(*graph), device="cuda")
    (found,) = session.run(None, {"x": x})
    made = [made for made, _ in library.calls[before:] if (made,) in (FUSED, PLAIN, BACK, ADD, ACTIVATE)]
    assert tuple(made) == calls, (name, made)
    if calls[:1] == FUSED:
        (plan,) = session.program.plans
        assert sum(isinstance(step, Launch) for step in plan.steps) == 1 + ("Add" in behind), (
            "bias, sum and Relu are the library's"
        )
    (expected,) = Session(model(*graph), native=False).run(None, {"x": x})
    bound = {np.float32: 1e-5, np.float64: 1e-12, F16: 4e-3, BF16: 4e-2}[dtype]
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=bound, atol=bound * 4, err_msg=name
    )


def refused(library):
    """Without a fitting algorithm our own kernels compute; without the one that adds a bias they add it. Where the
    library does not know all at once, it is asked one after another."""
    library.algorithms = [(7, 0, 1, 3), (1, 0, 0, 3), (0, 0, 1, 2)]
    check(library, "no algorithm", *CASES["two axes"][:-1], OURS)
    library.algorithms = [(0, 0, 1, 3)]
    check(library, "no fused algorithm", *CASES["groups, Relu"][:-1], PLAIN)
    library.algorithms, library.knows_fused = [(1, 0, 1, 3)], False
    check(library, "not all at once", *CASES["groups, Relu"][:-1], FUSED + PLAIN + ADD + ACTIVATE)
    check(library, "a bias on its own", *CASES["two axes"][:-1], FUSED + PLAIN + ADD)
    check(library, "a sum on its own", *CASES["sum, Relu"][:-1], FUSED + PLAIN + ADD + ADD + ACTIVATE)


def main():
    library = Library()
    cudnn.library, cudnn.available = lambda: library, lambda: True
    for name, case in CASES.items():
        check(library, name, *case)
    refused(library)
    print(json.dumps(sorted(set(library.calls))))


if __name__ == "__main__":
    main()
