"""cc.fft: values, dtypes and gradients of all transforms are torch's; lengths of any factors take n log n steps."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_gradients import compare_with_torch, complex_array

NORMS = (None, "ortho", "forward")
DTYPES = (np.float32, np.complex64, np.complex128)
REAL_ONLY = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")


def transform(name, **options):
    return lambda m, x: getattr(m.fft, name)(x, **options)


def allowed(name, dtype):
    return name not in REAL_ONLY or np.dtype(dtype).kind == "f"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (4, 1), (9, 1), (7, 0), (1, -1)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_along_a_dim(name, dtype, n, dim, norm):
    if allowed(name, dtype):
        compare_with_torch(transform(name, n=n, dim=dim, norm=norm), complex_array(3, 6, 5, dtype=dtype))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("options", [{}, {"s": (4, 7)}, {"s": (7, 4), "dim": (0, 1)}, {"dim": (0, -1)}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_along_several_dims(name, dtype, options, norm):
    if allowed(name, dtype):
        for ending in ("2", "n"):
            compare_with_torch(transform(f"{name}{ending}", norm=norm, **options), complex_array(3, 6, 5, dtype=dtype))


@pytest.mark.parametrize("n", [5, 8])
def test_frequencies(n):
    for name in ("fftfreq", "rfftfreq"):
        ours, theirs = getattr(cc.fft, name)(n, 0.5), getattr(torch.fft, name)(n, 0.5)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_shifts(dim):
    for name in ("fftshift", "ifftshift"):
        compare_with_torch(transform(name, dim=dim), complex_array(3, 4))


@pytest.mark.parametrize("n", [48000, 44101, 65536])
def test_long_transforms(n):
    x = complex_array(n, dtype=np.float64)
    found = cc.fft.irfft(cc.fft.rfft(cc.tensor(x)), n).numpy()
    np.testing.assert_allclose(found, x, atol=1e-10)
    np.testing.assert_allclose(cc.fft.fft(cc.tensor(x)).numpy(), torch.fft.fft(torch.tensor(x)).numpy(), atol=1e-8)


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        (lambda f, x: f.rfft(x + 1j), "expected real elements"),
        (lambda f, x: f.fft(x, n=0), "at least 1"),
        (lambda f, x: f.fft(x, norm="other"), "not a normalization"),
        (lambda f, x: f.fft2(x[0], dim=(0, 0)), "one dim twice"),
        (lambda f, x: f.fftn(x, s=(2, 2, 2)), "3 lengths"),
        (lambda f, x: f.fft(x.half()), "Convert it with float"),
        (lambda f, x: f.irfft(x[:, :1]), "at least 1"),
    ],
)
def test_errors_name_what_does_not_fit(compute, why):
    with pytest.raises(cc.Error, match=why):
        compute(cc.fft, cc.ones(3, 4))
    with pytest.raises((RuntimeError, IndexError)):
        compute(torch.fft, torch.ones(3, 4).half() if "float" in why else torch.ones(3, 4))
