"""Models with Keras' methods: digits are learned; histories, losses and metrics are those of torch and scikit-learn."""

import re
import time

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.runtime.base.compile_progress import compile_time
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score

X, Y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER] / 16, Y[ORDER]


def mlp(m=cc, hidden=32):
    make = m.Sequential if m is cc else m.nn.Sequential
    return make(m.nn.Linear(64, hidden), m.nn.ReLU(), m.nn.Linear(hidden, 10))


def test_digits():
    """98 % of scikit-learn's digits that the model has not seen are told right."""
    cc.manual_seed(0)
    model = mlp(hidden=128)
    model.compile(lambda parameters: cc.optim.AdamW(parameters, lr=6e-3), "cross_entropy", ["accuracy"])
    history = model.fit(X[:1400], Y[:1400], epochs=25, batch_size=64, verbose=0)
    loss, accuracy = model.evaluate(X[1400:], Y[1400:])
    assert accuracy > 0.98
    logits = model.predict(X[1400:])
    assert accuracy == pytest.approx(accuracy_score(Y[1400:], logits.argmax(1)), abs=1e-6)
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(Y[1400:]))
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    assert list(history.history) == ["loss", "accuracy"]
    assert history.epoch == list(range(25))


def test_history_is_torchs():
    ours, theirs = mlp(), mlp(torch)
    theirs.load_state_dict({name: torch.tensor(each.numpy()) for name, each in ours.state_dict().items()})
    ours.compile("adamw", "cross_entropy", ["accuracy"])
    cc.manual_seed(5)
    history = ours.fit(X[:200], Y[:200], epochs=2, validation_split=0.2, verbose=0).history
    x, y = torch.tensor(X[:200], dtype=torch.float32), torch.tensor(Y[:200])
    optimizer = torch.optim.AdamW(theirs.parameters())
    train = torch.utils.data.TensorDataset(x[:160], y[:160])
    torch.manual_seed(5)
    batches = torch.utils.data.DataLoader(train, 32, shuffle=True)
    expected = {"loss": [], "val_loss": [], "val_accuracy": []}
    for _ in range(2):
        losses = []
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(theirs(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        torch.empty((), dtype=torch.int64).random_()  # what the loader of validation draws
        with torch.no_grad():
            logits = theirs(x[160:])
        expected["loss"].append(np.mean(losses))
        expected["val_loss"].append(torch.nn.functional.cross_entropy(logits, y[160:]).item())
        expected["val_accuracy"].append((logits.argmax(1) == y[160:]).float().mean().item())
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("loss", "targets", "width"),
    [
        ("mse", np.linspace(-1, 1, 40), 1),
        ("mae", np.linspace(-1, 1, 80).reshape(40, 2), 2),
        ("huber", np.linspace(-1, 1, 40), 1),
        ("bce", np.arange(40) % 2, 1),
        ("sparse_categorical_crossentropy", np.arange(40)[:, None] % 3, 3),
        ("categorical_crossentropy", np.eye(3)[np.arange(40) % 3], 3),
        (lambda output, target: ((output[:, 0] - target) ** 4).mean(), np.linspace(-1, 1, 40, dtype=np.float32), 1),
    ],
    ids=["mse", "mae", "huber", "bce", "sparse", "categorical", "function"],
)
def test_losses(loss, targets, width):
    model = cc.Sequential([cc.nn.Linear(64, width)])
    model.compile("adam", loss, ["mae"] if width < 3 else ["accuracy"])
    history = model.fit(X[:40], targets, epochs=3, verbose=0).history["loss"]
    assert history[2] < history[0]


def test_metrics():
    logits = cc.tensor([[0.1, 0.9, 0], [0.8, 0.1, 0.3], [0.2, 0.3, 0.9], [1.0, 0, 0]])
    labels = cc.tensor([1, 2, 2, 0])
    from candle_convert.training.keras.fit.names import METRICS

    assert METRICS["accuracy"](logits, labels).item() == 0.75
    assert METRICS["accuracy"](logits, cc.tensor(np.eye(3, dtype=np.float32)[[1, 2, 2, 0]])).item() == 0.75
    assert METRICS["accuracy"](logits[:, :1] - 0.5, cc.tensor([0, 1, 1, 1])).item() == 0.75
    assert METRICS["top_5_accuracy"](logits, labels).item() == 1


def test_callbacks_of_keras_kind():
    seen = []

    class Stop:
        stop_training = False

        def on_epoch_end(self, epoch, logs):
            seen.append((epoch, sorted(logs)))
            self.stop_training = epoch == 1

    model = mlp()
    model.compile("sgd", "cross_entropy")
    history = model.fit(X[:64], Y[:64], epochs=9, callbacks=[Stop(), lambda epoch, logs: seen.append(epoch)], verbose=0)
    assert len(history.epoch) == 2
    assert seen == [(0, ["loss"]), 0, (1, ["loss"]), 1]


def test_training_goes_on():
    """Two calls of fit are one of as many epochs."""
    found = []
    for epochs in ([4], [2, 2]):
        cc.manual_seed(0)
        model = mlp()
        model.compile("adam", "cross_entropy")
        found.append([loss for each in epochs for loss in model.fit(X[:64], Y[:64], each, verbose=0).history["loss"]])
    assert found[0] == found[1]


def test_what_is_shown(capsys, tmp_path):
    model = mlp()
    model.compile("adamw", "cross_entropy", ["accuracy"])
    model.summary()
    assert "?" in capsys.readouterr().out
    history = model.fit(X[:64], Y[:64], epochs=2, validation_data=(X[64:96], Y[64:96]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert "val_accuracy" in lines[0]
    model.summary()
    out = capsys.readouterr().out
    assert "2 (Linear)    (None, 10)           330" in out
    assert "2,410 parameters, of which 2,410 are trained" in out
    model.evaluate(X[:64], Y[:64], verbose=1)
    assert "val_loss" in capsys.readouterr().out
    history.plot(tmp_path / "loss.png")
    with Image.open(tmp_path / "loss.png") as picture:
        assert len(picture.getcolors(1 << 20)) > 10
    history.plot(tmp_path / "one.png", "loss")
    with pytest.raises(cc.UsageError, match="suffix"):
        history.plot(tmp_path / "loss.doc")


@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "npz", "pth"])
def test_saved_weights(suffix, tmp_path):
    saved, other = mlp(), mlp()
    saved.save(tmp_path / f"model.{suffix}")
    other.load_weights(tmp_path / f"model.{suffix}")
    np.testing.assert_array_equal(other.predict(X[:3]), saved.predict(X[:3]))


def test_saved_network(tmp_path):
    """onnxruntime computes what the model does, for any number of rows; tokens stay integers."""
    model = cc.Sequential(cc.nn.Embedding(17, 4), cc.nn.Flatten(), cc.nn.Linear(256, 10))
    with pytest.raises(cc.UsageError, match="input_shape"):
        model.save(tmp_path / "model.onnx")
    tokens = (X * 16).astype(np.int64)
    model.compile("sgd", "cross_entropy")
    model.fit(tokens[:64], Y[:64], verbose=0)
    model.summary()
    model.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {"input": tokens[:5]})[0]
    np.testing.assert_allclose(found, model.predict(tokens[:5]), rtol=1e-5, atol=1e-6)


def test_losses_that_are_not_finite(capsys):
    model = mlp()
    model.compile("adam", "cross_entropy")
    model.fit(np.full_like(X[:40], np.nan), Y[:40], verbose=0)
    assert capsys.readouterr().err.count("the loss is nan in epoch 0, batch 0") == 1


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("w.npz", np.load),
        ("w.pt", lambda path: {name: item.numpy() for name, item in torch.load(path).items()}),
        ("w.safetensors", load_file),
    ],
)
def test_weights_by_suffix(tmp_path, name, read):
    """The library that a suffix belongs to reads the file."""
    model = cc.Sequential(cc.nn.Linear(3, 2))
    model.save_weights(tmp_path / name)
    np.testing.assert_array_equal(read(tmp_path / name)["0.weight"], model[0].weight.detach().numpy())
    other = cc.Sequential(cc.nn.Linear(3, 2))
    other.load_weights(tmp_path / name)
    np.testing.assert_array_equal(other[0].weight.detach().numpy(), model[0].weight.detach().numpy())


def test_weights_under_a_suffix_of_keras(tmp_path):
    model = cc.Sequential(cc.nn.Linear(3, 2))
    with pytest.warns(UserWarning, match=r"w\.weights\.h5 is written as safetensors"):
        model.save_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(load_file(tmp_path / "w.weights.h5")["0.weight"], model[0].weight.detach().numpy())
    model.load_weights(tmp_path / "w.weights.h5")


def test_weights_and_data(tmp_path):
    model, other = mlp(), mlp()
    model.save_weights(tmp_path / "a.safetensors")
    other.load_weights(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(model.predict(X[:9]), other.predict(X[:9]))
    pairs = cc.data.TensorDataset(X[:40].astype(np.float32), Y[:40])
    model.compile("adam", "cross_entropy")
    assert len(model.fit(pairs, batch_size=8, verbose=0).epoch) == 1
    assert len(model.fit(cc.data.DataLoader(pairs, 8), verbose=0).epoch) == 1
    assert model.predict(pairs).shape == (40, 10)
    assert model.evaluate(pairs) == pytest.approx(model.evaluate(pairs, return_dict=True)["loss"])
    wrapped = cc.Model(cc.nn.Linear(64, 10))
    wrapped.compile("adam", "cross_entropy")
    wrapped.fit(X[:40], Y[:40], verbose=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mlp().fit(X, Y),
        lambda: mlp().compile("adan", "mse"),
        lambda: mlp().compile("adam", "crossentropy"),
        lambda: mlp().compile("adam", "mse", ["accurate"]),
        lambda: mlp().compile("adam", 3),
        lambda: compiled().fit(X, Y[:5]),
        lambda: compiled().fit(X, Y, validation_split=1.5),
        lambda: compiled().fit(X, Y, unheard_of=1),
        lambda: compiled().fit(X, Y, verbose=7),
        lambda: compiled().fit(cc.data.DataLoader(X, 4), verbose=0),
    ],
)
def test_what_is_not_possible(call):
    with pytest.raises(cc.UsageError):
        call()


def compiled():
    model = mlp()
    model.compile("adam", "cross_entropy")
    return model


def test_an_epoch_says_what_it_compiled_and_leaves_it_out_of_its_rate(capsys):
    class Compiles:
        def on_epoch_begin(self, epoch, logs):
            if epoch == 0:
                with compile_time(2):
                    time.sleep(1.5)

    model = mlp()
    model.compile("adamw", "cross_entropy")
    model.fit(X[:64], Y[:64], epochs=1, verbose=0)
    model.fit(X[:64], Y[:64], epochs=2, verbose=2, callbacks=[Compiles()])
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"epoch 1/2  2 batches in [01]\.\d s \(.*/s\)  loss .*  \(compiled 2 kernels in 1\.\d s, once per machine\)",
        first,
    )
    assert float(first.partition(" in ")[2].partition(" s")[0]) < 1.4
    assert "compiled" not in second


def test_validation_follows_its_own_metrics_and_plots_have_an_axis_each(tmp_path):
    cc.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    model = cc.Sequential(cc.nn.Linear(4, 2))
    model.compile("sgd", "cross_entropy", ["accuracy"])
    history = model.fit(x, (x.sum(1) > 0).astype(np.int64), epochs=2, validation_split=0.25, verbose=0)
    assert list(history.history) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    sizes = []
    for names in ((), ("loss",), ("accuracy", "val_accuracy")):
        history.plot(tmp_path / "curve.png", *names)
        with Image.open(tmp_path / "curve.png") as picture:
            sizes.append(picture.size)
    assert sizes == [(960, 1080), (960, 540), (960, 540)]
