"""Weight norm by a hook, against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("dim", [0, 2, None])
def test_training(dim):
    their = torch.nn.utils.weight_norm(torch.nn.Conv1d(3, 4, 2), dim=dim)
    mine = cc.nn.utils.weight_norm(cc.nn.Conv1d(3, 4, 2), dim=dim)
    assert list(mine.state_dict()) == list(their.state_dict())
    mine.load_state_dict({key: value.numpy() for key, value in their.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    for m, layer in ((cc, mine), (torch, their)):
        optimizer = m.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (layer(m.tensor(x)) ** 2).sum().backward()
            optimizer.step()
    for key, value in their.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5)
    expected = torch.nn.utils.remove_weight_norm(their).weight.detach().numpy()
    cc.nn.utils.remove_weight_norm(mine)
    assert sorted(mine.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(mine.weight.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_what_is_not_there():
    with pytest.raises(cc.UsageError, match="has no parameter 'wait'"):
        cc.nn.utils.weight_norm(cc.nn.Linear(2, 3), "wait")
    with pytest.raises(cc.UsageError, match="is not computed by weight_norm"):
        cc.nn.utils.remove_weight_norm(cc.nn.Linear(2, 3))
