"""Small networks with random weights, as ONNX models: a text encoder, an image classifier, a recurrent network."""

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Net:
    """Collects nodes and weights."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, *shape, scale=None, name=None):
        array = self.rng.normal(size=shape) * (scale or 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0]))
        return self.constant(array.astype(np.float32), name)

    def constant(self, array, name=None):
        name = name or f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, *inputs, name=None, **attributes):
        name = name or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def model(self, inputs, outputs, opset=17):
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        checker.check_model(made, full_check=True)
        return made


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def encoder(width=64, heads=4, layers=2, words=50):
    """A transformer like BERT: tokens [batch, length] to a hidden state for each and scores of the first."""
    net = Net()
    x = net.add("Gather", net.weight(words, width, scale=1, name="table"), "tokens")
    shape = net.constant(np.array([0, 0, heads, width // heads]))
    flat = net.constant(np.array([0, 0, width]))

    def linear(x, out, name):
        size = width if out != width or name != "down" else 4 * width
        return net.add(
            "Add",
            net.add("MatMul", x, net.weight(size, out, name=f"{name}{len(net.nodes)}.w")),
            net.weight(out, scale=0.1),
        )

    def norm(x):
        return net.add("LayerNormalization", x, net.constant(np.ones(width, np.float32)), net.weight(width, scale=0.1))

    for _ in range(layers):
        q, k, v = (
            net.add("Transpose", net.add("Reshape", linear(x, width, name), shape), perm=[0, 2, 1, 3]) for name in "qkv"
        )
        scores = net.add(
            "Div",
            net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2])),
            net.constant(np.float32((width // heads) ** 0.5)),
        )
        mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = norm(net.add("Add", x, linear(net.add("Reshape", mixed, flat), width, "out")))
        wide = linear(x, 4 * width, "up")
        active = net.add("Mul", wide, net.add("Sigmoid", wide))
        x = norm(net.add("Add", x, linear(active, width, "down")))
    net.add("Identity", x, name="hidden")
    first = net.add("Gather", x, net.constant(np.array(0)), axis=1)
    net.add(
        "Gemm", first, net.weight(3, width, name="head.w", scale=0.2), net.weight(3, scale=0.1), name="scores", transB=1
    )
    outputs = [value("hidden", FLOAT, "batch", "length", width), value("scores", FLOAT, "batch", 3)]
    return net.model([value("tokens", INT64, "batch", "length")], outputs)


def tokens(count=4, length=11, words=50, seed=1):
    rng = np.random.default_rng(seed)
    return [{"tokens": rng.integers(0, words, (2, length))} for _ in range(count)]


def classifier(channels=8):
    """A small convolutional network: images [batch, 3, 17, 15] to scores."""
    net = Net(3)
    x = "image"
    for size in (channels, 2 * channels):
        inner = 3 if size == channels else channels
        x = net.add("Conv", x, net.weight(size, inner, 3, 3), net.weight(size, scale=0.1), pads=[1, 1, 1, 1])
        x = net.add("Relu", x)
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    short = x
    x = net.add(
        "Conv",
        x,
        net.weight(2 * channels, 1, 3, 3),
        net.weight(2 * channels, scale=0.1),
        pads=[1, 1, 1, 1],
        group=2 * channels,
    )
    x = net.add("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))
    x = net.add("Conv", x, net.weight(2 * channels, 2 * channels, 1, 1))
    x = net.add("Add", x, short)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.add("Gemm", x, net.weight(2 * channels, 5), net.weight(5, scale=0.1), name="scores")
    return net.model([value("image", FLOAT, "batch", 3, 17, 15)], [value("scores", FLOAT, "batch", 5)])


def images(count=4, seed=2):
    rng = np.random.default_rng(seed)
    return [{"image": rng.normal(size=(2, 3, 17, 15)).astype(np.float32)} for _ in range(count)]


def recurrent(inputs=12, hidden=16):
    """A bidirectional LSTM over [length, batch, inputs]."""
    net = Net(5)
    weights = (
        net.weight(2, 4 * hidden, inputs, scale=0.3),
        net.weight(2, 4 * hidden, hidden, scale=0.3),
        net.weight(2, 8 * hidden, scale=0.1),
    )
    x = net.add("LSTM", "x", *weights, hidden_size=hidden, direction="bidirectional")
    x = net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 1, 3]), net.constant(np.array([0, 0, 2 * hidden])))
    net.add("MatMul", x, net.weight(2 * hidden, 7), name="y")
    return net.model([value("x", FLOAT, "length", "batch", inputs)], [value("y", FLOAT, "length", "batch", 7)])


def sounds(count=4, seed=4):
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(9, 3, 12)).astype(np.float32)} for _ in range(count)]


def branching(width=16):
    """An If whose branches multiply by weights outside and inside of them, one of them used twice."""
    net, inner, other = Net(7), Net(8), Net(9)
    net.weight(width, width, name="outer")
    inner.add("MatMul", inner.add("Relu", inner.add("MatMul", "x", "outer", name="a"), name="a1"), "outer", name="a2")
    other.add("MatMul", "x", other.weight(width, width, name="inside"), name="b")
    then = helper.make_graph(inner.nodes, "then", [], [value("a2", FLOAT, None, width)], inner.weights)
    orelse = helper.make_graph(other.nodes, "else", [], [value("b", FLOAT, None, width)], other.weights)
    net.add("Add", net.add("If", "which", name="picked", then_branch=then, else_branch=orelse), "x", name="y")
    inputs = [value("which", TensorProto.BOOL), value("x", FLOAT, "batch", width)]
    return net.model(inputs, [value("y", FLOAT, "batch", width)])


def choices(seed=6):
    rng = np.random.default_rng(seed)
    return [{"which": np.array(which), "x": rng.normal(size=(5, 16)).astype(np.float32)} for which in (True, False)]


NETWORKS = {
    "encoder": (encoder, tokens),
    "classifier": (classifier, images),
    "recurrent": (recurrent, sounds),
    "branching": (branching, choices),
}
