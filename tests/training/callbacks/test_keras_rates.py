"""Keras' callbacks change learning rates as Keras says, and Lightning's tools of several optimizers work."""

import candle_convert as cc
import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)


def _rates(callback, epochs=4, y=None):
    cc.manual_seed(0)
    model = cc.Sequential(cc.nn.Linear(2, 1))
    model.compile(lambda parameters: cc.optim.SGD(parameters, lr=0.1), "mse")
    found = []
    target = np.zeros((8, 1), np.float32) if y is None else y
    note = lambda epoch, logs: found.append(model.optimizer.param_groups[0]["lr"])  # noqa: E731
    model.fit(X, target, epochs=epochs, verbose=0, callbacks=[callback, note])
    return found


def test_schedules():
    assert _rates(cc.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))) == [0.1, 0.05, 0.1 / 3, 0.025]
    halved = _rates(cc.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2))
    assert halved == pytest.approx([0.05, 0.025, 0.0125, 0.00625])


def test_plateau():
    reduced = cc.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=100.0, min_lr=0.03)
    assert _rates(reduced) == pytest.approx([0.1, 0.05, 0.03, 0.03])


def test_loss_that_is_not_a_number(capsys):
    y = np.full((8, 1), np.nan, np.float32)
    assert len(_rates(cc.callbacks.TerminateOnNaN(), y=y)) == 1
    assert "training stops" in capsys.readouterr().err


class Two(cc.LightningModule):
    """Two layers with an optimizer each."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = cc.nn.Linear(2, 2), cc.nn.Linear(2, 1)
        self.seen = []

    def training_step(self, batch, batch_idx):
        one, other = self.optimizers()
        for optimizer, sign in ((one, 1), (other, -1)):
            self.toggle_optimizer(optimizer)
            self.seen.append([each.requires_grad for each in self.parameters()])
            loss = sign * self.second(self.first(batch)).square().mean()
            self.manual_backward(loss)
            self.clip_gradients(optimizer, 0.5, "norm")
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return [cc.optim.SGD(each.parameters(), lr=0.1) for each in (self.first, self.second)]


class Rows(cc.LightningDataModule):
    """Rows of numbers."""

    def __init__(self, size=4):
        super().__init__()
        self.save_hyperparameters()

    def prepare_data(self):
        self.prepared = True

    def train_dataloader(self):
        assert self.prepared
        return cc.data.DataLoader(X, batch_size=self.hparams.size)


def test_several_optimizers():
    module = Two()
    trainer = cc.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(module, datamodule=Rows())
    assert module.seen[:2] == [[True, True, False, False], [False, False, True, True]]
    assert all(each.requires_grad for each in module.parameters())
    assert module.dtype == cc.float32


def test_graph_of_a_module(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    module = Two()
    module.forward = lambda x: module.second(module.first(x))
    with pytest.raises(cc.UsageError, match="inputs are not known"):
        module.to_onnx(tmp_path / "m.onnx")
    module.example_input_array = cc.zeros(1, 2)
    module.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(None, {session.get_inputs()[0].name: X})[0]
    np.testing.assert_allclose(found, module(cc.tensor(X)).detach().numpy(), 1e-5, 1e-6)
