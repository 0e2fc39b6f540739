"""The page: its data are whole, and no name from a file can become markup or script."""

import json
import re

import numpy as np
import pytest
from candle_convert.convert.drawing.page import page
from candle_convert.runtime.build import Builder
from candle_convert.runtime.dtype import F32
from candle_convert.runtime.graph import Graph, Value
from candle_convert.runtime.printable import printable
from candle_convert.runtime.tensor import Tensor

HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u2028\u2029", '"};alert(1);//', "]]>", "<!--<script>"]


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name):
    graph = Graph(weights={name: Tensor.of(np.arange(4.0, dtype=np.float32))}, metadata={name: name}, format="onnx")
    x = Value(name, F32, (2, "n"))
    graph.inputs, graph.values[name] = [x], x
    graph.outputs = [Builder(graph).add(name, [x], {name: name}, domain=name, name=name)]
    text = page(graph, name)
    assert text.count("</script>") == 2
    assert text.count("<script") == 2
    data = data_of(text)
    shown = printable(name)
    assert data["title"] == shown
    assert data["weights"][0]["name"] == shown
    assert data["metadata"] == [[shown, shown]]


def test_nodes_edges_and_statistics():
    graph = Graph(format="onnx", opsets={"": 21})
    x = Value("x", F32, (2, 3))
    graph.inputs, graph.values["x"] = [x], x
    build = Builder(graph)
    weight = build.constant(np.array([[1, -1], [2, np.nan], [0, 4]], np.float32))
    product = build.add("MatMul", [x, weight])
    graph.outputs = [build.add("Relu", [product])]
    data = data_of(page(graph, "two nodes"))
    (drawing,) = data["graphs"]
    assert [box["label"] for box in drawing["boxes"]] == ["x", "MatMul", "Relu", "Relu"]
    assert [edge[:2] for edge in drawing["edges"]] == [[0, 1], [1, 2], [2, 3]]
    assert drawing["edges"][0][3] == "f32[2, 3]"
    (row,) = data["weights"]
    assert (row["min"], row["max"], row["nan"], row["zeros"], sum(row["counts"])) == (-1, 4, 1, 1, 5)
