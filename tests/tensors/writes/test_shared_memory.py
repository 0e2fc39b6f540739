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


def _pending_results(t: Any) -> Any:
    x = t.tensor([1.0, 2.0])
    d = x.detach()
    n = d.numpy()
    pending = d * 10, x * 10, x.detach() + 1, x.data.clone(), x[:1] * 2
    x.add_(1)
    return [*(each.tolist() for each in pending), n.tolist()]


def _held_twice(t: Any) -> Any:
    n = np.zeros(3, np.float32)
    x = t.from_numpy(n)
    first = x.detach().numpy().tolist()
    x.add_(1)
    return first, n.tolist(), x.numpy()[1:].tolist()


def _slice_of_what_is_gone(t: Any) -> Any:
    x = t.zeros(4)
    part = x.numpy()[2:]
    x.add_(3)
    return [part.tolist()]


def _copied_from_another(t: Any) -> Any:
    n = np.zeros(2, np.float32)
    x, other = t.from_numpy(n), t.tensor([5.0, 6.0])
    x.copy_(other)
    n += 1
    x.add_(1)
    return other.tolist(), x.tolist(), n.tolist()


def _other_data(t: Any) -> Any:
    w = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    row, whole = w.detach()[0], w.detach()
    n = whole.numpy()
    w.data = w.data * 10
    row.add_(1)
    with t.no_grad():
        w.add_(1)
    whole.mul_(2)
    (w * w).sum().backward()
    return [each.tolist() for each in (w, row, whole, n, w.grad)]


PROGRAMS = [
    _pending_results,
    _held_twice,
    _slice_of_what_is_gone,
    _copied_from_another,
    _other_data,
    _numpy_of_written,
    _written_array,
    _detached,
    _values_of_before,
    _no_more,
    _part_of_an_array,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_arrays_follow_as_torchs_do(program: Callable[[Any], Any]) -> None:
    for ours, theirs in zip(program(cc), program(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_writes_reach_another_librarys_tensor() -> None:
    theirs = torch.ones(3)
    ours = cc.from_dlpack(theirs)
    ours.add_(2)
    assert theirs.tolist() == [3, 3, 3]
    theirs.zero_()
    assert ours.tolist() == [0, 0, 0]


def test_views_of_former_data_do_not_follow_traced_functions() -> None:
    results = []
    for t, wrap in ((cc, cc.jit), (torch, lambda function: function)):
        weight = t.ones(3)
        held = weight.detach()

        def step(weight: Any = weight) -> Any:
            weight[1:].add_(1)
            return weight * 1

        add = wrap(step)
        results.append([add().tolist()])
        weight.data = weight.data * 2
        results[-1] += [add().tolist(), held.tolist(), weight.tolist()]
    assert results[0] == results[1]


def test_what_a_traced_function_changes_is_seen() -> None:
    weight = cc.ones(4)
    add = cc.jit(lambda: weight.add_(1) is weight)
    for count in range(2, 5):
        view, array = weight[1:3], weight.numpy()
        add()
        assert (view.tolist(), array.tolist(), weight.tolist()) == ([count] * 2, [count] * 4, [count] * 4)
