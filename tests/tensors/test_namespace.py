"""Names of the package, and results that are written into `out`, as in PyTorch."""

import importlib

import candle_convert as cc
import pytest
import torch

MODULES = {
    "accelerator": "is_available", "autograd.function": "Function", "autograd.functional": "jacobian",
    "autograd.variable": "Variable", "backends.cudnn": "benchmark", "backends.mps": "is_available",
    "cuda.amp": "GradScaler", "nn.modules.batchnorm": "_BatchNorm", "nn.modules.loss": "_Loss",
    "nn.modules.module": "Module", "nn.modules.utils": "_pair", "nn.parallel": "DataParallel",
    "nn.parameter": "Parameter", "optim.optimizer": "Optimizer", "random": "fork_rng", "utils.checkpoint": "checkpoint",
    "utils.data.dataloader": "default_collate", "utils.data.sampler": "SubsetRandomSampler",
    "utils.tensorboard": "SummaryWriter",
}  # fmt: skip


@pytest.mark.parametrize(("module", "name"), MODULES.items())
def test_modules(module, name):
    assert hasattr(importlib.import_module(f"candle_convert.{module}"), name)


def test_files_of_layers():
    assert isinstance(cc.nn.BatchNorm2d(2), cc.nn.modules.batchnorm._BatchNorm)
    assert cc.nn.modules.Linear is cc.nn.Linear
    assert cc.nn.parallel.DataParallel(cc.nn.Linear(2, 1)).state_dict().keys() == {"module.weight", "module.bias"}


def test_out():
    x, y = torch.rand(3, 4), torch.rand(3, 4)

    def written(t, a, b):
        sums, products = t.zeros(3, 4), t.zeros(2, 3, 4, dtype=t.float64)
        assert t.add(a, b, out=sums) is sums
        t.mul(a, b, out=products[1])
        values, places = t.empty(0), t.empty(0, dtype=t.int64)
        t.max(a, 1, out=(values, places))
        return [each.tolist() for each in (sums, products, values, places)]

    assert written(cc, cc.tensor(x), cc.tensor(y)) == written(torch, x, y)


def test_out_of_another_kind():
    with pytest.raises(cc.UsageError, match="into i64"):
        cc.exp(cc.ones(2), out=cc.zeros(2, dtype=cc.int64))
    with pytest.raises(cc.UsageError, match="gradients"):
        cc.exp(cc.ones(2, requires_grad=True), out=cc.zeros(2))
    with pytest.raises(cc.UsageError, match="into str"):
        cc.exp(cc.ones(2), out="x")
    with pytest.warns(UserWarning, match="becomes"):
        assert cc.exp(cc.ones(2), out=cc.zeros(3)).shape == (2,)


def test_numpy_words():
    x = cc.arange(6.0).reshape(2, 3)
    assert x.sum(axis=1, keepdims=True).tolist() == [[3], [12]]
    assert cc.cat([x, x], axis=1).shape == (2, 6)
    assert cc.pi == torch.pi
    assert x[:, cc.newaxis].shape == (2, 1, 3)
