"""Groups, accumulation, clipping, 16-bit parameters, closures and errors, against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import optim
from candle_convert.tensors.core import realize

RNG = np.random.default_rng(0)
WEIGHT, X = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal((5, 4)).astype(np.float32)


def parameters(m):
    return m.tensor(WEIGHT, requires_grad=True), m.tensor(WEIGHT[0], requires_grad=True)


def loss_of(m, w, b):
    return ((m.tensor(X) @ w + b).tanh() - 1).square().mean()


def test_groups_with_options_of_their_own():
    found = []
    for m, made in ((cc, optim), (torch, torch.optim)):
        w, b = parameters(m)
        optimizer = made.AdamW([{"params": [w]}, {"params": [b], "lr": 0.1, "weight_decay": 0}], lr=0.01)
        frozen = m.tensor(WEIGHT, requires_grad=True)
        optimizer.add_param_group({"params": frozen})
        for step in range(6):
            optimizer.zero_grad()
            loss_of(m, w, b if step % 2 else b.detach()).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5
        assert frozen.grad is None
        saved = optimizer.state_dict()
        steps = [float(each["step"]) for each in saved["state"].values()]
        found.append([w.detach().numpy(), b.detach().numpy(), steps, [g["params"] for g in saved["param_groups"]]])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(np.concatenate(ours, None), np.concatenate(theirs, None), rtol=0, atol=1e-6)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("wrap", [cc.jit, lambda f: f], ids=["jit", "eager"])
def test_accumulation_and_clipping(wrap, to_none):
    found = []
    for m, made, clip in ((cc, optim, optim.clip_grad_norm_), (torch, torch.optim, torch.nn.utils.clip_grad_norm_)):
        w, b = parameters(m)
        optimizer = made.SGD([w, b], lr=0.1, momentum=0.9)

        def step(m=m, w=w, b=b, optimizer=optimizer, clip=clip):
            optimizer.zero_grad(set_to_none=to_none)
            for _ in range(3):
                (loss_of(m, w, b) / 3).backward()
            norm = clip([w, b], 0.05)
            optimizer.step()
            return norm

        step = wrap(step) if m is cc else step
        norms = [float(step()) for _ in range(5)]
        found.append((norms, w.detach().numpy(), w.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_accumulation_across_calls():
    """Gradients of jitted backward calls add up until a step outside."""
    w, b = parameters(cc)
    optimizer = optim.SGD([w, b], lr=0.1)
    backward = cc.jit(lambda: loss_of(cc, w, b).backward())
    their_w, their_b = parameters(torch)
    theirs = torch.optim.SGD([their_w, their_b], lr=0.1)
    for _ in range(3):
        for _ in range(2):
            backward()
            loss_of(torch, their_w, their_b).backward()
        optimizer.step()
        optimizer.zero_grad()
        theirs.step()
        theirs.zero_grad()
    np.testing.assert_allclose(w.detach().numpy(), their_w.detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", [1.0, 3.0, float("inf")])
def test_norms_and_values(norm):
    w, b = parameters(cc)
    their_w, their_b = parameters(torch)
    loss_of(cc, w, b).backward()
    loss_of(torch, their_w, their_b).backward()
    theirs = torch.nn.utils.clip_grad_norm_([their_w, their_b], 0.1, norm)
    np.testing.assert_allclose(optim.clip_grad_norm_([w, b], 0.1, norm).item(), theirs.item(), rtol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), their_w.grad.numpy(), rtol=1e-5)
    optim.clip_grad_value_([w, b], 0.01)
    torch.nn.utils.clip_grad_value_([their_w, their_b], 0.01)
    np.testing.assert_allclose(b.grad.numpy(), their_b.grad.numpy(), rtol=1e-5)


def test_parameters_of_16_bits_have_f32_masters():
    """Steps that bf16 alone would lose add up; oracle: torch's on f32 copies that are rounded for each gradient."""
    w = cc.tensor(WEIGHT, dtype=cc.bfloat16, requires_grad=True)
    master = torch.tensor(WEIGHT).bfloat16().float()
    optimizer, theirs = optim.AdamW([w], lr=1e-4), torch.optim.AdamW([master], lr=1e-4)
    for _ in range(50):
        optimizer.zero_grad()
        (w.float() ** 2).sum().backward()
        optimizer.step()
        master.grad = (2 * master.bfloat16().float()).bfloat16().float()
        theirs.step()
    assert w.dtype is cc.bfloat16
    np.testing.assert_allclose(optimizer.state[w]["master"].numpy(), master.numpy(), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(w.detach().float().numpy(), master.bfloat16().float().numpy())


def test_a_step_is_one_plan(monkeypatch):
    runs = []
    run = realize.Plan.run
    monkeypatch.setattr(realize.Plan, "run", lambda self, arrays: runs.append(self) or run(self, arrays))
    w, b = parameters(cc)
    optimizer = optim.AdamW([w, b])
    for rate in (0.1, 0.2, 0.3):
        optimizer.zero_grad()
        loss = loss_of(cc, w, b)
        loss.backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        loss.item()
    assert len(runs) == 3
    assert runs[1] is runs[2]


def test_closure_and_repr():
    w, b = parameters(cc)
    optimizer = optim.SGD([("w", w), ("b", b)], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(cc, w, b)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]
    assert "lr: 0.1" in repr(optimizer)


def test_options_changed_under_jit():
    """Numbers are read at each call; what changes the formula is traced again."""
    w, _ = parameters(cc)
    their_w, _ = parameters(torch)
    optimizer, theirs = optim.SGD([w], lr=0.1), torch.optim.SGD([their_w], lr=0.1)

    @cc.jit
    def step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    for decay in (0, 0, 0.5, 0.25):
        for each in (optimizer, theirs):
            each.param_groups[0]["weight_decay"] = decay
        step()
        theirs.zero_grad()
        (their_w * their_w).sum().backward()
        theirs.step()
    np.testing.assert_allclose(w.detach().numpy(), their_w.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda w: optim.SGD([], lr=0.1), "empty"),
        (lambda w: optim.SGD(w), "iterable"),
        (lambda w: optim.SGD([w, w]), "twice"),
        (lambda w: optim.SGD([w * 2]), "computed from others"),
        (lambda w: optim.SGD([1]), "not int"),
        (lambda w: optim.SGD([w], lr=-1), "lr is -1"),
        (lambda w: optim.SGD([w], nesterov=True), "nesterov"),
        (lambda w: optim.Adam([w], betas=(1.0, 0.9)), "betas is 1.0"),
        (lambda w: optim.Adafactor([w], d=0.5), "d is 0.5"),
        (lambda w: optim.Muon([w], adjust_lr_fn="x"), "adjust_lr_fn"),
        (lambda w: optim.Muon([w[0].detach().requires_grad_()]), "matrices"),
        (lambda w: optim.SGD([w]).load_state_dict({}), "not the state"),
        (lambda w: optim.SGD([w]).load_state_dict(optim.SGD(parameters(cc)).state_dict()), "groups of"),
    ],
)  # fmt: skip
def test_errors(make, why):
    with pytest.raises(cc.UsageError, match=why):
        make(parameters(cc)[0])


def test_clipping_without_gradients():
    theirs = torch.nn.utils.clip_grad_norm_(parameters(torch), 1)
    assert optim.clip_grad_norm_(parameters(cc), 1).item() == theirs.item() == 0


def test_state_of_another_shape():
    optimizer, other = optim.Adam([parameters(cc)[0]]), optim.Adam([parameters(cc)[1]])
    for each in (optimizer, other):
        p = each.param_groups[0]["params"][0]
        p.sum().backward()
        each.step()
    with pytest.raises(cc.UsageError, match=r"exp_avg .* shape \[3\]"):
        optimizer.load_state_dict(other.state_dict())


def test_frozen_parameters():
    """Parameters that need no gradients are leaves, and an optimizer takes them, as torch's does."""
    found = []
    for m, made in ((cc, optim), (torch, torch.optim)):
        layer = m.nn.Linear(2, 1)
        made.SGD(layer.parameters(), 0.1)
        layer(m.ones(3, 2)).sum().backward()
        layer.weight.requires_grad_(False)
        before = layer.weight.tolist()
        optimizer = made.SGD(layer.parameters(), 0.1)
        optimizer.zero_grad()
        layer(m.ones(3, 2)).sum().backward()
        optimizer.step()
        layer.weight.requires_grad_(True)
        found.append((layer.weight.is_leaf, layer.weight.tolist() == before, (layer.bias.grad).tolist()))
    assert found[0] == found[1]
