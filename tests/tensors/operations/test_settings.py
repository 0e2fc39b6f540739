"""States of random numbers, printing, and settings of scripts."""

import candle_convert as cc
import pytest
import torch


def test_random_state():
    cc.manual_seed(5)
    cc.randn(3)
    state = cc.get_rng_state()
    first = [cc.randn(5).tolist(), cc.randn(20).tolist()]
    cc.set_rng_state(state)
    assert [cc.randn(5).tolist(), cc.randn(20).tolist()] == first
    assert cc.initial_seed() == 5
    with pytest.raises(cc.UsageError, match="not a state"):
        cc.set_rng_state(cc.zeros(3))


def test_fork():
    torch.manual_seed(1)
    cc.manual_seed(1)
    with cc.random.fork_rng():
        cc.manual_seed(2)
        cc.rand(2)
    assert cc.rand(3).tolist() == torch.rand(3).tolist()


def test_printing():
    x = cc.tensor([1.23456, 0.00001])
    cc.set_printoptions(precision=2, sci_mode=True)
    assert "1.23e+00" in str(x)
    cc.set_printoptions(sci_mode=False)
    assert "1.23" in str(x)
    cc.set_printoptions(profile="default")
    assert "1.2346e+00" in str(x)
    with pytest.raises(cc.UsageError, match="profile"):
        cc.set_printoptions(profile="other")


def test_threads():
    before = cc.get_num_threads()
    cc.set_num_threads(1)
    assert cc.get_num_threads() == 1
    cc.set_num_threads(before)
    with pytest.raises(cc.UsageError, match="threads"):
        cc.set_num_threads(0)


def test_words():
    with pytest.raises(cc.UsageError, match="precision"):
        cc.set_float32_matmul_precision("low")
    cc.set_default_tensor_type(cc.DoubleTensor)
    assert cc.zeros(1).dtype == cc.float64
    cc.set_default_tensor_type("torch.FloatTensor")
    assert cc.zeros(1).dtype == cc.float32
    assert cc.can_cast(cc.int32, cc.float32)
    assert not cc.can_cast(cc.float32, cc.int32)
