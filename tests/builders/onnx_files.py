"""Small ONNX files to run commands on."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(name, dtype=TensorProto.FLOAT, shape=("batch", 3)):
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def save(path, nodes, inputs, outputs, weights=(), *, opset=17, domains=(), functions=()):
    """A checked model file."""
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
    onnx.save(model, path)
    return path


def perceptron(path, *, bias=0.5):
    """Two layers: y = relu(x @ w + b) @ v, with x of [batch, 3]."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "first"),
        helper.make_node("Add", ["product", "b"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["hidden"], "relu"),
        helper.make_node("MatMul", ["hidden", "v"], ["y"], "second"),
    ]
    weights = [
        weight("w", rng.normal(size=(3, 8)).astype(np.float32)),
        weight("b", np.full(8, bias, np.float32)),
        weight("v", rng.normal(size=(8, 2)).astype(np.float32)),
    ]
    return save(path, nodes, [value("x")], [value("y", shape=("batch", 2))], weights)
