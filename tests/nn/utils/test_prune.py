"""Pruned weights are those of torch.nn.utils.prune."""

from __future__ import annotations

import importlib
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch


def _layer(t: Any) -> Any:
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Conv2d(2, 6, 3), t.nn.Flatten(), t.nn.Linear(6, 4))


PRUNED = {
    "smallest": lambda p, m: p.l1_unstructured(m[2], "weight", 0.3),
    "smallest twice": lambda p, m: p.l1_unstructured(p.l1_unstructured(m[2], "weight", 5), "weight", 0.5),
    "slices": lambda p, m: p.ln_structured(m[0], "weight", 0.5, 2, 0),
    "slices of slices": lambda p, m: p.ln_structured(p.ln_structured(m[0], "weight", 2, 1, 0), "weight", 1, 2, 0),
    "random": lambda p, m: p.random_unstructured(m[2], "weight", 0.4),
    "mask": lambda p, m: p.custom_from_mask(m[2], "bias", m[2].bias > 0),
    "identity": lambda p, m: p.identity(m[0], "bias"),
    "global": lambda p, m: p.global_unstructured([(m[0], "weight"), (m[2], "weight")], p.L1Unstructured, amount=0.2),
}


@pytest.mark.parametrize("name", PRUNED)
def test_pruned(name: str) -> None:
    def found(t: Any) -> list[Any]:
        prune, model = importlib.import_module(f"{t.__name__}.nn.utils.prune"), _layer(t)
        PRUNED[name](prune, model)
        x = t.arange(18.0).reshape(1, 2, 3, 3) / 9
        model(x).sum().backward()
        grads = [each.grad for each in model.parameters()]
        t.optim.SGD(model.parameters(), 0.1).step()
        names = list(model.state_dict())
        values = [model(x), model[0].weight, model[2].bias]
        assert prune.is_pruned(model)
        for layer, key in [
            (layer, key) for layer in model for key in ("weight", "bias") if f"{key}_mask" in dir(layer)
        ]:
            prune.remove(layer, key)
        assert not prune.is_pruned(model)
        return [names, sorted(model.state_dict()), *values, model(x), *grads]

    ours, theirs = found(cc), found(torch)
    assert ours[:2] == theirs[:2]
    for one, other in zip(ours[2:], theirs[2:], strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-5, 1e-6)


def test_methods_of_ones_own() -> None:
    def found(t: Any) -> Any:
        prune, model = importlib.import_module(f"{t.__name__}.nn.utils.prune"), _layer(t)

        class EveryOther(prune.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t: Any, default_mask: Any) -> Any:
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        EveryOther.apply(model[2], "bias")
        return model[2].bias.tolist()

    assert found(cc) == found(torch)
    with pytest.raises(cc.UsageError, match="is not pruned"):
        cc.nn.utils.prune.remove(_layer(cc)[2], "bias")
