"""Writes into views reach the tensors of which they were taken, as torch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "chained indices": lambda t, x: x[1][2].fill_(9),
    "numpy index": lambda t, x: x[np.int64(1)][0].fill_(7),
    "data": lambda t, x: x.data.mul_(2),
    "transposed": lambda t, x: x.t()[1].fill_(7),
    "T": lambda t, x: x.T.select(0, 1).zero_(),
    "view": lambda t, x: x.view(-1)[5].neg_(),
    "diagonal": lambda t, x: x.diagonal().fill_(1),
    "chunk": lambda t, x: x.chunk(2, 1)[1].zero_(),
    "rows": lambda t, x: [row.add_(row.sum()) for row in x],
    "steps": lambda t, x: x[::2, ::3].mul_(-1),
    "view of a view": lambda t, x: x[-1].view(2, 2).t().copy_(t.arange(4.0).reshape(2, 2)),
    "select": lambda t, x: x.select(1, 2).copy_(x.select(1, 1)),
    "reshape": lambda t, x: x.reshape(4, 3)[1].zero_(),
    "unsqueeze": lambda t, x: x.unsqueeze(0)[0, 0, 0].fill_(5),
    "copy: reshape of a transpose": lambda t, x: x.t().reshape(-1).zero_(),
    "copy: flip": lambda t, x: x.flip(0).zero_(),
    "copy: index array": lambda t, x: x[[0, 1]].zero_(),
    "copy: mask": lambda t, x: x[x > 3].zero_(),
    "copy: diag": lambda t, x: t.diag(x[:, :3]).zero_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_reach_what_torchs_reach(name: str) -> None:
    ours, theirs = cc.arange(12.0).reshape(3, 4).clone(), torch.arange(12.0).reshape(3, 4).clone()
    WRITES[name](cc, ours)
    WRITES[name](torch, theirs)
    assert ours.tolist() == theirs.tolist()


def test_views_have_the_new_values_of_their_tensor_when_they_are_written() -> None:
    def written(t: Any) -> Any:
        x = t.arange(6.0).reshape(2, 3).clone()
        row = x[0]
        x.zero_()
        row.add_(1)
        row[1] = 5
        return [x.tolist(), row.tolist()]

    assert written(cc) == written(torch)


def test_gradients_flow_through_written_views() -> None:
    def grads(t: Any) -> Any:
        w = t.arange(6.0).reshape(2, 3).clone().requires_grad_()
        w.data[0].fill_(2)
        w.detach()[1, 1] = -1
        h = w * w
        h[:, 0].mul_(3)
        (h * h).sum().backward()
        return [w.tolist(), w.grad.tolist()]

    assert grads(cc) == grads(torch)


def test_initial_values_are_written_to_the_data_of_parameters() -> None:
    layer = cc.nn.Linear(4, 3)
    cc.nn.init.constant_(layer.weight.data, 2.0)
    layer.bias.data.zero_()
    assert layer(cc.ones(1, 4)).tolist() == [[8.0] * 3]


def test_a_view_of_a_leaf_with_gradients_is_not_written() -> None:
    w = cc.ones(2, 2, requires_grad=True)
    with pytest.raises(cc.UsageError, match="leaf tensor"):
        w[0].add_(1)


def test_jit_repeats_writes_into_views() -> None:
    x = cc.zeros(2, 3)

    @cc.jit
    def step(y: Any) -> Any:
        x[0].add_(y)
        return x.sum()

    assert [step(cc.ones(3)).item() for _ in range(3)] == [3.0, 6.0, 9.0]
