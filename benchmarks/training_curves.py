"""Loss curves of a character GPT on Python's documentation: this package and torch from the same weights and batches.

    python benchmarks/training_curves.py [--steps N]

Prints both losses at each tenth of the steps, the largest difference between them averaged over 20 steps, and steps a
second of each.
"""

import argparse
import importlib.util
import time

import candle_convert as cc
import numpy as np
import torch
from candle_convert.tests.builders.paths import EXAMPLES

BATCH, WINDOW = 16, 20


def example():
    """The example that trains the GPT."""
    spec = importlib.util.spec_from_file_location("train_character_gpt", EXAMPLES / "train_character_gpt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def curve(m, net, batches, wrap):
    """The loss of each step, and steps a second without the first ones."""
    optimizer = m.optim.AdamW(net.parameters(), lr=1e-3)

    def step(given, following):
        optimizer.zero_grad()
        loss = m.nn.functional.cross_entropy(net(given).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, losses, began = wrap(step), [], 0.0
    for number, (given, following) in enumerate(batches):
        if number == min(5, len(batches) - 1):
            began = time.perf_counter()
        losses.append(step(m.from_numpy(given), m.from_numpy(following)).item())
    return np.array(losses), (len(batches) - 5) / (time.perf_counter() - began)


def main(steps):
    gpt = example()
    vocabulary = cc.data.Vocabulary(gpt.text())
    rows = cc.data.TokenDataset(vocabulary.encode(gpt.text()), gpt.LENGTH)
    generator = np.random.default_rng(0)
    batches = [[each.numpy() for each in rows.batch(generator.integers(0, len(rows), BATCH))] for _ in range(steps)]
    torch.manual_seed(0)
    theirs, ours = gpt.network(torch, len(vocabulary)), gpt.network(cc, len(vocabulary))
    ours.load_state_dict({name: each.numpy() for name, each in theirs.state_dict().items()})
    expected, their_rate = curve(torch, theirs, batches, lambda step: step)
    found, our_rate = curve(cc, ours, batches, cc.jit)
    for number in range(0, steps, max(1, steps // 10)):
        print(f"step {number:5}  torch {expected[number]:.4f}  candle-convert {found[number]:.4f}")
    window = np.ones(WINDOW) / WINDOW
    smooth = [np.convolve(each, window, "valid") for each in (expected, found)]
    print(f"largest difference of the means over {WINDOW} steps: {np.abs(smooth[1] / smooth[0] - 1).max():.4%}")
    print(f"steps a second: torch {their_rate:.1f}, candle-convert {our_rate:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of training")
    main(parser.parse_args().steps)
