"""Callbacks in Keras' form are called as Keras calls them."""

import struct

import numpy as np
import pytest
from candle_convert import UsageError
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = X[:, :2].copy()


def fitted(k, *callbacks, epochs=2):
    model = k.Sequential([k.Input((4,)), k.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model.fit(X, Y, batch_size=6, epochs=epochs, validation_data=(X[:8], Y[:8]), callbacks=callbacks, verbose=0)


HOOKS = {
    "on_train_begin": 0, "on_train_end": 0, "on_test_begin": 0, "on_test_end": 0, "on_epoch_begin": 1,
    "on_epoch_end": 1, "on_train_batch_begin": 1, "on_train_batch_end": 1, "on_test_batch_begin": 1,
    "on_test_batch_end": 1,
}  # fmt: skip


def watch(k, names):
    """A callback with some hooks, and the list of its calls."""
    calls = []

    def hook(name, count):
        def called(self, *arguments, logs=None):
            calls.append((name, *arguments[:count]))

        if count:
            return lambda self, number, logs=None: called(self, number)
        return lambda self, logs=None: called(self)

    kind = type("Watch", (k.callbacks.Callback,), {name: hook(name, HOOKS.get(name, 1)) for name in names})
    return kind(), calls


@pytest.mark.parametrize(
    "names", [*([name] for name in HOOKS), list(HOOKS), ["on_batch_begin", "on_batch_end", "on_train_end"]], ids=str
)
def test_hooks_are_called(names):
    found = []
    for k in (keras, ours):
        callback, calls = watch(k, names)
        fitted(k, callback)
        found.append(calls)
    assert found[0] == found[1]
    assert found[0]


def test_lambda_callbacks():
    found = []
    for k in (keras, ours):
        calls = []
        fitted(k, k.callbacks.LambdaCallback(on_train_end=lambda logs, calls=calls: calls.append(sorted(logs))))
        found.append(calls)
    assert found[0] == found[1] == [["loss", "val_loss"]]
    with pytest.raises(UsageError, match="'on_epoch_ends' is not a hook") as caught:
        ours.callbacks.LambdaCallback(on_epoch_ends=print)
    assert "Did you mean on_epoch_end?" in str(caught.value.hint)


def test_misspelled_hooks_are_warned_of():
    callback, calls = watch(ours, ["on_epoch_ends"])
    with pytest.warns(UserWarning, match=r"Watch\.on_epoch_ends is never called\. Did you mean on_epoch_end\?"):
        fitted(ours, callback)
    assert not calls


def test_a_metric_that_there_is_not():
    for k in (keras, ours):
        with pytest.warns(UserWarning, match=r"val_lss.*loss.*val_loss"):
            history = fitted(k, k.callbacks.EarlyStopping(monitor="val_lss", mode="min"))
        assert len(history.epoch) == 2


def test_event_files(tmp_path):
    """TensorBoard's callback writes the names and folders of Keras."""
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    model = ours.Sequential([ours.Input((3,)), ours.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    board = ours.callbacks.TensorBoard(tmp_path, histogram_freq=1, update_freq=2)
    history = model.fit(
        x, x[:, :1], epochs=2, batch_size=4, validation_split=0.25, verbose=0, callbacks=[board]
    ).history
    written = {each.name: b"".join(file.read_bytes() for file in each.iterdir()) for each in tmp_path.iterdir()}
    assert written.keys() == {"train", "validation"}
    for folder, prefix in (("train", ""), ("validation", "val_")):
        for name in ("loss", "mae"):
            assert written[folder].count(f"epoch_{name}".encode()) == 2
            for value in history[f"{prefix}{name}"]:
                assert struct.pack("<f", value) in written[folder]
    assert written["train"].count(b"batch_loss") == 3
    assert b"dense" in written["train"]
    assert b"dense" not in written["validation"]
