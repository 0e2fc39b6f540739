"""Records of compiled kernels: stages, LLVM passes, and kernels compiled in vain."""

from __future__ import annotations

import hashlib

import pytest
from candle_convert.runtime.jit import code_cache, compile_cost, kernel_store
from candle_convert.runtime.jit.address import f32
from candle_convert.runtime.jit.kernel_arguments import Address
from candle_convert.runtime.jit.range_kernel import range_kernel


@range_kernel
def doubled(x: Address, count: int, part: int, parts: int) -> None:
    x = f32(x)
    for index in range(count):
        x[index] = x[index] + x[index]


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The kernel store is an empty folder."""
    monkeypatch.setattr(code_cache, "folder", lambda: tmp_path)
    return tmp_path


def test_each_stage_and_pass_is_recorded(stored):
    costs = []
    with compile_cost.recorded(costs):
        code = kernel_store.store(doubled)
    (cost,) = costs
    assert cost.kernel == "doubled"
    assert cost.code == hashlib.sha256(code).hexdigest()[:16]
    assert cost.nbytes == len(code)
    assert (stored / cost.store).exists()
    assert cost.seconds.keys() == {
        "import", "translate", "type", "lower", "parse and link", "optimize", "emit", "relocate",
    }  # fmt: skip
    assert 0 < sum(cost.passes.values()) < 10 * cost.seconds["optimize"] + 0.1
    assert cost.test.endswith("test_each_stage_and_pass_is_recorded")


def test_nothing_is_recorded_unless_asked_for(stored, monkeypatch):
    monkeypatch.delenv(compile_cost.VARIABLE, raising=False)
    kernel_store.store(doubled)
    costs = []
    with compile_cost.recorded(costs):
        pass
    assert costs == []


def test_kernels_compiled_in_vain_are_counted():
    def cost(store, code):
        return compile_cost.KernelCost("k", store, "avx2", 1, {"emit": 0.5}, {}, code, 1, "")

    costs = [cost("a", "1"), cost("a", "1"), cost("b", "1"), cost("c", "2")]
    tables = dict(compile_cost.tables(costs, 5))
    assert [row.split(maxsplit=1) for row in tables["compiled in vain"]] == [
        ["0.5", "1 kernel compiled by more than one process"],
        ["0.5", "1 kernel of equal code under different keys"],
    ]
    assert tables["4 kernels, 2.0 processor seconds"] == ["      2.0  emit"]
