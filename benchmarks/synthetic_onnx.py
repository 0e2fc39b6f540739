"""ONNX models with random weights for the benchmarks: light networks, a text encoder and a llama-shaped decoder."""

import math
from pathlib import Path

import numpy as np

FOLDED = Path("/dev/shm/folded.onnx")
"""Where onnxruntime writes a network after constant folding."""


def light_models():
    """Paths of the light models of the onnx package."""
    import onnx

    return sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))


def light_network(name):
    """A light model of the onnx package at opset 17: constants folded, random weights, residual Sum as Add."""
    import onnx
    from onnx import numpy_helper

    model = _folded(Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx")
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            shape = tuple(tensor.dims)
            array = rng.normal(size=shape) * (math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.1)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    for node in model.graph.node:
        if node.op_type == "Sum":
            node.op_type = "Add"
    weights = {tensor.name for tensor in model.graph.initializer}
    read = {name for node in model.graph.node for name in node.input}
    for item in [item for item in model.graph.input if item.name in weights or item.name not in read]:
        model.graph.input.remove(item)
    model.ir_version = 8
    return model


def _folded(path):
    import onnx
    import onnxruntime
    from onnx import version_converter

    model = version_converter.convert_version(onnx.load(path), 17)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath, options.log_severity_level = str(FOLDED), 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    model = onnx.load(FOLDED)
    FOLDED.unlink()
    del model.opset_import[1:]
    return model


class Net:
    """Appends nodes and weights to a graph."""

    def __init__(self):
        self.rng, self.nodes, self.weights = np.random.default_rng(0), [], []

    def constant(self, array):
        """Add a weight and return its name."""
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, operator, *inputs, **attributes):
        """Add a node and return the name of its output."""
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def linear(self, x, inner, out, bias=True):
        """Dense layer."""
        weight = (self.rng.normal(size=(inner, out)) / math.sqrt(inner)).astype(np.float32)
        product = self.add("MatMul", x, self.constant(weight))
        if not bias:
            return product
        return self.add("Add", product, self.constant(self.rng.normal(size=out).astype(np.float32) * 0.1))

    def attention(self, x, width, heads, bias):
        """Self-attention without a mask."""
        shape, flat = self.constant(np.array([0, 0, heads, width // heads])), self.constant(np.array([0, 0, width]))

        def split(x):
            return self.add("Transpose", self.add("Reshape", x, shape), perm=[0, 2, 1, 3])

        q, k, v = (split(self.linear(x, width, width, bias)) for _ in "qkv")
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Div", scores, self.constant(np.float32((width // heads) ** 0.5)))
        context = self.add("Transpose", self.add("MatMul", self.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", context, flat), width, width, bias)

    def model(self, output):
        """Model from int64 tokens x [batch, length] to `output`, f32 [batch, length, width]."""
        from onnx import TensorProto, helper

        tokens = helper.make_tensor_value_info("x", TensorProto.INT64, ("batch", "length"))
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ("batch", "length", None))
        graph = helper.make_graph(self.nodes, "net", [tokens], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder(width=384, heads=12, layers=6, inner=1536, vocabulary=2000):
    """Transformer encoder of MiniLM's size from int64 tokens [batch, length]."""
    net = Net()

    def norm(x):
        scale, bias = net.constant(np.ones(width, np.float32)), net.constant(np.zeros(width, np.float32))
        return net.add("LayerNormalization", x, scale, bias)

    def gelu(x):
        erf = net.add("Erf", net.add("Div", x, net.constant(np.float32(math.sqrt(2)))))
        gate = net.add("Add", erf, net.constant(np.float32(1)))
        return net.add("Mul", net.add("Mul", x, gate), net.constant(np.float32(0.5)))

    embedding = net.constant(net.rng.normal(size=(vocabulary, width)).astype(np.float32))
    x = norm(net.add("Gather", embedding, "x"))
    for _ in range(layers):
        x = norm(net.add("Add", x, net.attention(x, width, heads, True)))
        x = norm(net.add("Add", x, net.linear(gelu(net.linear(x, width, inner)), inner, width)))
    return net.model(x)


def llama(width=1024, heads=16, layers=4, inner=2816, vocabulary=2000):
    """Layers of llama's shape, without RoPE and mask, from int64 tokens [batch, length]."""
    net = Net()

    def norm(x):
        mean = net.add("ReduceMean", net.add("Mul", x, x), axes=[-1])
        root = net.add("Sqrt", net.add("Add", mean, net.constant(np.float32(1e-5))))
        return net.add("Mul", net.add("Div", x, root), net.constant(np.ones(width, np.float32)))

    x = net.add("Gather", net.constant(net.rng.normal(size=(vocabulary, width)).astype(np.float32)), "x")
    for _ in range(layers):
        x = net.add("Add", x, net.attention(norm(x), width, heads, False))
        y = norm(x)
        gate, up = net.linear(y, width, inner, False), net.linear(y, width, inner, False)
        hidden = net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up)
        x = net.add("Add", x, net.linear(hidden, inner, width, False))
    return net.model(net.linear(norm(x), width, vocabulary, False))
