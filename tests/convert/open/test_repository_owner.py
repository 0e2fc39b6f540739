"""Bare names of models that are no local path: the error holds the hf:// address."""

import candle_convert as cc
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.repository_owner import repository_hint

ADDRESSES = {
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "distilgpt2": "distilbert/distilgpt2",
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "distilbert-base-uncased": "distilbert/distilbert-base-uncased",
    "roberta-base": "FacebookAI/roberta-base",
    "xlm-roberta-base": "FacebookAI/xlm-roberta-base",
    "t5-small": "google-t5/t5-small",
    "flan-t5-base": "google/flan-t5-base",
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "whisper-tiny": "openai/whisper-tiny",
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "bge-small-en-v1.5": "BAAI/bge-small-en-v1.5",
    "opt-125m": "facebook/opt-125m",
    "wav2vec2-base-960h": "facebook/wav2vec2-base-960h",
    "SmolLM2-135M": "HuggingFaceTB/SmolLM2-135M",
    "my-own-model": "OWNER/my-own-model",
}


@pytest.mark.parametrize(("name", "address"), ADDRESSES.items())
def test_a_bare_name_suggests_its_address(tmp_path, monkeypatch, capsys, name, address):
    monkeypatch.chdir(tmp_path)
    for words in (["inspect", name], ["generate", name, "-p", "Hello"], ["convert", name, "out.gguf"]):
        assert run(words) == 7
        assert f"hf://{address}" in capsys.readouterr().err
    with pytest.raises(cc.FileAccessError, match=f"hf://{address}"):
        cc.open(name)


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "gpt2"])
def test_the_short_form_of_convert_suggests_it_too(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert run([name, "out.gguf"]) in (2, 7)
    assert f"hf://{ADDRESSES[name]}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.gguf", "weights.pth", "dir/", "./gpt2", "a b", "x" * 200, "..", "-"])
def test_what_is_written_as_a_path_has_no_address(name):
    assert repository_hint(name) is None


def test_a_file_of_a_similar_name_comes_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    assert run(["inspect", "my-mode"]) == 7
    assert "Did you mean my-model?" in capsys.readouterr().err
