"""Steps of training leave nothing behind: after some steps as many objects are alive as before them."""

import collections
import gc

import candle_convert as cc
import numpy as np
import pytest

RNG = np.random.default_rng(0)
SERIES = RNG.standard_normal((32, 5, 3)).astype(np.float32)


class Recurrent(cc.nn.Module):
    """The last output of an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = cc.nn.LSTM(3, 4, batch_first=True), cc.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Perceptron(cc.nn.Module):
    """A network with dropout."""

    def __init__(self):
        super().__init__()
        self.net = cc.nn.Sequential(cc.nn.Linear(3, 8), cc.nn.ReLU(), cc.nn.Dropout(0.1), cc.nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x[:, 0])


class Counted(cc.LightningModule):
    """Notes what is alive after each epoch."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, batch_idx):
        loss = (self.net(batch) ** 2).mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = cc.optim.AdamW(self.parameters(), 1e-3)
        schedule = cc.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Alive(cc.callbacks.Callback):
    """Counts objects by their types when epochs end."""

    def __init__(self):
        self.counts = []

    def on_train_epoch_end(self, trainer, module):
        gc.collect()
        self.counts.append(collections.Counter(type(each).__name__ for each in gc.get_objects()))


@pytest.mark.parametrize("network", [Perceptron, Recurrent])
def test_what_is_alive_after_steps(network):
    """`benchmarks/training_memory.py` measures the memory of the process, of steps that are plans, too."""
    alive = Alive()
    trainer = cc.Trainer(
        max_epochs=6, jit=False, callbacks=[alive], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Counted(network()), cc.data.DataLoader(SERIES, 4))
    grown = alive.counts[-1] - alive.counts[2] - collections.Counter(Counter=3)
    assert sum(grown.values()) < 6, grown.most_common(5)
