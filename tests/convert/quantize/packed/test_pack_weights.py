"""Quantization to the schemes of servers: transformers' answers, which matrices are packed, and what is refused."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.ops.quants.packings import packings

SETTINGS = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 64,
}
LAYER = "model.layers.0.mlp.up_proj"
IDS = torch.arange(20)[None] * 13 % 300
ROUNDED_ACTIVATIONS = {"W8A8": 0.03, "FP8_DYNAMIC": 0.1, "FP8_BLOCK": 0.1}
"""Relative to the largest logit, of types that round activations, which our runtime does not."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A language model in bf16."""
    folder = tmp_path_factory.mktemp("source") / "llama"
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SETTINGS)).bfloat16().save_pretrained(folder)
    return folder


def logits(folder):
    """transformers' logits in float32."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return loaded(IDS).logits.float()


def dequantized(folder, source):
    """transformers' logits of a model in bf16 whose weights are those that we read."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(source).eval()
    graph = cc.open(folder)
    weights = {name: torch.from_numpy(graph[name].numpy().astype(np.float32)) for name in graph.weights}
    loaded.load_state_dict(weights, strict=False)
    with torch.no_grad():
        return loaded(IDS).logits.float()


@pytest.mark.parametrize("name", ["W4A16", "W8A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16"])
def test_transformers_reads_what_was_written(name, model, tmp_path):
    cc.quantize(model, tmp_path / "out", name)
    found, want = logits(tmp_path / "out"), dequantized(tmp_path / "out", model)
    assert (found - want).abs().max() <= ROUNDED_ACTIVATIONS.get(name, 0) * want.abs().max()
    assert 0 < (found - logits(model)).abs().max() < 0.5 * want.abs().max()


@pytest.mark.parametrize("name", packings())
def test_every_type_is_verified_and_runs(name, model, tmp_path, capsys):
    assert run(["quantize", str(model), str(tmp_path / "out"), name, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    packed = {tensor for tensor, made in said["types"].items() if made["type"] == packings()[name].name}
    assert len(packed) == 14
    assert all(".layers." in tensor for tensor in packed)
    assert run(["verify", str(model), str(tmp_path / "out"), "--json"]) == 0
    statuses = [tensor["status"] for tensor in json.loads(capsys.readouterr().out)["tensors"]]
    assert sorted(statuses) == ["equal"] * (len(statuses) - 14) + ["within"] * 14
    stated = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert stated == packings()[name].configure(["lm_head", "model.embed_tokens"], packings()[name].group or 1)


def test_a_damaged_layer_is_beyond_the_bounds_of_its_type(model, tmp_path, capsys):
    cc.quantize(model, tmp_path / "out", "W4A16")
    path = tmp_path / "out" / "model.safetensors"
    data = bytearray(path.read_bytes())
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    start = header[f"{LAYER}.weight_packed"]["data_offsets"][0]
    begin = 8 + int.from_bytes(data[:8], "little") + start
    data[begin : begin + 128] = data[begin + 128 : begin + 256]
    path.write_bytes(data)
    assert run(["verify", str(model), str(tmp_path / "out"), "--json"]) == 1
    (failed,) = [each for each in json.loads(capsys.readouterr().out)["tensors"] if each["status"] == "beyond"]
    assert failed["name"] == f"{LAYER}.weight"


def test_groups_of_another_size_and_layers_that_stay(model, tmp_path):
    report = cc.quantize(model, tmp_path / "out", cc.Recipe("w4a16", {"layers.1.": "f16"}, group_size=32))
    stated = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert stated["config_groups"]["group_0"]["weights"]["group_size"] == 32
    assert "model.layers.1.mlp.up_proj" in stated["ignore"]
    assert report.types["model.layers.1.mlp.up_proj.weight"]["type"] == "f16"
    written = cc.load_file(tmp_path / "out" / "model.safetensors")
    assert written[f"{LAYER}.weight_scale"].shape == (512, 8)
    assert f"{LAYER}.weight" not in written
    assert logits(tmp_path / "out").isfinite().all()


def test_matrices_that_do_not_fit(tmp_path, capsys):
    config = transformers.LlamaConfig(**SETTINGS | {"intermediate_size": 320})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "in")
    report = cc.quantize(tmp_path / "in", tmp_path / "out", "AWQ")
    (note,) = [note.message for note in report.notes if note.code == "W-FALLBACK"]
    assert note.startswith("2 matrices cannot be AWQ, such as 'model.layers.0.mlp.down_proj.weight' [256, 320]")
    stated = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert "model.layers.0.mlp.down_proj" in stated["modules_to_not_convert"]
    with pytest.raises(cc.UnsafeFileError, match="E-QUANT-FALLBACK"):
        cc.quantize(tmp_path / "in", tmp_path / "again", cc.Recipe("AWQ", on_fallback="error"))
    with pytest.raises(cc.UnsupportedError, match="E-QUANT-NOTHING"):
        cc.quantize(tmp_path / "in", tmp_path / "again", cc.Recipe("AWQ", group_size=192))
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["W4A16", "GPTQ-INT4", "BNB-8BIT"])
def test_values_that_no_code_stands_for(name, model, tmp_path):
    weights = {each: array.astype(np.float32) for each, array in cc.load_file(model / "model.safetensors").items()}
    weights[f"{LAYER}.weight"][3, 5] = np.inf
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text((model / "config.json").read_text())
    cc.save_file(weights, tmp_path / "in" / "model.safetensors")
    with pytest.raises(cc.FormatError, match=f"E-NAN.*{LAYER}.weight' has NaN or infinity at element 773"):
        cc.quantize(tmp_path / "in", tmp_path / "out", name)
    assert not (tmp_path / "out").exists()


def test_layers_that_store_transposed_matrices_are_refused(tmp_path):
    config = transformers.GPT2Config(n_embd=128, n_layer=1, n_head=2, vocab_size=50, n_positions=16)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "in")
    with pytest.raises(cc.UnsupportedError, match="E-QUANT-NOTHING"):
        cc.quantize(tmp_path / "in", tmp_path / "out", "GPTQ-INT4")


@pytest.mark.parametrize(
    ("output", "options", "code"),
    [
        ("out.gguf", {"recipe": "W4A16"}, "E-OPTION"),
        ("out.safetensors", {"recipe": "AWQ"}, "E-OPTION"),
        ("out", {"recipe": cc.Recipe("FP8_BLOCK", group_size=64)}, "E-OPTION"),
        ("out", {"recipe": cc.Recipe("W4A16", device="cuda")}, "E-OPTION"),
        ("out.gguf", {"recipe": cc.Recipe("Q8_0", group_size=64)}, "E-OPTION"),
    ],
)
def test_what_does_not_go_together(output, options, code, model, tmp_path):
    with pytest.raises(cc.UsageError, match=code):
        cc.quantize(model, tmp_path / output, **options)
    assert not list(tmp_path.iterdir())


def test_misspelled_types_are_named_before_the_folder(model, tmp_path, capsys):
    """Without a type that is known, a folder is no output either."""
    assert run(["quantize", str(model), str(tmp_path / "out"), "W4A61"]) == 2
    assert "E-QUANT-TYPE  'W4A61' is not a known type. Did you mean W4A16?" in capsys.readouterr().err


def test_blocks_become_groups(model, tmp_path):
    cc.quantize(model, tmp_path / "m.gguf", "Q8_0")
    with pytest.raises(cc.UnsafeFileError, match="E-QUANT-AGAIN"):
        cc.quantize(tmp_path / "m.gguf", tmp_path / "out", "W8A16")
    cc.quantize(tmp_path / "m.gguf", tmp_path / "out", "W8A16", allow_requantize=True)
    weight, found = (cc.open(path)[f"{LAYER}.weight"].numpy().astype(np.float32) for path in (model, tmp_path / "out"))
    assert np.abs(found - weight).max() < 0.02 * np.abs(weight).max()
