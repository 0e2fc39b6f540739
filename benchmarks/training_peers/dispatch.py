"""A small expression in place of training: what a library takes to hand it on."""

import numpy as np


def inputs():
    """The operands."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]


def repeated(a, b, c, last):
    """A function that computes the expression `count` times."""

    def run(count):
        for _ in range(count):
            found = last(a @ b + c)
        return float(found.sum())

    return run


def ours():
    import candle_convert as cc

    return repeated(*map(cc.from_numpy, inputs()), cc.Tensor.numpy)


def of_torch():
    import torch

    return repeated(*map(torch.from_numpy, inputs()), torch.Tensor.numpy)


def of_jax():
    import jax.numpy as jnp

    return repeated(*map(jnp.asarray, inputs()), np.asarray)


PEERS = {"eager": ours, "torch": of_torch, "jax": of_jax}
