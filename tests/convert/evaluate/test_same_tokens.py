"""Outputs of two models on the same tokens, against transformers and torch."""

import json
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.encoder_cases import ENCODERS
from candle_convert.tests.oracles.transformers import made

EXAMPLE = Path(cc.__file__).parent / "examples" / "tiny_llama"
PROMPTS = ["In the beginning God created", "And he said unto them"]


def outputs(folder, cls, prompts, name):
    """What transformers computes, one row a token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = cls.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.cat([model(**tokenizer(text, return_tensors="pt"))[name][0] for text in prompts]).double()


def told(capsys, *arguments):
    """The exit code and the JSON of ``verify``."""
    capsys.readouterr()
    code = run(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_logits_of_a_quantized_decoder(tmp_path, capsys):
    cc.quantize(EXAMPLE, tmp_path / "q4.gguf", "Q4_K_M")
    cc.convert(tmp_path / "q4.gguf", tmp_path / "back", to="safetensors", dtype="f32")
    first, second = (
        outputs(folder, transformers.AutoModelForCausalLM, PROMPTS, "logits") for folder in (EXAMPLE, tmp_path / "back")
    )
    code, found = told(capsys, EXAMPLE, tmp_path / "q4.gguf", "-p", PROMPTS[0], "-p", PROMPTS[1])
    (item,) = found["outputs"]
    logs = [torch.log_softmax(each, -1) for each in (first, second)]
    want = {
        "nmse": float((first - second).pow(2).sum() / first.pow(2).sum()),
        "cosine": float(torch.cosine_similarity(first, second).min()),
        "kld": float(torch.nn.functional.kl_div(logs[1], logs[0], log_target=True, reduction="batchmean")),
        "same_top": float((first.argmax(1) == second.argmax(1)).double().mean()),
    }
    assert code == 0
    assert item["rows"] == len(first)
    for key, value in want.items():
        np.testing.assert_allclose(item[key], value, rtol=2e-3, err_msg=key)
    assert item["grade"] == "good"


def test_hidden_states_of_a_quantized_encoder(tmp_path, capsys, minilm):
    cc.quantize(minilm, tmp_path / "q8.gguf", "Q8_0")
    cc.convert(tmp_path / "q8.gguf", tmp_path / "back", to="safetensors", dtype="f32")
    first, second = (
        outputs(folder, transformers.AutoModel, PROMPTS, "last_hidden_state") for folder in (minilm, tmp_path / "back")
    )
    code, found = told(capsys, minilm, tmp_path / "q8.gguf", "--level", "none", "-p", PROMPTS[0], "-p", PROMPTS[1])
    item = next(each for each in found["outputs"] if each["name"] == "last_hidden_state")
    assert code == 0
    assert "tensors" not in found
    np.testing.assert_allclose(item["cosine"], float(torch.cosine_similarity(first, second).min()), atol=1e-6)
    np.testing.assert_allclose(item["nmse"], float((first - second).pow(2).sum() / first.pow(2).sum()), rtol=1e-2)
    assert item["cosine"] > 0.999
    assert item["kld"] is None
    pooled = [sentence_transformers.SentenceTransformer(str(folder)).encode(PROMPTS, convert_to_tensor=True)
              for folder in (minilm, tmp_path / "back")]  # fmt: skip
    whole = next(each for each in found["outputs"] if each["name"] == "sentence_embedding")
    assert whole["rows"] == len(PROMPTS)
    np.testing.assert_allclose(whole["cosine"], float(torch.cosine_similarity(*pooled).min()), atol=1e-6)


def test_a_checkpoint_against_its_onnx_export(tmp_path, capsys):
    cc.convert(EXAMPLE, tmp_path / "out", to="onnx")
    code, found = told(capsys, EXAMPLE, tmp_path / "out" / "model.onnx", "-p", PROMPTS[0])
    (item,) = found["outputs"]
    assert code == 0
    assert found["failed"] == 0
    assert item["grade"] == "excellent"
    assert item["nmse"] < 1e-10


def test_another_model_is_told_apart(tmp_path, capsys):
    weights = cc.load_file(EXAMPLE / "model.safetensors")
    weights = {name: -array if "o_proj" in name else array for name, array in weights.items()}
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    cc.save_file(weights, tmp_path / "model.safetensors")
    code, found = told(capsys, EXAMPLE, tmp_path, "--level", "none", "-p", PROMPTS[0])
    assert code == 1
    assert not found["ok"]
    assert found["outputs"][0]["grade"] == "different"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--level", "none"], 2, "--level none compares outputs only"),
        (["--prompt-file", "missing.txt"], 7, "missing.txt"),
        (["--prompt-file", "empty.txt"], 3, "holds no text"),
        (["--prompt-file", "latin.txt"], 3, "the text is not UTF-8"),
    ],
)
def test_prompts_that_cannot_be_had(tmp_path, monkeypatch, capsys, arguments, code, why):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n \n")
    Path("latin.txt").write_bytes("für".encode("latin-1"))
    assert run(["verify", str(EXAMPLE), str(EXAMPLE), *arguments]) == code
    assert why in capsys.readouterr().err


def test_a_tokenizer_of_another_model(minilm, tmp_path, capsys):
    case = next(case for case in ENCODERS if case.name == "BertModel")
    made(case, 0, tmp_path)
    capsys.readouterr()
    assert run(["verify", str(minilm), str(tmp_path), "--level", "none", "-p", "hello"]) == 2
    assert "E-EVAL-VOCABULARY" in capsys.readouterr().err
