"""Keras' words for layers, weights and single batches, against the same training written in torch; names and orders are
those that Keras 3.15 gave."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3)).astype(np.float32)
Y = (X.sum(1, keepdims=True) ** 2).astype(np.float32)


def network(m, sequential):
    return sequential(m.nn.Linear(3, 5), m.nn.BatchNorm1d(5), m.nn.Tanh(), m.nn.Linear(5, 1))


def twins():
    """A compiled model, and the same network and optimizer of torch."""
    model, theirs = network(cc, cc.Sequential), network(torch, torch.nn.Sequential)
    model.set_weights([each.detach().numpy() for each in theirs.state_dict().values() if each.dtype == torch.float32])
    model.compile(lambda parameters: cc.optim.SGD(parameters, 0.01), "mse", metrics=["mae"])
    return model, theirs, torch.optim.SGD(theirs.parameters(), 0.01)


def same_weights(model, theirs):
    expected = [each.numpy() for each in theirs.state_dict().values() if each.dtype == torch.float32]
    for mine, their in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(mine, their, rtol=1e-4, atol=1e-5)


def test_single_batches():
    model, theirs, optimizer = twins()
    weights = np.arange(8, dtype=np.float32)
    for start in (0, 8):
        x, y = X[start : start + 8], Y[start : start + 8]
        output = theirs.train()(torch.from_numpy(x))
        each = (output - torch.from_numpy(y)) ** 2
        loss = (each[:, 0] * torch.from_numpy(weights)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mae = (output - torch.from_numpy(y)).abs().mean().item()
        assert model.train_on_batch(x, y, sample_weight=weights) == pytest.approx([loss.item(), mae], rel=1e-4)
        with torch.no_grad():
            expected = theirs.eval()(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(model.predict_on_batch(x), expected, rtol=1e-3, atol=1e-4)
        tested = {"loss": ((expected - y) ** 2).mean(), "mae": abs(expected - y).mean()}
        assert model.test_on_batch(x, y, return_dict=True) == pytest.approx(tested, rel=1e-3)
        same_weights(model, theirs)


def test_layers_that_are_not_trained():
    """They keep their weights, batch norms their statistics, until the model is compiled again."""
    model, theirs, _ = twins()
    model.layers[0].trainable = model.get_layer("1").trainable = False
    model.compile(lambda parameters: cc.optim.SGD(parameters, 0.01), "mse")
    assert (len(model.trainable_weights), len(model.non_trainable_weights)) == (2, 6)
    optimizer = torch.optim.SGD(theirs[3].parameters(), 0.01)
    theirs[1].eval()
    for start in (0, 20):
        x, y = torch.from_numpy(X[start : start + 20]), torch.from_numpy(Y[start : start + 20])
        optimizer.zero_grad()
        ((theirs(x) - y) ** 2).mean().backward()
        optimizer.step()
    before = model.get_weights()
    model.fit(X, Y, batch_size=20, shuffle=False, verbose=0)
    same_weights(model, theirs)
    assert [np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True)] == [True] * 6 + [False] * 2
    model.trainable = True
    assert len(model.trainable_weights) == 6
    model.compile("sgd", "mse")
    model.train_on_batch(X, Y)
    assert not np.array_equal(before[0], model.get_weights()[0])


def test_layers_and_weights():
    model = network(cc, cc.Sequential)
    assert [type(each) for each in model.layers] == [cc.nn.Linear, cc.nn.BatchNorm1d, cc.nn.Tanh, cc.nn.Linear]
    assert model.get_layer(index=-1) is model.get_layer("3") is model.layers[3]
    assert model.count_params() == 46  # Keras counts running statistics, too
    assert [each.shape for each in model.get_weights()] == [(5, 3), (5,), (5,), (5,), (5,), (5,), (1, 5), (1,)]
    wrapped = cc.Model(network(cc, cc.nn.Sequential))
    wrapped.set_weights(model.get_weights())
    np.testing.assert_array_equal(wrapped.predict(X), model.predict(X))
    assert [type(each) for each in wrapped.layers] == [type(each) for each in model.layers]
    assert wrapped.get_layer("0") is wrapped.layers[0]
    weights = model.get_weights()
    for call, why in (
        (lambda: model.set_weights(weights[1:]), "7 weights"),
        (lambda: model.set_weights([weights[0][:2], *weights[1:]]), "another shape"),
        (lambda: model.get_layer("head"), "no layer 'head'"),
        (lambda: model.get_layer(index=9), "no layer 9"),
        (lambda: model.get_layer(), "either name or index"),
    ):
        with pytest.raises(cc.UsageError, match=why):
            call()
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])


def test_names_of_modules_come_first():
    """A model that has modules under Keras' names keeps them."""

    class Own(cc.Model):
        def __init__(self):
            super().__init__()
            self.layers = cc.nn.ModuleList([cc.nn.Linear(3, 3), cc.nn.Linear(3, 1)])
            self.weights = cc.nn.Parameter(cc.ones(1))

        def forward(self, x):
            for each in self.layers:
                x = each(x)
            return x * self.weights

    model = Own()
    assert isinstance(model.layers, cc.nn.ModuleList)
    assert model.weights.shape == (1,)
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    with pytest.raises(AttributeError, match="nothing"):
        model.nothing  # noqa: B018


def test_steps_of_epochs():
    """Epochs of some batches go on through the data; of 4 batches the third epoch has the first two again."""
    seen = []
    model, _, _ = twins()
    watch = cc.callbacks.LambdaCallback(
        on_train_batch_end=lambda trainer, module, outputs, batch, number: seen.append(batch[0][0, 0].item())
    )
    history = model.fit(
        X, Y, epochs=4, initial_epoch=1, steps_per_epoch=2, batch_size=10, shuffle=False, verbose=0, callbacks=[watch],
        validation_data=(X, Y), validation_steps=1, validation_batch_size=5, validation_freq=2,
    )  # fmt: skip
    assert history.epoch == [1, 2, 3]
    assert seen == [X[0, 0], X[10, 0], X[20, 0], X[30, 0], X[0, 0], X[10, 0]]
    first = model.evaluate(X[:5], Y[:5])
    assert model.evaluate(X, Y, batch_size=5, steps=1) == first
    assert history.history["val_loss"][-1] == pytest.approx(first[0], rel=1e-5)


def test_hooks_are_keras():
    seen = []

    class Watch(cc.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append("begin")

        def on_epoch_begin(self, epoch, logs=None):
            seen.append(epoch)

        def on_train_batch_begin(self, batch, logs=None):
            seen.append(f"b{batch}")

        def on_train_batch_end(self, batch, logs=None):
            seen.append(f"e{batch}{sorted(logs)}")

        def on_test_end(self, logs=None):
            seen.append(f"test{sorted(logs)}")

        def on_epoch_end(self, epoch, logs=None):
            seen.append(sorted(logs))
            self.model.stop_training = epoch == 1

        def on_train_end(self, logs=None):
            seen.append("end")

    model, _, _ = twins()
    model.fit(X, Y, epochs=5, batch_size=40, verbose=0, callbacks=[Watch()], validation_data=(X, Y))
    names = ["loss", "mae", "val_loss", "val_mae"]
    epoch = ["b0", "e0['loss']", "test['loss', 'mae']", names]
    assert seen == ["begin", 0, *epoch, 1, *epoch, "end"]
