"""Initialisers: the numbers of torch for a seed, or their distribution where torch draws them otherwise."""

import candle_convert as cc
import numpy as np
import pytest
import torch

EXACT = {
    "uniform_": (-0.3, 0.7), "normal_": (0.5, 2.0), "constant_": (0.3,), "ones_": (), "zeros_": (), "eye_": (),
    "xavier_uniform_": (1.5,), "xavier_normal_": (), "kaiming_uniform_": (0.2, "fan_out"), "kaiming_normal_": (),
    "orthogonal_": (0.7,),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("shape", [(6, 9), (9, 4), (3, 4, 5)])
def test_numbers_are_torchs(name, shape):
    if name == "eye_" and len(shape) > 2:
        pytest.skip("matrices alone")
    found = []
    for m in (cc, torch):
        m.manual_seed(2)
        found.append(getattr(m.nn.init, name)(m.zeros(*shape), *EXACT[name]).numpy())
    if name.endswith("uniform_"):
        np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_dirac(groups):
    found = [m.nn.init.dirac_(m.zeros(4, 3, 3, 5), groups).numpy() for m in (cc, torch)]
    np.testing.assert_array_equal(*found)


def test_truncated_normal_numbers():
    cc.manual_seed(0)
    torch.manual_seed(0)
    found = cc.nn.init.trunc_normal_(cc.zeros(20000), 0.1, 0.5, -0.4, 1.0).numpy()
    expected = torch.nn.init.trunc_normal_(torch.zeros(20000), 0.1, 0.5, -0.4, 1.0).numpy()
    assert found.min() >= -0.4
    assert found.max() <= 1
    np.testing.assert_allclose(np.quantile(found, [0.1, 0.5, 0.9]), np.quantile(expected, [0.1, 0.5, 0.9]), atol=0.02)


def test_sparse():
    found = cc.nn.init.sparse_(cc.zeros(50, 7), 0.3, 2.0).numpy()
    assert ((found == 0).sum(0) == 15).all()


@pytest.mark.parametrize("name", ["linear", "relu", "tanh", "selu", "leaky_relu", "sigmoid"])
def test_gains(name):
    assert cc.nn.init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))


def test_tensors_that_do_not_fit():
    for call in (
        lambda: cc.nn.init.xavier_uniform_(cc.zeros(3)),
        lambda: cc.nn.init.eye_(cc.zeros(3)),
        lambda: cc.nn.init.kaiming_uniform_(cc.zeros(3, 3), mode="fan"),
        lambda: cc.nn.init.calculate_gain("what"),
    ):
        with pytest.raises(cc.UsageError, match="E-NN"):
            call()
