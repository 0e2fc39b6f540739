"""JAX."""

import jax
import jax.numpy as jnp
import numpy as np


class Functions:
    """The functions that models are written with."""

    relu, array = jax.nn.relu, jnp.asarray

    @staticmethod
    def gelu(x):
        return jax.nn.gelu(x, approximate=False)

    @staticmethod
    def softmax(x):
        return jax.nn.softmax(x, -1)

    @staticmethod
    def permute(x, dims):
        return jnp.transpose(x, dims)

    @staticmethod
    def rows(table, ids):
        return table[ids]

    @staticmethod
    def cross_entropy(logits, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), y[:, None], 1).mean()

    @staticmethod
    def layer_norm(x, scale, bias):
        centered = x - x.mean(-1, keepdims=True)
        return centered / jnp.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * scale + bias

    @staticmethod
    def conv(x, weight, bias):
        return jax.lax.conv(x, weight, (1, 1), "SAME") + bias[:, None, None]

    @staticmethod
    def max_pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    @staticmethod
    def lstm(x, wi, wh, b):
        def cell(carry, gates):
            hidden, state = carry
            i, f, g, o = jnp.split(gates + hidden @ wh.T, 4, 1)
            state = jax.nn.sigmoid(f) * state + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(state), state), None

        start = jnp.zeros((x.shape[0], wh.shape[1]))
        return jax.lax.scan(cell, (start, start), jnp.swapaxes(x @ wi.T + b, 0, 1))[0][0]

    @staticmethod
    def gru(x, wi, wh, bi, bh):
        def cell(hidden, gates):
            (r, z, n), (by_r, by_z, inside) = jnp.split(gates, 3, 1), jnp.split(hidden @ wh.T + bh, 3, 1)
            update = jax.nn.sigmoid(z + by_z)
            return (1 - update) * jnp.tanh(n + jax.nn.sigmoid(r + by_r) * inside) + update * hidden, None

        start = jnp.zeros((x.shape[0], wh.shape[1]))
        return jax.lax.scan(cell, start, jnp.swapaxes(x @ wi.T + bi, 0, 1))[0]


def stepper(task):
    """A function that makes steps and returns the last loss."""
    rate, momentum = task.optimizer[1]["lr"], task.optimizer[1].get("momentum")

    def adamw(p, slope, state, step):
        mean, square = (beta * old + (1 - beta) * new for beta, old, new in
                        ((0.9, state[0], slope), (0.999, state[1], slope * slope)))  # fmt: skip
        scale = jnp.sqrt(square / (1 - 0.999**step)) + 1e-8
        return p * (1 - rate * 0.01) - rate * (mean / (1 - 0.9**step)) / scale, (mean, square)

    def sgd(p, slope, state, step):
        moved = momentum * state[0] + slope
        return p - rate * moved, (moved,)

    def step(p, state, number, batch):
        loss, slopes = jax.value_and_grad(lambda p: task.loss(Functions, p, batch))(p)
        made = {name: (sgd if momentum else adamw)(p[name], slopes[name], state[name], number) for name in p}
        return loss, {name: each[0] for name, each in made.items()}, {name: each[1] for name, each in made.items()}

    step = jax.jit(step, donate_argnums=(0, 1))
    batch = {name: jnp.asarray(value) for name, value in task.batch.items()}
    p = {name: jnp.array(value) for name, value in task.weights.items()}
    state = {name: tuple(jnp.zeros_like(each) for _ in range(1 if momentum else 2)) for name, each in p.items()}
    number = 0

    def run(count):
        nonlocal p, state, number
        for _ in range(count):
            number += 1
            loss, p, state = step(p, state, np.float32(number), batch)
        return float(loss)

    return run


PEERS = {"jax": stepper}
