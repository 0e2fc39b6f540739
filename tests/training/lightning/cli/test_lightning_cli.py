"""LightningCLI: options and YAML files make the objects and run them, as Lightning's own for the same words."""

import candle_convert as cc
import click
import pytest

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


class Net(cc.LightningModule):
    def __init__(self, width: int, rate: float = 0.1, name: str = "net"):
        super().__init__()
        self.width, self.rate, self.name = width, rate, name
        self.layer = cc.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) ** 2).mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", (self.layer(batch[0]) ** 2).mean())

    def test_step(self, batch, batch_idx):
        self.log("test_loss", (self.layer(batch[0]) ** 2).mean())

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])

    def configure_optimizers(self):
        return cc.optim.SGD(self.parameters(), lr=self.rate)


class Rows(cc.LightningDataModule):
    def __init__(self, count: int = 8, width: int = 3):
        super().__init__()
        self.count, self.width = count, width

    def train_dataloader(self):
        return cc.data.DataLoader(cc.data.TensorDataset(cc.ones(self.count, self.width)), batch_size=4)

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def run(*words, **options):
    return cc.LightningCLI(Net, Rows, trainer_defaults={"max_epochs": 1, **QUIET}, args=words, **options)


def test_options_and_files(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed_everything: 7\nmodel: {width: 5, name: file}\ndata: {width: 5}\ntrainer: {max_epochs: 2}\n")
    found = run("fit", "--config", str(path), "--model.rate", "0.5", "--model.name=option", "--data.count", "12")
    assert (found.model.width, found.model.rate, found.model.name) == (5, 0.5, "option")
    assert (found.datamodule.count, found.trainer.current_epoch, found.trainer.global_step) == (12, 2, 6)
    cc.seed_everything(7)
    weight = Net(5).layer.weight
    made = cc.LightningCLI(Net, Rows, args=["--config", str(path)], run=False)
    assert made.model.layer.weight.tolist() == weight.tolist()


def test_values_are_those_of_yaml(tmp_path):
    """1e-3 is a number in YAML 1.2; what is annotated as text stays text."""
    made = run("--model.width", "3", "--model.rate", "1e-3", "--model.name", "1e-3", run=False).model
    assert (made.rate, made.name) == (1e-3, "1e-3")
    path = tmp_path / "run.yaml"
    for text, rate in (("1e-3", 1e-3), ("1.5E2", 150.0), ("-.5e1", -5.0), ("2.", 2.0), ("7", 7)):
        path.write_text(f"model: {{width: 3, rate: {text}, name: on}}")
        assert run("--config", str(path), run=False).model.rate == rate


def test_stages():
    words = ("--model.width", "3")
    assert run("validate", *words).result[0].keys() == {"val_loss"}
    assert run("test", *words).result[0].keys() == {"test_loss"}
    assert [tuple(each.shape) for each in run("predict", *words).result] == [(4, 1), (4, 1)]


def test_errors_name_the_option(tmp_path):
    with pytest.raises(cc.UsageError, match=r"missing option --model\.width"):
        run("fit")
    with pytest.raises(click.NoSuchOption):
        run("fit", "--model.wide", "3")
    path = tmp_path / "run.yaml"
    for text, error, match in (
        ("model: {wide: 3}", cc.UsageError, r"model\.wide.*width"),
        ("modell: {}", cc.UsageError, "modell"),
        ("- 3", cc.FormatError, "not a mapping"),
        ("a: [", cc.FormatError, "cannot be read"),
        ("model: 3", cc.UsageError, "model is 3"),
        ("seed_everything: many\nmodel: {width: 3}", cc.UsageError, "seed_everything is 'many'"),
        ("seed_everything: [1]\nmodel: {width: 3}", cc.UsageError, r"seed_everything is \[1\]"),
        ("ckpt_path: 3\nmodel: {width: 3}", cc.UsageError, "ckpt_path is 3"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=match):
            run("fit", "--config", str(path))
    with pytest.raises(cc.UsageError, match=r"--model\.rate is '\[1'"):
        run("fit", "--model.width", "3", "--model.rate", "[1")
