"""Hooks of an optimizer's state are called as torch calls them."""

import candle_convert as cc
import pytest
import torch


def calls(m, kind):
    weight = m.nn.Parameter(m.ones(2))
    optimizer = getattr(m.optim, kind)([weight], lr=0.1)
    log = []
    optimizer.register_state_dict_pre_hook(lambda o: log.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": log.append("saved") or 1})
    optimizer.register_state_dict_post_hook(lambda o, state: log.append("first"), prepend=True)
    optimizer.register_load_state_dict_pre_hook(
        lambda o, state: {
            name: each for name, each in state.items() if name != log.append("loading") and name != "note"
        }
    )
    handle = optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step(lambda: weight.sum())
    state = optimizer.state_dict()
    assert state["note"] == 1
    optimizer.load_state_dict(state)
    handle.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    return log


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "LBFGS", "Adafactor"])
def test_hooks(kind):
    assert calls(cc, kind) == calls(torch, kind)
