"""Trainer: losses, metrics and schedules of a script are those of a loop in torch; hooks are called in Lightning's
order."""

import csv
import itertools
import random
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(1)
X = RNG.standard_normal((50, 4)).astype(np.float32)
Y = (X.sum(1, keepdims=True) ** 2).astype(np.float32)
START = {
    "net.0.weight": RNG.standard_normal((8, 4)).astype(np.float32) * 0.5,
    "net.0.bias": np.zeros(8, np.float32),
    "net.2.weight": RNG.standard_normal((1, 8)).astype(np.float32) * 0.5,
    "net.2.bias": np.zeros(1, np.float32),
}
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}


def network(m):
    return m.nn.Sequential(m.nn.Linear(4, 8), m.nn.Tanh(), m.nn.Linear(8, 1))


class Net(cc.LightningModule):
    """A regression."""

    def __init__(self, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = network(cc)
        self.load_state_dict(START)

    def loss(self, batch):
        x, y = batch
        return ((self.net(x) - y) ** 2).mean()

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def predict_step(self, batch, batch_idx):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimizer = cc.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = cc.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def loader(m, data, batch=8, shuffle=True):
    return data.DataLoader(data.TensorDataset(m.from_numpy(X), m.from_numpy(Y)), batch_size=batch, shuffle=shuffle)


def seeded_fit(trainer, module, validation=None):
    cc.manual_seed(3)
    trainer.fit(module, loader(cc, cc.data), validation)


class Losses(cc.callbacks.Callback):
    """Keeps the loss of each step."""

    def __init__(self):
        self.found = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.found.append(float(outputs if isinstance(outputs, cc.Tensor) else outputs["loss"]))


def in_torch(epochs, accumulate=1, clip=None, by_value=False, schedule_steps=False, validated=False, mixed=False):
    """The losses of the steps, and the mean of each validation, of the same training written in torch."""
    net = network(torch)
    net.load_state_dict({name.removeprefix("net."): torch.tensor(value) for name, value in START.items()})
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    batches, checks = loader(torch, torch.utils.data), loader(torch, torch.utils.data, 20, False)
    losses, means = [], []
    torch.manual_seed(3)
    for _ in range(epochs):
        for number, (x, y) in enumerate(batches):
            with torch.autocast("cpu", enabled=mixed):
                loss = ((net(x) - y) ** 2).mean()
            (loss / accumulate).backward()
            losses.append(loss.item())
            if (number + 1) % accumulate == 0 or number + 1 == len(batches):
                if clip:
                    cut = torch.nn.utils.clip_grad_value_ if by_value else torch.nn.utils.clip_grad_norm_
                    cut(net.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
                if schedule_steps:
                    schedule.step()
        if not schedule_steps:
            schedule.step()
        if validated:
            with torch.no_grad():
                means.append(sum(((net(x) - y) ** 2).sum().item() for x, y in checks) / len(X))
    return losses, means


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate_grad_batches": 3},
        {"gradient_clip_val": 0.5},
        {"gradient_clip_val": 0.05, "gradient_clip_algorithm": "value"},
        {"jit": False},
    ],
    ids=str,
)
def test_losses_of_a_loop_in_torch(options):
    losses = Losses()
    trainer = cc.Trainer(max_epochs=3, callbacks=[losses], num_sanity_val_steps=1, **QUIET, **options)
    seeded_fit(trainer, Net(), loader(cc, cc.data, 20, False))
    by_value = "gradient_clip_algorithm" in options
    accumulate, clip = options.get("accumulate_grad_batches", 1), options.get("gradient_clip_val")
    expected, means = in_torch(3, accumulate, clip, by_value, validated=True)
    np.testing.assert_allclose(losses.found, expected, rtol=2e-4)
    assert trainer.global_step == 3 * -(-7 // accumulate)
    assert trainer.callback_metrics["val_loss"] == pytest.approx(means[-1], rel=2e-4)
    assert trainer.callback_metrics["train_loss_epoch"] == pytest.approx(
        np.average(expected[-7:], weights=[8] * 6 + [2])
    )


def test_schedule_of_steps():
    class Stepped(Net):
        def configure_optimizers(self):
            found = super().configure_optimizers()
            return [found["optimizer"]], [{"scheduler": found["lr_scheduler"], "interval": "step"}]

    losses = Losses()
    monitor = cc.callbacks.LearningRateMonitor()
    trainer = cc.Trainer(max_epochs=2, callbacks=[losses, monitor], log_every_n_steps=1, **QUIET)
    seeded_fit(trainer, Stepped())
    np.testing.assert_allclose(losses.found, in_torch(2, schedule_steps=True)[0], rtol=2e-4)
    assert trainer.callback_metrics["lr-AdamW"] == pytest.approx(0.05 / 2**13)


LIGHTNING = """epoch,step,train_loss_epoch,train_loss_step,val_loss
,0,,,
0,1,,*,
0,3,,*,
0,5,,*,
0,6,,,*
0,6,*,,
,7,,,
1,7,,*,
1,9,,*,
1,11,,*,
1,13,,*,
1,13,,,*
1,13,*,,
"""
"""Rows that Lightning 2.6 writes, with * for values, and without the column of the learning rate."""


def test_rows_of_the_log_are_lightnings(tmp_path):
    logger = cc.loggers.CSVLogger(tmp_path)
    trainer = cc.Trainer(
        **{**QUIET, "logger": logger}, max_epochs=2, log_every_n_steps=2, callbacks=[cc.callbacks.LearningRateMonitor()]
    )
    trainer.fit(Net(), loader(cc, cc.data), loader(cc, cc.data, 20, False))
    with open(Path(logger.log_dir) / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    names = LIGHTNING.split("\n")[0].split(",")
    found = [[("*" if "." in row[name] else row[name]) for name in names] for row in rows]
    assert found == [line.split(",") for line in LIGHTNING.split("\n")[1:-1]]
    assert [row["lr-AdamW"] for row in rows if row["lr-AdamW"]] == ["0.05", "0.025"]


def test_evaluation_and_prediction(capsys):
    trainer, module = cc.Trainer(**QUIET), Net()
    batches = loader(cc, cc.data, 20, False)
    expected = ((module.net(cc.tensor(X)).detach().numpy() - Y) ** 2).mean()
    assert trainer.validate(module, batches)[0]["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert "val_loss" in capsys.readouterr().out
    found = trainer.predict(dataloaders=batches)
    assert [each.shape for each in found] == [(20, 1), (20, 1), (10, 1)]
    np.testing.assert_allclose(np.concatenate(found), module.net(cc.tensor(X)).detach().numpy(), rtol=1e-5)
    both = trainer.validate(module, [batches, batches], verbose=False)
    assert [list(each) for each in both] == [["val_loss/dataloader_idx_0"], ["val_loss/dataloader_idx_1"]]
    with pytest.raises(cc.UsageError, match="test_step"):
        trainer.test(module, batches)
    with pytest.raises(cc.UsageError, match="without data"):
        trainer.validate(module)


ORDER = (
    "setup on_fit_start on_train_start on_train_epoch_start on_train_batch_start on_before_backward on_after_backward "
    "on_before_optimizer_step on_before_zero_grad on_train_batch_end on_validation_start on_validation_epoch_start "
    "on_validation_batch_start on_validation_batch_end on_validation_epoch_end on_validation_end on_train_epoch_end "
    "on_train_end on_fit_end teardown"
)


def test_hooks():
    called = []

    class All(cc.callbacks.Callback):
        pass

    for name in cc.callbacks.callback.HOOKS:
        setattr(All, name, lambda self, *arguments, name=name: called.append(name))
    trainer = cc.Trainer(
        max_epochs=1, limit_train_batches=1, limit_val_batches=1, num_sanity_val_steps=0, callbacks=[All()], **QUIET
    )
    trainer.fit(Net(), loader(cc, cc.data), loader(cc, cc.data))
    assert called == ORDER.split()
    called.clear()
    trainer.validate(Net(), loader(cc, cc.data), verbose=False)
    assert called[:2] == ["setup", "on_validation_start"]
    assert called[-2:] == ["on_validation_end", "teardown"]


class ByNumber(Net):
    def training_step(self, batch, batch_idx):
        self.log("number", batch_idx)
        return super().training_step(batch, batch_idx) * (1 if batch_idx % 2 else 3)


class Appends(Net):
    def __init__(self):
        super().__init__()
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.losses.append(loss.detach())
        return loss


class Reads(Net):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss if loss > 0 else -loss


class Asks(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * (self.trainer.global_step + 1)


class Draws(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * random.choice([1, 2])


@pytest.mark.parametrize("kind", [ByNumber, Appends, Reads, Asks, Draws])
def test_steps_that_are_not_one_plan(kind, capsys):
    """They compute what they compute without jit, and are told of."""
    found = []
    for jit in (True, False):
        random.seed(5)
        losses, module = Losses(), kind()
        seeded_fit(cc.Trainer(max_epochs=1, callbacks=[losses], jit=jit, **QUIET), module)
        found.append(losses.found)
        assert ("is not one plan" in capsys.readouterr().err) == jit
        if kind is Appends:
            assert [each.item() for each in module.losses] == losses.found
    assert found[0] == found[1]


def test_steps_are_traced_once():
    calls = []

    class Counted(Net):
        def training_step(self, batch, batch_idx):
            calls.append(batch[0].shape)
            return {"loss": self.loss(batch), "other": [batch[0].sum(), 3]}

    losses = Losses()
    cc.Trainer(max_epochs=3, callbacks=[losses], **QUIET).fit(Counted(), loader(cc, cc.data))
    assert calls == [(8, 4), (2, 4)]
    assert len(losses.found) == 21


def test_manual_optimization():
    class Manual(Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            optimizer.step()
            return loss

    losses = Losses()
    trainer = cc.Trainer(max_epochs=1, callbacks=[losses], **QUIET)
    seeded_fit(trainer, Manual())
    np.testing.assert_allclose(losses.found, in_torch(1)[0], rtol=2e-4)
    assert trainer.global_step == 7


def test_limits_and_intervals():
    class Validations(cc.callbacks.Callback):
        steps = ()

        def on_validation_end(self, trainer, module):
            self.steps = (*self.steps, trainer.global_step)

    for options, steps, total in (
        ({"max_steps": 10}, (7,), 10),
        ({"max_epochs": 2, "check_val_every_n_epoch": 2}, (14,), 14),
        ({"max_epochs": 1, "val_check_interval": 0.5}, (3, 6), 7),
        ({"max_epochs": 1, "val_check_interval": 2, "limit_train_batches": 5}, (2, 4), 5),
        ({"max_epochs": 2, "limit_train_batches": 0.5}, (3, 6), 6),
        ({"fast_dev_run": 2}, (2,), 2),
    ):
        seen = Validations()
        trainer = cc.Trainer(callbacks=[seen], num_sanity_val_steps=0, **QUIET, **options)
        trainer.fit(Net(), loader(cc, cc.data), loader(cc, cc.data, 25))
        assert (seen.steps, trainer.global_step) == (steps, total), options


class Order(cc.callbacks.Callback):
    """Notes epochs (e), batches (the last of an epoch as capitals) and validations (v); stops after a step."""

    def __init__(self, stop):
        self.stop, self.seen = stop, ""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += "ABCDEFG"[batch_idx] if trainer.is_last_batch else "abcdefg"[batch_idx]
        trainer.should_stop |= trainer.global_step == self.stop

    def on_validation_end(self, trainer, module):
        self.seen += "v"

    def on_train_epoch_end(self, trainer, module):
        self.seen += f"e{trainer.current_epoch}"


@pytest.mark.parametrize(
    ("stop", "options", "seen"),
    [
        (2, {}, "abve0"),
        (2, {"min_steps": 4}, "abcdEve0"),
        (2, {"min_epochs": 1}, "abcdEve0"),
        (2, {"val_check_interval": 2}, "abve0"),
        (5, {}, "abcdEve0"),
        (99, {"max_steps": 7}, "abcdEve0abe1"),
        (99, {"overfit_batches": 2}, "aBve0aBve1"),
        (99, {"limit_train_batches": 0.5}, "aBve0aBve1"),
        (99, {"val_check_interval": 7, "check_val_every_n_epoch": None}, "abcdEe0abvcdEe1"),
    ],
    ids=str,
)
def test_when_epochs_end_and_are_validated(stop, options, seen):
    """As Lightning 2.6.6 does it."""
    order = Order(stop)
    trainer = cc.Trainer(callbacks=[order], num_sanity_val_steps=0, **{"max_epochs": 2, **QUIET, **options})
    trainer.fit(Net(), loader(cc, cc.data, 10), loader(cc, cc.data, 25))
    assert order.seen == seen


def test_batches_to_overfit_are_the_same():
    class Rows(cc.callbacks.Callback):
        def __init__(self):
            self.first, self.validated = [], []

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.first.append(batch[0][0, 0].item())

        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.validated.append(batch[0][0, 0].item())

    for library, data in ((cc, cc.data), (torch, torch.utils.data)):
        rows = Rows()
        trainer = cc.Trainer(
            max_epochs=2, overfit_batches=2, callbacks=[rows], num_sanity_val_steps=0, jit=False, **QUIET
        )
        trainer.fit(Net(), loader(library, data), loader(library, data, 10))
        assert rows.first == [X[0, 0], X[8, 0]] * 2
        assert rows.validated == [X[0, 0], X[10, 0]] * 2


def test_batches_without_an_end():
    """Of a loader whose sampler does not end, `max_steps` or a limit of batches ends an epoch."""

    class Endless:
        def __iter__(self):
            return itertools.repeat([1, 2, 3])

    batches = cc.data.DataLoader(cc.data.TensorDataset(X, Y), batch_sampler=Endless())
    for options, total in (({"max_steps": 5}, 5), ({"max_epochs": 2, "limit_train_batches": 3}, 6)):
        trainer = cc.Trainer(limit_val_batches=2, **QUIET, **options)
        trainer.fit(Net(), batches, batches)
        assert trainer.global_step == total


def test_data_of_other_libraries():
    losses = [Losses(), Losses()]
    loaders = loader(cc, cc.data, 8, False), loader(torch, torch.utils.data, 8, False)
    for each, batches in zip(losses, loaders, strict=True):
        cc.Trainer(max_epochs=1, callbacks=[each], **QUIET).fit(Net(), batches)
    assert losses[0].found == losses[1].found


def test_default_optimizer(capsys):
    class Plain(Net):
        configure_optimizers = cc.LightningModule.configure_optimizers

    trainer = cc.Trainer(max_epochs=1, **QUIET)
    trainer.fit(Plain(), loader(cc, cc.data))
    assert "AdamW with a learning rate of 5e-05 is used" in capsys.readouterr().err
    assert trainer.optimizers[0].param_groups[0]["lr"] == 5e-5


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "16-mixed"},
        {"precision": "float"},
        {"devices": 0},
        {"devices": "two"},
        {"accelerator": "gpu"},
        {"accumulate_grad_batches": 0},
        {"limit_val_batches": 1.5},
        {"overfit_batches": -1},
        {"check_val_every_n_epoch": None},
        {"gradient_clip_algorithm": "sum"},
        {"epochs": 3},
        {"max_epochs": "3"},
        {"strategy": "fsdp"},
    ],
    ids=str,
)
def test_settings_that_are_not_possible(options):
    with pytest.raises((cc.UsageError, cc.UnsupportedError)):
        cc.Trainer(**options)


def test_settings_without_effect():
    trainer = cc.Trainer(strategy="auto", deterministic=True, num_nodes=1, benchmark=False, max_epochs=1, **QUIET)
    trainer.fit(Net(), loader(cc, cc.data))
    with pytest.raises(cc.UsageError, match="max_epochs"):
        cc.Trainer(max_epoch=3)


def test_losses_that_are_not_finite():
    data = cc.data.DataLoader(cc.data.TensorDataset(np.full_like(X, np.inf), Y), batch_size=8)
    with pytest.raises(cc.UsageError, match="in epoch 0, batch 0"):
        cc.Trainer(max_epochs=1, detect_anomaly=True, **QUIET).fit(Net(), data)


def test_no_batches():
    for data in ([], iter(())):
        with pytest.raises(cc.UsageError, match="is empty"):
            cc.Trainer(max_epochs=1, **QUIET).fit(Net(), data)


def test_seed_everything():
    drawn = []
    for _ in range(2):
        assert cc.seed_everything(4) == 4
        drawn.append((cc.rand(1).item(), random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]


def test_precision():
    module = Net()
    trainer = cc.Trainer(max_epochs=5, precision="bf16-true", **QUIET)
    trainer.fit(module, loader(cc, cc.data), loader(cc, cc.data))
    assert module.net[0].weight.dtype is cc.bfloat16
    assert trainer.callback_metrics["val_loss"] < 30


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
def test_mixed_precision(precision):
    """Parameters stay f32; losses are torch's under autocast."""
    module, losses = Net(), Losses()
    trainer = cc.Trainer(max_epochs=7, precision=precision, callbacks=[losses], **QUIET)
    seeded_fit(trainer, module)
    np.testing.assert_allclose(losses.found, in_torch(7, mixed=True)[0], rtol=2e-2)
    assert module.net[0].weight.dtype is cc.float32
    found = trainer.validate(module, loader(cc, cc.data, 50, False), verbose=False)[0]["val_loss"]
    exact = module.loss((cc.tensor(X), cc.tensor(Y))).item()
    assert found != exact
    np.testing.assert_allclose(found, exact, rtol=2e-2)


def test_modules_that_cannot_be_trained():
    class Optimizers(Net):
        def configure_optimizers(self):
            return self.made

    module = Optimizers()
    for made in (3, [3], {"lr": 1}, ([cc.optim.SGD(module.parameters())], [{"scheduler": 3}])):
        module.made = made
        with pytest.raises(cc.UsageError, match="E-TRAIN-OPTIMIZER"):
            cc.Trainer(max_epochs=1, **QUIET).fit(module, loader(cc, cc.data))
    module.made = [cc.optim.SGD(module.parameters()), cc.optim.Adam(module.parameters())]
    with pytest.raises(cc.UsageError, match="automatic_optimization"):
        cc.Trainer(max_epochs=1, **QUIET).fit(module, loader(cc, cc.data))
    with pytest.raises(cc.UsageError, match="no data"):
        cc.Trainer(max_epochs=1, **QUIET).fit(Net())
    with pytest.raises(cc.UsageError, match="E-TRAIN-MODULE"):
        cc.Trainer(max_epochs=1, **QUIET).fit(cc.LightningModule(), loader(cc, cc.data))
    with pytest.raises(cc.UsageError, match="E-TRAIN-MODULE"):
        cc.Trainer(max_epochs=1, **QUIET).fit(network(cc), loader(cc, cc.data))
    with pytest.raises(cc.UsageError, match="not attached"):
        _ = Net().trainer
