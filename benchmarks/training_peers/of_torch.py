"""PyTorch, eager and compiled."""

import torch
from torch.nn import functional


class Functions:
    """The functions that models are written with."""

    relu, gelu, array = functional.relu, functional.gelu, torch.from_numpy
    permute, cross_entropy = torch.permute, functional.cross_entropy

    @staticmethod
    def softmax(x):
        return x.softmax(-1)

    @staticmethod
    def rows(table, ids):
        return functional.embedding(ids, table)

    @staticmethod
    def layer_norm(x, scale, bias):
        return functional.layer_norm(x, scale.shape, scale, bias)

    @staticmethod
    def conv(x, weight, bias):
        return functional.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def max_pool(x):
        return functional.max_pool2d(x, 2)

    @staticmethod
    def lstm(x, wi, wh, b):
        state = x.new_zeros(1, x.shape[0], wh.shape[1])
        flat = [wi, wh, b, torch.zeros_like(b)]
        return torch.lstm(x, (state, state), flat, True, 1, 0.0, True, False, True)[0][:, -1]

    @staticmethod
    def gru(x, *weights):
        state = x.new_zeros(1, x.shape[0], weights[1].shape[1])
        return torch.gru(x, state, weights, True, 1, 0.0, True, False, True)[0][:, -1]


def stepper(task, compiled):
    """A function that makes steps and returns the last loss."""
    p = {name: torch.tensor(value, requires_grad=True) for name, value in task.weights.items()}
    batch = {name: torch.from_numpy(value) for name, value in task.batch.items()}
    name, options = task.optimizer
    optimizer = getattr(torch.optim, name)(p.values(), **options)
    loss_of, update = (lambda batch: task.loss(Functions, p, batch)), optimizer.step
    if compiled:
        loss_of, update = torch.compile(loss_of), torch.compile(update)

    def run(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            update()
        return loss.item()

    return run


PEERS = {"torch": lambda task: stepper(task, compiled=False), "compile": lambda task: stepper(task, compiled=True)}
