"""Random graphs: what passes, plans, kernels, and written and quantized files compute of them, against the NumPy
reference and onnxruntime.

``CANDLE_FULL=1 pytest tests/fuzz/test_graphs.py -k native`` goes on for CANDLE_FUZZ_SECONDS; CANDLE_CPU chooses the
instructions. A graph that fails is minimized and printed as a program.
"""

from __future__ import annotations

import functools
import random
import runpy

import numpy as np
import onnx
import pytest
from candle_convert.tests.fuzz.graphs import compare, quantize, rewrite
from candle_convert.tests.fuzz.graphs.drawn_graph import drawn
from candle_convert.tests.fuzz.graphs.minimize import minimized
from candle_convert.tests.fuzz.graphs.small_graph import Input, Node, SmallGraph
from candle_convert.tests.fuzz.harness import seeds
from onnx import numpy_helper


def setting(seed):
    """How the graph of a seed is quantized."""
    return quantize.SETTINGS[seed % len(quantize.SETTINGS)]


CHECKS = {
    "passes": (lambda graph, seed: compare.fault(graph, native=False), 40),
    "native": (lambda graph, seed: compare.fault(graph), 4),
    "shapes": (lambda graph, seed: compare.shape_fault(graph), 40),
    "onnxruntime": (lambda graph, seed: compare.oracle_fault(graph), 16),
    "quantized": (lambda graph, seed: quantize.fault(graph, setting(seed), native=False), 13),
    "quantized natively": (lambda graph, seed: quantize.fault(graph, setting(seed), native=True), 2),
    "files": (lambda graph, seed: rewrite.fault(graph, rewrite.KINDS[seed % len(rewrite.KINDS)]), 20),
}
"""What is compared, and how many graphs in CI."""
_drawn = functools.lru_cache(64)(drawn)


@pytest.mark.parametrize("what", CHECKS)
def test_random_graphs(what, full):
    check, count = CHECKS[what]
    compared = 0
    for seed in seeds(full, count):
        graph = _drawn(seed)
        wrong = check(graph, seed)
        if wrong:
            small = minimized(graph, lambda graph, seed=seed: bool(check(graph, seed)))
            pytest.fail(f"seed {seed}: {wrong}\n{small.script(str(check(small, seed)))}")
        compared += 1
    print(f"{compared} graphs compared")


def chain():
    """A graph of eight nodes, one of which is a loop."""
    body = SmallGraph(
        (Node("Neg", ("s",), ("t",)), Node("Tanh", ("t",), ("u",)), Node("Identity", ("g",), ("h",))),
        {"i": None, "g": None, "s": None},
        {},
        ("h", "u"),
        {"i": ("int64", 0), "g": ("bool", 0), "s": ("float32", 1), "h": ("bool", 0), "u": ("float32", 1)},
    )
    nodes = [Node(op, (f"v{index}",), (f"v{index + 1}",)) for index, op in enumerate(("Abs", "Sqrt", "Relu", "Exp"))]
    nodes += [Node("Loop", ("trips", "", "v4"), ("v5",), {"body": body}), Node("Add", ("v5", "v0"), ("v6",))]
    x = np.linspace(0, 1, 3, dtype=np.float32)
    types = {"v6": ("float32", 1), "v2": ("float32", 1)}
    inputs = {"v0": Input(("n",), (x, x[:2]))}
    return SmallGraph(tuple(nodes), inputs, {"trips": np.array(2)}, ("v6", "v2"), types)


def test_what_fails_becomes_small():
    small = minimized(chain(), lambda graph: {"Loop", "Neg"} <= set(graph.operators()))
    assert list(small.operators()) == ["Loop", "Neg", "Tanh", "Identity"]
    assert (len(small.outputs), len(small.feeds())) == (1, 1)


def test_a_graph_as_a_program(tmp_path, capsys):
    (tmp_path / "failing.py").write_text(chain().script("nothing is wrong"))
    runpy.run_path(str(tmp_path / "failing.py"))
    printed = capsys.readouterr().out
    assert printed.count("onnxruntime") == printed.count("native") == 2


def test_wrong_quantization_is_noticed(monkeypatch):
    """A scale of a weight that is four times too large, in files of every setting."""
    right = quantize._written

    def wrong(graph, request):
        model = right(graph, request)
        scale = [item for item in model.graph.initializer if item.data_type == onnx.TensorProto.FLOAT][-1]
        scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(4), scale.name))
        return model

    weight = np.random.default_rng(0).standard_normal((16, 48), np.float32)
    x = np.random.default_rng(1).standard_normal((8, 16), np.float32)
    product = Node("MatMul", ("x", "w"), ("y",))
    graph = SmallGraph((product,), {"x": Input(("n", 16), (x, x[:5]))}, {"w": weight}, ("y",), {"y": ("float32", 2)})
    for item in quantize.SETTINGS:
        assert quantize.fault(graph, item, native=False) is None
    monkeypatch.setattr(quantize, "_written", wrong)
    for item in quantize.SETTINGS:
        assert "elements are wrong" in quantize.fault(graph, item, native=False)


def test_results_of_a_convolution_that_all_round_alike():
    """Most outputs see padding alone, and their mean is as far off as each of them."""
    x = np.array([0.785, 0.34, 1.174, -1.728, -1.286, 0.556], np.float32).reshape(2, 3, 1, 1)
    weight = np.array([0.016, -0.001, 0.016, -0.001, 0.008, -0.019], np.float32).reshape(1, 3, 2, 1)
    settings = {"strides": [2, 1], "pads": [1, 1, 1, 1], "dilations": [1, 2]}
    nodes = (
        Node("Conv", ("x", "w"), ("v",), settings),
        Node("BatchNormalization", ("v", "one", "b", "zero", "one"), ("n",), {"epsilon": 0.0}),
        Node("ReduceMean", ("n", "axes"), ("y",), {"keepdims": 0}),
    )
    vectors = {"one": 1.0, "b": -3.1235, "zero": 0.0}
    constants = {name: np.array([value], np.float32) for name, value in vectors.items()}
    constants |= {"w": weight, "axes": np.array([-1, -4])}
    graph = SmallGraph(nodes, {"x": Input((2, 3, 1, 1), (x,))}, constants, ("y",), {"y": ("float32", 2)})
    for item in quantize.SETTINGS:
        assert quantize.fault(graph, item, native=False) is None


def test_what_onnxruntime_rounds_in_branches():
    """Its sigmoid of -11.9 is 0.2 % off, a unit in the last place of a half, also in a branch."""
    swish = (Node("Sigmoid", ("x",), ("s",)), Node("Mul", ("x", "s"), ("m",)))
    branch = SmallGraph(swish, {}, {}, ("m",), {"m": ("float32", 0)})
    other = SmallGraph((Node("Relu", ("x",), ("r",)),), {}, {}, ("r",), {"r": ("float32", 0)})
    choice = Node("If", ("c",), ("y",), {"then_branch": other, "else_branch": branch})
    feeds = {"x": np.array(-11.919456, np.float32), "c": np.array(False)}
    inputs = {name: Input((), (array,)) for name, array in feeds.items()}
    assert compare.oracle_fault(SmallGraph((choice,), inputs, {}, ("y",), {"y": ("float32", 0)})) is None


def test_wrong_results_are_noticed():
    """Every element that differs by more than rounding."""
    graph = chain()
    bounds = compare.Bounds(graph, graph.feeds()[0])
    for name in graph.outputs:
        right = bounds.values[name]
        assert bounds.fault(name, right * np.float32(1 + 1e-7)) is None
        for index in range(3):
            wrong = right.copy()
            wrong[index] += 1e-3 * random.Random(index).choice((1, -1))
            assert bounds.fault(name, wrong)
    assert bounds.fault("v6", right.astype(np.float64))
