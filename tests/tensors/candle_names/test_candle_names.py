"""Candle's names of constructors and methods: values of NumPy and torch, devices that are refused."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import Device, Tensor


def test_devices_have_names():
    assert (Device.cpu(), Device.cuda(), Device.cuda(1)) == ("cpu", "cuda:0", "cuda:1")
    assert Device.cuda(1).index == 1
    assert cc.ones(2).to_device(Device.cpu()).device == Device.cpu()


@pytest.mark.parametrize("given", [((2, 3),), (2, 3), ((2, 3), cc.f16), ((2, 3), cc.f16, Device.cpu())])
def test_constructors_take_shape_dtype_and_device(given):
    for make, value in ((Tensor.zeros, 0), (Tensor.ones, 1)):
        found = make(*given)
        assert found.dtype == (cc.f16 if cc.f16 in given else cc.f32)
        np.testing.assert_array_equal(found.numpy(), np.full((2, 3), value))
    assert Tensor.zeros((2, 3), dtype=cc.i64, device=Device.cpu()).dtype == cc.i64


def test_random_numbers_are_torchs():
    for make, other in ((Tensor.randn, torch.randn), (Tensor.rand, torch.rand)):
        cc.manual_seed(3)
        torch.manual_seed(3)
        plain, moved = make((5, 7), device=Device.cpu()), make(2.0, 3.5, (4, 2), Device.cpu())
        expected, drawn = other(5, 7).numpy(), other(4, 2).numpy()
        np.testing.assert_allclose(plain.numpy(), expected, rtol=2e-6)
        scaled = drawn * 3.5 + 2 if make is Tensor.randn else drawn * 1.5 + 2
        np.testing.assert_allclose(moved.numpy(), scaled, rtol=2e-6)


def test_arrays_are_shared():
    array = np.arange(4.0, dtype=np.float32)
    found = Tensor.from_numpy(array, Device.cpu())
    array[0] = 9
    assert found[0].item() == 9
    assert Tensor.arange(2, 8, 3).tolist() == [2, 5]
    assert Tensor.cat([found, found]).shape == (8,)
    assert Tensor.stack([found, found], 1).shape == (4, 2)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "lt", "ge", "matmul"])
def test_operators_broadcast(name):
    random = np.random.default_rng(0)
    shapes = ((3, 1, 4, 2), (5, 2, 3)) if name == "matmul" else ((3, 1, 4), (5, 1))
    left, right = (random.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes)
    found = getattr(cc.from_numpy(left), f"broadcast_{name}")(cc.from_numpy(right))
    expected = getattr(torch, name)(torch.from_numpy(left), torch.from_numpy(right)).numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_dtypes_are_converted():
    assert cc.ones(2).to_dtype(cc.bf16).dtype == cc.bf16
    assert cc.ones(2).to_dtype("i64").dtype == cc.i64


def test_other_devices_are_refused():
    for call in (
        lambda: Tensor.zeros((2,), device=Device.cuda()),
        lambda: Tensor.randn((2,), Device.cuda()),
        lambda: Tensor.from_numpy(np.ones(2), Device.cuda()),
        lambda: cc.ones(2).to_device(Device.cuda()),
    ):
        with pytest.raises(cc.UsageError, match="E-TENSOR-DEVICE"):
            call()
