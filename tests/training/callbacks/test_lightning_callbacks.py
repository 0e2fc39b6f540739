"""Lightning's smaller callbacks: averages of weights against torch's, time, summaries, accumulation, and what a trainer
tells of itself."""

import datetime

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import callbacks as made

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3)).astype(np.float32)
Y = (X.sum(1, keepdims=True) ** 2).astype(np.float32)
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def network(m):
    return m.nn.Sequential(m.nn.Linear(3, 5), m.nn.BatchNorm1d(5), m.nn.Tanh(), m.nn.Linear(5, 1))


START = {name: each.numpy() for name, each in network(cc).state_dict().items()}


class Net(cc.LightningModule):
    """A regression with a schedule."""

    def __init__(self):
        super().__init__()
        self.net = network(cc)
        self.net.load_state_dict(START)

    def training_step(self, batch, batch_idx):
        return ((self.net(batch[0]) - batch[1]) ** 2).mean()

    def configure_optimizers(self):
        optimizer = cc.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        return [optimizer], [cc.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def batches(m, data):
    return data.DataLoader(data.TensorDataset(m.from_numpy(X), m.from_numpy(Y)), 10)


def fitted(*callbacks, path=None, **options):
    trainer, module = (
        cc.Trainer(callbacks=list(callbacks), **{"max_epochs": 6, "jit": False, **QUIET, **options}),
        Net(),
    )
    trainer.fit(module, batches(cc, cc.data), ckpt_path=path)
    return trainer, module


def test_stochastic_averages():
    """Those of torch's tools, with statistics of batch norms from one more pass."""
    net = network(torch)
    net.load_state_dict({name: torch.tensor(each) for name, each in START.items()})
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    schedule, averaged = (
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        torch.optim.swa_utils.AveragedModel(net),
    )
    for epoch in range(6):
        if epoch == 2:
            schedule = torch.optim.swa_utils.SWALR(optimizer, 0.02, 3, "linear")
        if epoch >= 2:
            averaged.update_parameters(net)
        for x, y in batches(torch, torch.utils.data):
            optimizer.zero_grad()
            ((net(x) - y) ** 2).mean().backward()
            optimizer.step()
        schedule.step()
    torch.optim.swa_utils.update_bn(batches(torch, torch.utils.data), averaged)
    _, module = fitted(made.StochasticWeightAveraging(0.02, 3, 3, "linear"))
    expected = averaged.module.state_dict()
    for name, each in module.net.state_dict().items():
        np.testing.assert_allclose(each.numpy(), expected[name].numpy(), rtol=2e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("epoch", [1, 3])
def test_stochastic_averages_go_on(tmp_path, epoch):
    """A run that goes on from a checkpoint before or after the first average ends with the same weights."""

    class Save(made.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if (trainer.current_epoch, batch_idx) == (epoch, 1):
                trainer.save_checkpoint(tmp_path / "a.ckpt")

    _, whole = fitted(made.StochasticWeightAveraging(0.02, 3, 3), Save())
    _, again = fitted(made.StochasticWeightAveraging(0.02, 3, 3), path=tmp_path / "a.ckpt")
    for name, each in again.state_dict().items():
        assert each.tolist() == whole.state_dict()[name].tolist(), name


def test_timer(capsys):
    trainer, _ = fitted(made.Timer({"seconds": 0}))
    assert trainer.global_step == 1
    assert "training stops: it has taken" in capsys.readouterr().err
    assert fitted(max_time="00:00:00:00")[0].global_step == 1
    timer = made.Timer(datetime.timedelta(days=1), interval="epoch")
    assert fitted(timer)[0].global_step == 24
    assert 0 < timer.time_elapsed() < 100
    assert timer.time_remaining() == pytest.approx(86400 - timer.time_elapsed())
    again = made.Timer()
    again.load_state_dict(timer.state_dict())
    assert again.time_elapsed() == pytest.approx(timer.time_elapsed())
    for wrong in ("1 day", 3, {"years": 2}):
        with pytest.raises(cc.UsageError, match="duration"):
            made.Timer(wrong)


def test_model_summary(capsys):
    fitted(made.ModelSummary(max_depth=2), max_epochs=1)
    shown = capsys.readouterr().err
    assert "net.0" in shown
    assert "36 of 36 parameters are trained" in shown
    fitted(max_epochs=1, enable_model_summary=True)
    assert "net.0" not in capsys.readouterr().err
    fitted(made.RichModelSummary(max_depth=0), max_epochs=1)
    assert capsys.readouterr().err == ""


def test_accumulation_by_epoch():
    trainer, _ = fitted(made.GradientAccumulationScheduler({1: 2, 3: 4}))
    assert trainer.global_step == 4 + 2 + 2 + 1 + 1 + 1
    with pytest.raises(cc.UsageError, match="scheduling"):
        made.GradientAccumulationScheduler({0: 0})


def test_checkpoint_of_an_error(tmp_path):
    def fail(trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == 5:
            raise ValueError("the reason")

    saves = made.OnExceptionCheckpoint(tmp_path)
    with pytest.raises(ValueError, match="the reason"):
        fitted(made.LambdaCallback(on_train_batch_end=fail), saves)
    trainer, module = fitted(path=saves.ckpt_path)
    assert trainer.global_step == 24
    assert module.net[0].weight.tolist() == fitted()[1].net[0].weight.tolist()


def test_what_a_trainer_tells():
    class Cycle(Net):
        def configure_optimizers(self):
            self.steps = self.trainer.estimated_stepping_batches
            return super().configure_optimizers()

    for options, steps in (
        ({"max_epochs": 3}, 12),
        ({"max_epochs": 3, "accumulate_grad_batches": 3}, 6),
        ({"max_epochs": 3, "limit_train_batches": 0.5}, 6),
        ({"max_steps": 5}, 5),
        ({"max_epochs": 3, "max_steps": 100}, 12),
    ):
        stops = made.EarlyStopping("loss", strict=False)
        trainer, module = cc.Trainer(callbacks=stops, jit=False, **QUIET, **options), Cycle()
        assert trainer.max_epochs == options.get("max_epochs", -1)
        trainer.fit(module, batches(cc, cc.data))
        assert trainer.global_step == module.steps == steps
        assert (trainer.model, trainer.early_stopping_callback) == (module, stops)
        assert trainer.checkpoint_callback is None
        assert (trainer.world_size, trainer.is_global_zero, trainer.max_steps) == (
            1,
            True,
            options.get("max_steps", -1),
        )
    assert cc.Trainer().max_epochs == 1000
