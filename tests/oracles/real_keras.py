"""Keras on its backend of torch, and models of both libraries with the same weights."""

import os
import tempfile
import warnings

os.environ["KERAS_BACKEND"] = "torch"
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp(prefix="keras-home-"))

import keras
import numpy as np
from candle_convert import keras as ours


def twins(build, seed=0):
    """The model that `build` makes of each library's module, with Keras' weights in both."""
    keras.utils.set_random_seed(seed)
    theirs, mine = build(keras), build(ours)
    copy_weights(theirs, mine)
    return mine, theirs


def copy_weights(theirs, mine):
    """Give a model Keras' weights, in Keras' order."""
    given = theirs.get_weights()
    assert [each.shape for each in given] == [each.shape for each in mine.get_weights()]
    mine.set_weights(given)


def losses(model, x, y, batch, count):
    """The losses of `count` steps, each of the next batch of the data."""
    found = []
    for step in range(count):
        first = step * batch % len(rows(y)[0])
        given, targets = ([each[first : first + batch] for each in rows(item)] for item in (x, y))
        if isinstance(model, keras.Model):
            model.reset_metrics()
        value = model.train_on_batch(*(each[0] if len(each) == 1 else each for each in (given, targets)))
        found.append(float(value[0] if isinstance(value, list | tuple) else value))
    return found


def rows(item):
    """A list of arrays."""
    return list(item) if isinstance(item, list | tuple) else [item]


def same_losses(mine, theirs, x, y, batch=8, count=20, rtol=2e-5):
    """Assert that losses and outputs are those of Keras; the largest difference of losses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = losses(theirs, x, y, batch, count)
    found = losses(mine, x, y, batch, count)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)
    return np.abs(np.subtract(found, expected)).max()
