"""gradcheck, and functions of several tensors of `autograd`."""

import candle_convert as cc
import pytest
import torch


class Doubled(cc.autograd.Function):
    """Twice a tensor, with a wrong gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def test_gradcheck():
    x = cc.tensor([0.5, -1.0], dtype=cc.float64, requires_grad=True)
    assert cc.autograd.gradcheck(lambda x: (x.sin(), x.exp().sum()), (x,))
    assert cc.autograd.gradgradcheck(lambda x: x**3, (x,))
    assert not cc.autograd.gradcheck(Doubled.apply, x, raise_exception=False)
    with pytest.raises(RuntimeError, match="finite differences"):
        cc.autograd.gradcheck(Doubled.apply, (x,))
    with pytest.raises(cc.UsageError, match="requires gradients"):
        cc.autograd.gradcheck(Doubled.apply, (x.detach(),))


def test_several_outputs():
    def gradients(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        y = x * x
        t.autograd.backward([y, y.sum()], [t.ones(2), None])
        (found,) = t.autograd.grad([x.sum(), (x**3).sum()], [x])
        return x.grad.tolist(), found.tolist()

    assert gradients(cc) == gradients(torch)


def test_older_scripts():
    x = cc.autograd.Variable(cc.ones(2), requires_grad=True)
    with cc.autograd.detect_anomaly(), cc.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_setup_context():
    class Scaled(cc.autograd.Function):
        @staticmethod
        def forward(x, scale):
            return x * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.scale = inputs[1]

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.scale, None

    x = cc.ones(2, requires_grad=True)
    Scaled.apply(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]


class Conjugated(cc.autograd.Function):
    """Twice a complex tensor, with the gradient of another function."""

    @staticmethod
    def forward(ctx, z):
        return z * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.conj() * 2


def test_gradcheck_of_complex_numbers():
    z = cc.tensor([0.5 + 1j, -1.0 + 0.3j], dtype=cc.complex128, requires_grad=True)
    assert cc.autograd.gradcheck(lambda z: (z * z.conj(), z.abs(), (z * 1j).exp()), (z,))
    assert cc.autograd.gradgradcheck(lambda z: z**3, (z,))
    assert not cc.autograd.gradcheck(Conjugated.apply, z, raise_exception=False)
