"""hf:// addresses against a cache that the test builds in the hub's layout; nothing here touches the network."""

import json
import os
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest

REVISION = "0123456789abcdef0123456789abcdef01234567"
OLDER = "89abcdef0123456789abcdef0123456789abcdef"
WEIGHTS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16)}


def _cached(cache, revision, files):
    """Files of one revision as the hub's cache has them: blobs, and links to them in a snapshot."""
    repository = cache / "models--owner--repo"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    for name, data in files.items():
        blob = repository / "blobs" / f"{abs(hash((revision, name))):064x}"
        blob.write_bytes(data)
        os.symlink(os.path.relpath(blob, snapshot), snapshot / name)
    return repository


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with two revisions of one repository, the newer one being main."""
    folder = tmp_path / "hub"
    cc.save_file(WEIGHTS, tmp_path / "whole.safetensors")
    cc.convert(tmp_path / "whole.safetensors", tmp_path / "model", to="safetensors", shard_nbytes=10)
    shards = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    repository = _cached(folder, REVISION, {**shards, "config.json": b'{"model_type": "none"}'})
    _cached(folder, OLDER, {"model.safetensors": (tmp_path / "whole.safetensors").read_bytes()})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


def test_a_repository_opens_as_one_model(cache):
    graph = cc.open("hf://owner/repo", offline=True)
    assert {name: tensor.shape for name, tensor in graph.weights.items()} == {name: array.shape for name, array in WEIGHTS.items()}
    assert list(graph.attachments) == ["config.json"]


def test_a_revision_is_pinned_in_the_address_or_beside_it(cache):
    assert len(cc.open(f"hf://owner/repo@{OLDER}", offline=True).files) == 1
    assert len(cc.open("hf://owner/repo", revision=OLDER, offline=True).files) == 1
    assert len(cc.open(f"hf://owner/repo@{REVISION}", offline=True).files) == 2


def test_one_file_of_a_repository(cache):
    graph = cc.open(f"hf://owner/repo@{OLDER}/model.safetensors", offline=True)
    assert np.array_equal(graph["a"].numpy(), WEIGHTS["a"])
    index = cc.open("hf://owner/repo/model.safetensors.index.json", offline=True)
    assert len(index) == len(WEIGHTS)


def test_a_repository_converts_into_a_directory(cache, tmp_path):
    cc.convert("hf://owner/repo", tmp_path / "out", to="safetensors", offline=True)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"model_type": "none"}
    assert cc.hash(tmp_path / "out") == cc.hash(tmp_path / "whole.safetensors")


@pytest.mark.parametrize("uri", ["hf://owner/absent", "hf://owner/repo@nothing", "hf://owner/repo/absent.safetensors"])
def test_what_the_cache_lacks_is_one_clear_error(cache, uri):
    with pytest.raises(cc.FileAccessError) as caught:
        cc.open(uri, offline=True)
    assert caught.value.code == "E-HUB-FETCH"
    assert "--offline" in caught.value.hint


@pytest.mark.parametrize("uri", ["hf://", "hf://owner", "hf://owner/", "hf:///x/y", "hf://a b/c", "hf://owner/repo@"])
def test_what_is_no_address_is_a_usage_error(uri):
    with pytest.raises(cc.UsageError, match="E-HUB-URI"):
        cc.open(uri)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", None])
def test_the_command_respects_cache_and_offline_mode(cache, variable):
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), **({variable: "1"} if variable else {})}
    command = [sys.executable, "-m", "candle_convert.convert", "inspect", "hf://owner/repo", "--json", *([] if variable else ["--offline"])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["tensors"]) == len(WEIGHTS)
    done = subprocess.run([*command[:4], "hf://owner/absent", "--offline"], env=environment, capture_output=True, text=True)
    assert done.returncode == 7


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(cc.UnsupportedError, match=r"candle-convert\[hub\]"):
        cc.open("hf://owner/repo")
