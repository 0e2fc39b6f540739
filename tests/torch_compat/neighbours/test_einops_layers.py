"""Layers of einops are modules of ours: values, parameters and gradients are those of einops' layers for torch."""

import pickle
import subprocess
import sys

import candle_convert as cc
import einops.layers.torch as theirs
import numpy as np
import pytest
import torch

ours = sys.modules["einops.layers.candle_convert"]
CASES = {
    "rearrange": ("Rearrange", ("b c (h i) (w j) -> b (c h w) i j",), {"i": 2, "j": 2}),
    "reduce": ("Reduce", ("b c (h h2) (w w2) -> b c h w", "max"), {"h2": 2, "w2": 2}),
    "mean": ("Reduce", ("b c h w -> b c", "mean"), {}),
    "mix": ("EinMix", ("b c h w -> b h w d",), {"weight_shape": "c d", "bias_shape": "d", "c": 3, "d": 5}),
    "heads": ("EinMix", ("b c (h h2) w -> b (c h2 k) h w",), {"weight_shape": "c h2 k", "c": 3, "h2": 2, "k": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_torch(case):
    name, arguments, lengths = CASES[case]
    one, two = getattr(ours, name)(*arguments, **lengths), getattr(theirs, name)(*arguments, **lengths)
    assert isinstance(one, cc.nn.Module)
    assert repr(one) == repr(two)
    assert {k: tuple(v.shape) for k, v in one.state_dict().items()} == {
        k: tuple(v.shape) for k, v in two.state_dict().items()
    }
    two.load_state_dict({k: torch.tensor(v.numpy()) for k, v in one.state_dict().items()})
    array = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    x, y = cc.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    found, expected = one(x), two(y)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-5)
    for (key, p), (_, q) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-4, err_msg=key)


def test_in_a_model():
    model = cc.nn.Sequential(cc.nn.Conv2d(1, 2, 3), ours.Rearrange("b c h w -> b (c h w)"), cc.nn.Linear(8, 2))
    assert model(cc.ones(3, 1, 4, 4)).shape == (3, 2)
    assert pickle.loads(pickle.dumps(model[1]))(cc.ones(1, 2, 2, 2)).shape == (1, 8)


def test_it_can_be_imported_by_name():
    program = (
        "import candle_convert; from einops.layers.candle_convert import Rearrange; print(Rearrange('a b -> b a'))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Rearrange('a b -> b a')"
