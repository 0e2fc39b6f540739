"""Memory of the process over steps of training: it is flat after the first ones.

    python benchmarks/training_memory.py [--steps N] [mlp|lstm|gpt ...]

Each network is trained in processes of its own, as plans and as Python (of a Trainer), and in a plain loop. Prints the
resident set in MiB after each tenth of the steps.
"""

import argparse
import gc
import subprocess
import sys

import candle_convert as cc
import numpy as np
import psutil

WORDS, LENGTH, WIDTH = 50, 16, 32
LOOPS = ("plan", "python", "loop")


class LastOutput(cc.nn.Module):
    """The last output of an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = cc.nn.LSTM(8, 16, batch_first=True), cc.nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Gpt(cc.nn.Module):
    """A decoder of one layer."""

    def __init__(self):
        super().__init__()
        self.words, self.places = cc.nn.Embedding(WORDS, WIDTH), cc.nn.Embedding(LENGTH, WIDTH)
        self.layer = cc.nn.TransformerEncoderLayer(WIDTH, 2, 64, 0.1, batch_first=True)
        self.head = cc.nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        mask = cc.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.layer(self.words(x) + self.places(cc.arange(LENGTH)), src_mask=mask)).transpose(1, 2)


def task(name):
    """A network, its loss, and fifty batches."""
    rng, functional = np.random.default_rng(0), cc.nn.functional
    if name == "gpt":
        pairs = [rng.integers(0, WORDS, (2, 4, LENGTH)) for _ in range(50)]
        return Gpt(), functional.cross_entropy, [tuple(map(cc.from_numpy, pair)) for pair in pairs]
    shape = (16, 16) if name == "mlp" else (8, 12, 8)
    net = LastOutput()
    if name == "mlp":
        layers = cc.nn.Linear(16, 64), cc.nn.ReLU(), cc.nn.Dropout(0.1), cc.nn.Linear(64, 1)
        net = cc.nn.Sequential(*layers)
    made = [(rng.standard_normal(shape), rng.standard_normal((shape[0], 1))) for _ in range(50)]
    return net, functional.mse_loss, [tuple(cc.from_numpy(each.astype(np.float32)) for each in pair) for pair in made]


class Watched(cc.LightningModule):
    """A network with its loss, which calls a function after each step."""

    def __init__(self, net, loss, after, steps):
        super().__init__()
        self.net, self.loss, self.after, self.steps = net, loss, after, steps

    def training_step(self, batch, batch_idx):
        loss = self.loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after()

    def configure_optimizers(self):
        optimizer = cc.optim.AdamW(self.parameters(), 1e-3)
        schedule = cc.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def measured(name, loop, steps):
    """MiB after each tenth of the steps."""
    net, loss, batches = task(name)
    found, done = [], 0

    def after():
        nonlocal done
        done += 1
        if done % (steps // 10) == 0:
            gc.collect()
            found.append(psutil.Process().memory_info().rss / 2**20)

    if loop == "loop":
        optimizer = cc.optim.AdamW(net.parameters(), 1e-3)
        while done < steps:
            x, y = batches[done % len(batches)]
            value = loss(net(x), y)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            value.item()
            after()
        return found
    trainer = cc.Trainer(
        max_steps=steps, jit=loop == "plan", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Watched(net, loss, after, steps), batches)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("networks", nargs="*", default=["mlp", "lstm", "gpt"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", choices=LOOPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    for name in given.networks:
        if given.only:
            print(f"{name:5}{given.only:7}", *[f"{each:6.1f}" for each in measured(name, given.only, given.steps)])
            continue
        for loop in LOOPS:
            command = [sys.executable, __file__, name, "--steps", str(given.steps), "--only", loop]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
