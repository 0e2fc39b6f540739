"""Models that were quantized elsewhere, through the commands: what goes out, what is said, and that it is the model it
was."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.oracles.transformers import BASE, cases, expected, made, transformers
from safetensors.torch import load_file, save_file

CASE = cases("LlamaForCausalLM", "llama", llama={})[0]
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])
GROUP = 32
LINE = "gptq 4-bit, group 32: 21 matrices"


def packed(codes):
    """Codes [n, 8 k] as words [n, k], the first in the lowest bits."""
    shifts = 4 * torch.arange(8, dtype=torch.int64)
    words = (codes.to(torch.int64).reshape(len(codes), -1, 8) << shifts).sum(2)
    return words.to(torch.int32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny Llama."""
    folder = tmp_path_factory.mktemp("tiny")
    made(CASE, 0, folder)
    return folder


@pytest.fixture
def model(tiny, tmp_path):
    """The Llama in GPTQ, and the weights that this stands for, in f32."""
    shutil.copytree(tiny, tmp_path / "plain")
    weights = load_file(tmp_path / "plain" / "model.safetensors")
    quantized = {}
    for name, weight in list(weights.items()):
        if not name.endswith("proj.weight"):
            quantized[name] = weight
            continue
        stem = name.removesuffix(".weight")
        groups = weight.reshape(len(weight), -1, GROUP)
        scales = (groups.abs().amax(2) / 7).half()
        codes = (groups / scales.float()[:, :, None]).round().clamp(-8, 7) + 8
        weights[name] = ((codes - 8) * scales.float()[:, :, None]).reshape(weight.shape)
        quantized |= {
            f"{stem}.qweight": packed(codes.reshape(weight.shape)).T.contiguous(),
            f"{stem}.scales": scales.T.contiguous(),
        }
        quantized[f"{stem}.qzeros"] = packed(torch.full((groups.shape[1], len(weight)), 7))
    folder = tmp_path / "gptq"
    folder.mkdir()
    save_file(quantized, folder / "model.safetensors")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    said = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
    (folder / "quantize_config.json").write_text(json.dumps(said))
    save_file(weights, tmp_path / "plain" / "model.safetensors")
    return folder


def test_the_model_runs_as_with_its_numbers(model):
    plain = model.parent / "plain"
    reference = transformers().AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    wanted = expected(reference, IDS, None)
    assert np.abs(models.load(model).logits(IDS) - wanted).max() <= 3e-5 * np.abs(wanted).max()


def test_settings_beside_the_configuration_are_read(model):
    config = json.loads((model / "config.json").read_text())
    stated = config.pop("quantization_config")
    (model / "config.json").write_text(json.dumps(config))
    (model / "quantize_config.json").write_text(
        json.dumps({name: value for name, value in stated.items() if name != "quant_method"})
    )
    reference = transformers().AutoModelForCausalLM.from_pretrained(model.parent / "plain", dtype=torch.float32)
    wanted = expected(reference, IDS, None)
    assert np.abs(models.load(model).logits(IDS) - wanted).max() <= 3e-5 * np.abs(wanted).max()


def test_settings_of_model_optimizer_beside_the_configuration(tiny, tmp_path):
    folder, plain = tmp_path / "fp8", tmp_path / "numbers"
    shutil.copytree(tiny, folder)
    shutil.copytree(tiny, plain)
    stored, numbers = {}, {}
    for name, weight in load_file(folder / "model.safetensors").items():
        stored[name] = numbers[name] = weight
        if name.endswith("proj.weight"):
            scale = weight.abs().max() / 448
            stored[name] = (weight / scale).to(torch.float8_e4m3fn)
            stored[f"{name}_scale"], stored[name.replace("weight", "input_scale")] = scale, torch.tensor(0.5)
            numbers[name] = stored[name].float() * scale
    save_file(stored, folder / "model.safetensors")
    save_file(numbers, plain / "model.safetensors")
    said = {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    wanted = expected(transformers().AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32), IDS, None)
    assert np.abs(models.load(folder).logits(IDS) - wanted).max() <= 3e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("output", ["out.gguf", "out.onnx"])
def test_translated_outputs_are_those_of_the_numbers(model, tmp_path, output):
    report = cc.convert(model, tmp_path / output)
    assert report.notes[0].message == f"{LINE} dequantized on reading"
    (tmp_path / "again").mkdir()
    plain = tmp_path / "gptq2"
    (tmp_path / "plain").rename(plain)
    cc.convert(plain, tmp_path / "again" / output)
    ours, theirs = cc.open(tmp_path / output), cc.open(tmp_path / "again" / output)
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(bytes(ours[name].raw()) == bytes(theirs[name].raw()) for name in ours.weights)


def test_without_a_dtype_its_tensors_stay_and_with_one_they_are_numbers(model, tmp_path):
    report = cc.convert(model, tmp_path / "kept", to="safetensors")
    assert report.notes[0].message == f"{LINE} left as stored; --dtype f16 dequantizes them"
    before, kept = cc.load_file(model / "model.safetensors"), cc.load_file(tmp_path / "kept")
    assert before.keys() == kept.keys()
    assert all(np.array_equal(before[name], kept[name]) for name in before)
    assert json.loads((tmp_path / "kept" / "config.json").read_text())["quantization_config"]["bits"] == 4
    cc.convert(model, tmp_path / "numbers", to="safetensors", dtype="f16")
    plain = cc.load_file(tmp_path / "plain")
    numbers = cc.load_file(tmp_path / "numbers")
    assert plain.keys() == numbers.keys()
    assert all(np.array_equal(plain[name].astype(np.float16), numbers[name]) for name in plain)
    assert "quantization_config" not in json.loads((tmp_path / "numbers" / "config.json").read_text())
    assert not (tmp_path / "numbers" / "quantize_config.json").exists()
    again = transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "numbers", dtype=torch.float32)
    assert again.config.hidden_size == BASE["hidden_size"]


def test_choices_of_the_user(model, tmp_path):
    assert run(["convert", str(model), str(tmp_path / "m.npz"), "--no-keep-quantized", "-q"]) == 0
    assert cc.load_file(tmp_path / "m.npz").keys() == cc.load_file(tmp_path / "plain").keys()
    assert run(["dequantize", str(model), str(tmp_path / "bf"), "-t", "safetensors", "--dtype", "bf16", "-q"]) == 0
    graph = cc.open(tmp_path / "bf")
    assert graph["model.layers.0.self_attn.q_proj.weight"].dtype.name == "bf16"
    assert graph["model.norm.weight"].dtype.name == "f32"
    assert "model.layers.0.self_attn.q_proj.qweight" in cc.open(model, dequantized=False)


def test_what_is_said(model, tmp_path, capsys):
    assert run(["inspect", str(model), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["quantization"]["scheme"] == "gptq 4-bit, group 32"
    assert len(said["quantization"]["weights"]) == 21
    assert any(tensor["name"].endswith(".qweight") for tensor in said["tensors"])
    assert run(["inspect", str(model)]) == 0
    assert LINE in capsys.readouterr().out
    assert run(["convert", str(model), str(tmp_path / "m.gguf"), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"][0]["code"] == "W-PREQUANTIZED"


def test_single_tensors(model, capsys):
    stem = "model.layers.0.self_attn.q_proj"
    for name, dtype in ((f"{stem}.weight", "f32"), (f"{stem}.qweight", "i32"), ("model.norm.weight", "f32")):
        assert run(["print", str(model), f"{name}[0]" if "norm" not in name else name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["dtype"] == dtype
    assert run(["print", str(model), f"{stem}.nothing", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-TENSOR-NAME"


def test_a_scheme_that_is_not_known(model, tmp_path, capsys):
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"]["quant_method"] = "aqlm"
    (model / "config.json").write_text(json.dumps(config))
    assert run(["convert", str(model), str(tmp_path / "m.gguf"), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-PACKED-METHOD"
    assert run(["convert", str(model), str(tmp_path / "copy.safetensors"), "-q"]) == 0
    assert run(["inspect", str(model), "--json"]) == 0
    assert [note["code"] for note in json.loads(capsys.readouterr().out)["warnings"]] == ["E-PACKED-METHOD"]


def test_quantized_anew_and_merged(model, tmp_path):
    assert run(["quantize", str(model), str(tmp_path / "a.gguf"), "Q8_0", "-q"]) == 0
    (tmp_path / "gptq").rename(tmp_path / "was")
    (tmp_path / "plain").rename(tmp_path / "gptq")
    assert run(["quantize", str(tmp_path / "gptq"), str(tmp_path / "b.gguf"), "Q8_0", "-q"]) == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


GPT_OSS = cases(
    "GptOssForCausalLM",
    "gpt_oss",
    gpt_oss={
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "intermediate_size": 96,
        "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_theta": 150000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": True},
    },
)[0]


@pytest.fixture
def experts(tmp_path):
    """A tiny gpt-oss whose experts are in MXFP4, and its weights as numbers in the folder beside it."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    made(GPT_OSS, 0, tmp_path / "plain")
    weights, stored = load_file(tmp_path / "plain" / "model.safetensors"), {}
    generator = torch.Generator().manual_seed(0)
    for name, weight in list(weights.items()):
        if weight.ndim != 3:
            stored[name] = weight
            continue
        count, columns, outputs = weight.shape
        blocks = torch.randint(0, 256, (count, outputs, columns // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(119, 123, blocks.shape[:-1], generator=generator, dtype=torch.uint8)
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        weights[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        assert weights[name].shape == weight.shape
    folder = tmp_path / "mxfp4"
    folder.mkdir()
    save_file(stored, folder / "model.safetensors")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    save_file(weights, tmp_path / "plain" / "model.safetensors")
    return folder


def test_experts_in_mxfp4_keep_their_bits(experts, tmp_path):
    cc.convert(experts, tmp_path / "m.gguf")
    graph, stored = cc.open(tmp_path / "m.gguf"), load_file(experts / "model.safetensors")
    assert graph.metadata["general.file_type"] == 38
    for part, name, first, step in (("gate", "gate_up", 0, 2), ("up", "gate_up", 1, 2), ("down", "down", 0, 1)):
        tensor = graph[f"blk.1.ffn_{part}_exps.weight"]
        assert tensor.dtype.name == "mxfp4"
        blocks, scales = (
            stored[f"model.layers.1.mlp.experts.{name}_proj_{kind}"][:, first::step].numpy()
            for kind in ("blocks", "scales")
        )
        raw = np.frombuffer(tensor.raw(), np.uint8).reshape(*scales.shape, 17)
        np.testing.assert_array_equal(raw[..., 0], scales)
        codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
        np.testing.assert_array_equal(np.concatenate([raw[..., 1:] & 15, raw[..., 1:] >> 4], axis=-1), codes)
    reference = transformers().AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", dtype=torch.float32, attn_implementation="eager"
    )
    wanted = expected(reference, IDS, None)
    for path in (experts, tmp_path / "m.gguf"):
        assert np.abs(models.load(path).logits(IDS) - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_experts_in_mxfp4_as_numbers(experts, tmp_path):
    cc.convert(experts, tmp_path / "numbers", to="safetensors", dtype="f32")
    numbers, plain = cc.load_file(tmp_path / "numbers"), cc.load_file(tmp_path / "plain")
    assert numbers.keys() == plain.keys()
    assert all(np.array_equal(numbers[name], plain[name]) for name in plain)


def test_check_compares_tensors_with_what_is_declared(model, capsys):
    assert run(["check", str(model), "--json"]) == 0
    codes = {finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert not any(code.startswith("E-") for code in codes)
    weights = load_file(model / "model.safetensors")
    del weights["model.layers.0.self_attn.q_proj.scales"]
    save_file(weights, model / "model.safetensors")
    assert run(["check", str(model), "--json"]) == 1
    assert "E-PACKED-MISSING" in {finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]}
