"""Mistakes raise errors of the kinds that PyTorch raises, so that scripts catch them alike."""

from __future__ import annotations

import importlib
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch

MISTAKES = """
t.ones(2, 3).sum(5)
t.ones(2, 3).transpose(0, 3)
t.ones(3)[[0, 5]].tolist()
t.ones(2, 3).index_select(0, t.tensor([3])).tolist()
t.ones(2, 3).index_select(0, t.tensor([[0]]))
t.ones(2).gather(0, t.tensor([0.0]))
t.ones(2).scatter(0, t.tensor([0.5]), 1.0)
t.ones(2, 3)["a"]
t.ones(2) + None
t.tensor("a")
t.tensor([[1, 2], [3]])
t.from_numpy([1, 2])
int(t.ones(3))
t.normal(0, -1, (2,))
t.roll(t.ones(3), (1, 2), 0)
t.linalg.solve(t.ones(2, 2), t.ones(3))
t.vmap(lambda x: x)(t.tensor(1.0))
t.ones(1, requires_grad=True).grad = 1
nn.Linear(3, 4)(np.ones((2, 3)))
nn.Embedding(5, 3)(t.tensor([7])).tolist()
nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([0, 3])).item()
nn.MSELoss(reduction="avg")(t.ones(2), t.ones(2))
nn.BatchNorm1d(3)(t.ones(1, 3))
nn.Conv2d(3, 4, 3, groups=2)
nn.Dropout(-1)
nn.ModuleList([1])
nn.ModuleDict({"a": 1})
nn.ModuleDict({"a.b": nn.ReLU()})
nn.Linear(2, 2).register_buffer("weight", t.ones(1))
nn.Linear(2, 2).register_parameter("a.b", None)
nn.Linear(2, 2).__setattr__("weight", 3)
nn.Linear(2, 2).load_state_dict({"weight": t.ones(3, 2), "bias": t.ones(2)})
t.optim.SGD([], lr=0.1)
t.optim.SGD(nn.Linear(1, 1).parameters(), lr=-1)
t.optim.Adam(nn.Linear(1, 1).parameters(), betas=(2, 1))
data.DataLoader([1, 2], batch_size=0)
data.random_split([1, 2, 3], [2, 2])
next(iter(data.DataLoader([object()], batch_size=1)))
""".strip().splitlines()


def _kind(t: Any, mistake: str) -> BaseException:
    places = {"nn": f"{t.__name__}.nn", "data": f"{t.__name__}.utils.data"}
    with pytest.raises(Exception) as caught:
        eval(
            mistake.replace(".grad = 1", ".__setattr__('grad', 1)"),
            {"t": t, "np": np, **{name: importlib.import_module(path) for name, path in places.items()}},
        )
    return caught.value


@pytest.mark.parametrize("mistake", MISTAKES)
def test_kind(mistake: str) -> None:
    ours = _kind(cc, mistake)
    assert isinstance(ours, cc.UsageError)
    assert isinstance(ours, type(_kind(torch, mistake)))
