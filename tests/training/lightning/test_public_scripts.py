"""Lightning's first two models, in our own words: losses are those of a loop in torch, and what hooks read is what
Lightning shows them there."""

import candle_convert as cc
import numpy as np
import pytest
import torch

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
RANDOM = np.random.RandomState(0)
ROWS = RANDOM.randn(64, 32).astype("float32")
WEIGHT, BIAS = RANDOM.randn(2, 32).astype("float32") / 8, RANDOM.randn(2).astype("float32")


class Boring(cc.LightningModule):
    """A linear layer whose loaders, optimizer and schedule are its own."""

    def __init__(self):
        super().__init__()
        self.layer = cc.nn.Linear(32, 2)
        self.layer.load_state_dict({"weight": WEIGHT, "bias": BIAS})
        self.losses, self.seen = [], []

    def forward(self, x):
        return self.layer(x)

    def loss(self, batch):
        found = self(batch)
        return cc.nn.functional.mse_loss(found, cc.ones_like(found))

    def training_step(self, batch, batch_idx):
        return {"loss": self.loss(batch)}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))

    def validation_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("valid_loss", loss, prog_bar=True)
        self.log("hidden", loss, logger=False)
        return {"x": loss}

    def on_validation_epoch_end(self):
        self.seen.append(self.trainer.callback_metrics["valid_loss"])

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch), on_step=True)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch)

    def configure_optimizers(self):
        optimizer = cc.optim.SGD(self.layer.parameters(), lr=0.1)
        return [optimizer], [cc.optim.lr_scheduler.StepLR(optimizer, step_size=1)]

    def train_dataloader(self):
        return cc.data.DataLoader(ROWS)

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def boring_in_torch():
    """Losses of ten steps in each of two epochs, and the means over five batches: of two at first, then after each."""
    layer = torch.nn.Linear(32, 2)
    layer.load_state_dict({"weight": torch.tensor(WEIGHT), "bias": torch.tensor(BIAS)})
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)

    def loss(row):
        found = layer(torch.tensor(ROWS[row : row + 1]))
        return torch.nn.functional.mse_loss(found, torch.ones_like(found))

    losses, means = [], [np.mean([loss(row).item() for row in range(2)])]
    for _ in range(2):
        for row in range(10):
            optimizer.zero_grad()
            found = loss(row)
            found.backward()
            optimizer.step()
            losses.append(found.item())
        schedule.step()
        means.append(np.mean([loss(row).item() for row in range(5)]))
    return losses, means, layer


def test_the_boring_model():
    limits = {"limit_train_batches": 10, "limit_val_batches": 5, "limit_test_batches": 4, "limit_predict_batches": 3}
    model, trainer = Boring(), cc.Trainer(max_epochs=2, **limits, **QUIET)
    trainer.fit(model)
    losses, means, layer = boring_in_torch()
    np.testing.assert_allclose(model.losses, losses, rtol=1e-4)
    np.testing.assert_allclose(model.seen, means, rtol=1e-4)
    np.testing.assert_allclose(model.layer.weight.detach().numpy(), layer.weight.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert (trainer.global_step, trainer.current_epoch) == (20, 2)
    assert set(trainer.callback_metrics) == {"valid_loss", "hidden"}
    assert [list(each) for each in trainer.test(model, verbose=False)] == [["test_loss_epoch"]]
    assert set(trainer.callback_metrics) == {"test_loss", "test_loss_epoch"}
    assert [each.shape for each in trainer.predict(model)] == [(1, 2)] * 3
    assert trainer.validate(model, verbose=False) == [{"valid_loss": pytest.approx(means[-1], rel=1e-4)}]


def networks(nn):
    encoder = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    return encoder, nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 64))


class AutoEncoder(cc.LightningModule):
    """Two networks given from outside; the loss is of what comes back."""

    def __init__(self, encoder, decoder, lr=1e-3):
        super().__init__()
        self.save_hyperparameters(ignore=["encoder", "decoder"])
        self.encoder, self.decoder = encoder, decoder

    def training_step(self, batch, batch_idx):
        x = batch[0].view(batch[0].size(0), -1)
        loss = cc.nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return cc.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Kept(cc.callbacks.Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"] if isinstance(outputs, dict) else outputs))


def test_the_autoencoder():
    images = RANDOM.rand(80, 1, 8, 8).astype("float32")
    torch.manual_seed(0)
    theirs, ours, kept = networks(torch.nn), networks(cc.nn), Kept()
    for one, two in zip(ours, theirs, strict=True):
        one.load_state_dict({name: each.numpy() for name, each in two.state_dict().items()})
    data = cc.data.DataLoader(cc.data.TensorDataset(images, np.zeros(80, np.int64)), batch_size=8)
    cc.Trainer(max_epochs=2, callbacks=[kept], **QUIET).fit(AutoEncoder(*ours), data)
    optimizer = torch.optim.Adam([p for each in theirs for p in each.parameters()], lr=1e-3)
    expected = []
    for first in [*range(0, 80, 8)] * 2:
        x = torch.tensor(images[first : first + 8]).view(8, -1)
        loss = torch.nn.functional.mse_loss(theirs[1](theirs[0](x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(kept.losses, expected, rtol=1e-5)
