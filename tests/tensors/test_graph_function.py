"""Graphs as functions of tensors: values and gradients are those of torch, with weights in blocks too."""

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
from candle_convert.runtime.tensor.tensor import Tensor
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
    table = weight(build, "table", Tensor.of(RANDOM.standard_normal((7, WIDTH)).astype(np.float32)))
    places = weight(build, "places", Tensor.of(RANDOM.standard_normal((9, WIDTH)).astype(np.float32)))
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


def of_torch(ids, tables, layer):
    table, places = tables
    return torch.tanh((table[ids] + places[: ids.shape[1]]) @ layer.T)


@pytest.mark.parametrize("quantized", [False, True])
def test_outputs_and_gradients_are_those_of_torch(quantized):
    matrix = RANDOM.standard_normal((4, WIDTH)).astype(np.float32)
    stored = Tensor.of(matrix)
    if quantized:
        stored = Tensor(DTYPES["q8_0"], matrix.shape, Held(cc.encode(matrix, "q8_0").tobytes()))
        matrix = stored.dequantize().numpy()
    graph = encoder(stored)
    function = GraphFunction(graph)
    weights = {name: cc.tensor(graph.weights[name].numpy(), requires_grad=True) for name in ("table", "places")}
    if not quantized:
        weights["layer"] = cc.tensor(matrix, requires_grad=True)
    ids = RANDOM.integers(0, 7, (2, LENGTH))
    (function({"ids": cc.tensor(ids)}, weights)["y"] ** 2).sum().backward()
    theirs = {name: torch.tensor(graph.weights[name].numpy(), requires_grad=True) for name in ("table", "places")}
    layer = torch.tensor(matrix, requires_grad=True)
    (of_torch(torch.tensor(ids), theirs.values(), layer) ** 2).sum().backward()
    theirs["layer"] = layer
    for name, tensor in weights.items():
        np.testing.assert_allclose(tensor.grad.numpy(), theirs[name].grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_compiled_gradient_keeps_weights_in_blocks():
    matrix = RANDOM.standard_normal((64, WIDTH)).astype(np.float32)
    stored = Tensor(DTYPES["q8_0"], matrix.shape, Held(cc.encode(matrix, "q8_0").tobytes()))
    graph = encoder(stored)
    function = GraphFunction(graph)
    table = graph.weights["table"].numpy()

    def loss(rows):
        return (function({"ids": ids}, {"table": rows})["y"] ** 2).sum()

    ids = cc.tensor(RANDOM.integers(0, 7, (4, 9)))
    compiled = cc.jit(cc.grad(loss))(cc.tensor(table))
    theirs = torch.tensor(table, requires_grad=True)
    places = torch.tensor(graph.weights["places"].numpy())
    (
        of_torch(torch.tensor(ids.numpy()), (theirs, places), torch.tensor(stored.dequantize().numpy())) ** 2
    ).sum().backward()
    np.testing.assert_allclose(compiled.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_rule_takes_the_place_of_an_operator():
    graph = encoder(Tensor.of(np.eye(WIDTH, dtype=np.float32)))
    node = graph.nodes[-1]
    plain = GraphFunction(graph)({"ids": cc.tensor([[1, 2]])})["y"]
    ruled = GraphFunction(graph, {node: lambda inputs: apply_all(operator("Sinh"), inputs)})
    np.testing.assert_allclose(
        np.sinh(np.arctanh(plain.numpy())), ruled({"ids": cc.tensor([[1, 2]])})["y"].numpy(), rtol=1e-4
    )


def test_what_cannot_be_a_function_is_refused():
    graph = encoder(Tensor.of(np.eye(WIDTH, dtype=np.float32)))
    with pytest.raises(UsageError, match="'ids' is missing"):
        GraphFunction(graph)({})
    build = Builder(Graph())
    build.add("If", [build.constant(True, "bool")], {"then_branch": Graph(), "else_branch": Graph()})
    with pytest.raises(UnsupportedError, match="If has a subgraph"):
        GraphFunction(build.graph)
