"""Checking: odd values, alignment, shared and equal tensors, and what stands beside the weights are told; broken files
are refused."""

import json
import struct

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.check.check import check
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.detect_format import formats

CLEAN = {"a": np.arange(64, dtype=np.float32).reshape(2, 32), "b": np.ones(3, np.float16)}

WORDS = "\x0a\x0c\x0a\x05<unk>\x15\0\0\0\0\x12\x02\x18\x03"
"""A SentencePiece model of whole words: one piece with its score, and the model type 3."""


def codes(path):
    return {(finding.code, finding.severity, finding.member) for finding in check(path).findings}


@pytest.mark.parametrize(
    "format",
    [format for format in formats() if format.layout and not format.graphs and not format.architecture],
    ids=lambda format: format.name,
)
def test_what_we_write_is_clean(tmp_path, format, capsys):
    cc.save_file(CLEAN, tmp_path / "m.safetensors")
    path = tmp_path / f"m{format.suffixes[0]}"
    cc.convert(tmp_path / "m.safetensors", path, to=format.name, force=True)
    assert run(["check", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [finding for finding in answer["findings"] if finding["severity"] != "info"] == []
    assert (answer["tensors"], answer["ok"]) == (2, True)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.complex64]
)
def test_special_values_are_counted(tmp_path, dtype):
    array = np.array([1, np.nan, np.inf, -np.inf, 0], np.float32).astype(dtype)
    cc.save_file({"x": array}, tmp_path / "m.safetensors")
    found = check(tmp_path / "m.safetensors").findings
    assert {finding.code: finding.message.split(" of ")[0] for finding in found} == {"W-NAN": "1", "W-INF": "2"}
    assert run(["check", str(tmp_path / "m.safetensors")]) == 0
    assert run(["check", str(tmp_path / "m.safetensors"), "--strict"]) == 1


def test_unaligned_tensors_are_told(tmp_path):
    entries = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    text = json.dumps(entries).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(5))
    assert codes(tmp_path / "m.safetensors") == {("W-ALIGN", "warning", None)}


def test_equal_tensors_are_told(tmp_path):
    array = np.arange(1000, dtype=np.float32)
    cc.save_file(
        {"a": array, "b": array, "c": array + 1, "d": np.ones(2, np.float32), "e": np.ones(2, np.float32)},
        tmp_path / "m.safetensors",
    )
    (finding,) = check(tmp_path / "m.safetensors").findings
    assert (finding.code, finding.message) == ("W-SAME", "2 tensors hold the same values: a, b")


@pytest.mark.parametrize(
    ("config", "name", "content", "severity"),
    [
        ("{}", "tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}}', "error"),
        ("{}", "tokenizer.json", '{"version": "1.0", "model": {"type": "Quantum", "vocab": {}}}', "error"),
        ("{}", "tokenizer.model", "\0\u00ff", "error"),
        ("{}", "tokenizer.model", WORDS, "warning"),
        ('{"model_type": "gpt2"}', "vocab.json", '{"a": 0}', "error"),
        ("{}", "tokenizer.json", "not JSON", "error"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_found(tmp_path, config, name, content, severity):
    cc.save_file(CLEAN, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(config)
    assert check(tmp_path).findings == []
    (tmp_path / name).write_text(content, encoding="latin-1")
    (finding,) = check(tmp_path).findings
    assert (finding.severity, finding.path) == (severity, str(tmp_path / name))
    assert run(["check", str(tmp_path)]) == (severity == "error")


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        ("wav2vec2", "vocab.json", '{"<pad>": 0, "|": 1, "E": 2}'),
        ("vits", "vocab.json", '{"k": 0, "a": 1}'),
        ("esm", "vocab.txt", "<cls>\n<pad>\nL\nA\n"),
        ("resnet", "vocab.txt", "cat\ndog\ncat\n"),
    ],
)
def test_vocabularies_that_are_not_of_texts_are_not_read(tmp_path, kind, name, content):
    cc.save_file(CLEAN, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / name).write_text(content)
    assert check(tmp_path).findings == []


def test_a_directory_is_checked_with_its_files(tmp_path):
    cc.save_file(CLEAN, tmp_path / "whole.safetensors")
    folder = tmp_path / "model"
    cc.convert(tmp_path / "whole.safetensors", folder, to="safetensors", shard_tensors=1)
    (folder / "config.json").write_text("{}")
    assert check(folder).exit_code == 0
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"total_size": ', '"total_size": 1'))
    (folder / "config.json").write_text('{"a": 1, "a": 2}')
    assert codes(folder) == {("W-INDEX-SIZE", "warning", None), ("E-JSON", "error", None)}
    assert run(["check", str(folder)]) == 1


def test_broken_files_are_malformed(tmp_path):
    cc.save_file(CLEAN, tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(data[:-1])
    assert run(["check", str(tmp_path / "m.safetensors")]) == 3
    assert run(["check", str(tmp_path / "none.safetensors")]) == 7


def test_several_models_are_all_checked(tmp_path, capsys):
    for name in ("a", "b", "c"):
        cc.save_file(CLEAN, tmp_path / f"{name}.safetensors")
    cc.save_file({"x": np.full(3, np.nan, np.float32)}, tmp_path / "nan.gguf")
    (tmp_path / "b.safetensors").write_bytes((tmp_path / "b.safetensors").read_bytes()[:-5])
    (tmp_path / "parts").mkdir()
    cc.convert(tmp_path / "a.safetensors", tmp_path / "parts", to="safetensors", shard_tensors=1)
    paths = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "nan.gguf", "parts", "gone.gguf")]
    assert run(["check", *paths, "--json"]) == 7
    answer = json.loads(capsys.readouterr().out)
    assert not answer["ok"]
    assert [model["exit_code"] for model in answer["models"]] == [0, 3, 0, 0, 7]
    assert [model["path"] for model in answer["models"]] == paths
    assert answer["tensors"] == 2 + 0 + 1 + 2 + 0
    assert {finding["code"] for finding in answer["findings"]} >= {"W-NAN", "E-IO-MISSING"}
    assert run(["check", *paths[:2]]) == 3
    shown = capsys.readouterr().out
    assert "2 models: 1 passed, 1 failed" in shown
    assert run(["check", paths[0], paths[2], paths[3]]) == 0
    assert run(["check", paths[0], paths[2], "--strict"]) == 1
    assert run(["check", paths[1]]) == 3
    capsys.readouterr()
    assert run(["check", str(tmp_path), "--json"]) == 3
    assert [model["exit_code"] for model in json.loads(capsys.readouterr().out)["models"]] == [0, 3, 0, 0]
