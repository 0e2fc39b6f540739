"""Properties of a trainer that scripts read: the values are Lightning's for the same loaders."""

import math

import candle_convert as cc
import pytest

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


class Boring(cc.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = cc.nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()

    def validation_step(self, batch, batch_idx):
        self.log("x", self.layer(batch).sum())

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self.layer(batch)

    def configure_optimizers(self):
        return cc.optim.SGD(self.layer.parameters(), lr=0.1)


class Data(cc.LightningDataModule):
    def _loader(self, count):
        return cc.data.DataLoader(cc.ones(count, 4), batch_size=4)

    def train_dataloader(self):
        return self._loader(32)

    def val_dataloader(self):
        return [self._loader(20), self._loader(12)]

    def test_dataloader(self):
        return self._loader(16)

    predict_dataloader = test_dataloader


class BoringPairs(Boring):
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("x", self.layer(batch).sum())


def test_loaders_and_their_numbers():
    trainer = cc.Trainer(max_steps=2, limit_val_batches=4, num_sanity_val_steps=2, limit_test_batches=0.5, **QUIET)
    assert (trainer.datamodule, trainer.test_dataloaders, trainer.num_val_batches) == (None, None, [])
    model, data = BoringPairs(), Data()
    trainer.fit(model, datamodule=data)
    assert trainer.datamodule is data
    assert (trainer.num_val_batches, trainer.num_sanity_val_batches) == ([4, 3], [2, 2])
    trainer.test(model, datamodule=data, verbose=False)
    assert len(trainer.test_dataloaders) == 4
    assert trainer.num_test_batches == [2]
    trainer.predict(model, (cc.ones(2, 4) for _ in range(2)))
    assert trainer.datamodule is None
    assert trainer.num_predict_batches == [math.inf]


def test_the_strategy_is_of_one_process():
    strategy = cc.Trainer(**QUIET).strategy
    assert strategy.root_device == "cpu"
    assert (strategy.global_rank, strategy.world_size, strategy.is_global_zero) == (0, 1, True)
    strategy.barrier("end")
    assert strategy.broadcast("x") == "x"
    assert strategy.reduce(cc.tensor(3.0)).item() == 3
    assert strategy.all_gather(cc.ones(2)).shape == (1, 2)


def test_numbers_are_those_of_lightning():
    pytest.importorskip("lightning")
    import lightning
    import torch

    class Theirs(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).sum()

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("x", self.layer(batch).sum())

        def configure_optimizers(self):
            return torch.optim.SGD(self.layer.parameters(), lr=0.1)

    def loader(count):
        return torch.utils.data.DataLoader(torch.ones(count, 4), batch_size=4)

    trainer = lightning.Trainer(max_steps=2, limit_val_batches=4, num_sanity_val_steps=2, accelerator="cpu", **QUIET)
    trainer.fit(Theirs(), loader(32), [loader(20), loader(12)])
    assert (trainer.num_val_batches, trainer.num_sanity_val_batches) == ([4, 3], [2, 2])
