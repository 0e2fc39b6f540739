"""autocast: dtypes and values of layers are those of torch under its own, and training goes the same way."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 2, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 3, 6)


def network(m):
    nn = m.nn
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 3))


def test_dtypes():
    x, w = cc.tensor(X[:, 0]), cc.ones(8, 8)
    with cc.autocast("cpu", dtype=cc.bfloat16):
        product = x @ w
        assert product.dtype is cc.bfloat16
        assert (product + x).dtype is cc.float32
        assert (product @ w).dtype is (product * 2).dtype is cc.bfloat16
        assert product.softmax(-1).dtype is cc.float32
        assert cc.einsum("bij,jk->bik", product, w).dtype is cc.bfloat16
        with cc.autocast("cpu", enabled=False):
            assert (x @ w).dtype is cc.float32
            with pytest.raises(cc.UsageError, match="E-TENSOR-DTYPE"):
                product @ w
    assert (x @ w).dtype is cc.float32


def test_jit_traces_again():
    product = cc.jit(lambda x: x @ x)
    x = cc.ones(2, 2)
    assert product(x).dtype is cc.float32
    with cc.autocast():
        assert product(x).dtype is cc.bfloat16
    assert product(x).dtype is cc.float32


def test_training():
    theirs, ours = network(torch), network(cc)
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    their_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
    optimizer = cc.optim.SGD(ours.parameters(), lr=0.05)
    for _ in range(20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            their_loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(X)), torch.tensor(LABELS))
        with cc.autocast("cpu", dtype="bf16"):
            loss = cc.nn.functional.cross_entropy(ours(cc.tensor(X)), cc.tensor(LABELS))
        for made, of in ((their_optimizer, their_loss), (optimizer, loss)):
            made.zero_grad()
            of.backward()
            made.step()
        np.testing.assert_allclose(loss.item(), their_loss.item(), rtol=1e-2, atol=1e-3)
    assert all(each.grad.dtype is cc.float32 for each in ours.parameters())


@pytest.mark.parametrize("options", [{"device_type": "cuda"}, {"dtype": "f32"}], ids=str)
def test_refused(options):
    with pytest.raises((cc.UsageError, cc.UnsupportedError)):
        cc.autocast(**options)
