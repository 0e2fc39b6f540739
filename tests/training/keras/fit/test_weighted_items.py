"""Weights of items and classes, and files of the best weights, as in Keras."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 3)).astype(np.float32)
Y = RANDOM.integers(0, 3, 12)


def _model():
    cc.manual_seed(0)
    model = cc.Sequential(cc.nn.Linear(3, 3))
    model.compile(lambda parameters: cc.optim.SGD(parameters, lr=0.1), "cross_entropy", ["accuracy"])
    return model


@pytest.mark.parametrize("kind", ["class_weight", "sample_weight"])
def test_losses(kind):
    """The losses of epochs of one batch are those of torch with weighted items."""
    by_class = {0: 2.0, 2: 0.5}
    weights = np.array([by_class.get(each, 1.0) for each in Y.tolist()], np.float32)
    given = {"class_weight": by_class} if kind == "class_weight" else {"sample_weight": weights}
    model = _model()
    history = model.fit(X, Y, epochs=3, batch_size=12, verbose=0, shuffle=False, **given)
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        each = torch.nn.functional.cross_entropy(layer(torch.tensor(X)), torch.tensor(Y), reduction="none")
        loss = (each * torch.tensor(weights)).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert history.history["loss"] == pytest.approx(losses, rel=1e-5)


def test_weights_that_make_no_sense():
    with pytest.raises(cc.UsageError, match="2 weights of 12 items"):
        _model().fit(X, Y, verbose=0, sample_weight=[1.0, 2.0])
    with pytest.raises(cc.UsageError, match="without y"):
        _model().fit([(X[0], Y[0])], verbose=0, class_weight={0: 1.0})
    model = _model()
    model.compile("sgd", lambda output, target: output.mean())
    with pytest.raises(cc.UsageError, match="which have weights"):
        model.fit(X, Y, verbose=0, class_weight={0: 1.0})


def test_best_weights(tmp_path):
    best = cc.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss", save_best_only=True)
    every = cc.callbacks.ModelCheckpoint(filepath=tmp_path / "{epoch:02d}-{loss:.1f}.weights")
    model = _model()
    history = model.fit(X, Y, epochs=3, batch_size=12, verbose=0, callbacks=[best, every])
    assert best.best == pytest.approx(min(history.history["loss"]))
    assert sorted(each.name[:3] for each in tmp_path.iterdir()) == ["01-", "02-", "03-", "bes"]
    other = _model()
    other.load_weights(tmp_path / "best.keras")
    assert other.predict(X).tolist() == model.predict(X).tolist()
    worse = cc.callbacks.ModelCheckpoint(tmp_path / "worst", monitor="loss", mode="max", save_best_only=True)
    _model().fit(X, Y, epochs=3, batch_size=12, verbose=0, callbacks=[worse])
    assert worse.best == pytest.approx(max(history.history["loss"]))
    with pytest.raises(cc.UsageError, match="save_freq"):
        cc.callbacks.ModelCheckpoint("x", save_best_only=True, save_freq=10)
    with pytest.raises(cc.UsageError, match="mode"):
        cc.callbacks.ModelCheckpoint("x", save_best_only=True, mode="best")
