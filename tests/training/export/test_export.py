"""Exported modules and steps of training compute in onnxruntime what they compute here."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


class Residual(cc.nn.Module):
    """Views, splits, attention over positions, and shapes that depend on the batch."""

    def __init__(self):
        super().__init__()
        self.project = cc.nn.Linear(8, 24)
        self.out = cc.nn.Linear(8, 8)
        self.register_buffer("scale", cc.tensor(0.5))

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = self.project(x).view(batch, rows, 3, width).permute(2, 0, 1, 3)
        weights = (q @ k.transpose(1, 2) * self.scale).softmax(-1)
        mixed = (weights @ v).reshape(batch * rows, width)
        return x + self.out(mixed).view(batch, rows, width).expand(batch, rows, width)


@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(tmp_path, dynamic):
    model, x = Residual(), cc.randn(3, 5, 8)
    model.train()
    network = cc.onnx.export(model, x, tmp_path / "m.onnx", ["x"], ["y"], dynamic_batch=dynamic)
    assert model.training
    assert {"project.weight", "project.bias", "out.weight", "out.bias", "scale"} <= set(network.graph.weights)
    run = session(tmp_path / "m.onnx")
    assert run.get_inputs()[0].shape == ["batch" if dynamic else 3, 5, 8]
    for given in (x, cc.randn(7, 5, 8)) if dynamic else (x,):
        np.testing.assert_allclose(run.run(["y"], {"x": given.numpy()})[0], model(given).detach(), rtol=1e-4, atol=1e-6)


def test_functions_of_several_tensors(tmp_path):
    cc.onnx.export(lambda pair, n: (pair["a"] + n, n * 2, n), ({"a": cc.ones(2, 3)}, cc.ones(3)), tmp_path / "f.onnx")
    run = session(tmp_path / "f.onnx")
    found = run.run(None, {"input_0": np.ones((2, 3), np.float32), "input_1": np.arange(3, dtype=np.float32)})
    assert [each.tolist() for each in found] == [[[1, 2, 3]] * 2, [0, 2, 4], [0, 1, 2]]


def test_functions_that_are_not_graphs():
    for function, code in (
        (lambda x: x + cc.rand(10), "E-EXPORT"),
        (lambda x: x.add_(1), "E-EXPORT"),
        (lambda x: cc.fft.fft(x), "E-EXPORT"),
        (lambda x: cc.complex(x, x).angle(), "Angle of complex numbers"),
        (lambda x: x if x.sum() > 0 else -x, "E-TENSOR-TRACE"),
        (lambda x: x.reshape(-1)[: len(x) ** 2], "E-EXPORT-BATCH"),
    ):
        with pytest.raises(cc.Error, match=code):
            cc.onnx.export(function, cc.ones(3, 10), dynamic_batch=code == "E-EXPORT-BATCH")
    with pytest.raises(cc.UsageError, match="2 names are given for 1"):
        cc.onnx.export(cc.nn.Linear(3, 3), cc.ones(2, 3), input_names=["a", "b"])


WINDOW = cc.hann_window(16)
COMPLEX = {
    "absolute values of windows": lambda x: cc.stft(x, 16, 4, window=WINDOW, return_complex=True).abs(),
    "windows and back": lambda x: cc.istft(
        cc.stft(x, 16, 4, window=WINDOW, return_complex=True) * cc.tensor([0.5 + 2j]), 16, 4, window=WINDOW
    ),
    "half a transform": lambda x: cc.view_as_real(cc.fft.rfft(x, norm="ortho")),
    "odd length": lambda x: cc.fft.irfft(cc.fft.rfft(x[:, :31]), n=31),
    "filter": lambda x: cc.fft.ifft(cc.fft.fft(x) * cc.fft.fft(x.flip(-1)).conj()).real,
    "two dims": lambda x: cc.fft.fft2(x.reshape(2, 8, 8), norm="forward").imag,
    "inverse of two dims": lambda x: cc.view_as_real(cc.fft.ifft2(cc.fft.fft2(x.reshape(2, 8, 8)) / (2 - 1j))),
    "arithmetic": lambda x: cc.view_as_real((cc.complex(x, x[:1]) - 1j) / (cc.complex(x + 3, x) + x) - x),
    "matrices": lambda x: cc.view_as_real(cc.complex(x, -x) @ cc.complex(x, x * 2).mT),
    "polar": lambda x: cc.view_as_real((cc.complex(x, x * 3).exp().cumsum(1).mean(0) * 2).reshape(8, 8).mH),
    "doubles": lambda x: cc.fft.fft(x.double()).abs(),
    "moves": lambda x: cc.cat([z := cc.fft.rfft(x)[:, 1::2], z.roll(1, 1)], 1).squeeze().T.real,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_become_their_parts(name, tmp_path):
    x = cc.tensor(np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32))
    cc.onnx.export(COMPLEX[name], x, tmp_path / "m.onnx", ["x"], ["y"])
    (found,) = session(tmp_path / "m.onnx").run(None, {"x": x.numpy()})
    wanted = COMPLEX[name](x).numpy()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


OPTIMIZERS = {"SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "AdamW": {"lr": 0.02}, "RMSprop": {"lr": 0.02}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_training(tmp_path, name):
    """onnxruntime trains: the losses of 12 steps are those of this package, with a schedule of the learning rate."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 6)).astype(np.float32), rng.integers(0, 3, 16)

    def start():
        cc.manual_seed(1)
        model = cc.nn.Sequential(cc.nn.Linear(6, 12), cc.nn.GELU(), cc.nn.Linear(12, 3))
        optimizer = getattr(cc.optim, name)(model.parameters(), **OPTIMIZERS[name])
        loss_function = cc.nn.CrossEntropyLoss(label_smoothing=0.1)

        def step(inputs, targets):
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss

        return model, optimizer, cc.optim.lr_scheduler.StepLR(optimizer, 4, 0.5), step

    model, optimizer, schedule, step = start()
    expected = []
    for _ in range(12):
        expected.append(step(cc.tensor(x), cc.tensor(y)).item())
        schedule.step()
    weights = {f"{name}.next": each.numpy() for name, each in model.state_dict().items()}

    model, optimizer, schedule, step = start()
    made = cc.onnx.export_step(step, (x, y), tmp_path / "step.onnx", model, optimizer, ["x", "y"], ["loss"])
    run, state, found = session(tmp_path / "step.onnx"), made.state, []
    for _ in range(12):
        loss, *after = run.run(None, {"x": x, "y": y, **state, **made.numbers()})
        state = dict(zip(state, after, strict=True))
        found.append(float(loss))
        schedule.step()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for each, array in weights.items():
        np.testing.assert_allclose(state[each.removesuffix(".next")], array, rtol=1e-3, atol=1e-5)


def compare_step(path, model, outputs, *shape):
    """A step of gradient descent in onnxruntime and here."""
    optimizer = cc.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (outputs(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = cc.onnx.export_step(step, (x,), path / "step.onnx", model, optimizer, ["x"], ["loss"])
    loss, *after = session(path / "step.onnx").run(None, {"x": x, **made.state, **made.numbers()})
    np.testing.assert_allclose(loss, step(cc.tensor(x)).item(), rtol=1e-5)
    for name, array in zip(made.state, after, strict=True):
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-4, atol=1e-6)


def test_a_step_with_a_checkpoint(tmp_path):
    model = cc.nn.Sequential(cc.nn.Linear(6, 12), cc.nn.Tanh(), cc.nn.Linear(12, 1))
    compare_step(tmp_path, model, lambda x: cc.checkpoint(model, x), 4, 6)


@pytest.mark.parametrize(
    ("name", "settings"), [("GRU", {"bidirectional": True}), ("RNN", {"num_layers": 2}), ("LSTM", {"proj_size": 3})]
)
def test_a_step_of_recurrent_layers(tmp_path, name, settings):
    model = getattr(cc.nn, name)(4, 6, **settings)
    compare_step(tmp_path, model, lambda x: model(x)[0], 3, 2, 4)


def test_a_trained_model_in_other_formats(tmp_path):
    """Trained, saved as ONNX, safetensors and GGUF, and run from there."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 32)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    model = cc.Sequential(cc.nn.Linear(32, 32), cc.nn.ReLU(), cc.nn.Linear(32, 2))
    model.compile("adam", "cross_entropy")
    model.fit(x, y, epochs=3, verbose=0)
    expected = model.predict(x)

    cc.onnx.export(model, x, tmp_path / "m.onnx")
    np.testing.assert_allclose(session(tmp_path / "m.onnx").run(None, {"input": x})[0], expected, rtol=1e-4, atol=1e-5)
    ours = cc.InferenceSession(tmp_path / "m.onnx").run(None, {"input": x})[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    for suffix in ("safetensors", "gguf"):
        path = tmp_path / f"m.{suffix}"
        cc.save(model.state_dict(), path)
        other = cc.Sequential(cc.nn.Linear(32, 32), cc.nn.ReLU(), cc.nn.Linear(32, 2))
        other.load_state_dict(cc.load(path))
        np.testing.assert_array_equal(other.predict(x), expected)
