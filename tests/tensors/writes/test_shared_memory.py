"""Writes to tensors reach the arrays that share memory with them, and the other way, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch


def _numpy_of_written(t: Any) -> Any:
    x = t.ones(5)
    n = x.numpy()
    x.add_(1)
    n[0] = 7
    return n.tolist(), x.tolist()


def _written_array(t: Any) -> Any:
    n = np.ones(5)
    x = t.from_numpy(n)
    np.add(n, 1, out=n)
    x.mul_(3)
    x[1] = 0
    return n.tolist(), x.tolist()


def _detached(t: Any) -> Any:
    w = t.ones(3, requires_grad=True)
    n = w.detach().numpy()
    optimizer = t.optim.SGD([w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    return n.tolist(), w.tolist()


def _values_of_before(t: Any) -> Any:
    x = t.arange(4.0)
    n = x.numpy()
    twice = x * 2
    x.zero_()
    return n.tolist(), twice.tolist()


def _no_more(t: Any) -> Any:
    x = t.arange(3.0)
    n = x.numpy()
    x = x + 1
    x.add_(1)
    return n.tolist(), x.tolist()


def _part_of_an_array(t: Any) -> Any:
    n = np.zeros(4, np.float32)
    t.as_tensor(n)[2:].add_(5)
    return [n.tolist()]


PROGRAMS = [_numpy_of_written, _written_array, _detached, _values_of_before, _no_more, _part_of_an_array]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_arrays_follow_as_torchs_do(program: Callable[[Any], Any]) -> None:
    for ours, theirs in zip(program(cc), program(torch), strict=True):
        assert ours == pytest.approx(theirs)


def test_writes_reach_another_librarys_tensor() -> None:
    theirs = torch.ones(3)
    ours = cc.from_dlpack(theirs)
    ours.add_(2)
    assert theirs.tolist() == [3, 3, 3]
    theirs.zero_()
    assert ours.tolist() == [0, 0, 0]


def test_what_a_traced_function_changes_is_seen() -> None:
    weight = cc.ones(4)
    add = cc.jit(lambda: weight.add_(1) is weight)
    for count in range(2, 5):
        view, array = weight[1:3], weight.numpy()
        add()
        assert (view.tolist(), array.tolist(), weight.tolist()) == ([count] * 2, [count] * 4, [count] * 4)
