"""This package, under jit and without it."""

import candle_convert as cc
from candle_convert.nn.functional import recurrent
from candle_convert.tensors.core.expression import apply, op_named


class Functions:
    """The functions that models are written with."""

    relu, gelu, array = cc.nn.functional.relu, cc.nn.functional.gelu, cc.from_numpy

    @staticmethod
    def softmax(x):
        return x.softmax(-1)

    @staticmethod
    def permute(x, dims):
        return x.permute(*dims)

    @staticmethod
    def rows(table, ids):
        return table[ids]

    cross_entropy = cc.nn.functional.cross_entropy

    @staticmethod
    def layer_norm(x, scale, bias):
        found = apply(op_named("LayerNormalization"), [each.expression for each in (x, scale, bias)])
        return cc.Tensor(found)

    @staticmethod
    def conv(x, weight, bias):
        inputs = [each.expression for each in (x, weight, bias)]
        return cc.Tensor(apply(op_named("Conv"), inputs, {"pads": [1, 1, 1, 1]}))

    @staticmethod
    def max_pool(x):
        pooled = apply(op_named("MaxPool"), [x.expression], {"kernel_shape": [2, 2], "strides": [2, 2]})
        return cc.Tensor(pooled)

    @staticmethod
    def lstm(x, wi, wh, b):
        state = cc.zeros(1, x.shape[0], wh.shape[1])
        weights = recurrent.Weights(wi, wh, b, cc.zeros_like(b))
        return recurrent.layer("LSTM", x.transpose(0, 1), (state, state), [weights])[0][-1]

    @staticmethod
    def gru(x, *weights):
        state = cc.zeros(1, x.shape[0], weights[1].shape[1])
        return recurrent.layer("GRU", x.transpose(0, 1), (state,), [recurrent.Weights(*weights)])[0][-1]


def stepper(task, jitted):
    """A function that makes steps and returns the last loss."""
    p = {name: cc.tensor(value, requires_grad=True) for name, value in task.weights.items()}
    batch = {name: cc.from_numpy(value) for name, value in task.batch.items()}
    name, options = task.optimizer
    optimizer = getattr(cc.optim, name)(p.values(), **options)

    def step(batch):
        optimizer.zero_grad()
        loss = task.loss(Functions, p, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = cc.jit(step) if jitted else step

    def run(count):
        for _ in range(count):
            loss = step(batch)
        return loss.item()

    return run


PEERS = {"cc": lambda task: stepper(task, jitted=True), "eager": lambda task: stepper(task, jitted=False)}
