"""Early stopping, checkpoints and learning rates, on runs whose metrics are given."""

import candle_convert as cc
import pytest
from candle_convert.training.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint


class Given(cc.LightningModule):
    """Logs values that are given, one for each epoch."""

    def __init__(self, values):
        super().__init__()
        self.weight = cc.nn.Parameter(cc.zeros(1))
        self.values = values

    def training_step(self, batch, batch_idx):
        return ((self.weight - 1) ** 2).sum() + 0 * batch.sum()

    def on_train_epoch_end(self):
        self.log("score", self.values[self.current_epoch])

    def configure_optimizers(self):
        return cc.optim.SGD(self.parameters(), lr=0.25)


def fitted(values, *callbacks, batches=2, **options):
    module = Given(values)
    trainer = cc.Trainer(
        max_epochs=len(values),
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, [cc.zeros(1)] * batches)
    return trainer, module


@pytest.mark.parametrize(
    ("values", "options", "epochs"),
    [
        ([3.0, 2, 2, 2, 2, 2], {"patience": 2}, 4),
        ([3.0, 2, 1.9, 1.8, 1.7, 1.6], {"patience": 2, "min_delta": 0.5}, 4),
        ([1.0, 2, 3, 3, 2, 9], {"patience": 2, "mode": "max"}, 5),
        ([3.0, float("nan"), 1], {}, 2),
        ([3.0, 0.5, 1], {"stopping_threshold": 1}, 2),
        ([3.0, 50.0, 1], {"divergence_threshold": 10}, 2),
        ([3.0, 2, 1], {"patience": 1}, 3),
        ([3.0, 4, 5, 6], {"monitor": "missing", "strict": False}, 4),
        ([3.0, 2, 2, 0.5, 0.4], {"patience": 2, "baseline": 1.5}, 3),
        ([3.0, 1, 0.5, 2, 2, 9], {"patience": 2, "baseline": 1.5}, 5),
        ([1.0, 2, 3, 4, 5, 6], {"patience": 2, "start_from_epoch": 2}, 5),
        ([3.0, 2, 1, 0], {"patience": 2, "mode": "auto"}, 4),
    ],
    ids=str,
)
def test_early_stopping(values, options, epochs):
    trainer, _ = fitted(values, EarlyStopping(**{"monitor": "score", **options}))
    assert trainer.current_epoch == epochs


def test_early_stopping_says_why(capsys):
    fitted([1.0, 2], EarlyStopping("score", patience=1, verbose=True))
    assert "score did not get better than 1 in 1 check" in capsys.readouterr().err
    with pytest.raises(cc.UsageError, match="E-TRAIN-MONITOR"):
        fitted([1.0], EarlyStopping("val_loss"))
    with pytest.raises(cc.UsageError, match="min or max"):
        EarlyStopping("score", mode="less")


def test_best_weights_are_restored():
    _, module = fitted([1.0, 0.5, 2, 2, 2], EarlyStopping("score", restore_best_weights=True))
    _, expected = fitted([1.0, 0.5])
    assert module.weight.tolist() == expected.weight.tolist()


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_checkpoints(tmp_path):
    kept = ModelCheckpoint(tmp_path / "a", monitor="score", save_top_k=2, save_last=True)
    fitted([5.0, 3, 4, 9, 1], kept)
    assert names(tmp_path / "a") == ["epoch=1-step=4.ckpt", "epoch=4-step=10.ckpt", "last.ckpt"]
    assert kept.best_model_path == str(tmp_path / "a" / "epoch=4-step=10.ckpt")
    assert kept.best_model_score == 1
    fitted([5.0, 3, 4, 9], ModelCheckpoint(tmp_path / "b", "{epoch:02d}-{score:.2f}", "score", mode="max"))
    assert names(tmp_path / "b") == ["epoch=03-score=9.00.ckpt"]
    fitted([5.0] * 3, ModelCheckpoint(tmp_path / "c"))
    assert names(tmp_path / "c") == ["epoch=2-step=6.ckpt"]
    fitted([5.0] * 3, ModelCheckpoint(tmp_path / "d", save_top_k=-1, every_n_train_steps=2), batches=3)
    expected = ["epoch=0-step=2", "epoch=1-step=4", "epoch=1-step=6", "epoch=2-step=8"]
    assert names(tmp_path / "d") == [f"{each}.ckpt" for each in expected]
    fitted([5.0] * 4, ModelCheckpoint(tmp_path / "e", every_n_epochs=2, save_top_k=-1))
    assert names(tmp_path / "e") == ["epoch=1-step=4.ckpt", "epoch=3-step=8.ckpt"]
    fitted([5.0], ModelCheckpoint(tmp_path / "c", "epoch=2-step=6"))
    assert names(tmp_path / "c") == ["epoch=2-step=6-v1.ckpt", "epoch=2-step=6.ckpt"]
    with pytest.raises(cc.UsageError, match="monitor"):
        ModelCheckpoint(save_top_k=3)


def test_weights_of_a_checkpoint(tmp_path):
    trainer, module = fitted([1.0, 2, 3], ModelCheckpoint(tmp_path, monitor="score"))
    best = cc.load(trainer.checkpoint_callback.best_model_path)
    assert best["state_dict"]["weight"].item() == pytest.approx(1 - 0.5**2)
    assert module.weight.item() == pytest.approx(1 - 0.5**6)


def test_learning_rates():
    trainer, _ = fitted([1.0], LearningRateMonitor(log_momentum=True, log_weight_decay=True), log_every_n_steps=1)
    assert {name: trainer.callback_metrics[name] for name in trainer.callback_metrics if "lr" in name} == {
        "lr-SGD": 0.25,
        "lr-SGD-momentum": 0,
        "lr-SGD-weight_decay": 0,
    }
    with pytest.raises(cc.UsageError):
        LearningRateMonitor("batch")


def test_live_bar():
    bar = cc.callbacks.ProgressBar(live=True)
    fitted([1.0, 2], bar)
    assert bar._bar is None
