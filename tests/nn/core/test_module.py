"""Module: names, state dicts, modes, text and hooks as torch's; steps under jit."""

import candle_convert as cc
import candle_convert.nn as nn
import numpy as np
import pytest
import torch
from candle_convert.nn.core.module import LayerVariants


def network(m):
    class Net(m.Module):
        def __init__(self):
            super().__init__()
            self.body = m.Sequential(m.Linear(5, 7), m.ReLU(), m.Linear(7, 6, bias=False))
            self.heads = m.ModuleDict({"a": m.Linear(6, 3), "b": m.Identity()})
            self.extra = m.ModuleList([m.LeakyReLU(0.2), m.Softmax(dim=-1)])
            self.scale = m.Parameter((torch if m is torch.nn else cc).ones(3))
            self.register_buffer("shift", (torch if m is torch.nn else cc).zeros(3))
            self.register_buffer("step", (torch if m is torch.nn else cc).zeros(1), persistent=False)
            self.register_parameter("none", None)

        def forward(self, x):
            return self.extra[1](self.extra[0](self.heads["a"](self.body(x))) * self.scale + self.shift)

    return Net()


def test_names_text_and_initial_values_are_torchs():
    cc.manual_seed(4)
    torch.manual_seed(4)
    ours, theirs = network(nn), network(torch.nn)
    assert repr(ours) == repr(theirs)
    for walk in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [name for name, _ in getattr(ours, walk)()] == [name for name, _ in getattr(theirs, walk)()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["torch", "numpy", "ours"])
def test_state_dicts_are_loaded(kind):
    theirs, ours = network(torch.nn), network(nn)
    state = theirs.state_dict()
    if kind != "torch":
        state = {name: item.numpy() if kind == "numpy" else cc.tensor(item.numpy()) for name, item in state.items()}
    assert ours.load_state_dict(state) == ([], [])
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    np.testing.assert_allclose(ours(cc.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5)


def test_state_dicts_that_do_not_fit():
    net = network(nn)
    state = net.state_dict()
    before = net.scale.tolist()
    del state["scale"]
    with pytest.raises(cc.UsageError, match=r"Net lacks scale and has also more"):
        net.load_state_dict({**state, "more": np.zeros(2)})
    assert net.load_state_dict({**state, "more": np.zeros(2)}, strict=False) == (["scale"], ["more"])
    with pytest.raises(cc.UsageError, match=r"scale of Net has another shape"):
        net.load_state_dict({**state, "scale": np.zeros(4)})
    assert net.scale.tolist() == before


def test_modes_freezing_dtypes_and_gradients():
    net = network(nn)
    assert not net.eval().heads["a"].training
    assert net.train().heads["a"].training
    net.body.requires_grad_(False)
    assert [name for name, p in net.named_parameters() if p.requires_grad] == [
        "scale",
        "heads.a.weight",
        "heads.a.bias",
    ]
    net(cc.rand(2, 5)).sum().backward()
    assert net.body[0].weight.grad is None
    assert net.scale.grad is not None
    net.zero_grad()
    assert net.scale.grad is None
    weight = net.scale
    assert net.to(cc.float64).scale is weight
    assert weight.dtype == cc.float64
    assert weight.requires_grad
    assert net(cc.rand(2, 5, dtype=cc.float64)).dtype == cc.float64
    names = []
    net.apply(lambda module: names.append(type(module).__name__))
    assert names[-1] == "Net"


def test_assignment_and_hooks():
    net = network(nn)
    net.heads = nn.Linear(2, 2)
    assert [name for name, _ in net.named_children()] == ["body", "heads", "extra"]
    net.scale = None
    assert "scale" not in net.state_dict()
    with pytest.raises(cc.UsageError, match="E-NN-MODULE"):
        net.body = 3
    del net.body
    with pytest.raises(AttributeError, match="no attribute 'body'"):
        net.body.append(1)
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    after = layer.register_forward_hook(lambda module, given, result: result * 2)
    assert layer(1) == 4
    before.remove()
    assert layer(1) == 2
    after.remove()
    assert layer(1) == 1


def test_modules_by_dotted_names():
    net = network(nn)
    assert net.get_parameter("body.0.weight") is net.body[0].weight
    assert net.get_buffer("shift") is net.shift
    net.set_submodule("heads.a", nn.Linear(6, 3, bias=False))
    assert isinstance(net.get_submodule("heads.a"), nn.Linear)
    for call in (net.get_parameter, net.get_buffer, net.get_submodule):
        with pytest.raises(cc.UsageError, match="has no"):
            call("body.none")


def test_containers():
    items = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    assert [type(each).__name__ for each in items[1:]] == ["Tanh", "Sigmoid"]
    del items[0]
    items.insert(0, nn.ELU())
    items.append(nn.GELU())
    assert list(dict(items.named_children())) == ["0", "1", "2", "3"]
    assert isinstance(items[-1], nn.GELU)
    named = nn.Sequential({"first": nn.Linear(2, 3), "second": nn.ReLU()})
    assert list(named.state_dict()) == ["first.weight", "first.bias"]
    parameters = nn.ParameterList([cc.ones(2), nn.Parameter(cc.zeros(1))])
    assert [p.requires_grad for p in parameters.parameters()] == [True, True]


def test_shared_parameters_are_counted_once():
    one = nn.Linear(3, 3)
    net = nn.Sequential(one, nn.ReLU(), one)
    assert len(list(net.parameters())) == 2
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def trained(m, wrap, net):
    rng = np.random.default_rng(1)
    xs = [m.tensor(rng.standard_normal((8, 5)).astype(np.float32)) for _ in range(6)]
    ys = [m.tensor(rng.integers(0, 3, 8)) for _ in range(6)]

    def step(x, y):
        for p in net.parameters():
            p.grad = None
        loss = m.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        with m.no_grad():
            for p in net.parameters():
                p -= 0.5 * p.grad
        return loss.detach()

    step = wrap(step)
    return [step(x, y).item() for x, y in zip(xs, ys, strict=True)]


def test_keywords_of_a_layer_class_are_attributes_of_its_bases():
    """Python's own: a class refuses keywords that its base does not take."""

    class Base(LayerVariants):
        dims = 0
        kind: str

    class Flat(Base, dims=1, kind="max"):
        pass

    assert (Flat.dims, Flat.kind, Base.dims) == (1, "max", 0)
    with pytest.raises(TypeError, match="Deep: no base class has an attribute 'dim'"):

        class Deep(Base, dim=3):
            pass


@pytest.mark.parametrize("jitted", [False, True])
def test_a_training_step(jitted):
    ours, theirs = network(nn), network(torch.nn)
    ours.load_state_dict(theirs.state_dict())
    expected = trained(torch, lambda f: f, theirs)
    np.testing.assert_allclose(trained(cc, cc.jit if jitted else lambda f: f, ours), expected, rtol=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_jit_sees_the_mode():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x

    net = Noisy()
    f = cc.jit(lambda x: net(x))
    x = cc.zeros(2)
    assert [f(x).tolist(), (net.eval(), f(x).tolist())[1], (net.train(), f(x).tolist())[1]] == [[1, 1], [0, 0], [1, 1]]
