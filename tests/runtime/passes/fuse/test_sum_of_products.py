"""Products of few rows that are added up become one; torch computes the sum."""

import numpy as np
import torch
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.passes.fuse.sum_of_products import JoinSumsOfProducts
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32


def summed(rows):
    """A graph of sums of products of `rows` rows, and of a matrix."""
    graph = Graph()
    shapes = {f"{letter}{term}": (rows, width) for term in range(5) for letter, width in (("a", 3), ("b", 4))}
    given = {name: Value(name, F32, shape) for name, shape in {**shapes, "c": (3, 4)}.items()}
    graph.inputs, graph.values = list(given.values()), dict(given)
    build = Builder(graph)
    terms = [build.add("Gemm", [given[f"a{term}"], given[f"b{term}"]], {"transA": 1}) for term in range(5)]
    total = build.add("Add", [build.add("Add", [terms[1], given["c"]]), build.add("Add", [terms[0], terms[2]])])
    graph.outputs = [build.add("Add", [build.add("Add", [terms[3], terms[4]]), total])]
    return graph


def test_products_of_few_rows_are_joined():
    graph = summed(2)
    assert JoinSumsOfProducts().run(graph)
    assert [node.op.name for node in graph.nodes] == ["Concat", "Concat", "Gemm", "Add"]
    rng = np.random.default_rng(0)
    feeds = {value.name: rng.standard_normal(value.shape).astype(np.float32) for value in graph.inputs}
    (found,) = Session(graph, native=False, simplify=False).run(None, feeds)
    given = {name: torch.tensor(value) for name, value in feeds.items()}
    expected = given["c"] + sum(given[f"a{term}"].T @ given[f"b{term}"] for term in range(5))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_products_of_many_rows_stay():
    assert not JoinSumsOfProducts().run(summed(100))
