"""Architectures as tables; what a file is, and whether its weights are there."""

import json

import candle_convert as cc
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.contract.architecture import HF
from candle_convert.runtime.contract.naming import modules_of
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.mtcnn import mtcnn
from candle_convert.tests.builders.tiny_llama import written


def answer(capsys, *words, code=0):
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_list_is_the_registrys(capsys):
    rows = answer(capsys, "models", "list")["models"]
    assert {row["name"] for row in rows} == {architecture.name for architecture in architectures()}
    llama = next(row for row in rows if row["name"] == "llama")
    assert (llama["family"], llama["model_types"], llama["gguf"]) == (
        "models/language/llama.py",
        ["llama", "mistral"],
        ["llama"],
    )
    assert {row["family"] for row in answer(capsys, "models", "list", "qwen")["models"]} == {
        "models/language/qwen.py",
        "models/language/qwen3_next.py",
        "models/language/qwen_moe.py",
        "models/multimodal/qwen2_vl.py",
        "models/vision/qwen2_vl_vision.py",
        "models/vision/qwen2_5_vl_vision.py",
        "models/vision/qwen3_vl_vision.py",
    }
    assert not answer(capsys, "models", "list", "nothing at all")["models"]


@pytest.mark.parametrize("architecture", architectures(), ids=lambda each: each.name)
def test_every_architecture_has_tables(capsys, architecture):
    told = answer(capsys, "models", "show", architecture.name)
    assert told["model"]["name"] == architecture.name
    assert [row["name"] for row in told["parameters"]] == [row.name for row in architecture.keys]
    rows = architecture.weights or modules_of(architecture, HF, ())
    assert [row["name"] for row in told["weights"]] == [row.name for row in rows]
    assert all(isinstance(key, str) for row in told["parameters"] for key in [*row["hf"], *row["gguf"]])
    needed = {key for row in told["parameters"] if row["required"] for key in row["hf"]}
    assert "architectures" not in needed


def test_names_of_a_parameter_and_a_weight(capsys):
    told = answer(capsys, "models", "show", "deepseek_v3")
    rank = next(row for row in told["parameters"] if row["name"] == "rank")
    assert rank == {"name": "rank", "hf": ["kv_lora_rank"], "gguf": ["attention.kv_lora_rank"], "required": True}
    nope = next(row for row in told["parameters"] if row["name"] == "nope")
    assert (nope["hf"], nope["gguf"]) == (["qk_nope_head_dim"], ["attention.key_length_mla", "attention.key_length"])
    keys = next(row for row in told["weights"] if row["name"] == "layers.{i}.attn.k_b.weight")
    assert keys["gguf"] == ["blk.{i}.attn_k_b.weight", "blk.{i}.attn_kv_b.weight"]
    assert keys["hf"] == ["model.layers.{i}.self_attn.kv_b_proj.weight"]
    assert answer(capsys, "models", "show", "phi2")["model"]["name"] == "phi"


def test_an_image_model_under_the_names_of_its_library(capsys, tmp_path):
    mtcnn(tmp_path)
    told = answer(capsys, "models", "show", str(tmp_path))
    assert (told["model"]["name"], told["names"], told["whole"]) == ("mtcnn", "timm", True)
    assert told["parameters"] == [{"name": "task", "keys": ["task"], "value": "face-detection"}]


def test_unknown_names_suggest_the_nearest(capsys):
    error = answer(capsys, "models", "show", "lama", code=2)["error"]
    assert error["code"] == "E-ARCH-NAME"
    assert "llama" in error["hint"]
    assert "candle-convert models list" in answer(capsys, "models", "show", "zzzzzzzzz", code=2)["error"]["hint"]


def test_a_file_is_told_whole_or_not(tmp_path, capsys):
    whole = written(tmp_path / "whole.gguf")
    told = answer(capsys, "models", "show", str(whole))
    assert (told["model"]["name"], told["names"], told["whole"], told["problem"]) == ("llama", "gguf", True, None)
    assert {row["name"]: row["value"] for row in told["parameters"]}["hidden"] == 64
    model = cc.open(whole)
    assert (told["weights"], told["count"]) == (
        len(model.weights),
        sum(tensor.count for tensor in model.weights.values()),
    )
    part = {name: tensor for name, tensor in model.weights.items() if name != "blk.1.ffn_up.weight"}
    cc.save_file(
        {name: tensor.numpy() for name, tensor in part.items()}, tmp_path / "part.gguf", metadata=model.metadata
    )
    told = answer(capsys, "models", "show", str(tmp_path / "part.gguf"), code=1)
    assert told["problem"]["code"] == "E-ARCH-MISSING"
    assert "blk.1.ffn_up.weight" in told["problem"]["message"]


def test_text_for_people(tmp_path, capsys):
    assert run(["models", "list"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(".py" in line for line in lines)
    names = {architecture.name for architecture in architectures()}
    assert {line.split()[0] for line in lines[1:-1] if not line.startswith(" ")} == names
    assert lines[-1] == f"{len(names)} architectures"
    assert {word for line in lines for word in line.replace(",", "").split()} >= {"mistral", "command-r", "llama"}
    assert "candle-convert models show" in said.err
    assert run(["models", "show", "llama"]) == 0
    assert "layers.{i}.attn.q.weight" in capsys.readouterr().out
    assert run(["models", "show", str(written(tmp_path / "m.gguf"))]) == 0
    assert "all weights are present" in capsys.readouterr().out
