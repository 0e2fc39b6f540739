"""ai.onnx.ml: every operator against onnxruntime with drawn attributes, maps, malformed trees."""

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx
import pytest
from candle_convert.ops.ml import tree_ensemble as trees
from candle_convert.runtime.base.errors import LimitError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model, with_onnxruntime, with_reference
from onnx import helper

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def run(name, example):
    made, feeds = model(operator(name, ML), example)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)


def same(name, example, rtol=1e-4, atol=1e-5):
    expected = with_onnxruntime(operator(name, ML), example)
    assert not isinstance(expected, str), expected
    got = run(name, example)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        if one.dtype.kind == "O":
            assert one.tolist() == other.tolist()
        else:
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def numbers(seed, count, low=-2, high=2):
    return np.random.default_rng(seed).uniform(low, high, count).astype(np.float32).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64], ids=lambda dtype: np.dtype(dtype).name)
def test_features(dtype):
    x = (drawn(1, 4, 3) * 4).astype(dtype)
    same("Scaler", case(x, offset=numbers(2, 3), scale=numbers(3, 3)))
    same("Scaler", case(x, offset=[1.5], scale=[-2.0]))
    same("ArrayFeatureExtractor", case(x, np.array([2, 0, 2])))
    for norm in ("MAX", "L1", "L2"):
        same("Normalizer", case(x, norm=norm))
    same("FeatureVectorizer", case(x, x[:, :2], inputdimensions=[3, 2]))


def test_features_of_other_kinds():
    x = drawn(4, 3, 4)
    same("Binarizer", case(x, threshold=0.3))
    holes = np.where(x > 0.5, np.float32(np.nan), x)
    same("Imputer", case(holes, imputed_value_floats=numbers(5, 4), replaced_value_float=float("nan")))
    same("Imputer", case(np.array([[1, 0, 3]]), imputed_value_int64s=[7, 8, 9], replaced_value_int64=0))
    same("ArrayFeatureExtractor", case(np.array([["a", "b"], ["c", "d"]], object), np.array([1])))
    same("ArrayFeatureExtractor", case(x[0], np.array([1, 3])))


def test_categories():
    names = np.array([["ant", "bee"], ["cow", "ant"]], object)
    animals = {"cats_strings": ["cow", "ant"], "cats_int64s": [10, 20]}
    same("CategoryMapper", case(names, default_int64=-5, **animals))
    same("CategoryMapper", case(np.array([20, 30, 10]), default_string="none", **animals))
    same("LabelEncoder", case(names, keys_strings=["ant", "cow"], values_floats=[0.5, 1.5], default_float=9.0))
    same(
        "LabelEncoder",
        case(
            np.array([0.5, np.nan, 2], np.float32),
            keys_floats=[2.0, float("nan")],
            values_int64s=[1, 2],
            default_int64=0,
        ),
    )
    same("LabelEncoder", case(np.array([1, 2, 3]), keys_int64s=[3, 1], values_strings=["x", "y"]))
    same("OneHotEncoder", case(np.array([[1, 9], [3, 2]]), cats_int64s=[2, 3, 1]))
    same("OneHotEncoder", case(np.array(["b", "z"], object), cats_strings=["a", "b"]))
    with pytest.raises(UsageError):
        run("OneHotEncoder", case(np.array(["z"], object), cats_strings=["a", "b"], zeros=0))


@pytest.mark.parametrize("text", [True, False])
def test_the_first_label_encoder(text):
    dtype = onnx.TensorProto.STRING if text else onnx.TensorProto.INT64
    attributes = {"default_int64": -7} if text else {"default_string": "?"}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, classes_strings=["a", "b", "c"], **attributes)
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", dtype, [None])], [onnx.ValueInfoProto(name="y")]
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 9), helper.make_opsetid(ML, 1)], ir_version=4
    )
    x = np.array(["c", "z", "a"], object) if text else np.array([2, 9, 0])
    (got,) = Session(onnx_graph.graph_of(made)).run(None, {"x": x})
    assert got.tolist() == ([2, -7, 0] if text else ["c", "?", "a"])


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(transform):
    x = drawn(6, 5, 4)
    low, high = (0.01, 0.1) if transform == "PROBIT" else (-2, 2)
    x = np.abs(x) if transform == "PROBIT" else x
    same("LinearRegressor", case(x, coefficients=numbers(7, 4, low, high), intercepts=[0.2], post_transform="NONE"))
    same(
        "LinearRegressor",
        case(
            x, coefficients=numbers(7, 12, low, high), intercepts=[0.2, 0.1, 0.3], targets=3, post_transform=transform
        ),
    )
    same(
        "LinearClassifier",
        case(
            x,
            coefficients=numbers(8, 12, low, high),
            intercepts=[0.2, 0.1, 0.3],
            classlabels_ints=[4, 9, 2],
            post_transform=transform,
            outputs=2,
        ),
    )
    same(
        "LinearClassifier",
        case(
            x,
            coefficients=numbers(8, 8, low, high),
            intercepts=[0.2, 0.1],
            classlabels_strings=["n", "y"],
            post_transform=transform,
            outputs=2,
        ),
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_two_classes_of_one_product(transform):
    attributes = {
        "coefficients": numbers(10, 4),
        "intercepts": [0.25],
        "classlabels_ints": [3, 8],
        "post_transform": transform,
    }
    same("LinearClassifier", case(drawn(9, 5, 4), outputs=2, **attributes))


KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.5, 1.0, 3.0], "RBF": [0.4, 0.0, 0.0], "SIGMOID": [0.3, -0.2, 0.0]}


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("probable", [False, True], ids=["scores", "probabilities"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_classifiers(kernel, probable, classes):
    counts = [2, 3, 1, 2, 4][:classes]
    pairs = classes * (classes - 1) // 2
    attributes = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "vectors_per_class": counts,
        "support_vectors": numbers(11, sum(counts) * 3),
        "coefficients": numbers(12, sum(counts) * (classes - 1)),
        "rho": numbers(13, pairs),
        "classlabels_ints": list(range(10, 10 + classes)),
    }
    if probable:
        attributes |= {"prob_a": numbers(14, pairs, -2, -0.5), "prob_b": numbers(15, pairs, -0.5, 0.5)}
    same("SVMClassifier", case(drawn(16, 7, 3), outputs=2, **attributes), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regressors(kernel, one_class):
    attributes = {
        "n_supports": 4,
        "support_vectors": numbers(17, 12),
        "coefficients": numbers(18, 4),
        "rho": [0.3],
        "one_class": one_class,
    }
    same("SVMRegressor", case(drawn(19, 7, 3), kernel_type=kernel, kernel_params=KERNELS[kernel], **attributes))


@pytest.mark.parametrize("one_class", [0, 1])
def test_linear_support_vector_regressors(one_class):
    """onnxruntime wants support vectors."""
    example = case(drawn(19, 7, 3), coefficients=numbers(20, 3), rho=[0.3], one_class=one_class)
    expected = with_reference(operator("SVMRegressor", ML), example)
    np.testing.assert_allclose(run("SVMRegressor", example)[0], expected[0], rtol=1e-4, atol=1e-5)


def forest(seed, count, depth, features, values, prefix, mode=None):
    """Complete trees with drawn nodes, as attributes of the operators that name nodes by tree and number."""
    rng = np.random.default_rng(seed)
    inner, whole = 2**depth - 1, 2 ** (depth + 1) - 1
    rows = [(tree, node) for tree in range(count) for node in range(whole)]
    leaves = [(tree, node, value) for tree, node in rows if node >= inner for value in range(values)]
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    return {
        "nodes_treeids": [tree for tree, _ in rows],
        "nodes_nodeids": [node for _, node in rows],
        "nodes_featureids": [int(rng.integers(features)) if node < inner else 0 for _, node in rows],
        "nodes_values": [float(np.float32(rng.integers(-2, 3))) for _ in rows],
        "nodes_modes": [(mode or str(rng.choice(modes))) if node < inner else "LEAF" for _, node in rows],
        "nodes_truenodeids": [2 * node + 1 if node < inner else 0 for _, node in rows],
        "nodes_falsenodeids": [2 * node + 2 if node < inner else 0 for _, node in rows],
        "nodes_missing_value_tracks_true": [int(rng.integers(2)) for _ in rows],
        f"{prefix}_treeids": [tree for tree, _, _ in leaves],
        f"{prefix}_nodeids": [node for _, node, _ in leaves],
        f"{prefix}_ids": [value for _, _, value in leaves],
        f"{prefix}_weights": rng.normal(size=len(leaves)).astype(np.float32).tolist(),
    }


def rows_with_holes(seed, count, features):
    x = np.round(drawn(seed, count, features) * 2).astype(np.float32)
    x[np.random.default_rng(seed).random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("mode", [None, "BRANCH_LEQ", "BRANCH_LT"])
def test_forests_that_regress(mode, aggregate):
    made = forest(21, 6, 4, 5, 3, "target", mode)
    same(
        "TreeEnsembleRegressor",
        case(
            rows_with_holes(22, 40, 5), n_targets=3, aggregate_function=aggregate, base_values=[0.5, -1.0, 2.0], **made
        ),
    )
    made = forest(23, 1, 3, 5, 1, "target", mode)
    same("TreeEnsembleRegressor", case(rows_with_holes(22, 40, 5), n_targets=1, aggregate_function=aggregate, **made))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 4])
def test_forests_that_classify(classes, transform):
    made = forest(24, 5, 4, 5, classes, "class")
    example = case(
        rows_with_holes(25, 40, 5),
        classlabels_int64s=list(range(5, 5 + classes)),
        post_transform=transform,
        outputs=2,
        **made,
    )
    if classes > 2:
        same("TreeEnsembleClassifier", example)
        return
    # Of two classes with votes for both, onnxruntime chooses by the sign of the second one's score, and gives 0 and 1
    # for labels.
    labels, scores = run("TreeEnsembleClassifier", example)
    np.testing.assert_allclose(
        scores, with_onnxruntime(operator("TreeEnsembleClassifier", ML), example)[1], rtol=1e-4, atol=1e-5
    )
    plain = run(
        "TreeEnsembleClassifier", case(example.inputs[0], **{**example.attributes, "post_transform": "NONE"}, outputs=2)
    )[1]
    np.testing.assert_array_equal(labels, 5 + np.argmax(plain, axis=1))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [None, [0.25]])
def test_forests_of_two_classes_with_one_voice(base, positive, transform):
    made = forest(26, 3, 3, 5, 1, "class")
    if positive:
        made["class_weights"] = [abs(weight) / 4 for weight in made["class_weights"]]
    x = rows_with_holes(27, 40, 5)
    same(
        "TreeEnsembleClassifier",
        case(x, classlabels_strings=["no", "yes"], post_transform=transform, base_values=base, outputs=2, **made),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32], ids=lambda dtype: np.dtype(dtype).name)
def test_forests_over_other_dtypes(dtype):
    x = np.round(drawn(28, 20, 5) * 3).astype(dtype)
    same("TreeEnsembleClassifier", case(x, classlabels_int64s=[0, 1, 2], outputs=2, **forest(29, 4, 3, 5, 3, "class")))


def test_a_forest_by_position():
    x = rows_with_holes(30, 30, 3)
    for aggregate in range(4):
        same("TreeEnsemble", case(x, aggregate_function=aggregate, **trees.SMALL))
    plain = run("TreeEnsemble", case(x, **trees.SMALL))[0]
    powers = np.exp(plain - plain.max(1, keepdims=True))
    np.testing.assert_allclose(
        run("TreeEnsemble", case(x, post_transform=1, **trees.SMALL))[0],
        powers / powers.sum(1, keepdims=True),
        rtol=1e-5,
    )


SETS = {
    **trees.SMALL, "nodes_modes": np.array([6, 6, 1], np.uint8), "nodes_featureids": [0, 0, 1],
    "membership_values": np.array([1.5, 2.0, np.nan, 4.0, 1.5, np.nan], np.float32),
}  # fmt: skip


def test_sets():
    x = np.array([[1.5, 0, 0], [2, 0, 0], [4, 0, 0], [9, 1, 0], [np.nan, 0, 0]], np.float32)
    example = case(x, **SETS)
    expected = with_onnxruntime(operator("TreeEnsemble", ML), example)
    expected = with_reference(operator("TreeEnsemble", ML), example) if isinstance(expected, str) else expected
    np.testing.assert_allclose(run("TreeEnsemble", example)[0], expected[0])


CHAIN = 30_000


def test_a_tree_of_one_long_branch():
    numbers_ = list(range(CHAIN))
    attributes = {
        "n_targets": 1,
        "nodes_featureids": [0] * CHAIN,
        "nodes_splits": np.arange(CHAIN, dtype=np.float32),
        "nodes_modes": np.zeros(CHAIN, np.uint8),
        "nodes_truenodeids": [0] * CHAIN,
        "nodes_falsenodeids": [*numbers_[1:], 1],
        "nodes_trueleafs": [1] * CHAIN,
        "nodes_falseleafs": [0] * (CHAIN - 1) + [1],
        "leaf_targetids": [0, 0],
        "leaf_weights": np.array([1, 2], np.float32),
        "tree_roots": [0],
    }
    compute = operator("TreeEnsemble", ML).compute
    assert compute(np.array([[-1], [CHAIN + 1]], np.float32), **attributes).tolist() == [[1], [2]]
    with cc.limits(time=0), pytest.raises(LimitError):
        compute(np.array([[CHAIN + 1]], np.float32), **attributes)


def test_nodes_with_two_parents():
    ways = {
        "nodes_truenodeids": [1, 2, 3],
        "nodes_falsenodeids": [2, 1, 2],
        "nodes_trueleafs": [0, 0, 1],
        "nodes_falseleafs": [0, 1, 1],
    }
    made = {**trees.SMALL, **ways}
    x = drawn(31, 20, 3)
    expected = np.zeros((20, 2))
    for row, values in zip(expected, x, strict=True):
        # From the root to node 1 or 2; node 1 leads to node 2 or to a leaf.
        if values[0] <= np.float32(0.1) and not values[2] > np.float32(-0.2):
            row[1] += 12
        else:
            row[:] += (0, 4) if values[1] < np.float32(0.3) else (-12, 0)
    np.testing.assert_array_equal(run("TreeEnsemble", case(x, **made))[0], expected)


MALFORMED = [
    {"nodes_truenodeids": [1, 0, 3], "nodes_trueleafs": [0, 0, 1]},  # node 1 leads back to the root
    {"nodes_truenodeids": [0, 0, 3]},  # the root leads to itself
    {"nodes_falsenodeids": [9, 1, 2]},
    {"nodes_falsenodeids": [-1, 1, 2]},
    {"leaf_targetids": [0, 1, 0, 5]},
    {"leaf_targetids": [0, -1, 0, 1]},
    {"nodes_featureids": [0, 2, 7]},
    {"nodes_featureids": [0, -2, 1]},
    {"nodes_modes": np.array([0, 9, 1], np.uint8)},
    {"nodes_modes": np.array([6, 6, 1], np.uint8)},
    {"tree_roots": [5]},
    {"tree_roots": [-1]},
    {"nodes_splits": np.array([1], np.float32)},
    {"aggregate_function": 7},
    {"post_transform": -1},
]


@pytest.mark.parametrize("change", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_trees(change):
    with pytest.raises(UsageError):
        operator("TreeEnsemble", ML).compute(drawn(32, 4, 3), **{**trees.SMALL, **change})


CHANGES = [
    {"nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]},
    {"nodes_truenodeids": [1, 7, 0, 0, 0, 1, 0, 0]},
    {"nodes_nodeids": [0, 1, 1, 3, 4, 0, 1, 2]},
    {"nodes_modes": ["BRANCH"] * 8},
    {"target_nodeids": [2, 2, 3, 9, 1, 2]},
    {"target_ids": [0, 1, 1, 0, 0, 2]},
    {"target_weights": [1.0]},
    {"nodes_values": [0.0]},
    {"nodes_featureids": [9] * 8},
    {"base_values": [1.0, 2.0, 3.0]},
    {"aggregate_function": "MEAN"},
    {"post_transform": "NO"},
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_malformed_forests(change):
    with pytest.raises(UsageError):
        operator("TreeEnsembleRegressor", ML).compute(drawn(33, 4, 3), **{**trees.NODES, **trees.TARGETS, **change})


def mapped(name, key, value, **attributes):
    """A model of one operator whose input is a map."""
    node = helper.make_node(name, ["x"], ["y"], domain=ML, **attributes)
    kind = onnx.TypeProto()
    kind.map_type.key_type = key
    kind.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(value, None))
    graph = helper.make_graph([node], "one", [helper.make_value_info("x", kind)], [onnx.ValueInfoProto(name="y")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=8
    )


T = onnx.TensorProto
MAPS = [
    ("CastMap", T.INT64, T.FLOAT, {3: 1.5, 1: 2.5}, {"cast_to": "TO_FLOAT"}),
    ("CastMap", T.INT64, T.FLOAT, {3: 1.5, 1: 2.5}, {"cast_to": "TO_INT64"}),
    ("CastMap", T.INT64, T.FLOAT, {3: 1.5, 1: 2.5}, {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 5}),
    (
        "CastMap",
        T.INT64,
        T.FLOAT,
        {3: 1.5, 1: -2e10, 0: 1e-7},
        {"cast_to": "TO_STRING", "map_form": "SPARSE", "max_map": 5},
    ),
    ("CastMap", T.INT64, T.FLOAT, {3: 1.5, 1: -2.7}, {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 5}),
    ("DictVectorizer", T.STRING, T.FLOAT, {"a": 4.0, "c": 8.0}, {"string_vocabulary": ["a", "c", "b", "z"]}),
    ("DictVectorizer", T.INT64, T.FLOAT, {2: 4.0, 9: 8.0}, {"int64_vocabulary": [9, 1, 2]}),
]


@pytest.mark.parametrize(
    ("name", "key", "value", "x", "attributes"), MAPS, ids=[f"{row[0]}-{index}" for index, row in enumerate(MAPS)]
)
def test_maps(name, key, value, x, attributes):
    import onnxruntime

    made = mapped(name, key, value, **attributes)
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    graph = onnx_graph.graph_of(made)
    infer(graph)
    (got,) = Session(graph).run(None, {"x": x})
    assert got.tolist() == expected.tolist()
    assert got.dtype.kind == "O" or got.dtype == expected.dtype
    assert len(graph.outputs[0].shape) == 2


# Maps that onnxruntime does not take from Python.
OTHER_MAPS = [
    ("CastMap", T.INT64, T.STRING, {3: "1.5", 1: "2"}, {"cast_to": "TO_FLOAT"}, [[2.0, 1.5]]),
    ("CastMap", T.INT64, T.STRING, {3: "c", 1: "a"}, {"cast_to": "TO_STRING"}, [["a", "c"]]),
    (
        "DictVectorizer",
        T.STRING,
        T.INT64,
        {"a": 4, "z": 8},
        {"string_vocabulary": ["a", "c", "b", "z"]},
        [[4, 0, 0, 8]],
    ),
]


@pytest.mark.parametrize(
    ("name", "key", "value", "x", "attributes", "expected"),
    OTHER_MAPS,
    ids=[f"{row[0]}-{row[2]}" for row in OTHER_MAPS],
)
def test_other_maps(name, key, value, x, attributes, expected):
    (got,) = Session(onnx_graph.graph_of(mapped(name, key, value, **attributes))).run(None, {"x": x})
    assert got.tolist() == expected


def test_keys_that_do_not_fit():
    with pytest.raises(UsageError):
        Session(onnx_graph.graph_of(mapped("CastMap", T.INT64, T.FLOAT, map_form="SPARSE", max_map=2))).run(
            None, {"x": {2: 1.0}}
        )
    with pytest.raises(UsageError):
        Session(onnx_graph.graph_of(mapped("DictVectorizer", T.STRING, T.FLOAT, string_vocabulary=["a"]))).run(
            None, {"x": {"b": 1.0}}
        )


@pytest.mark.parametrize(
    "labels", [{"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [5, 7, 9]}], ids=str
)
def test_rows_become_maps(labels):
    example = case(drawn(34, 2, 3), **labels)
    expected = with_onnxruntime(operator("ZipMap", ML), example)
    made, feeds = model(operator("ZipMap", ML), example)
    graph = onnx_graph.graph_of(made)
    infer(graph)
    assert graph.outputs[0].container[0] == "sequence"
    assert Session(graph).run(None, feeds) == expected
    with pytest.raises(UsageError):
        operator("ZipMap", ML).compute(drawn(34, 2, 4), **labels)
