"""``embed``, ``rerank`` and ``predict``: what they write and print, and what they refuse."""

import io
import json
import sys

import candle_convert as cc
import numpy as np
import onnx
import pytest
import torch
import transformers
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_checkpoints import TEXTS, checkpoint
from safetensors.numpy import load_file

TEXTS = TEXTS[:4]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    checkpoint("BertModel", tmp_path / "encoder")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path


READERS = {
    "npy": np.load,
    "npz": lambda path: np.load(path)["vectors"],
    "safetensors": lambda path: load_file(path)["vectors"],
    "json": lambda path: np.array([row["vector"] for row in json.loads(path.read_text())], np.float32),
}


@pytest.mark.parametrize("suffix", READERS)
def test_vectors_of_a_file(folder, suffix):
    want = models.load(folder / "encoder", threads=1).embed(TEXTS)
    out = f"v.{suffix}"
    assert run(["embed", "encoder", "-f", "texts.txt", "-o", out, "--threads", "1", "-q"]) == 0
    np.testing.assert_allclose(READERS[suffix](folder / out), want, atol=1e-6)
    assert run(["embed", "encoder", "-f", "texts.txt", "-o", out, "-q"]) == 5
    assert run(["embed", "encoder", "-f", "texts.txt", "-o", out, "-q", "--force"]) == 0


def test_standard_input_and_output(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
    options = ["--normalize", "--pooling", "cls", "--batch", "2"]
    assert run(["embed", "encoder", "-f", "-", *options]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    want = models.load(folder / "encoder", threads=1).embed(TEXTS, pooling="cls", normalize=True)
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_tables(folder, capsys):
    assert run(["embed", "encoder", *TEXTS[:2], "--similarity"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["text", "1", "2"]
    assert first.endswith(second.split()[-2]), "the table is symmetric"
    assert run(["rerank", "encoder", "--query", TEXTS[2], "-f", "texts.txt", "--top", "2"]) == 0
    ranks = capsys.readouterr().out.splitlines()
    assert len(ranks) == 3
    assert ranks[1].split()[:2] == ["3", "1.0000"]
    checkpoint("BertForMaskedLM", folder / "masked")
    capsys.readouterr()
    assert run(["predict", "masked", "a [MASK] b [MASK]", "the [MASK]", "--top", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["input", "mask", "token", "score", "id", "sequence"]
    assert len(rows) == 1 + 2 * 2 + 2


def test_long_texts_are_told(folder, capsys):
    assert run(["embed", "encoder", "a cat " * 60, "-o", "v.npy"]) == 0
    assert "W-TEXT-LONG  the text has more than 64 tokens" in capsys.readouterr().err
    assert run(["embed", "encoder", "a cat " * 60, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"][0]["code"] == "W-TEXT-LONG"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["embed", "encoder"], 2, "E-TEXT-NONE"),
        (["embed", "encoder", "-f", "missing.txt"], 7, "E-IO"),
        (["embed", "encoder", "-f", "empty.txt"], 3, "E-TEXT-EMPTY"),
        (["embed", "encoder", "-f", "latin.txt"], 3, "E-TEXT-UTF8"),
        (["embed", "encoder", "a", "-o", "v.csv"], 2, "E-OUT-FORMAT"),
        (["embed", "encoder", "a", "-o", "v.npy", "--pooling", "median"], 2, "E-OPTION"),
        (["embed", "encoder", "a", "-o", "v.npy", "--prompt-name", "query"], 2, "E-TEXT-PROMPT"),
        (["predict", "encoder", "a"], 2, "E-MODEL-VERB"),
        (["predict", "encoder", "a", "--task", "fill-mask"], 2, "E-ARCH-TASK"),
        (["predict", "encoder", "a", "--task", "nothing"], 2, "E-ARCH-TASK"),
        (["predict", "masked", "a"], 2, "E-TEXT-MASK"),
        (["predict", "masked", "[MASK]", "--context", "a"], 2, "E-OPTION"),
        (["predict", "masked", "[MASK] cat " * 40], 2, "E-TEXT-LONG"),
        (["rerank", "classes", "--query", "a", "b"], 2, "E-MODEL-RERANK"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_what_is_refused(folder, capsys, words, status, told):
    """One line, and nothing is written."""
    (folder / "empty.txt").write_text("\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    name = {"masked": "BertForMaskedLM", "classes": "BertForSequenceClassification"}.get(words[1])
    if name is not None:
        checkpoint(name, folder / words[1])
    before = sorted(folder.iterdir())
    capsys.readouterr()
    assert run(words) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_task_of_a_network_that_states_none(tmp_path, capsys):
    """An ONNX classifier with its tokenizer alone: the task is the option's."""
    source, bare = tmp_path / "hf", tmp_path / "bare"
    source.mkdir()
    bare.mkdir()
    reference = checkpoint("BertForSequenceClassification", source).eval()
    cc.convert(source, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    del model.metadata_props[:]
    onnx.save(model, bare / "m.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).write_bytes((source / name).read_bytes())
    assert run(["predict", str(bare / "m.onnx"), "hello world", "--task", "text-classification", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    ids = transformers.AutoTokenizer.from_pretrained(source)("hello world", return_tensors="pt")
    with torch.no_grad():
        scores = reference(**ids).logits.softmax(-1)[0]
    assert found["found"][0]["label"] == f"LABEL_{int(scores.argmax())}"
    assert found["found"][0]["score"] == pytest.approx(float(scores.max()), rel=1e-4)
