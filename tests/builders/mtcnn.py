"""MTCNN's networks as modules of torch, with facenet-pytorch's names of weights and random values."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn

LAYERS = {
    "pnet": ((3, 10, 3, 2), (10, 16, 3, 0), (16, 32, 3, 0)),
    "rnet": ((3, 28, 3, 3), (28, 48, 3, 3), (48, 64, 2, 0)),
    "onet": ((3, 32, 3, 3), (32, 64, 3, 3), (64, 64, 3, 2), (64, 128, 2, 0)),
}
"""Channels of the input and of the output, size of the kernel, and of the pooling after it."""
DENSE = {"rnet": (576, 128, (2, 4)), "onet": (1152, 256, (2, 4, 10))}
SCAN = (2, 4)
SIZES = {"pnet": (1, 3, 40, 31), "rnet": (5, 3, 24, 24), "onet": (3, 3, 48, 48)}


class Judge(nn.Module):
    """Scores, offsets and, of the last network, landmarks."""

    def __init__(self, name):
        super().__init__()
        self.pools = [pool for *_, pool in LAYERS[name]]
        for number, (inputs, outputs, size, _) in enumerate(LAYERS[name], 1):
            self.add_module(f"conv{number}", nn.Conv2d(inputs, outputs, size))
            self.add_module(f"prelu{number}", nn.PReLU(outputs))
        self.last = len(self.pools) + 1
        if name in DENSE:
            inputs, width, ends = DENSE[name]
            self.add_module(f"dense{self.last}", nn.Linear(inputs, width))
            self.add_module(f"prelu{self.last}", nn.PReLU(width))
            heads = [(f"dense{self.last + 1}_{place}", nn.Linear(width, end)) for place, end in enumerate(ends, 1)]
        else:
            heads = [(f"conv{self.last}_{place}", nn.Conv2d(32, end, 1)) for place, end in enumerate(SCAN, 1)]
        self.heads = [head for head, _ in heads]
        for head, module in heads:
            self.add_module(head, module)

    def forward(self, x):
        for number, pool in enumerate(self.pools, 1):
            x = self.get_submodule(f"prelu{number}")(self.get_submodule(f"conv{number}")(x))
            x = nn.functional.max_pool2d(x, pool, 2, ceil_mode=True) if pool else x
        if hasattr(self, f"dense{self.last}"):
            x = self.get_submodule(f"dense{self.last}")(x.permute(0, 3, 2, 1).flatten(1))
            x = self.get_submodule(f"prelu{self.last}")(x)
        scores, *others = (self.get_submodule(head)(x) for head in self.heads)
        names = ("scores", "offsets", "landmarks")
        return dict(zip(names, (scores.softmax(1)[:, 1], *others), strict=False))


def mtcnn(folder):
    """The three networks, whose weights are saved in a directory, one file each."""
    found = {}
    for seed, name in enumerate(LAYERS):
        found[name] = randomized(Judge(name).eval(), seed)
        torch.save(found[name].state_dict(), folder / f"{name}.pt", _use_new_zipfile_serialization=False)
    return found


__all__ = ["SIZES", "mtcnn"]
