"""The registry of caches of the process: one reset empties all of them, and programs compute the same afterwards."""

import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.base import process_cache
from candle_convert.runtime.ir import registry
from candle_convert.runtime.plugin import discovery

SCRIPT = """
import sys
import numpy as np
import candle_convert as cc
from candle_convert.convert.open.open_model import open_model
from candle_convert.runtime.tensor import recomputed
path = sys.argv[1]
np.savez(path, a=np.zeros((300, 300), np.float32))
graph = open_model(path)
weight = next(iter(graph.weights.values()))
def make():
    return [weight.numpy()]
recomputed._results[id(make)] = (make, [weight])
del graph, weight
"""


def test_reset_makes_functions_compute_again():
    results = iter([1, 2])
    cached = process_cache.process_cache(lambda: next(results))
    assert (cached(), cached()) == (1, 1)
    process_cache.reset()
    assert cached() == 2


@pytest.mark.parametrize("kept", process_cache.Kept)
def test_reset_empties_the_kinds_that_are_named(kept):
    container = process_cache.owned({"key": 1}, kept)
    process_cache.reset(*(kind for kind in process_cache.Kept if kind not in (kept, process_cache.PROCESS)))
    assert container
    process_cache.reset()
    assert bool(container) == (kept is process_cache.PROCESS)


@pytest.mark.parametrize(
    "cached", [discovery.index, discovery.module_files, registry.operators], ids=lambda cached: cached.__name__
)
def test_caches_of_files_are_registered(cached):
    discovery.FORMATS.names(), registry.operators()
    assert cached.cache_info().currsize
    process_cache.reset(process_cache.FILES)
    assert not cached.cache_info().currsize


def test_operators_are_the_same_objects_afterwards():
    before = registry.operator("Relu")
    process_cache.reset()
    assert registry.operator("Relu") is before


def test_programs_compute_the_same_after_a_reset():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    def computed(tensor):
        loss = ((tensor @ tensor.T).exp().log() + 1).sum()
        loss.backward()
        return loss.item(), tensor.grad.numpy()

    kept = cc.tensor(x / 10, requires_grad=True)
    loss, grad = computed(kept)
    assert process_cache.size() > 20
    process_cache.reset()
    assert process_cache.size() == 0
    kept.grad = None
    for tensor in (kept, cc.tensor(x / 10, requires_grad=True)):
        again, gradient = computed(tensor)
        np.testing.assert_allclose(again, loss)
        np.testing.assert_allclose(gradient, grad)
    product = (x / 10) @ (x / 10).T
    np.testing.assert_allclose(loss, (product + 1).sum(), rtol=1e-5)


def test_files_that_caches_hold_are_closed_at_exit(tmp_path):
    ran = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path / "weights.npz"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
