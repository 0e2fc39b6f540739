"""Hooks of tensors and modules see and replace the gradients that torch's do."""

from __future__ import annotations

from typing import Any

import candle_convert as cc
import pytest
import torch


def _of_tensors(t: Any) -> list[Any]:
    seen: list[Any] = []
    x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    z = y * 2 + x
    handle = y.register_hook(lambda grad: grad * 3)
    x.register_hook(lambda grad: seen.append(grad.tolist()))
    z.register_hook(lambda grad: seen.append(grad.tolist()))
    (z * y).sum().backward()
    handle.remove()
    w = t.nn.Parameter(t.ones(2))
    w.register_hook(lambda grad: grad.clamp(-1, 1))
    (w * 5).sum().backward()
    return [*seen, x.grad.tolist(), w.grad.tolist()]


def test_hooks_of_tensors() -> None:
    assert _of_tensors(cc) == _of_tensors(torch)


def _of_modules(t: Any, moves: bool) -> list[Any]:
    seen: list[Any] = []
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.ReLU(), t.nn.Linear(2, 1))
    for parameter in model.parameters():
        parameter.data.fill_(0.5)

    def doubled(module: Any, of_arguments: Any, of_results: Any) -> Any:
        seen.append([[each.tolist() for each in part] for part in (of_arguments, of_results)])
        return (of_arguments[0] * 2,)

    model[0].register_full_backward_hook(lambda module, given, found: seen.append([given[0] is None, len(found)]))
    model[1].register_full_backward_hook(doubled)
    model[2].register_forward_hook(lambda m, given, options, result: seen.append(result.tolist()), with_kwargs=True)
    model[2].register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    x = t.ones(1, 3, requires_grad=moves)
    model(x).sum().backward()
    return [*seen, *[each.grad.tolist() for each in model.parameters()], moves and x.grad.tolist()]


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("moves", [True, False])
def test_hooks_of_modules(moves: bool) -> None:
    assert _of_modules(cc, moves) == _of_modules(torch, moves)


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(cc.UsageError, match="does not require gradients"):
        cc.ones(2).register_hook(print)
