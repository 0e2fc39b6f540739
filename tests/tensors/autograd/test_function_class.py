"""Functions with gradients of their own give what torch's give."""

from __future__ import annotations

from typing import Any

import candle_convert as cc
import pytest
import torch


def _gradients(t: Any) -> list[Any]:
    class Legendre(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 1.5 * (5 * x**2 - 1)

    class Scaled(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, scale: float) -> Any:
            ctx.save_for_backward(b)
            ctx.scale = scale
            return a * b * scale, a.sign()

        @staticmethod
        def backward(ctx: Any, grad: Any, of_sign: Any) -> Any:
            (b,) = ctx.saved_tensors
            return grad * b * ctx.scale * 10 + of_sign, None, None

    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    (Legendre.apply(Legendre.apply(y) * 0.1).sum() + y.sum()).backward()
    product, _ = Scaled.apply(x * 3, t.ones(2), 2.0)
    (product * product).sum().backward()
    (grad,) = t.autograd.grad(Legendre.apply(x).sum(), x)
    (first,) = t.autograd.grad((x**3).sum(), x, create_graph=True)
    return [x.grad.tolist(), grad.tolist(), t.autograd.grad(first.sum(), x)[0].tolist()]


def test_gradients_are_torchs() -> None:
    assert _gradients(cc) == _gradients(torch)


class _Wrong(cc.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def test_grads_that_do_not_fit_the_arguments() -> None:
    x = cc.ones(2, requires_grad=True)
    with pytest.raises(cc.UsageError, match="1 gradient of 2 arguments"):
        _Wrong.apply(x, x).sum().backward()
    with pytest.raises(cc.UsageError, match="does not depend"):
        cc.autograd.grad(x.sum(), cc.ones(1, requires_grad=True))
