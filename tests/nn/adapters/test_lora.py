"""Adapters against PEFT: names, initial scale, results, gradients, merged weights."""

import candle_convert as cc
import numpy as np
import peft
import pytest
import torch

TARGETS = ["embed", "conv", "q_proj", "out"]


def network(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = m.nn.Embedding(10, 6)
            self.conv = m.nn.Conv2d(1, 4, (3, 2), stride=(1, 2), padding=1)
            self.block = m.nn.ModuleDict({"q_proj": m.nn.Linear(6, 6), "k_proj": m.nn.Linear(6, 6, bias=False)})
            self.out = m.nn.Linear(4, 3)

        def forward(self, x):
            x = self.embed(x)
            x = self.block["q_proj"](x) + self.block["k_proj"](x)
            return self.out(
                self.conv(x.unsqueeze(1)).mean((2, 3)) if m is torch else self.conv(x.unsqueeze(1)).mean([2, 3])
            )

    return Net()


def adapted(rank=2, alpha=6, **options):
    ours, theirs = network(cc), network(torch)
    ours.load_state_dict(theirs.state_dict())
    settings = {"use_rslora": options.get("rank_stabilized", False)}
    theirs = peft.get_peft_model(theirs, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS, **settings))
    return cc.nn.lora(ours, rank, alpha, TARGETS, **options), theirs


@pytest.mark.parametrize("rank_stabilized", [False, True])
def test_against_peft(rank_stabilized):
    ours, theirs = adapted(rank_stabilized=rank_stabilized)
    x = np.array([[1, 2, 3, 9], [0, 0, 5, 7]])
    before = ours(cc.tensor(x)).detach().numpy()
    np.testing.assert_allclose(before, theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    state = {name: torch.randn(each.shape) * 0.3 for name, each in peft.get_peft_model_state_dict(theirs).items()}
    assert {name: tuple(each.shape) for name, each in state.items()} == {
        name: each.shape for name, each in cc.nn.lora_state_dict(ours).items()
    }
    peft.set_peft_model_state_dict(theirs, state)
    cc.nn.load_lora_state_dict(ours, state)
    found, expected = ours(cc.tensor(x)), theirs(torch.tensor(x))
    assert np.abs(found.detach().numpy() - before).max() > 0.01
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    grads = {name.replace(".default", ""): each.grad for name, each in theirs.named_parameters() if each.requires_grad}
    for name, parameter in cc.nn.adapters.lora._named(ours).items():
        np.testing.assert_allclose(parameter.grad.numpy(), grads[name].numpy(), rtol=1e-4, atol=1e-4, err_msg=name)
    trained = [name for name, each in ours.named_parameters() if each.requires_grad]
    assert len(trained) == len(state) == len(cc.nn.lora_parameters(ours))
    after = found.detach().numpy()
    merged, reference = cc.nn.merge_lora(ours), theirs.merge_and_unload()
    for (name, one), (other_name, other) in zip(
        merged.state_dict().items(), reference.state_dict().items(), strict=True
    ):
        assert name == other_name
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(merged(cc.tensor(x)).detach().numpy(), after, rtol=1e-4, atol=1e-5)


def test_a_saved_adapter_is_read_by_peft(tmp_path):
    import json

    ours, _ = adapted()
    for parameter in cc.nn.lora_parameters(ours):
        cc.nn.init.normal_(parameter, std=0.3)
    cc.save(cc.nn.lora_state_dict(ours), tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(cc.nn.lora_config(ours)))
    x = np.array([[1, 2, 3, 9]])
    expected = ours(cc.tensor(x)).detach().numpy()
    plain = network(torch)
    base = {name.replace("base_layer.", ""): each for name, each in ours.state_dict().items() if "lora_" not in name}
    plain.load_state_dict({name: torch.tensor(each.numpy()) for name, each in base.items()})
    theirs = peft.PeftModel.from_pretrained(plain, tmp_path)
    np.testing.assert_allclose(theirs(torch.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_targets():
    def names(targets):
        return [name for name, _ in cc.nn.lora_layers(cc.nn.lora(network(cc), 2, targets=targets))]

    assert names(None) == names("all-linear") == ["block.q_proj", "block.k_proj", "out"]
    assert names(r"block\..*_proj") == ["block.q_proj", "block.k_proj"]
    assert names(["embed"]) == ["embed"]
    with pytest.raises(cc.UsageError, match="no layer is meant"):
        names(["v_proj"])
    with pytest.raises(cc.UnsupportedError, match="has no adapter"):
        names(["block"])
    layer = cc.nn.lora(cc.nn.Linear(3, 4), 2)
    assert isinstance(cc.nn.merge_lora(layer), cc.nn.Linear)


def test_states_that_do_not_fit():
    ours, _ = adapted()
    state = dict(cc.nn.lora_state_dict(ours))
    name = next(iter(state))
    with pytest.raises(cc.UsageError, match="has another shape"):
        cc.nn.load_lora_state_dict(ours, {**state, name: np.zeros((1, 1))})
    del state[name]
    with pytest.raises(cc.UsageError, match="lacks"):
        cc.nn.load_lora_state_dict(ours, state)
