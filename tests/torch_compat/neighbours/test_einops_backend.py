"""einops takes our tensors: values and gradients are those it gives for torch's."""

import subprocess
import sys

import candle_convert as cc
import einops
import numpy as np
import pytest
import torch

CASES = {
    "rearrange": lambda x, y: einops.rearrange(x, "a (b c) d -> d (a c) b", c=2),
    "mean": lambda x, y: einops.reduce(x, "a (b 2) d -> a b", "mean"),
    "max": lambda x, y: einops.reduce(x, "a b d -> b", "max"),
    "min": lambda x, y: einops.reduce(x, "a b d -> 1 b d", "min"),
    "sum": lambda x, y: einops.reduce(x, "a b d -> ", "sum"),
    "prod": lambda x, y: einops.reduce(x, "a b d -> d", "prod"),
    "repeat": lambda x, y: einops.repeat(x, "a b d -> (a r) b s d", r=2, s=3),
    "einsum": lambda x, y: einops.einsum(x, y, "a b d, d e -> a e b"),
    "list": lambda x, y: einops.rearrange([x, 2 * x], "n a b d -> a (n b) d"),
    "pack": lambda x, y: einops.pack([x, y], "* d")[0] if y.shape[1] == x.shape[2] else einops.pack([x], "a *")[0],
    "unpack": lambda x, y: einops.unpack(x, [[1], [3]], "a * d")[1],
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_torch(case):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 5), (5, 5))]
    ours = [cc.tensor(array, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    found, expected = CASES[case](*ours), CASES[case](*theirs)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    for one, two in zip(ours, theirs, strict=True):
        assert (one.grad is None) == (two.grad is None)
        if one.grad is not None:
            np.testing.assert_allclose(one.grad.numpy(), two.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_other_functions():
    x = cc.arange(12).reshape(3, 4)
    assert isinstance(einops.asnumpy(x), np.ndarray)
    assert einops.parse_shape(x, "a b") == {"a": 3, "b": 4}
    assert einops.reduce(x > 5, "a b -> a", "any").tolist() == [False, True, True]
    assert einops.reduce(x > 5, "a b -> a", "all").tolist() == [False, False, True]
    assert einops.rearrange(cc.nn.Parameter(cc.ones(2, 3)), "a b -> b a").shape == (3, 2)


@pytest.mark.parametrize("order", ["import einops, candle_convert as cc", "import candle_convert as cc, einops"])
def test_the_order_of_imports_does_not_matter(order):
    program = f"{order}\nprint(tuple(einops.rearrange(cc.ones(2, 3), 'a b -> b a').shape))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "(3, 2)"


def test_importing_the_package_does_not_import_einops():
    program = "import sys, candle_convert as cc; cc.ones(2).sum().item(); print('einops' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
