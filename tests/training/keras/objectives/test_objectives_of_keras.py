"""Losses, metrics, optimizers and schedules by Keras' names against Keras on torch."""

import subprocess
import sys

import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras, same_losses, twins

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6)).astype(np.float32)
TARGETS = RNG.normal(size=(24, 3)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 24)
CHANCES = np.exp(TARGETS) / np.exp(TARGETS).sum(-1, keepdims=True)
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES]
LOSSES = {
    "MeanSquaredError": (TARGETS, X[:, :3]),
    "MeanAbsoluteError": (TARGETS, X[:, :3]),
    "MeanAbsolutePercentageError": (TARGETS, X[:, :3]),
    "MeanSquaredLogarithmicError": (CHANCES, CHANCES[::-1].copy()),
    "Huber": (TARGETS, X[:, :3]),
    "LogCosh": (TARGETS, X[:, :3]),
    "CosineSimilarity": (TARGETS, X[:, :3]),
    "Hinge": (ONE_HOT, X[:, :3]),
    "SquaredHinge": (ONE_HOT * 2 - 1, X[:, :3]),
    "CategoricalHinge": (ONE_HOT, X[:, :3]),
    "KLDivergence": (CHANCES[::-1].copy(), CHANCES),
    "Poisson": (CHANCES, CHANCES[::-1].copy()),
    "BinaryCrossentropy": (ONE_HOT, CHANCES),
    "CategoricalCrossentropy": (ONE_HOT, CHANCES),
    "SparseCategoricalCrossentropy": (CLASSES, CHANCES),
    "BinaryFocalCrossentropy": (ONE_HOT, CHANCES),
    "CategoricalFocalCrossentropy": (ONE_HOT, CHANCES),
    "Tversky": (ONE_HOT, CHANCES),
    "Dice": (ONE_HOT, CHANCES),
}
OPTIMIZERS = {
    "SGD": lambda o: o.SGD(0.05),
    "SGD momentum": lambda o: o.SGD(0.05, momentum=0.9),
    "SGD decay and clip": lambda o: o.SGD(0.05, nesterov=True, momentum=0.5, weight_decay=0.1, clipnorm=0.1),
    "Adam": lambda o: o.Adam(),
    "Adam amsgrad": lambda o: o.Adam(0.01, amsgrad=True, clipvalue=0.01),
    "Adam global clip": lambda o: o.Adam(0.01, global_clipnorm=0.05, epsilon=1e-2),
    "AdamW": lambda o: o.AdamW(0.01, weight_decay=0.1),
    "RMSprop": lambda o: o.RMSprop(0.01),
    "RMSprop centered": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "Adagrad": lambda o: o.Adagrad(0.05),
    "Adadelta": lambda o: o.Adadelta(1.0),
    "Adamax": lambda o: o.Adamax(0.01),
    "Nadam": lambda o: o.Nadam(0.01),
    "Lion": lambda o: o.Lion(0.003),
    "schedule": lambda o: o.SGD(o.schedules.ExponentialDecay(0.1, 5, 0.5)),
    "cosine": lambda o: o.Adam(o.schedules.CosineDecay(0.0, 12, warmup_target=0.05, warmup_steps=4)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    target, output = LOSSES[name]
    weights = RNG.random(24).astype(np.float32)
    for options in ({}, {"reduction": "sum"}, {"reduction": None}):
        expected, found = (getattr(k.losses, name)(**options) for k in (keras, ours))
        for given in ({}, {"sample_weight": weights}):
            np.testing.assert_allclose(
                found(target, output, **given).numpy(), expected(target, output, **given).numpy(), rtol=1e-5, atol=1e-6
            )
    assert ours.losses.get(name).name == keras.losses.get(name).name


@pytest.mark.parametrize(
    "name",
    ["BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy", "CategoricalFocalCrossentropy",
     "SparseCategoricalCrossentropy"],
)  # fmt: skip
def test_losses_of_logits(name):
    target = CLASSES if name.startswith("Sparse") else ONE_HOT
    options = {"from_logits": True, **({} if name.startswith("Sparse") else {"label_smoothing": 0.1})}
    expected, found = (getattr(k.losses, name)(**options)(target, TARGETS) for k in (keras, ours))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("ignored", [-1, 255])
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "none", "mean_with_sample_weight"])
def test_ignored_classes(ignored, axis, reduction):
    """They do not count in the mean, and classes lie along any axis."""
    target = CLASSES.reshape(4, 6).copy()
    target[0, :3] = ignored
    output = np.moveaxis(CHANCES.reshape(4, 6, 3), -1, axis).copy()
    options = {"ignore_class": ignored, "axis": axis, "reduction": reduction}
    theirs, mine = (k.losses.SparseCategoricalCrossentropy(**options) for k in (keras, ours))
    for given in ({}, {"sample_weight": RNG.random((4, 6)).astype(np.float32)}):
        expected = theirs(target, output, **given).numpy()
        np.testing.assert_allclose(mine(target, output, **given).numpy(), expected, rtol=1e-5)


def test_a_loss_is_the_first_thing_computed():
    """Tensors have their operations without a layer, in a process of its own."""
    code = "import numpy as np; from candle_convert import keras as k; print(k.losses.MeanSquaredError()(*np.eye(2)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "1." in done.stdout


@pytest.mark.parametrize(
    ("name", "target", "output"),
    [
        ("BinaryAccuracy", ONE_HOT, CHANCES),
        ("CategoricalAccuracy", ONE_HOT, CHANCES),
        ("SparseCategoricalAccuracy", CLASSES, CHANCES),
        ("TopKCategoricalAccuracy", np.eye(6)[np.arange(24) % 6], X),
        ("SparseTopKCategoricalAccuracy", np.arange(24) % 6, X),
        ("Precision", ONE_HOT, CHANCES),
        ("Recall", ONE_HOT, CHANCES),
        ("RootMeanSquaredError", TARGETS, X[:, :3]),
        ("MeanAbsoluteError", TARGETS, X[:, :3]),
        ("CategoricalCrossentropy", ONE_HOT, CHANCES),
    ],
)
def test_metrics(name, target, output):
    theirs, mine = (getattr(k.metrics, name)() for k in (keras, ours))
    for part in (slice(0, 16), slice(16, 24)):
        theirs.update_state(target[part], output[part])
        mine.update_state(target[part], output[part])
        assert mine.result() == pytest.approx(float(theirs.result()), rel=1e-5)
    assert mine.name == theirs.name


def dense(optimizer):
    def build(k):
        layers = k.layers
        model = k.Sequential([k.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
        model.compile(optimizer(k.optimizers), "mse")
        return model

    return build


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    mine, theirs = twins(dense(OPTIMIZERS[name]))
    same_losses(mine, theirs, X, TARGETS, count=15, rtol=1e-4)


@pytest.mark.parametrize("word", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion"])
def test_defaults(word):
    mine, theirs = twins(dense(lambda _: word))
    same_losses(mine, theirs, X, TARGETS, count=3, rtol=1e-4)
    assert mine.optimizer.learning_rate == pytest.approx(float(theirs.optimizer.learning_rate.value))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.ExponentialDecay(0.1, 10, 0.9, staircase=True),
        lambda s: s.InverseTimeDecay(0.1, 10, 0.5),
        lambda s: s.PiecewiseConstantDecay([3, 9], [1.0, 0.5, 0.1]),
        lambda s: s.PolynomialDecay(0.1, 10, 0.01, power=2.0),
        lambda s: s.PolynomialDecay(0.1, 10, 0.01, cycle=True),
        lambda s: s.CosineDecay(0.1, 20, alpha=0.1),
        lambda s: s.CosineDecayRestarts(0.1, 5, m_mul=0.9),
    ],
)
def test_schedules(build):
    theirs, mine = (build(k.optimizers.schedules) for k in (keras, ours))
    for step in range(25):
        assert mine(step) == pytest.approx(float(theirs(step)), rel=1e-5, abs=1e-7)


def test_initial_values():
    """Their spread is that of Keras' initialisers, and orthogonal kernels are orthogonal."""
    for name in dir(ours.initializers):
        if name.lower() in ("get", "constant", "zeros", "ones", "identity", "orthogonal"):
            continue
        theirs, mine = (np.asarray(getattr(k.initializers, name)()((3, 60, 50)).numpy()) for k in (keras, ours))
        assert mine.std() == pytest.approx(theirs.std(), rel=0.05)
        assert abs(mine.mean()) < 0.05 * theirs.std()
        assert abs(mine).max() == pytest.approx(abs(theirs).max(), rel=0.2)
    kernel = ours.initializers.get("orthogonal")((8, 5)).numpy()
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(5), atol=1e-5)


@pytest.mark.parametrize("word", ["normal", "uniform", "one", "zero", "ones", "he_normal", "OrthogonalInitializer"])
def test_words_for_initializers(word):
    theirs, mine = (type(k.initializers.get(word)).__name__ for k in (keras, ours))
    assert mine == theirs


@pytest.mark.parametrize("module", ["layers", "initializers"])
def test_other_names_of_classes(module):
    """Each name of Keras for a class that we have is there."""
    theirs, mine = (vars(getattr(keras, module)), getattr(ours, module))
    for name, each in theirs.items():
        if isinstance(each, type) and hasattr(mine, each.__name__) and not name.endswith("Initializer"):
            assert getattr(mine, name) is getattr(mine, each.__name__)


def test_copied_weights_are_the_same():
    mine, theirs = (dense(lambda _: "sgd")(k) for k in (ours, keras))
    copy_weights(theirs, mine)
    np.testing.assert_allclose(mine.predict(X), theirs.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda k: k.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.3, gamma=1.5),
        lambda k: k.CategoricalFocalCrossentropy(alpha=[0.2, 0.3, 0.5], gamma=3.0),
        lambda k: k.Dice(axis=-1),
        lambda k: k.Tversky(alpha=0.3, beta=0.7, axis=(0, 1)),
    ],
)
def test_settings_of_losses(build):
    expected, found = (build(k.losses)(ONE_HOT, CHANCES) for k in (keras, ours))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
