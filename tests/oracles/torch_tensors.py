"""torch as the oracle of tensors: one expression evaluated by both, with the package's name as `m`."""

import candle_convert as cc
import numpy as np
import torch

TORCH_NAMES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool",
}  # fmt: skip
TOLERANCES = {"f16": (2e-3, 1e-3), "bf16": (2e-2, 1e-2), "f32": (2e-5, 2e-6), "f64": (1e-9, 1e-10)}


def example(shape, dtype, seed=0):
    """Small values, some of them equal: floats between -3 and 3, integers from -4 to 5."""
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return torch.from_numpy(np.asarray(rng.random(shape) < 0.5))
    if dtype in ("f16", "bf16", "f32", "f64"):
        return torch.from_numpy(rng.uniform(-3, 3, shape)).to(getattr(torch, TORCH_NAMES[dtype]))
    return torch.from_numpy(rng.integers(0 if dtype == "u8" else -4, 6, shape)).to(getattr(torch, TORCH_NAMES[dtype]))


def ours(tensor):
    """A tensor of torch as ours."""
    return cc.from_dlpack(tensor.detach().contiguous().clone())


def evaluated(expression, m, values):
    """An expression of the module `m`, torch or ours, and of torch's tensors `values`, by name."""
    if m is cc:
        values = {name: ours(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()}
    return eval(expression, {"m": m, **values})


def compare(theirs, found, rtol=None, atol=None):
    """Equal dtypes and shapes, and values within the tolerance of the dtype."""
    if isinstance(theirs, tuple | list):
        assert len(theirs) == len(found)
        for one, other in zip(theirs, found, strict=True):
            compare(one, other, rtol, atol)
        return
    if not isinstance(theirs, torch.Tensor):
        assert theirs == found or (theirs != theirs and found != found)
        return
    assert isinstance(found, cc.Tensor)
    assert str(theirs.dtype) == f"torch.{TORCH_NAMES[found.dtype.name]}"
    assert tuple(theirs.shape) == found.shape
    array = found.detach().numpy()
    assert array.shape == found.shape
    wide = np.float64 if found.dtype.kind == "float" else None
    tolerance = TOLERANCES.get(found.dtype.name, (0, 0))
    np.testing.assert_allclose(
        array.astype(wide or array.dtype),
        (theirs.detach().double() if wide else theirs).numpy(force=True),
        rtol=tolerance[0] if rtol is None else rtol,
        atol=tolerance[1] if atol is None else atol,
    )
