"""``profile``: every node is there, times add up, arithmetic is counted, and the trace is one that browsers read."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.run.flops import operations
from candle_convert.convert.run.profile import profile
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.onnx_files import perceptron, save, value, weight
from onnx import TensorProto, helper


def test_every_node_is_listed_and_the_shares_add_up(tmp_path):
    x = np.ones((5000, 3), np.float32)
    made = profile(
        Session(cc.open(perceptron(tmp_path / "m.onnx")), threads=2, simplify=False), {"x": x}, runs=3, warmup=1
    )
    rows = {row.name: row for row in made.nodes}
    assert {row.operator for row in made.nodes} <= {"MatMul", "Linear", "Add", "Relu"}
    assert sum(row.share for row in made.nodes) == pytest.approx(1)
    assert all(row.calls >= 1 and row.nbytes > 0 for row in made.nodes)
    assert rows["first"].operations == 2 * 5000 * 3 * 8
    assert rows["second"].operations == 2 * 5000 * 8 * 2
    assert sum(row.seconds for row in made.operators) == pytest.approx(sum(row.seconds for row in made.nodes))
    for (began, ended), events in zip(made.runs, made.events, strict=True):
        assert began <= min(event.began for event in events)
        assert max(event.ended for event in events) <= ended
        assert sum(event.ended - event.began for event in events) <= ended - began


def test_the_trace_has_complete_events_that_nest(tmp_path, capsys):
    model, out = perceptron(tmp_path / "m.onnx"), tmp_path / "t.json"
    assert run(["profile", str(model), "--runs", "2", "--warmup", "1", "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["lost"]) == (2, 0)
    assert {"name", "operator", "how", "seconds", "share", "operations", "nbytes", "gflops"} <= set(told["nodes"][0])
    trace = json.loads(out.read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "M"}
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in spans if event["cat"] == "run"] == ["run 1", "run 2"]
    assert all(
        {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(event) and event["ts"] >= 0 and event["dur"] >= 0
        for event in spans
    )
    open_ = []
    for event in sorted(spans, key=lambda event: (event["ts"], -event["dur"])):
        while open_ and open_[-1] <= event["ts"] + 1e-6:
            open_.pop()
        assert not open_ or event["ts"] + event["dur"] <= open_[-1] + 1e-3
        open_.append(event["ts"] + event["dur"])
    assert run(["profile", str(model), "-o", str(out)]) == 5
    assert "E-OUT-EXISTS" in capsys.readouterr().err


def test_bodies_of_loops_are_counted_by_iteration(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Sin", ["a"], ["b"], "step")], "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("a", shape=(4,))],
        [value("again", TensorProto.BOOL, ()), value("b", shape=(4,))],
    )  # fmt: skip
    model = save(
        tmp_path / "m.onnx", [helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)],
        [value("n", TensorProto.INT64, ()), value("x", shape=(4,))], [value("y", shape=(4,))],
    )  # fmt: skip
    for native in (False, True):
        made = profile(
            Session(cc.open(model), native=native), {"n": np.array(7), "x": np.ones(4, np.float32)}, runs=2, warmup=1
        )
        sines = [row for row in made.nodes if row.operator == "Sin"]
        assert [row.calls for row in sines] == [7]
        assert sum(row.share for row in made.nodes) == pytest.approx(1)


COSTS = [
    ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], (1, 4, 6, 6), {}, 2 * 4 * 36 * 27),
    ("Conv", [(1, 4, 8, 8), (4, 1, 3, 3)], (1, 4, 6, 6), {"group": 4}, 2 * 4 * 36 * 9),
    ("ConvTranspose", [(1, 3, 4, 4), (3, 5, 2, 2)], (1, 5, 8, 8), {"strides": [2, 2]}, 2 * 48 * 20),
    ("Gemm", [(6, 5), (6, 7)], (5, 7), {"transA": 1}, 2 * 5 * 7 * 6),
    ("MatMul", [(2, 3, 4), (4, 5)], (2, 3, 5), {}, 2 * 30 * 4),
    ("Relu", [(3, 4)], (3, 4), {}, 12),
    ("ReduceSum", [(3, 4)], (1, 1), {}, 12),
    ("Transpose", [(3, 4)], (4, 3), {"perm": [1, 0]}, 0),
]


@pytest.mark.parametrize(("name", "shapes", "output", "attributes", "expected"), COSTS)
def test_arithmetic(tmp_path, name, shapes, output, attributes, expected):
    inputs = [f"x{index}" for index in range(len(shapes))]
    nodes = [helper.make_node(name, inputs, ["y"], **attributes)]
    pairs = list(zip(inputs, shapes, strict=True))
    model = save(
        tmp_path / "m.onnx", nodes, [value(*pairs[0][:1], shape=shapes[0])], [value("y", shape=None)],
        [weight(key, np.ones(shape, np.float32)) for key, shape in pairs[1:]],
    )  # fmt: skip
    graph = cc.open(model)
    infer(graph)
    assert graph.outputs[0].shape == output
    assert operations(graph.nodes[0]) == expected
