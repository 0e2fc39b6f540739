"""Names with what wrappers of training put into them, and tied tensors that save_model stored once: transformers'
logits come out."""

import json
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import text_checkpoints, timm_outputs
from candle_convert.tests.oracles.transformers import cases, expected, made, transformers

CASE = cases("LlamaForCausalLM", "llama", llama={})[0]
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A Llama, its tensors, and its logits by transformers."""
    folder = tmp_path_factory.mktemp("tiny")
    made(CASE, 0, folder)
    reference = transformers().AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    return folder, {name: tensor.float() for name, tensor in tensors.items()}, expected(reference, IDS, None)


def _inside(name):
    """As FSDP wraps each layer."""
    return f"_fsdp_wrapped_module.{name}".replace(".self_attn.", "._fsdp_wrapped_module.self_attn.")


WRAPPED = {
    "compiled": lambda name: f"_orig_mod.{name}",
    "parallel": lambda name: f"module.{name}",
    "compiled in parallel": lambda name: f"module._orig_mod.{name}",
    "twice parallel": lambda name: f"module.module.{name}",
    "sharded": _inside,
    "held as model": lambda name: f"model.{name}",
    "lightning": lambda name: f"_forward_module.model.{name}",
    "held as net.model": lambda name: f"net.model.{name}",
    "merged adapter": lambda name: f"base_model.model.{name}",
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_logits(tiny, tmp_path, wrapped):
    shutil.copytree(tiny[0], tmp_path / "model")
    tensors = {wrapped(name): tensor for name, tensor in tiny[1].items()}
    safetensors.torch.save_file(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    report = cc.convert(tmp_path / "model", tmp_path / "m.gguf")
    assert [note.code for note in report.notes].count("W-PREFIX") == 1
    for path in (tmp_path / "model", tmp_path / "m.gguf"):
        assert np.abs(models.load(path, threads=1).logits(IDS) - tiny[2]).max() <= 3e-5 * np.abs(tiny[2]).max()


@pytest.mark.parametrize("prefix", ["model.", "net.", "module.backbone.", "model.net."])
def test_image_models_held_by_a_module(tmp_path, prefix):
    """Checkpoints of Lightning, which no file says the architecture of."""
    case = timm_outputs.recorded()["resnet18"]
    state = {f"{prefix}{name}": torch.tensor(np.asarray(array)) for name, array in timm_outputs.weights(case).items()}
    torch.save({"state_dict": state, "epoch": 3, "pytorch-lightning_version": "2.5"}, tmp_path / "last.ckpt")
    report = cc.convert(tmp_path / "last.ckpt", tmp_path / "m.onnx")
    assert any(prefix in note.message for note in report.notes if note.code == "W-PREFIX")
    feeds = {"pixel_values": timm_outputs.pixels(*case["size"])}
    found = models.load(tmp_path / "last.ckpt", threads=1)(**feeds)["logits"]
    assert np.abs(found - case["logits"]).max() <= 1e-4 * np.abs(case["logits"]).max()
    (found,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, feeds)
    assert np.abs(found - case["logits"]).max() <= 1e-4 * np.abs(case["logits"]).max()


def test_encoders_held_by_a_module(tmp_path):
    model = text_checkpoints.checkpoint("BertForSequenceClassification", tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    safetensors.torch.save_file({f"net.{name}": each for name, each in tensors.items()}, tmp_path / "model.safetensors")
    with torch.no_grad():
        wanted = model(torch.tensor(IDS % 20)).logits.numpy()
    found = models.load(tmp_path, threads=1)(input_ids=IDS % 20)["logits"]
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_a_copy_keeps_its_names(tiny, tmp_path):
    tensors = {f"module.{name}": tensor for name, tensor in tiny[1].items()}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    cc.convert(tmp_path / "model.safetensors", tmp_path / "copy.safetensors")
    assert cc.load_file(tmp_path / "copy.safetensors").keys() == tensors.keys()


def test_a_state_dict_with_prefixes_becomes_onnx(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny[0], folder)
    (folder / "model.safetensors").unlink()
    wrapped = {f"module.{name}": tensor for name, tensor in tiny[1].items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, folder / "pytorch_model.bin")
    assert run(["convert", str(folder), str(tmp_path / "onnx"), "-t", "onnx", "-q"]) == 0
    found = models.load(tmp_path / "onnx", threads=1).logits(IDS)
    assert np.abs(found - tiny[2]).max() <= 3e-5 * np.abs(tiny[2]).max()


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen2ForCausalLM"])
def test_tied_tensors_that_are_stored_once(tmp_path, name):
    kind = name.removesuffix("ForCausalLM").lower()
    made(cases(name, kind, **{kind: {"tie_word_embeddings": True}})[0], 0, tmp_path / "model")
    reference = transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    (tmp_path / "model" / "model.safetensors").unlink()
    safetensors.torch.save_model(reference, str(tmp_path / "model" / "model.safetensors"))
    stored = safetensors.torch.load_file(tmp_path / "model" / "model.safetensors")
    assert ("lm_head.weight" in stored) != ("model.embed_tokens.weight" in stored)
    wanted = expected(reference, IDS, None)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"]
    found = models.load(tmp_path / "model", threads=1).logits(IDS)
    assert np.abs(found - wanted).max() <= 3e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_a_tied_model_that_is_stored_by_its_head(tmp_path, name):
    """transformers takes the head for the embedding."""
    kind = name.removesuffix("ForCausalLM").removesuffix("LMHeadModel").lower()
    reference = made(cases(name, kind, **{kind: {"tie_word_embeddings": True}})[0], 0, tmp_path / "model")
    state = {
        key: tensor for key, tensor in reference.state_dict().items() if "embed_tokens" not in key and "wte" not in key
    }
    state["lm_head.weight"] = reference.get_output_embeddings().weight
    safetensors.torch.save_file({key: tensor.clone() for key, tensor in state.items()},
                                tmp_path / "model" / "model.safetensors", {"format": "pt"})  # fmt: skip
    again = transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    wanted = expected(again, IDS, None)
    cc.convert(tmp_path / "model", tmp_path / "m.gguf")
    for path in (tmp_path / "model", tmp_path / "m.gguf"):
        found = models.load(path, threads=1).logits(IDS)
        assert np.abs(found - wanted).max() <= 3e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("stated", [{"tie_word_embeddings": True}, {}], ids=["stated", "by default"])
def test_a_tied_model_whose_names_lack_the_prefix(tmp_path, stated):
    """Names of the hub's GPT-2 with a copy of the embedding as its head."""
    reference = made(cases("GPT2LMHeadModel", "gpt2", gpt2={})[0], 0, tmp_path / "model")
    tensors = {name.removeprefix("transformer."): each.clone() for name, each in reference.state_dict().items()}
    assert {"wte.weight", "lm_head.weight"} <= tensors.keys()
    safetensors.torch.save_file(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | stated))
    wanted = expected(transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "model"), IDS, None)
    found = models.load(tmp_path / "model", threads=1).logits(IDS)
    assert np.abs(found - wanted).max() <= 3e-5 * np.abs(wanted).max()
