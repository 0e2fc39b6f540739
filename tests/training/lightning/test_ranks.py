"""Training by several processes: the losses of one process with the summed batch, and those of torch's DDP."""

import json
import os
import subprocess
import sys
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.training.loop.ranks import Ranks, world_size

SCRIPT = """
import json, sys
import numpy as np
import candle_convert as cc

batch, devices, options = int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])

class Net(cc.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = cc.nn.Sequential(cc.nn.Linear(4, 8), cc.nn.Tanh(), cc.nn.Linear(8, 1))

    def training_step(self, batch, number):
        x, y = batch
        loss = ((self.net(x) - y) ** 2).mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return cc.optim.Adam(self.parameters(), lr=0.01)

class Losses(cc.Callback):
    found = []
    def on_train_batch_end(self, trainer, module, *rest):
        self.found.append(float(trainer.callback_metrics["loss_step"]))

if options.pop("seeded"):
    cc.seed_everything(7)
random = np.random.default_rng(0)
x = random.standard_normal((22, 4)).astype(np.float32)
y = x.sum(1, keepdims=True) ** 2
model = Net()
with cc.no_grad():
    for number, parameter in enumerate(model.parameters()):
        values = np.random.default_rng(number).standard_normal(parameter.shape)
        parameter.copy_(cc.tensor(values.astype(np.float32) * 0.3))
loader = cc.data.DataLoader(cc.data.TensorDataset(cc.tensor(x), cc.tensor(y)), batch, shuffle=options.pop("shuffle"))
trainer = cc.Trainer(max_epochs=3, devices=devices, callbacks=[Losses()], logger=False, enable_progress_bar=False,
                     enable_model_summary=False, enable_checkpointing=False, **options)
trainer.fit(model, loader)
state = {name: value.numpy().tolist() for name, value in model.state_dict().items()}
with open(f"{sys.argv[1]}.{trainer.global_rank}", "w") as file:
    json.dump({"losses": Losses.found, "epoch": float(trainer.callback_metrics["loss_epoch"]), "state": state,
               "size": trainer.world_size}, file)
"""

TORCH = """
import json, os, sys
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def work(rank, out):
    dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=2)
    random = np.random.default_rng(0)
    x = torch.tensor(random.standard_normal((22, 4)).astype(np.float32))
    y = x.sum(1, keepdim=True) ** 2
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            values = np.random.default_rng(number).standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.tensor(values.astype(np.float32) * np.float32(0.3)))
    model = DistributedDataParallel(net)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(3):
        for start in range(0, 20, 4):
            rows = slice(start + 2 * rank, start + 2 * rank + 2)
            loss = ((model(x[rows]) - y[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses.append(float(mean) / 2)
    if not rank:
        json.dump(losses, open(out, "w"))
    dist.destroy_process_group()
    os._exit(0)  # at times gloo aborts when its threads are destroyed

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), 2)
"""


def run(folder, name, batch, devices, **options):
    """What each rank of a script found."""
    (folder / "script.py").write_text(SCRIPT)
    options = {"seeded": True, "shuffle": True, **options}
    command = [sys.executable, str(folder / "script.py"), str(folder / name), str(batch), str(devices)]
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run([*command, json.dumps(options)], capture_output=True, text=True, timeout=600, env=where)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{name}.{number}").read_text()) for number in range(devices)]


def close(found, expected):
    """Losses and parameters to 1e-6."""
    for key in ("losses", "epoch"):
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-6, atol=1e-6)
    for name, values in expected["state"].items():
        np.testing.assert_allclose(found["state"][name], values, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}, {"strategy": "ddp", "jit": False}],
    ids=str,
)
def test_one_process_with_the_summed_batch(tmp_path, options):
    """22 rows in batches of 4 on two ranks, of which the last has 2 rows on one rank, are batches of 8 rows."""
    alone = run(tmp_path, "alone", 8, 1, **{key: value for key, value in options.items() if key != "strategy"})[0]
    first, second = run(tmp_path, "ranks", 4, 2, **options)
    assert (alone["size"], first["size"]) == (1, 2)
    assert len(first["losses"]) == len(alone["losses"]) == 9
    close(first, alone)
    assert second["state"] == first["state"]
    assert second["losses"] == first["losses"]


def test_ranks_without_a_seed(tmp_path):
    """Ranks take the order of rows from rank 0: they end with the same parameters."""
    first, second = run(tmp_path, "ranks", 4, 2, seeded=False)
    assert second["state"] == first["state"]


def test_ddp_of_torch(tmp_path):
    """Losses are those of torch's DistributedDataParallel with gloo, on 20 rows."""
    pytest.importorskip("torch")
    (tmp_path / "torch_script.py").write_text(TORCH)
    subprocess.run(
        [sys.executable, str(tmp_path / "torch_script.py"), str(tmp_path / "torch")], check=True, timeout=600
    )
    expected = json.loads((tmp_path / "torch").read_text())
    found = run(tmp_path, "ranks", 2, 2, shuffle=False, limit_train_batches=5)[0]
    np.testing.assert_allclose(found["losses"], expected, rtol=1e-6, atol=1e-6)


VARIABLES = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "CANDLE_RANK_KEY": "ab",
}
NONSENSE = ("abc", "-1", "1e30", "9" * 5000, "nan", " ", "\u0661", "\x1b[31m")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT") for value in NONSENSE),
        ("RANK", "2"),
        ("WORLD_SIZE", "0"),
        ("MASTER_PORT", "65536"),
        ("MASTER_PORT", None),
        ("CANDLE_RANK_KEY", "xyz"),
        ("CANDLE_RANK_KEY", "abc"),
        ("CANDLE_RANK_KEY", None),
    ],
)
def test_variables_of_other_kinds(name, value, monkeypatch):
    """As a launcher may set them: one line that names the variable and what it may be."""
    for variable, text in {**VARIABLES, name: value}.items():
        monkeypatch.delenv(variable, raising=False) if text is None else monkeypatch.setenv(variable, text)
    with pytest.raises(cc.UsageError, match=f"{name}.* is not .*expected") as caught:
        Ranks(world_size(2))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("host", ["\x1b", "a" * 300, "..", "192.0.2.1", "x\u0301." * 3], ids=ascii)
def test_addresses_that_are_none(host, monkeypatch):
    for variable, text in {**VARIABLES, "MASTER_ADDR": host}.items():
        monkeypatch.setenv(variable, text)
    with pytest.raises(cc.FileAccessError, match=r"cannot listen at .*Set MASTER_ADDR") as caught:
        Ranks(2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", NONSENSE)
def test_world_sizes_of_other_kinds(value, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(cc.UsageError, match="WORLD_SIZE"):
        cc.distributed.init_process_group("gloo")
