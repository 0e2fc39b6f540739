"""Adapters: files, results, gradients and merged weights are those of PEFT; the base may be quantized."""

import candle_convert as cc
import numpy as np
import peft
import pytest
import torch
import transformers
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.builders.class_models import reference

IDS = np.random.RandomState(0).randint(3, 99, (2, 9))
LORA = ".lora_"


def adapted(source, **options):
    """A model with adapters whose updates are not zero."""
    cc.manual_seed(2)
    model = cc.models.AutoModelForCausalLM.from_pretrained(source, **options)
    model.add_adapters(4, alpha=8)
    random = np.random.RandomState(1)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B.weight"):
            parameter.data = cc.tensor((random.randn(*parameter.shape) * 0.1).astype(np.float32))
    return model


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_results_gradients_and_merged_weights_are_those_of_peft(name, tmp_path):
    reference(name, tmp_path)
    ours = adapted(tmp_path)
    ours.save_adapters(tmp_path / "adapter", str(tmp_path))
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter", is_trainable=True)
    found, expected = ours(IDS, labels=IDS), theirs(input_ids=torch.tensor(IDS), labels=torch.tensor(IDS))
    np.testing.assert_allclose(found.logits.detach().numpy(), expected.logits.detach().numpy(), rtol=1e-4, atol=1e-5)
    found.loss.backward()
    expected.loss.backward()
    named = {each: tensor for each, tensor in ours.named_parameters() if tensor.requires_grad}
    assert all(LORA in each for each in named)
    slopes = {
        each.removeprefix("base_model.model.").replace(".default", ""): tensor.grad.numpy()
        for each, tensor in theirs.named_parameters()
        if tensor.requires_grad
    }
    assert named.keys() == slopes.keys()
    for each, slope in slopes.items():
        np.testing.assert_allclose(
            named[each].grad.numpy(), slope, rtol=1e-4, atol=1e-4 * np.abs(slope).max(), err_msg=each
        )
    ours.save_pretrained(tmp_path / "ours")
    theirs.merge_and_unload().save_pretrained(tmp_path / "theirs")
    cc.convert(tmp_path, tmp_path / "command", to="safetensors", lora=(str(tmp_path / "adapter"),))
    ours_file, theirs_file, command_file = (
        cc.load_file(tmp_path / each / "model.safetensors") for each in ("ours", "theirs", "command")
    )
    for each, array in theirs_file.items():
        np.testing.assert_allclose(ours_file[each], array, atol=1e-6, err_msg=each)
        np.testing.assert_allclose(command_file[each], array, atol=1e-6, err_msg=each)


def test_a_quantized_base_stays_quantized_and_gives_the_gradients_of_its_values(tmp_path):
    reference("LlamaForCausalLM", tmp_path / "llama")
    cc.convert(tmp_path / "llama", tmp_path / "f32.gguf")
    cc.quantize(tmp_path / "f32.gguf", tmp_path / "q8.gguf", "Q8_0")
    blocks = adapted(tmp_path / "q8.gguf", quantized=True)
    plain = adapted(tmp_path / "q8.gguf")
    assert not [name for name, _ in blocks.named_parameters() if name.endswith("q_proj.weight")]
    held = [tensor for tensor in blocks.opened.weights.values() if tensor.qtype is not None]
    assert len(held) == 16
    found, expected = blocks(IDS, labels=IDS), plain(IDS, labels=IDS)
    np.testing.assert_allclose(found.loss.item(), expected.loss.item(), rtol=1e-5)
    found.loss.backward()
    expected.loss.backward()
    slopes = dict(plain.named_parameters())
    for name, parameter in blocks.named_parameters():
        if parameter.requires_grad:
            slope = slopes[name].grad.numpy()
            np.testing.assert_allclose(
                parameter.grad.numpy(), slope, rtol=1e-4, atol=1e-4 * np.abs(slope).max(), err_msg=name
            )
    blocks.save_pretrained(tmp_path / "merged")
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    logits = merged(input_ids=torch.tensor(IDS)).logits.detach().numpy()
    np.testing.assert_allclose(logits, found.logits.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_layers_are_chosen_by_their_names(tmp_path):
    reference("LlamaForCausalLM", tmp_path)
    model = cc.models.LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"no layer is called qq.*expected.*q_proj"):
        model.add_adapters(2, targets=["qq"])
    model.add_adapters(2, targets=["q_proj", "v_proj"])
    names = {name.split(".")[-3] for name, each in model.named_parameters() if each.requires_grad}
    assert names == {"q_proj", "v_proj"}
