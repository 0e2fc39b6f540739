"""The page: its data are whole, and no name from a file can become markup or script."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.inspect.drawing.html_page import page, work
from candle_convert.runtime.base.printable import printable
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.tensor.dtype import F32
from candle_convert.runtime.tensor.element_packing import pack
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\u2028\u2029",
    '"};alert(1);//',
    "]]>",
    "<!--<script>",
]


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name):
    graph = Graph(
        weights={name: StoredTensor.of(np.arange(4.0, dtype=np.float32))}, metadata={name: name}, format="onnx"
    )
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


def test_the_policy_allows_the_pages_own_script_and_nothing_else():
    text = page(Graph(), "x")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for kind, pattern in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (part,) = re.findall(pattern, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|innerHTML|document\.write|\beval\b""", text)


def test_the_head_says_what_the_model_is():
    carried = {"producer_name": "someone", "producer_version": "1.2", "ir_version": 9}
    graph = Graph(format="onnx", opsets={"": 21}, carried=carried)
    x = Value("x", F32, (2, "n"))
    graph.inputs, graph.values["x"] = [x], x
    build = Builder(graph)
    weight = build.constant(np.ones((3, 4), np.float32))
    graph.outputs = [build.add("MatMul", [x, weight])]
    data = data_of(page(graph, "model"))
    facts = dict(data["facts"])
    wanted = {"producer": "someone 1.2", "parameters": "12", "opsets": "ai.onnx 21", "ir version": "9"}
    assert {key: facts[key] for key in wanted} == wanted
    assert data["inputs"] == [["x", "f32[2, n]"]]
    assert data["outputs"][0][1].startswith(("f32", "?"))
    (box,) = [box for box in data["graphs"][0]["boxes"] if box["kind"] == "node"]
    assert (box["category"], box["rows"]) == ("layer", [["b", "3×4"]])


def test_small_constants_show_their_values():
    graph = Graph(format="onnx")
    x = Value("x", F32, (2, 3))
    graph.inputs, graph.values["x"] = [x], x
    build = Builder(graph)
    graph.outputs = [build.add("Reshape", [x, build.constant(np.array([-1, 2**63 - 1]))])]
    (box,) = [box for box in data_of(page(graph, "m"))["graphs"][0]["boxes"] if box["kind"] == "node"]
    assert box["rows"] == [["shape", "= [-1, ∞]"]]


def test_metadata_are_numbers():
    said = {"u": np.uint32(7), "f": np.float32(1e-6), "l": np.arange(300, dtype=np.int32), "b": True, "t": ["a", "b"]}
    rows = dict(data_of(page(Graph(metadata=said), "m"))["metadata"])
    assert (rows["u"], rows["f"], rows["b"], rows["t"]) == ("7", "1e-06", "True", "['a', 'b']")
    assert rows["l"].endswith("… 300 items]")


DTYPES = ["f32", "f16", "bf16", "f8_e4m3", "i4", "u8", "bool", "q8_0", "q4_k"]


@pytest.mark.parametrize("name", DTYPES)
def test_progress_ends_at_its_total(name):
    from candle_convert.runtime.tensor.block_codec import codec_of, encoded
    from candle_convert.runtime.tensor.dtype import DTYPES as KNOWN
    from candle_convert.runtime.tensor.storage import Held

    array = np.linspace(-3, 3, 4 * 512, dtype=np.float32).reshape(4, 512)
    dtype = KNOWN[name]
    if dtype.kind == "block":
        values = StoredTensor(dtype, array.shape, Held(encoded(codec_of(dtype), array).tobytes()))
    else:
        values = StoredTensor(dtype, array.shape, Held(pack(array.astype(dtype.as_numpy()), dtype)))
    graph = Graph(weights={"w": values, "empty": StoredTensor.of(np.zeros((0, 3), np.float32))})
    seen = []
    page(graph, "m", seen.append)
    assert sum(seen) == work(graph) > 0


def test_graphs_inside_nodes_are_drawn_and_linked(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    def floats(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    def branch(name, op):
        return helper.make_graph([helper.make_node(op, ["x"], ["y"])], name, [], [floats("y")])

    branches = {"then_branch": branch("a", "Relu"), "else_branch": branch("b", "Neg")}
    node = helper.make_node("If", ["c"], ["z"], name="choice", **branches)
    given = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), floats("x")]
    made = helper.make_graph([node], "g", given, [floats("z")])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    assert run(["inspect", str(tmp_path / "m.onnx"), "--html", str(tmp_path / "m.html"), "-q"]) == 0
    data = data_of((tmp_path / "m.html").read_text())
    assert {graph["name"] for graph in data["graphs"]} == {"", "/choice/then_branch", "/choice/else_branch"}
    (box,) = [box for box in data["graphs"][0]["boxes"] if box["kind"] == "node"]
    labels = {key: [box["label"] for box in data["graphs"][number]["boxes"]] for key, number in box["graphs"]}
    assert labels == {"then_branch": ["x", "Relu", "y"], "else_branch": ["x", "Neg", "y"]}
