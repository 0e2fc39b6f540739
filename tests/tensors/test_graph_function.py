"""Graphs as functions of tensors: values and gradients are those of torch in f64, with weights in blocks too."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import UnsupportedError, UsageError
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tensors.core.expression import apply_all
from candle_convert.tensors.graph_function import GraphFunction

RANDOM = np.random.default_rng(0)
LENGTH, WIDTH = 5, 32


def weight(build, name, tensor):
    value = Value(name, tensor.dtype, tensor.shape)
    build.graph.weights[name], build.graph.values[name] = tensor, value
    return value


def encoder(matrix):
    """Embedded tokens with positions that follow from the shape, and a linear layer: [batch, length, width]."""
    build = Builder(Graph())
    ids = Value("ids", DTYPES["i64"], ("batch", "length"))
    build.graph.inputs.append(ids)
    table = weight(build, "table", StoredTensor.of(RANDOM.standard_normal((7, WIDTH)).astype(np.float32)))
    places = weight(build, "places", StoredTensor.of(RANDOM.standard_normal((9, WIDTH)).astype(np.float32)))
    length = build.add("Squeeze", [build.add("Shape", [ids], {"start": 1, "end": 2})])
    zero, one = build.constant(0), build.constant(1)
    positions = build.add("Range", [zero, length, one])
    x = build.add("Add", [build.add("Gather", [table, ids]), build.add("Gather", [places, positions])])
    layer = weight(build, "layer", matrix)
    if matrix.qtype is None:
        y = build.add("MatMul", [x, build.add("Transpose", [layer], {"perm": [1, 0]})])
    else:
        y = build.add("Linear", [x, layer], domain="candle")
    build.graph.outputs.append(build.add("Tanh", [y], outputs=[Value("y")]))
    return build.graph


def projection(rows):
    """A layer whose results lie where tanh is not flat: its gradient would be lost in rounding there."""
    return (RANDOM.standard_normal((rows, WIDTH)) / WIDTH).astype(np.float32)


def gradients(ids, **weights):
    """Of the sum of squares, by torch in f64."""
    wide = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in weights.items()}
    x = wide["table"][torch.tensor(ids)] + wide["places"][: ids.shape[1]]
    (torch.tanh(x @ wide["layer"].T) ** 2).sum().backward()
    return {name: tensor.grad.numpy() for name, tensor in wide.items()}


@pytest.mark.parametrize("quantized", [False, True])
def test_outputs_and_gradients_are_those_of_torch(quantized):
    matrix = projection(4)
    stored = StoredTensor.of(matrix)
    if quantized:
        stored = StoredTensor(DTYPES["q8_0"], matrix.shape, Held(cc.encode(matrix, "q8_0").tobytes()))
        matrix = stored.dequantize().numpy()
    graph = encoder(stored)
    function = GraphFunction(graph)
    weights = {name: cc.tensor(graph.weights[name].numpy(), requires_grad=True) for name in ("table", "places")}
    if not quantized:
        weights["layer"] = cc.tensor(matrix, requires_grad=True)
    ids = RANDOM.integers(0, 7, (2, LENGTH))
    (function({"ids": cc.tensor(ids)}, weights)["y"] ** 2).sum().backward()
    tables = {name: graph.weights[name].numpy() for name in ("table", "places")}
    theirs = gradients(ids, **tables, layer=matrix)
    for name, tensor in weights.items():
        np.testing.assert_allclose(tensor.grad.numpy(), theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_compiled_gradient_keeps_weights_in_blocks():
    matrix = projection(64)
    stored = StoredTensor(DTYPES["q8_0"], matrix.shape, Held(cc.encode(matrix, "q8_0").tobytes()))
    graph = encoder(stored)
    function = GraphFunction(graph)
    table = graph.weights["table"].numpy()

    def loss(rows):
        return (function({"ids": ids}, {"table": rows})["y"] ** 2).sum()

    ids = cc.tensor(RANDOM.integers(0, 7, (4, 9)))
    compiled = cc.jit(cc.grad(loss))(cc.tensor(table))
    places = graph.weights["places"].numpy()
    theirs = gradients(ids.numpy(), table=table, places=places, layer=stored.dequantize().numpy())
    np.testing.assert_allclose(compiled.numpy(), theirs["table"], rtol=1e-4, atol=1e-6)


def test_a_rule_takes_the_place_of_an_operator():
    graph = encoder(StoredTensor.of(np.eye(WIDTH, dtype=np.float32)))
    node = graph.nodes[-1]
    plain = GraphFunction(graph)({"ids": cc.tensor([[1, 2]])})["y"]
    ruled = GraphFunction(graph, {node: lambda inputs: apply_all(operator("Sinh"), inputs)})
    np.testing.assert_allclose(
        np.sinh(np.arctanh(plain.numpy())), ruled({"ids": cc.tensor([[1, 2]])})["y"].numpy(), rtol=1e-4
    )


def test_what_cannot_be_a_function_is_refused():
    graph = encoder(StoredTensor.of(np.eye(WIDTH, dtype=np.float32)))
    with pytest.raises(UsageError, match="'ids' is missing"):
        GraphFunction(graph)({})
    build = Builder(Graph())
    build.add("If", [build.constant(True, "bool")], {"then_branch": Graph(), "else_branch": Graph()})
    with pytest.raises(UnsupportedError, match="If has a subgraph"):
        GraphFunction(build.graph)
