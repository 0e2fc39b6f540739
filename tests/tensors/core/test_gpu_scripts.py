"""What scripts for GPUs ask for works on the CPU, as with PyTorch."""

from __future__ import annotations

import candle_convert as cc
import pytest
import torch


def test_scaled_steps() -> None:
    cc.manual_seed(0)
    layer = cc.nn.Linear(2, 1)
    optimizer = cc.optim.SGD(layer.parameters(), lr=0.1)
    scaler = cc.cuda.amp.GradScaler(enabled=False)
    before = layer.bias.item()
    with cc.amp.autocast("cpu", dtype=cc.bfloat16):
        loss = layer(cc.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert layer.bias.item() == pytest.approx(before - 0.1)
    with pytest.warns(UserWarning, match="not scaled"):
        cc.amp.GradScaler()


def test_backends() -> None:
    cc.backends.cudnn.benchmark = True
    assert not cc.backends.mps.is_available()


def test_normal_numbers_are_torchs() -> None:
    cc.manual_seed(3)
    torch.manual_seed(3)
    assert cc.normal(1.0, 2.0, (4, 5)).allclose(cc.tensor(torch.normal(1.0, 2.0, (4, 5))), atol=1e-5)
    with pytest.raises(cc.UsageError, match="size"):
        cc.normal(0.0, 1.0)


def test_grad_fn() -> None:
    x = cc.ones(2, requires_grad=True)
    assert x.grad_fn is None
    assert (x * 2).grad_fn == "<Mul>"
