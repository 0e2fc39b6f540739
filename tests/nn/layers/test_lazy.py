"""Layers that are made at their first call: shapes and names are torch's."""

from __future__ import annotations

from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch


def _network(nn: Any) -> Any:
    return nn.Sequential(
        nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5, bias=False),
        nn.LazyBatchNorm1d(),
    )  # fmt: skip


def test_a_network_is_torchs_after_its_first_call() -> None:
    x = np.random.default_rng(5).standard_normal((3, 2, 4, 4), np.float32)
    ours, theirs = _network(cc.nn), _network(torch.nn)
    ours(cc.tensor(x))
    theirs(torch.tensor(x))
    assert type(ours[0]) is cc.nn.Conv2d
    ours.load_state_dict(theirs.state_dict())
    ours.eval()
    theirs.eval()
    assert ours(cc.tensor(x)).detach().numpy() == pytest.approx(theirs(torch.tensor(x)).detach().numpy(), abs=1e-5)
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))


def test_errors_before_the_first_call() -> None:
    layer = cc.nn.LazyLinear(3)
    with pytest.raises(cc.UsageError, match="first call"):
        layer.load_state_dict({})
    with pytest.raises(cc.UsageError, match="shape"):
        cc.nn.LazyConv2d(3, 1)(cc.ones(2))
