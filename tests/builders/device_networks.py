"""Small networks as ONNX models with inputs: convolutions, a transformer block, recurrence, control flow, integers."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network:
    """Nodes and weights under construction."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, *shape, array=None):
        made = (
            (self.rng.normal(size=shape) / np.sqrt(shape[-1] if shape else 1)).astype(np.float32)
            if array is None
            else np.asarray(array)
        )
        self.weights.append(numpy_helper.from_array(made, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, inputs, outputs):
        infos = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
        graph = helper.make_graph(self.nodes, "network", infos, results, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def convolutional():
    n = Network(1)
    x = n.add("Conv", "x", n.weight(4, 3, 3, 3), n.weight(4), pads=[1, 1, 1, 1], strides=[2, 2])
    x = n.add(
        "BatchNormalization",
        x,
        n.weight(array=np.ones(4, np.float32)),
        n.weight(4),
        n.weight(4),
        n.weight(array=np.full(4, 0.5, np.float32)),
    )
    x = n.add("MaxPool", n.add("Relu", x), kernel_shape=[2, 2], strides=[1, 1])
    y = n.add("Conv", x, n.weight(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1])
    x = n.add("GlobalAveragePool", n.add("Add", n.add("HardSwish", y), x))
    x = n.add("Gemm", n.add("Flatten", x), n.weight(5, 4), n.weight(5), transB=1)
    y = n.add("Softmax", x, axis=1)
    return n.model([("x", FLOAT, ["n", 3, 8, 6])], [(y, FLOAT)]), {
        "x": n.rng.normal(size=(2, 3, 8, 6)).astype(np.float32)
    }


def transformer():
    n = Network(2)

    def heads(x, order):
        return n.add("Transpose", n.add("Reshape", x, n.weight(array=np.array([0, 0, 2, 4]))), perm=order)

    x = n.add("LayerNormalization", "x", n.weight(array=np.linspace(0.5, 1.5, 8, dtype=np.float32)), n.weight(8))
    q, k, v = (n.add("Add", n.add("MatMul", x, n.weight(8, 8)), n.weight(8)) for _ in range(3))
    scores = n.add("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
    seen = n.add("Softmax", n.add("Div", scores, n.weight(array=np.float32(2))))
    y = n.add("Transpose", n.add("MatMul", seen, heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    x = n.add("Add", "x", n.add("MatMul", n.add("Reshape", y, n.weight(array=np.array([0, 0, 8]))), n.weight(8, 8)))
    y = n.add("Add", x, n.add("MatMul", n.add("Gelu", n.add("MatMul", x, n.weight(8, 16))), n.weight(16, 8)))
    return n.model([("x", FLOAT, ["batch", "length", 8])], [(y, FLOAT)]), {
        "x": n.rng.normal(size=(2, 3, 8)).astype(np.float32)
    }


def recurrent():
    n = Network(3)
    x = n.add("Gather", n.weight(11, 4), "ids")
    states, last, _ = n.add(
        "LSTM",
        x,
        n.weight(2, 12, 4),
        n.weight(2, 12, 3),
        n.weight(2, 24),
        outputs=3,
        hidden_size=3,
        direction="bidirectional",
    )
    hidden = n.add(
        "GRU",
        n.add(
            "Squeeze",
            n.add("Slice", states, *(n.weight(array=np.array([k])) for k in (0, 1, 1))),
            n.weight(array=np.array([1])),
        ),
        n.weight(1, 9, 3),
        n.weight(1, 9, 3),
        outputs=2,
        hidden_size=3,
    )[1]
    y = n.add(
        "LogSoftmax",
        n.add("Concat", n.add("Transpose", last, perm=[1, 0, 2]), n.add("Transpose", hidden, perm=[1, 0, 2]), axis=1),
    )
    return n.model([("ids", INT64, ["length", "batch"])], [(y, FLOAT)]), {"ids": n.rng.integers(0, 11, (4, 2))}


def controlled():
    """A branch on the mean, a loop that uses a value from around it, and a shape that depends on data."""
    n = Network(4)
    x = n.add("MatMul", "x", n.weight(4, 4))
    warm = n.add("Greater", n.add("ReduceMean", x, keepdims=0), n.weight(array=np.float32(0)))
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, [x], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", FLOAT, None)],
        )
        for name, op in (("then_branch", "Tanh"), ("else_branch", "Exp"))
    }
    x = n.add("If", warm, **branches)
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "x"], ["p"]),
            helper.make_node("Sigmoid", ["p"], ["next"]),
            helper.make_node("Identity", ["keep"], ["kept"]),
            helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [4, 4]),
        ],
        [
            helper.make_tensor_value_info("kept", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [4, 4]),
            helper.make_tensor_value_info("total", FLOAT, []),
        ],
    )
    state, totals = n.add("Loop", n.weight(array=np.array(3)), n.weight(array=np.array(True)), x, body=body, outputs=2)
    rows = n.add(
        "Compress",
        state,
        n.add(
            "Greater",
            n.add("Squeeze", n.add("ReduceMax", "x", n.weight(array=np.array([1])))),
            n.weight(array=np.float32(0.5)),
        ),
        axis=0,
    )
    y = n.add("Relu", n.add("MatMul", rows, n.weight(4, 2)))
    return n.model([("x", FLOAT, [4, 4])], [(y, FLOAT), (totals, FLOAT)]), {
        "x": n.rng.normal(size=(4, 4)).astype(np.float32)
    }


def quantized():
    n = Network(5)

    def steps(x, scale, zero, dtype=np.uint8):
        given = n.weight(array=np.float32(scale)), n.weight(array=dtype(zero))
        return n.add("DequantizeLinear", n.add("QuantizeLinear", x, *given), *given)

    w = n.add(
        "DequantizeLinear",
        n.weight(array=n.rng.integers(-90, 90, (4, 2, 3, 3)).astype(np.int8)),
        n.weight(array=np.float32(0.01)),
        n.weight(array=np.int8(0)),
    )
    x = steps(n.add("Relu", n.add("Conv", steps("x", 0.03, 120), w, n.weight(4))), 0.05, 3)
    x = n.add("Flatten", n.add("AveragePool", x, kernel_shape=[2, 2]))
    codes, scale, zero = n.add("DynamicQuantizeLinear", x, outputs=3)
    sums = n.add("MatMulInteger", codes, n.weight(array=n.rng.integers(-50, 50, (12, 3)).astype(np.int8)), zero)
    y = n.add("Mul", n.add("Cast", sums, to=FLOAT), scale)
    return n.model([("x", FLOAT, ["n", 2, 4, 6])], [(y, FLOAT)]), {
        "x": n.rng.normal(size=(1, 2, 4, 6)).astype(np.float32)
    }


def listed():
    """Lists of tensors, entries along another axis and backwards, and a shape and a part that numbers of the run decide
    on."""
    n = Network(6)
    x = n.add("MatMul", "x", n.weight(4, 4))
    rows = n.add("SplitToSequence", x, n.weight(array=np.array([1, 3])))
    rows = n.add("SequenceInsert", rows, n.add("Tanh", x), n.weight(array=np.array(1)))
    x = n.add("ConcatFromSequence", n.add("SequenceErase", rows, n.weight(array=np.array(0))), axis=0)
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "entry"], ["then"]), helper.make_node("Exp", ["entry"], ["kept"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [7]) for name in ("sum", "entry")],
        [helper.make_tensor_value_info(name, FLOAT, [7]) for name in ("then", "kept")],
    )
    total, kept = n.add(
        "Scan",
        n.weight(array=np.zeros(7, np.float32)),
        x,
        body=body,
        outputs=2,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[-1],
    )
    count = n.add(
        "Cast",
        n.add("ReduceSum", n.add("Cast", n.add("Greater", total, n.weight(array=np.float32(-9))), to=FLOAT)),
        to=INT64,
    )
    part = n.add(
        "Slice",
        kept,
        n.weight(array=np.array([0])),
        n.add("Div", count, n.weight(array=np.array([2]))),
        n.weight(array=np.array([0])),
    )
    shape = n.add("Concat", n.weight(array=np.array([-1])), n.add("Div", count, n.weight(array=np.array([3]))), axis=0)
    y = n.add("Relu", n.add("Reshape", part, shape))
    return n.model([("x", FLOAT, [4, 4])], [(y, FLOAT), (total, FLOAT)]), {
        "x": n.rng.normal(size=(4, 4)).astype(np.float32)
    }


NETWORKS = {
    "convolutional": convolutional,
    "transformer": transformer,
    "recurrent": recurrent,
    "controlled": controlled,
    "quantized": quantized,
    "listed": listed,
}
