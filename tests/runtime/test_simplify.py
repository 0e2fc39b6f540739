"""Simplifying: smaller graphs whose outputs are onnxruntime's of the original, on made-up graphs and on the models of the onnx package."""

from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.runtime.passes.consistency import check
from candle_convert.runtime.passes.extract import extract
from candle_convert.runtime.passes.rename import Rename
from candle_convert.runtime.passes.simplify import Simplify
from candle_convert.runtime.session import Session
from onnx import TensorProto, helper
from onnx_files import perceptron, save, value, weight

RNG = np.random.default_rng(7)
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def reference(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def simplified(path, feeds, **options):
    """The operators that are left, after comparing outputs, in memory and as a file that onnxruntime runs."""
    graph = cc.open(path)
    before = reference(path, feeds)
    Simplify(**options).run(graph)
    for got, expected in zip(Session(graph).run(None, feeds), before, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return sorted(node.op.name for node in graph.nodes)


def norm(count):
    return [
        weight("scale", RNG.normal(size=count).astype(np.float32)), weight("offset", RNG.normal(size=count).astype(np.float32)),
        weight("mean", RNG.normal(size=count).astype(np.float32)), weight("variance", RNG.uniform(0.5, 2, count).astype(np.float32)),
    ]


IMAGE = value("x", shape=("n", 3, 8, 8))


@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalization_goes_into_the_convolution(tmp_path, bias):
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], pads=[1, 1, 1, 1], group=1),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["y"], epsilon=1e-3),
    ]
    weights = [weight("w", RNG.normal(size=(5, 3, 3, 3)).astype(np.float32)), weight("b", RNG.normal(size=5).astype(np.float32)), *norm(5)]
    path = save(tmp_path / "m.onnx", nodes, [IMAGE], [value("y", shape=("n", 5, 8, 8))], weights)
    assert simplified(path, {"x": RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)}) == ["Conv"]


def test_a_convolution_that_others_read_keeps_its_normalization(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["y"]),
        helper.make_node("Relu", ["c"], ["z"]),
    ]
    weights = [weight("w", RNG.normal(size=(5, 3, 1, 1)).astype(np.float32)), *norm(5)]
    path = save(tmp_path / "m.onnx", nodes, [IMAGE], [value("y", shape=None), value("z", shape=None)], weights)
    assert simplified(path, {"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)}) == ["BatchNormalization", "Conv", "Relu"]


def test_matrix_product_and_bias_become_gemm(tmp_path):
    path = perceptron(tmp_path / "m.onnx")
    assert simplified(path, {"x": RNG.normal(size=(4, 3)).astype(np.float32)}) == ["Gemm", "MatMul", "Relu"]


def test_shape_arithmetic_is_folded(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["wanted"], axis=0), helper.make_node("Reshape", ["x", "wanted"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    weights = [weight("zero", np.array([0])), weight("rest", np.array([6]))]
    path = save(tmp_path / "m.onnx", nodes, [value("x", shape=(4, 2, 3))], [value("y", shape=None)], weights)
    assert simplified(path, {"x": RNG.normal(size=(4, 2, 3)).astype(np.float32)}) == ["Relu", "Reshape"]


def test_equal_nodes_are_computed_once_and_what_nobody_reads_not_at_all(tmp_path):
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["x"], ["b"]), helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Log", ["x"], ["unused"]), helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x")], [value("y")])
    assert simplified(path, {"x": RNG.uniform(1, 2, (2, 3)).astype(np.float32)}) == ["Add", "Exp"]


def test_random_numbers_are_not_shared_or_folded(tmp_path):
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[3]), helper.make_node("RandomNormal", [], ["b"], shape=[3]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    graph = cc.open(save(tmp_path / "m.onnx", nodes, [], [value("y", shape=(3,))]))
    Simplify().run(graph)
    assert [node.op.name for node in graph.nodes] == ["RandomNormal", "RandomNormal", "Sub"]


def test_transpositions_that_undo_each_other_go(tmp_path):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 2, 0]), helper.make_node("Transpose", ["a"], ["b"], perm=[2, 0, 1]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", shape=(2, 3, 4))], [value("y", shape=(2, 3, 4))])
    assert simplified(path, {"x": RNG.normal(size=(2, 3, 4)).astype(np.float32)}) == ["Relu"]


def test_large_results_are_not_folded(tmp_path):
    nodes = [helper.make_node("Expand", ["w", "shape"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    weights = [weight("w", np.ones((1, 1), np.float32)), weight("shape", np.array([1000, 1000]))]
    path = save(tmp_path / "m.onnx", nodes, [value("x", shape=(1, 1000))], [value("y", shape=None)], weights)
    feeds = {"x": RNG.normal(size=(1, 1000)).astype(np.float32)}
    assert simplified(path, feeds) == ["Add", "Expand"]
    assert simplified(path, feeds, max_fold=1 << 24) == ["Add"]


def test_branches_are_simplified_too(tmp_path):
    def branch(name, operator):
        nodes = [helper.make_node("Identity", ["x"], [f"{name}a"]), helper.make_node(operator, [f"{name}a"], [f"{name}b"])]
        return helper.make_graph(nodes, name, [], [value(f"{name}b", shape=None)])

    nodes = [helper.make_node("If", ["choice"], ["y"], then_branch=branch("t", "Exp"), else_branch=branch("e", "Neg"))]
    path = save(tmp_path / "m.onnx", nodes, [value("choice", TensorProto.BOOL, ()), value("x")], [value("y", shape=None)])
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    for choice in (True, False):
        assert simplified(path, {"choice": np.array(choice), "x": x}) == ["If"]
    graph = cc.open(path)
    Simplify().run(graph)
    assert [len(below.nodes) for below in graph.nodes[0].subgraphs] == [1, 1]


@pytest.mark.parametrize("name", ["light_resnet50", "light_shufflenet", "light_squeezenet"])
def test_models_of_the_onnx_package(name, tmp_path):
    path = LIGHT / f"{name}.onnx"
    graph = cc.open(path)
    (fed,) = (item for item in graph.inputs if item.name not in graph.weights)
    feeds = {fed.name: RNG.normal(size=fed.shape).astype(np.float32)}
    left = simplified(path, feeds, max_fold=1 << 27)
    assert len(left) < 0.75 * len(graph.nodes), sorted(set(left))
    assert "BatchNormalization" not in left


def test_a_part_of_a_model(tmp_path):
    path = perceptron(tmp_path / "m.onnx")
    graph = cc.open(path)
    part = extract(graph, ["sum"], ["hidden"])
    check(part)
    assert [node.op.name for node in part.nodes] == ["Relu"]
    total = RNG.normal(size=(2, 8)).astype(np.float32)
    np.testing.assert_array_equal(Session(part).run(None, {"sum": total})[0], np.maximum(total, 0))
    whole = extract(graph, [], ["hidden"])
    assert [item.name for item in whole.inputs] == ["x"]
    assert list(whole.weights) == ["w", "b"]
    with pytest.raises(cc.UsageError, match="no value named 'nothing'"):
        extract(graph, [], ["nothing"])


def test_new_names_for_values_and_dimensions(tmp_path):
    path = perceptron(tmp_path / "m.onnx")
    graph = cc.open(path)
    assert Rename({"x": "input", "y": "output", "w": "kernel"}, {"batch": 5}).run(graph)
    check(graph)
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(Session(graph).run(["output"], {"input": x})[0], reference(path, {"x": x})[0], rtol=1e-5)
    assert graph.inputs[0].shape == (5, 3)
    assert "kernel" in graph.weights
    for rename in (Rename({"nothing": "a"}), Rename({"x": "y"}), Rename({"x": "a", "y": "a"}), Rename(dims={"nothing": 1})):
        with pytest.raises(cc.UsageError):
            rename.run(cc.open(path))
