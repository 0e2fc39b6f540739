"""Metrics with weights, scores of classes, and metrics with variables of their own, against Keras on torch."""

import numpy as np
import pytest
from candle_convert import UsageError, tensor
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras

RNG = np.random.default_rng(0)
ONE_HOT = np.eye(3, dtype=np.float32)[RNG.integers(0, 3, 24)]
CHANCES = RNG.random((24, 3)).astype(np.float32)
WEIGHTS = RNG.random(24).astype(np.float32)
PARTS = (slice(0, 16), slice(16, 24))


def same(theirs, mine):
    np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", [(24,), (24, 1)])
@pytest.mark.parametrize(
    "name",
    ["BinaryAccuracy", "CategoricalAccuracy", "CategoricalCrossentropy", "MeanAbsoluteError", "Precision", "Recall",
     "RootMeanSquaredError", "CosineSimilarity", "FalseNegatives", "FalsePositives", "Hinge", "LogCoshError",
     "SquaredHinge", "CategoricalHinge", "TrueNegatives", "TruePositives"],
)  # fmt: skip
def test_weights_of_items(name, shape):
    theirs, mine = (getattr(k.metrics, name)(name="metric") for k in (keras, ours))
    weights = WEIGHTS.reshape(shape)
    for part in PARTS:
        theirs.update_state(ONE_HOT[part], CHANCES[part], sample_weight=weights[part])
        same(theirs.result(), mine(ONE_HOT[part], CHANCES[part], sample_weight=weights[part]))


@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("average", [None, "micro", "macro", "weighted"])
def test_scores_of_classes(average, threshold):
    for build in (
        lambda k: k.metrics.F1Score(average=average, threshold=threshold),
        lambda k: k.metrics.FBetaScore(average, beta=2.0, threshold=threshold),
    ):
        theirs, mine = build(keras), build(ours)
        for part in PARTS:
            for weights in (None, WEIGHTS[part]):
                same(theirs(ONE_HOT[part], CHANCES[part], weights), mine(ONE_HOT[part], CHANCES[part], weights))
        assert mine.name == theirs.name


@pytest.mark.parametrize("name", ["Mean", "Sum"])
def test_values_without_targets(name):
    theirs, mine = (getattr(k.metrics, name)() for k in (keras, ours))
    for values, weights in (([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]), (4.0, None)):
        same(theirs(values, weights), mine(values, weights))
    mine.reset_state()
    assert mine.result() == 0


def near(k):
    """A metric in Keras' form: the share of outputs that are near their targets."""

    class Near(k.metrics.Metric):
        def __init__(self, name="near", **options):
            super().__init__(name=name, **options)
            self.near = self.add_weight(name="near", initializer="zeros")
            self.count = self.add_variable((), "zeros", name="count")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.near.assign_add(((y_true - y_pred).abs() < 0.5).float().sum())
            self.count.assign(self.count + float(np.prod(y_true.shape)))

        def result(self):
            return self.near / self.count

    return Near()


def test_metrics_with_variables():
    theirs, mine = near(keras), near(ours)
    for part in PARTS:
        given = [keras.ops.convert_to_tensor(each[part]) for each in (ONE_HOT, CHANCES)]
        same(theirs(*given), mine(tensor(ONE_HOT[part]), tensor(CHANCES[part])).array())
    mine.reset_state()
    assert [float(each) for each in mine.variables] == [0, 0]


def test_models_report_them():
    found = []
    for k in (keras, ours):
        model = k.Sequential([k.Input((3,)), k.layers.Dense(3, kernel_initializer="ones")])
        model.compile("sgd", "mse", metrics=[near(k), k.metrics.F1Score("macro")])
        history = model.fit(CHANCES, ONE_HOT, batch_size=16, epochs=2, verbose=0, shuffle=False).history
        found.append([history["near"], history["f1_score"], model.evaluate(CHANCES, ONE_HOT, verbose=0)[1:]])
    same(*found)


def test_metrics_that_cannot_be_reported():
    """A value for each class, and variables that are not sums, are refused by name."""

    class Last(ours.metrics.Metric):
        def __init__(self):
            super().__init__("last")
            self.last = self.add_weight(initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.last.assign(y_pred.max())

        def result(self):
            return self.last

    for metric, why in ((ours.metrics.F1Score(), "a value for each class"), (Last(), "are not sums over batches")):
        model = ours.Sequential([ours.Input((3,)), ours.layers.Dense(3)])
        model.compile("sgd", "mse", metrics=[metric])
        with pytest.raises(UsageError, match=why):
            model.fit(CHANCES, ONE_HOT, verbose=0)


@pytest.mark.parametrize("options", [{}, {"num_regressors": 2}, {"class_aggregation": "variance_weighted_average"}])
def test_accounted_variance(options):
    theirs, mine = (k.metrics.R2Score(**options) for k in (keras, ours))
    target = RNG.normal(size=(24, 3)).astype(np.float32) * [1, 2, 3]
    for part in PARTS:
        for weights in (None, WEIGHTS[part]):
            for each in (theirs, mine):
                each.update_state(target[part].astype(np.float32), CHANCES[part], sample_weight=weights)
            np.testing.assert_allclose(mine.result(), np.asarray(theirs.result()), rtol=1e-4)


CURVE = [{}, {"num_thresholds": 5}, {"thresholds": [0.2, 0.25, 0.7]}, {"from_logits": True}]
LABELS = [{}, {"multi_label": True}, {"multi_label": True, "label_weights": [1.0, 2.0, 0.5]}]
LABELS.append({"label_weights": [1.0, 2.0, 0.5]})


@pytest.mark.parametrize("summation", ["interpolation", "minoring", "majoring"])
@pytest.mark.parametrize("curve", ["ROC", "PR", "PRGAIN"])
@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("options", CURVE, ids=str)
def test_area_under_a_curve(options, labels, curve, summation):
    theirs, mine = (k.metrics.AUC(curve=curve, summation_method=summation, **options, **labels) for k in (keras, ours))
    chances = CHANCES.copy()
    chances[0] = 0, 1, 0.5
    for part in PARTS:
        for weights in (None, WEIGHTS[part]):
            given = (ONE_HOT[part], chances[part] * 6 - 3 if "from_logits" in options else chances[part], weights)
            same(theirs(*given), mine(*given))
    assert mine.name.rstrip("_0123456789") == theirs.name.rstrip("_0123456789")


@pytest.mark.parametrize(
    "build",
    [
        lambda k: k.metrics.BinaryIoU(threshold=0.4, dtype="float32"),
        lambda k: k.metrics.BinaryIoU([1], name="one", dtype="float32"),
        lambda k: k.metrics.OneHotIoU(3, [0, 2], dtype="float32"),
        lambda k: k.metrics.OneHotMeanIoU(3, ignore_class=1, dtype="float32"),
    ],
)
def test_overlaps_of_one_hot_targets(build):
    """Keras' default dtype is int, which weights are truncated to; here they count as they are."""
    theirs, mine = build(keras), build(ours)
    whole = "OneHot" in type(mine).__name__
    for part in PARTS:
        for weights in (None, WEIGHTS[part] if whole else np.repeat(WEIGHTS[part, None], 3, 1)):
            same(theirs(ONE_HOT[part], CHANCES[part], weights), mine(ONE_HOT[part], CHANCES[part], weights))


@pytest.mark.parametrize("options", [{}, {"ignore_class": 2}, {"sparse_y_pred": False}])
def test_overlaps_of_classes(options):
    """A class that does not occur does not count; numbers that are no classes neither."""
    target = RNG.integers(-1, 6, (2, 5, 5))
    chances = RNG.random((2, 5, 5, 6)).astype(np.float32)
    output = chances if "sparse_y_pred" in options else chances.argmax(-1)
    for build in (lambda k: k.metrics.MeanIoU(7, **options), lambda k: k.metrics.IoU(7, [0, 2, 6], **options)):
        theirs, mine = build(keras), build(ours)
        same(theirs(target, output), mine(target, output))


def test_models_report_curves_and_overlaps():
    found = []
    for k in (keras, ours):
        model = k.Sequential([k.Input((3,)), k.layers.Dense(3, "sigmoid", kernel_initializer="ones")])
        metrics = [k.metrics.AUC(name="area"), k.metrics.BinaryIoU(name="overlap")]
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
        history = model.fit(CHANCES, ONE_HOT, batch_size=16, epochs=2, verbose=0, shuffle=False).history
        found.append([history["area"], history["overlap"], model.evaluate(CHANCES, ONE_HOT, verbose=0)[1:]])
    same(*found)
