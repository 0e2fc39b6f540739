"""A run that is killed goes on to the same losses, bit by bit."""

import signal
import subprocess
import sys
import textwrap

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.tests.builders.paths import REPOSITORY
from candle_convert.training.checkpoint.nested_file import load_nested, save_nested

SCRIPT = """
import os, random, signal, sys
import numpy as np
import candle_convert as cc

folder, die_at, resume = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "resume"
options = eval(sys.argv[4])


class Noisy(cc.data.Dataset):
    def __len__(self):
        return 26

    def __getitem__(self, index):
        x = np.full(4, index / 26, np.float32) + np.float32(random.random()) + np.random.standard_normal(4)
        return x.astype(np.float32), np.float32(index % 3)


class Net(cc.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = cc.nn.Sequential(cc.nn.Linear(4, 16), cc.nn.GELU(), cc.nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x * (cc.rand(x.shape) > 0.2)
        loss = ((self.net(x)[:, 0] - y) ** 2).mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", ((self.net(batch[0])[:, 0] - batch[1]) ** 2).mean())

    def configure_optimizers(self):
        optimizer = cc.optim.AdamW(self.parameters(), lr=0.03)
        plateau = cc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


class Print(cc.callbacks.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        print("step", trainer.current_epoch, batch_idx, outputs.item().hex(), flush=True)

    def on_train_epoch_end(self, trainer, module):
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        print("epoch", trainer.current_epoch, trainer.callback_metrics["val_loss"].hex(), rate, flush=True)


class Die(cc.callbacks.Callback):
    order = 3

    def __init__(self):
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        if self.batches == die_at:
            os.kill(os.getpid(), signal.SIGKILL)


cc.manual_seed(1)
random.seed(2)
np.random.seed(3)
trainer = cc.Trainer(
    max_epochs=3,
    default_root_dir=folder,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[cc.callbacks.ModelCheckpoint(dirpath=folder, **options.pop("checkpoint")), Print(), Die()],
    **options,
)
generator = cc.Generator().manual_seed(9) if options.get("own") else None
train = cc.data.DataLoader(Noisy(), 4, shuffle=True, generator=generator)
trainer.fit(Net(), train, cc.data.DataLoader(Noisy(), 13), ckpt_path="last" if resume else None)
print("end", trainer.global_step, trainer.callback_metrics["loss_epoch"].hex())
"""


def run(folder, die_at, resume, options):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(die_at), resume, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY.parent, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("die_at", "options"),
    [
        (11, {"checkpoint": {"every_n_train_steps": 1}, "accumulate_grad_batches": 3, "gradient_clip_val": 1.0}),
        (12, {"checkpoint": {}}),
    ],
    ids=["in an epoch", "after an epoch"],
)
def test_a_killed_run_goes_on(tmp_path, die_at, options):
    code, expected = run(tmp_path / "whole", 0, "start", options)
    assert code == 0
    code, before = run(tmp_path / "killed", die_at, "start", options)
    assert code == -signal.SIGKILL
    code, after = run(tmp_path / "killed", 0, "resume", options)
    assert code == 0
    assert before == expected[: len(before)]
    assert after == expected[-len(after) :]
    assert len(before) + len(after) >= len(expected)


def test_checkpoints_that_do_not_fit(tmp_path):
    class Net(cc.LightningModule):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()
            self.net = cc.nn.Linear(3, width)

        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()

    trainer = cc.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    module = Net(2)
    batches = [cc.ones(4, 3)] * 3
    trainer.fit(module, batches)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    loaded = Net.load_from_checkpoint(tmp_path / "a.ckpt")
    assert loaded.hparams.width == 2
    assert loaded.net.weight.tolist() == module.net.weight.tolist()
    with pytest.raises(cc.FormatError, match="optimizer_states"):
        trainer.fit(Net(2), batches, ckpt_path=tmp_path / "weights.ckpt")
    with pytest.raises(cc.FormatError, match="shape"):
        trainer.fit(Net(5), batches, ckpt_path=tmp_path / "a.ckpt")
    whole = load_nested(tmp_path / "a.ckpt")
    for name, bad in [("loop", {}), ("metrics", 3), ("epoch", "one")]:
        save_nested({**whole, name: bad}, tmp_path / "bad.ckpt")
        with pytest.raises(cc.FormatError, match="E-CHECKPOINT"):
            trainer.fit(Net(2), batches, ckpt_path=tmp_path / "bad.ckpt")
    (tmp_path / "a.ckpt").write_bytes((tmp_path / "a.ckpt").read_bytes()[:-7])
    with pytest.raises(cc.FormatError):
        trainer.fit(Net(2), batches, ckpt_path=tmp_path / "a.ckpt")


class Interrupted(cc.data.Dataset):
    """Random numbers; an item is interrupted while it is read."""

    def __init__(self, at):
        self.at, self.read = at, 0

    def __len__(self):
        return 10

    def __getitem__(self, number):
        self.read += 1
        drawn = np.random.standard_normal(4) + number
        if self.read == self.at:
            signal.raise_signal(signal.SIGINT)
        return drawn.astype(np.float32)


class Regression(cc.LightningModule):
    """A step that is interrupted in its middle at a batch of the second epoch."""

    def __init__(self, at):
        super().__init__()
        self.net = cc.nn.Linear(4, 1)
        self.at = at

    def training_step(self, batch, batch_idx):
        if self.trainer.current_epoch == 1 and batch_idx == self.at:
            signal.raise_signal(signal.SIGINT)
        loss = ((self.net(batch) - 1) ** 2).mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = cc.optim.Adam(self.parameters(), lr=0.1)
        schedule = cc.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@pytest.mark.parametrize(
    ("item", "batch", "steps"),
    [(1, None, 0), (13, None, 7), (None, 2, 8)],
    ids=["the first batch is read", "a batch is read", "in a step"],
)
def test_a_checkpoint_after_an_interrupt_is_of_one_step(tmp_path, item, batch, steps):
    """The run that goes on from it ends as one that was not interrupted: an interrupt waits until the batch is counted,
    but for the first one, after which the run goes on with its random numbers."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }

    def trained(item, batch, path=None):
        cc.seed_everything(0)
        module, trainer = Regression(batch), cc.Trainer(max_epochs=3, jit=False, **quiet)
        try:
            trainer.fit(module, cc.data.DataLoader(Interrupted(item), 2, shuffle=True), ckpt_path=path)
        except KeyboardInterrupt:
            trainer.save_checkpoint(tmp_path / "a.ckpt")
        return trainer.global_step, trainer.callback_metrics.get("loss"), module.net.weight.tolist()

    try:
        assert trained(item, batch)[0] == steps
        assert trained(None, None, tmp_path / "a.ckpt") == trained(None, None)
    finally:
        signal.signal(signal.SIGINT, before)


class Validated(Regression):
    """A step of validation that is interrupted; the schedule and what stops training depend on validations."""

    def __init__(self, at):
        super().__init__(None)
        self.interrupts_at = at

    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking and (self.trainer.global_step, batch_idx) == self.interrupts_at:
            signal.raise_signal(signal.SIGINT)
        self.log("val", ((self.net(batch) - 1 + cc.rand(1)) ** 2).mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking and (self.trainer.global_step, "end") == self.interrupts_at:
            signal.raise_signal(signal.SIGINT)

    def configure_optimizers(self):
        optimizer = cc.optim.Adam(self.parameters(), lr=0.1)
        plateau = cc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val"}}


class Seen(cc.callbacks.Callback):
    """What each step gave, and the values of each validation; kept in checkpoints."""

    def __init__(self):
        self.values = []

    def state_dict(self):
        return {"values": list(self.values)}

    def load_state_dict(self, state_dict):
        self.values = list(state_dict["values"])

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.values.append(outputs.item())

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.values.append(trainer.callback_metrics["val"])


@pytest.mark.parametrize("interval", [1.0, 2], ids=["at the end", "in between"])
@pytest.mark.parametrize("batch", [0, 1, "end"])
def test_an_interrupt_of_a_validation(tmp_path, interval, batch):
    """The run that goes on from the checkpoint that is written then sees what one sees that was not interrupted."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    step = 10 if interval == 1 else 7

    def trained(at, path=None):
        cc.seed_everything(0)
        seen, stops = Seen(), cc.callbacks.EarlyStopping("val", patience=2)
        trainer = cc.Trainer(
            max_epochs=4, val_check_interval=interval, callbacks=[seen, stops], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, jit=False,
        )  # fmt: skip
        module, items = Validated(at), cc.data.DataLoader(Interrupted(None), 2, shuffle=True)
        try:
            trainer.fit(module, items, cc.data.DataLoader(Interrupted(None), 4, shuffle=True), ckpt_path=path)
        except KeyboardInterrupt:
            trainer.save_checkpoint(tmp_path / "a.ckpt")
        return seen.values, stops.state_dict(), trainer.global_step, module.net.weight.tolist()

    try:
        assert trained((step, batch))[2] == step
        assert trained(None, tmp_path / "a.ckpt") == trained(None)
    finally:
        signal.signal(signal.SIGINT, before)
