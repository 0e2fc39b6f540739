"""States of runs in which values are of another kind: each is one error, and nothing of it is taken."""

import copy
import random

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.callbacks import EarlyStopping, ModelCheckpoint
from candle_convert.tensors.operations.random import GENERATOR
from candle_convert.tests.builders.nested_values import changed, paths
from candle_convert.training.checkpoint.nested_file import load_nested, save_nested

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "jit": False}
BATCHES = [cc.ones(4, 3)] * 3


class Net(cc.LightningModule):
    """A layer with a schedule and logged values."""

    def __init__(self):
        super().__init__()
        self.net = cc.nn.Linear(3, 2)

    def training_step(self, batch, batch_idx):
        loss = self.net(batch).pow(2).mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = cc.optim.AdamW(self.parameters())
        return [optimizer], [cc.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 20)]


def trainer(folder):
    return cc.Trainer(max_epochs=2, callbacks=[ModelCheckpoint(folder), EarlyStopping("loss")], **QUIET)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The checkpoint of a run in the middle of an epoch."""
    folder = tmp_path_factory.mktemp("run")
    run = cc.Trainer(max_epochs=2, callbacks=[ModelCheckpoint(folder, every_n_train_steps=2), EarlyStopping("loss")],
                     limit_train_batches=2, **QUIET)  # fmt: skip
    run.fit(Net(), BATCHES)
    found = load_nested(run.checkpoint_callback.best_model_path)
    (name,) = [key for key in found["callbacks"] if key.startswith("ModelCheckpoint")]
    return {**found, "callbacks": {**found["callbacks"], ModelCheckpoint(folder).state_key: found["callbacks"][name]}}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_values_of_other_kinds(whole, tmp_path):
    """A sample of them; each run is trained to its end or refused in one line."""
    places = [place for place in paths(whole) if place[0] not in ("hyper_parameters", "state_dict")]
    values = (..., None, "x", -1, [], {}, 1e300, np.ones(7, np.float32))
    chosen = random.Random(4).sample([(place, value) for place in places for value in values], 120)
    refused = 0
    for place, value in chosen:
        save_nested(changed(whole, place, value), tmp_path / "bad.ckpt")
        try:
            trainer(tmp_path / "new").fit(Net(), BATCHES, ckpt_path=tmp_path / "bad.ckpt")
        except (cc.FormatError, cc.UsageError) as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 60


@pytest.mark.parametrize(
    "place",
    [("loop", "batch_count"), ("loop", "random", "numpy", 2), ("loop", "logged", 0, 3), ("global_step",),
     ("optimizer_states", 0, "state", 1, "step"), ("callbacks", "EarlyStopping(loss, min)", "best_score"),
     ("lr_schedulers", 0, "_schedule_phases"), ("state_dict", "net.bias")],
    ids=str,
)  # fmt: skip
def test_nothing_is_taken(whole, tmp_path, place):
    save_nested(changed(whole, place, "x"), tmp_path / "bad.ckpt")
    module, run = Net(), trainer(tmp_path / "new")
    weights, states = module.net.weight.tolist(), copy.deepcopy([each.state_dict() for each in run.callbacks])
    drawn = GENERATOR.get_state()[0][1].tolist()
    with pytest.raises(cc.FormatError, match="E-CHECKPOINT"):
        run.fit(module, BATCHES, ckpt_path=tmp_path / "bad.ckpt")
    assert module.net.weight.tolist() == weights
    assert [each.state_dict() for each in run.callbacks] == states
    assert (run.current_epoch, run.global_step, run.callback_metrics) == (0, 0, {})
    assert GENERATOR.get_state()[0][1].tolist() == drawn


def test_files_of_others_stay(whole, tmp_path):
    """A checkpoint that names other files as those that it replaces does not delete them."""
    other = tmp_path / "other.ckpt"
    other.write_text("mine")
    key = ModelCheckpoint().state_key
    bad = changed(whole, ("callbacks", key, "best_k_models"), {str(other): 1.0})
    save_nested(bad, tmp_path / "bad.ckpt")
    run = cc.Trainer(max_epochs=3, callbacks=[ModelCheckpoint(tmp_path / "new")], **QUIET)
    run.fit(Net(), BATCHES, ckpt_path=tmp_path / "bad.ckpt")
    assert other.read_text() == "mine"
    assert len(list((tmp_path / "new").iterdir())) == 1


class Wide(cc.LightningModule):
    """A layer whose width is a hyper-parameter."""

    def __init__(self, width=2):
        super().__init__()
        self.save_hyperparameters()
        self.net = cc.nn.Linear(3, width)

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.net(batch).mean())


class Narrow(Wide):
    """One that gives its base the width; both save what they were made with."""

    def __init__(self, scale=0.5):
        super().__init__(int(4 * scale))
        self.save_hyperparameters()


@pytest.mark.parametrize("value", [..., None, 3, [], {"net.bias": "x"}, {"net.bias": [0.0, 0.0]}], ids=str)
def test_checkpoints_without_weights(tmp_path, value):
    """As of `save_weights`, which has the weights alone: one line of every reader."""
    file = tmp_path / "bad.ckpt"
    save_nested({"epoch": 3, **({} if value is ... else {"state_dict": value})}, file)
    run = cc.Trainer(enable_checkpointing=False, **QUIET)
    for read in (lambda: Wide.load_from_checkpoint(file), lambda: run.validate(Wide(), BATCHES, file, verbose=False)):
        with pytest.raises(cc.FormatError, match=r"E-CHECKPOINT.*state") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [10**12, 2**62, -1, 1.5, "x", None, [], {}], ids=str)
def test_hyper_parameters_that_make_no_module(tmp_path, value):
    file = tmp_path / "bad.ckpt"
    weights = {name: each.numpy() for name, each in Wide().state_dict().items()}
    save_nested({"state_dict": weights, "hyper_parameters": {"width": value}}, file)
    with pytest.raises(cc.FormatError, match=r"E-CHECKPOINT.*hyper-parameters"):
        Wide.load_from_checkpoint(file)
    assert Wide.load_from_checkpoint(file, width=2).net.bias.tolist() == weights["net.bias"].tolist()
    for settings in (value, {"depth": value}) if value != {} else ({"depth": value},):
        save_nested({"state_dict": weights, "hyper_parameters": settings}, file)
        if isinstance(settings, dict):  # of a base class: not taken, as in Lightning
            assert Wide.load_from_checkpoint(file).net.bias.tolist() == weights["net.bias"].tolist()
        else:
            with pytest.raises(cc.FormatError, match="E-CHECKPOINT"):
                Wide.load_from_checkpoint(file)


def test_hyper_parameters_of_a_base_class(tmp_path):
    run = cc.Trainer(enable_checkpointing=False, **QUIET)
    run.validate(Narrow(1.0), BATCHES, verbose=False)
    run.save_checkpoint(tmp_path / "narrow.ckpt")
    loaded = Narrow.load_from_checkpoint(tmp_path / "narrow.ckpt")
    assert loaded.hparams == {"width": 4, "scale": 1.0}
    assert loaded.net.weight.tolist() == run.module.net.weight.tolist()
