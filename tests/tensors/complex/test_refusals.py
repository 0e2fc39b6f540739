"""What is not defined for complex numbers is refused as torch does; what is defined is torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_gradients import complex_array

REFUSED = {
    **{
        name: lambda m, z, name=name: getattr(m, name)(z)
        for name in ("lgamma", "digamma", "erfinv", "erfc", "i0", "histc", "unique")
    },
    **{
        name: lambda m, z, name=name: getattr(m.special, name)(z)
        for name in ("bessel_j0", "ndtr", "ndtri", "entr", "log_ndtr", "spherical_bessel_j0")
    },
    **{
        name: lambda m, z, name=name: getattr(m, name)(z, z)
        for name in ("igamma", "igammac", "logaddexp2", "hypot", "searchsorted", "bucketize")
    },
    "zeta": lambda m, z: m.special.zeta(z, z),
    "chebyshev_polynomial_t": lambda m, z: m.special.chebyshev_polynomial_t(z, z),
    "polygamma": lambda m, z: m.polygamma(1, z),
    "mvlgamma": lambda m, z: m.mvlgamma(z, 2),
    "grid_sample": lambda m, z: m.nn.functional.grid_sample(
        z.reshape(1, 1, 1, 3), m.zeros(1, 1, 1, 2), align_corners=False
    ),
    "tensor": lambda m, z: m.tensor([1 + 2j], dtype=m.float32),
    "new_tensor": lambda m, z: m.zeros(1).new_tensor([1j]),
    "full": lambda m, z: m.full((2,), 1 + 2j, dtype=m.float32),
    "full_like": lambda m, z: m.full_like(m.zeros(2), 1j),
    "linspace": lambda m, z: m.linspace(0, 1j, 3, dtype=m.float32),
    "index_add": lambda m, z: m.index_add(m.zeros(3), 0, m.tensor([0]), m.ones(1), alpha=2j),
    "float": lambda m, z: float(z[0]),
    "int": lambda m, z: int(z[0]),
    "istft": lambda m, z: m.istft(m.ones(5, 4).to(m.complex64), 8, length=0, window=m.ones(8)),
    "fftfreq": lambda m, z: m.fft.fftfreq(-1),
    "fftshift": lambda m, z: m.fft.fftshift(z, 4),
}
DEFINED = {
    "full": lambda m, z: m.full((2,), 1 + 0j, dtype=m.float32),
    "linspace": lambda m, z: m.linspace(0, 1j, 3),
    "logspace": lambda m, z: m.logspace(0, 1j, 3),
    "index_add": lambda m, z: m.index_add(z, 0, m.tensor([0]), z[:1], alpha=2j),
    "nan_to_num": lambda m, z: m.nan_to_num(m.complex(m.tensor([float("nan"), 1]), m.tensor([2, -float("inf")]))),
    "nan_to_num of values": lambda m, z: m.nan_to_num(
        m.complex(m.tensor([float("nan"), 1]), m.tensor([2, float("inf")])), 3.0, 4.0
    ),
    "float": lambda m, z: m.tensor([float(m.tensor(1 + 0j)), int(m.tensor(2 + 0j))]),
    "fftfreq of none": lambda m, z: m.fft.fftfreq(0),
    "rfftfreq of none": lambda m, z: m.fft.rfftfreq(0),
    "fftfreq": lambda m, z: m.fft.fftfreq(5, 0.3),
    "rfftfreq": lambda m, z: m.fft.rfftfreq(6),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises((RuntimeError, TypeError, IndexError)):
        REFUSED[name](torch, torch.tensor(complex_array(3)))
    with pytest.raises(cc.UsageError, match="E-TENSOR"):
        REFUSED[name](cc, cc.tensor(complex_array(3)))


@pytest.mark.parametrize("name", DEFINED)
def test_defined(name):
    ours, theirs = (DEFINED[name](m, m.tensor(complex_array(3))) for m in (cc, torch))
    assert ours.numpy().dtype == theirs.numpy().dtype
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


def test_the_mean_of_normal_numbers_is_that_of_both_parts():
    for made in (cc.zeros(20000, dtype=cc.complex64).normal_(3, 1), cc.normal(3.0, 1.0, (20000,), dtype=cc.complex64)):
        assert abs(complex(made.mean()) - (3 + 3j)) < 0.05
        assert abs(float(made.real.std()) - 0.5**0.5) < 0.02


def test_candle_takes_floats_first_as_mean_and_deviation():
    assert cc.Tensor.randn(0.0, 1.0, 6).shape == (6,)
    assert cc.Tensor.rand(-1.0, 1.0, 2, 3).shape == (2, 3)
    assert cc.Tensor.randn(2, 3, 4).shape == (2, 3, 4)
