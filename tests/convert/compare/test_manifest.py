"""Hashes and manifests: equal across formats, readable by sha256sum, and a check says what changed."""

import hashlib
import json
import subprocess

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.compare import manifest
from candle_convert.convert.open.detect_format import formats

ARRAYS = {
    "a": np.arange(64, dtype=np.float32).reshape(2, 32),
    "b": np.ones(3, np.float16),
    "odd\nname\\": np.zeros(2, np.float32),
}
PLAIN = {name: ARRAYS[name] for name in ("a", "b")}


@pytest.fixture
def path(tmp_path):
    cc.save_file(ARRAYS, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_lines_are_the_tensors_hashes(path, capsys):
    assert run(["hash", str(path), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["hashes"]
    for name, array in ARRAYS.items():
        dtype = {"float32": "f32", "float16": "f16"}[array.dtype.name]
        wanted = hashlib.sha256(json.dumps([dtype, list(array.shape)]).encode() + b"\n" + array.tobytes()).hexdigest()
        assert model["tensors"][name] == wanted
    assert model["content_hash"] == cc.hash(path)
    assert run(["hash", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1] == f"{cc.hash(path)}  {path}"


@pytest.mark.parametrize(
    "format",
    [format for format in formats() if format.layout and not format.graphs and not format.architecture],
    ids=lambda format: format.name,
)
def test_every_format_gives_the_same_hash(tmp_path, format):
    cc.save_file(PLAIN, tmp_path / "m.safetensors")
    other = tmp_path / f"other{format.suffixes[0]}"
    cc.convert(tmp_path / "m.safetensors", other, to=format.name)
    assert cc.hash(other) == cc.hash(tmp_path / "m.safetensors")
    assert run(["hash", str(tmp_path / "m.safetensors"), "--write", str(tmp_path / "sums")]) == 0
    assert run(["hash", str(other), "--check", str(tmp_path / "sums")]) == 0


def test_a_check_says_what_changed(path, tmp_path, capsys):
    assert run(["hash", str(path), "--write", str(tmp_path / "sums")]) == 0
    assert run(["hash", str(path), "--write", str(tmp_path / "sums")]) == 5
    cc.save_file({"a": ARRAYS["a"] + 1, "odd\nname\\": ARRAYS["odd\nname\\"], "c": ARRAYS["b"]}, path)
    capsys.readouterr()
    assert run(["hash", str(path), "-c", str(tmp_path / "sums"), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["status"] for row in answer["check"]} == {
        "a": "Changed",
        "b": "Missing",
        "odd\nname\\": "Ok",
        "c": "New",
    }
    assert not answer["ok"]


def test_files_are_hashed_like_sha256sum(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "back\\slash").write_bytes(b"x")
    assert run(["hash", "--file", path.name, "back\\slash", "--write", "sums"]) == 0
    subprocess.run(["sha256sum", "--check", "--strict", "sums"], check=True, capture_output=True)
    made = subprocess.run(["sha256sum", path.name, "back\\slash"], check=True, capture_output=True, text=True).stdout
    assert made == (tmp_path / "sums").read_text()
    assert run(["hash", "--file", path.name, "back\\slash", "--check", "sums"]) == 0
    path.write_bytes(b"")
    assert run(["hash", "--file", path.name, "back\\slash", "--check", "sums"]) == 1


def test_names_survive_a_manifest(tmp_path):
    hashes = {
        name: hashlib.sha256(name.encode()).hexdigest()
        for name in ("a", "a b", " x", "\\n", "a\nb", "c\r", "é", "# x", "\x1b[1m")
    }
    (tmp_path / "sums").write_text("# a comment\n\n" + manifest.write(hashes), newline="")
    assert manifest.read(tmp_path / "sums") == hashes


@pytest.mark.parametrize(
    "text", ["no hash\n", "0" * 64 + "\n", "0" * 63 + "  a\n", f"{'0' * 64}  a\n{'1' * 64}  a\n", "\0" * 100]
)
def test_broken_manifests_are_refused(path, tmp_path, text):
    (tmp_path / "sums").write_text(text)
    assert run(["hash", str(path), "-c", str(tmp_path / "sums")]) == 3


def test_a_manifest_is_of_one_model(path):
    assert run(["hash", str(path), str(path), "-c", str(path)]) == 2
