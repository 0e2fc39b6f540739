"""The registry of caches of the package's files: one reset empties all of them."""

import pytest
from candle_convert.runtime.ir import registry
from candle_convert.runtime.plugin import discovery, package_cache


def test_reset_makes_functions_compute_again():
    results = iter([1, 2])
    cached = package_cache.package_cache(lambda: next(results))
    assert (cached(), cached()) == (1, 1)
    package_cache.reset()
    assert cached() == 2


@pytest.mark.parametrize(
    "cached", [discovery.index, discovery.module_files, registry.operators], ids=lambda cached: cached.__name__
)
def test_caches_of_files_are_registered(cached):
    discovery.FORMATS.names(), registry.operators()
    assert cached.cache_info().currsize
    package_cache.reset()
    assert not cached.cache_info().currsize


def test_operators_are_the_same_objects_afterwards():
    before = registry.operator("Relu")
    package_cache.reset()
    assert registry.operator("Relu") is before
