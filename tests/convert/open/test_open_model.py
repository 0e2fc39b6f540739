"""Opening: shard indexes, model directories, and things that are no regular files; every one within limits of memory
and time."""

import contextlib
import json
import os
import socket
import struct

import candle_convert as cc
import numpy as np
import pytest
from safetensors.numpy import save_file

A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def _index(folder, weight_map=None, **more):
    """Two shards, "a" and "b", and an index that says so unless told otherwise."""
    folder.mkdir(exist_ok=True)
    save_file({"a": np.zeros(2, np.float32)}, folder / A)
    save_file({"b": np.ones(2, np.float32)}, folder / B)
    path = folder / "model.safetensors.index.json"
    path.write_text(
        json.dumps(
            {
                "metadata": {"total_size": 16},
                "weight_map": {"a": A, "b": B} if weight_map is None else weight_map,
                **more,
            }
        )
    )
    return path


def _missing_shard(folder):
    path = _index(folder)
    (folder / B).unlink()
    return path


def _in_both(folder):
    path = _index(folder)
    save_file({"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}, folder / B)
    return path


def _text(text):
    def build(folder):
        path = _index(folder)
        path.write_text(text)
        return path

    return build


def _names(weight_map):
    return lambda folder: _index(folder, weight_map)


def _outside(folder):
    path = _index(folder)
    save_file({"b": np.ones(2, np.float32)}, folder.parent / "secret.safetensors")
    (folder / B).unlink()
    (folder / B).symlink_to("../secret.safetensors")
    return path


def _loop(folder):
    path = _index(folder)
    (folder / B).unlink()
    (folder / B).symlink_to(B)
    return path


def _pipe_as_shard(folder):
    path = _index(folder)
    (folder / B).unlink()
    os.mkfifo(folder / B)
    return path


def _folder_as_shard(folder):
    path = _index(folder)
    (folder / B).unlink()
    (folder / B).mkdir()
    return path


def _blobs_of_another(folder):
    """Links as in the hub's cache, but into another repository's blobs."""
    snapshot = folder / "models--me--mine" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    path = _index(snapshot)
    (snapshot / B).rename(folder / "blob")
    (snapshot / B).symlink_to("../../../blob")
    return path


INDEXES = [
    ("missing-shard", _missing_shard, "E-SHARD-MISSING"),
    ("tensor-in-two-shards", _in_both, "E-SHARD-TWICE"),
    ("tensor-in-no-shard", _names({"a": A, "b": B, "c": B}), "E-INDEX-TENSORS"),
    ("tensor-not-in-the-index", _names({"a": A}), ""),
    ("parent-folder", _names({"a": A, "b": f"../model/{B}"}), "E-PATH-ESCAPE"),
    ("parent-folder-inside", _names({"a": A, "b": f"x/../{B}"}), "E-PATH-ESCAPE"),
    ("backslashes", _names({"a": A, "b": f"..\\{B}"}), "E-PATH-ESCAPE"),
    ("absolute", _names({"a": A, "b": "/etc/passwd"}), "E-PATH-ESCAPE"),
    ("drive", _names({"a": A, "b": f"C:{B}"}), "E-PATH-ESCAPE"),
    ("url", _names({"a": A, "b": f"https://example.org/{B}"}), "E-PATH-ESCAPE"),
    ("home", _names({"a": A, "b": f"~/{B}"}), "E-PATH-ESCAPE"),
    ("nul", _names({"a": A, "b": "a\0b"}), "E-PATH-ESCAPE"),
    ("empty-name", _names({"a": A, "b": ""}), "E-PATH-ESCAPE"),
    ("folder-itself", _names({"a": A, "b": "."}), "E-"),
    ("long-name", _names({"a": A, "b": "b" * 5000}), ""),
    ("link-out-of-the-folder", _outside, "E-PATH-ESCAPE"),
    ("link-to-itself", _loop, "E-"),
    ("link-to-blobs-of-another", _blobs_of_another, "E-PATH-ESCAPE"),
    ("pipe", _pipe_as_shard, "E-IO-KIND"),
    ("folder", _folder_as_shard, "E-IO-KIND"),
    ("no-map", _names([]), "E-INDEX-MAP"),
    ("empty-map", _names({}), "E-INDEX-MAP"),
    ("numbers-in-the-map", _names({"a": 1}), "E-INDEX-MAP"),
    ("not-json", _text("{"), "E-INDEX-JSON"),
    ("a-list", _text("[]"), "E-INDEX-MAP"),
    ("nan", _text('{"weight_map": {"a": NaN}}'), "E-INDEX-JSON"),
    ("twice", _text(f'{{"weight_map": {{"a": "{A}", "a": "{B}"}}}}'), "E-INDEX-JSON"),
    ("deep", _text('{"weight_map":' + "[" * 100_000), "E-LIMIT-DEPTH"),
    ("empty", _text(""), "E-INDEX-JSON"),
]


@pytest.mark.parametrize(("name", "build", "code"), INDEXES, ids=[row[0] for row in INDEXES])
def test_hostile_19_indexes(name, build, code, tmp_path, sandbox):
    path = build(tmp_path / "model")
    for opened in (path, path.parent):
        outcome = sandbox.outcome(opened, "read")
        assert outcome.quick
        assert outcome.code.startswith(code) if code else not outcome.code, outcome
        assert not code or (outcome.hint and outcome.file.startswith(str(tmp_path)))


def test_links_of_the_hub_cache_are_followed(tmp_path):
    snapshot, blobs = tmp_path / "models--me--mine" / "snapshots" / "0", tmp_path / "models--me--mine" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    path = _index(snapshot)
    (snapshot / "config.json").write_text("{}")
    for number, file in enumerate(list(snapshot.iterdir())):
        file.rename(blobs / f"{number:040x}")
        file.symlink_to(f"../../blobs/{number:040x}")
    for opened in (path, snapshot):
        graph = cc.open(opened)
        assert set(graph) == {"a", "b"}
        assert graph["b"].numpy().tolist() == [1, 1]
    assert set(cc.open(snapshot).attachments) == {"config.json"}


def test_links_inside_the_folder_are_followed(tmp_path):
    path = _index(tmp_path / "model")
    (path.parent / "real").mkdir()
    (path.parent / B).rename(path.parent / "real" / "b")
    (path.parent / B).symlink_to("real/b")
    assert set(cc.open(path)) == {"a", "b"}


def _fifo(folder):
    os.mkfifo(folder / "x.safetensors")
    return folder / "x.safetensors"


def _socket(folder):
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as made:  # the names of sockets are short
        made.bind("x.gguf")
    return folder / "x.gguf"


def _link_to_zero(folder):
    (folder / "x.safetensors").symlink_to("/dev/zero")
    return folder / "x.safetensors"


def _sparse(folder):
    with open(folder / "x.safetensors", "wb") as file:
        file.truncate(1 << 40)
    return folder / "x.safetensors"


def _sparse_with_a_header(size, behind):
    def build(folder):
        text = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        with open(folder / "x.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + behind)
        return folder / "x.safetensors"

    return build


def _directory(*names):
    def build(folder):
        for name in names:
            (folder / name).write_bytes(b"{}")
        return folder

    return build


TIB = 1 << 40
INPUTS = [
    ("pipe", _fifo, "E-IO-KIND"),
    ("socket", _socket, "E-IO-OPEN"),
    ("dev-zero", lambda folder: "/dev/zero", "E-IO-KIND"),
    ("link-to-dev-zero", _link_to_zero, "E-IO-KIND"),
    ("missing", lambda folder: folder / "x.gguf", "E-IO-MISSING"),
    ("name-too-long", lambda folder: folder / ("x" * 5000), "E-IO-OPEN"),
    ("below-a-file", lambda folder: _directory("file")(folder) / "file" / "x", "E-IO-OPEN"),
    ("empty-directory", _directory(), "E-DIR-EMPTY"),
    (
        "directory-without-weights",
        _directory("config.json", "tokenizer.json", "optimizer.pt", "rng_state.pth"),
        "E-DIR-EMPTY",
    ),
    ("sparse-1-TiB", _sparse, "E-FILE-EMPTY"),
    ("sparse-1-TiB-with-a-header", _sparse_with_a_header(TIB, TIB), ""),
    ("sparse-1-TiB-too-long", _sparse_with_a_header(8, TIB), "E-ST-TRAILING"),
    ("1-TiB-promised", _sparse_with_a_header(TIB, 8), "E-ST-TRUNCATED"),
]


@pytest.mark.parametrize(("name", "build", "code"), INPUTS, ids=[row[0] for row in INPUTS])
def test_hostile_95_inputs(name, build, code, tmp_path, sandbox, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = sandbox.outcome(build(tmp_path))
    assert (outcome.code, outcome.quick) == (code, True), outcome
    assert outcome.exit_code in ((0,) if not code else (3, 7))


def test_a_nul_in_a_path_is_an_error_of_ours(tmp_path):
    with pytest.raises(cc.FileAccessError, match="E-IO-OPEN"):
        cc.open(f"{tmp_path}/a\0b")


def test_rows_of_a_sparse_tib_are_read_alone(tmp_path):
    graph = cc.open(_sparse_with_a_header(TIB, TIB)(tmp_path))
    assert graph["x"][TIB - 3 :].numpy().tolist() == [0, 0, 0]


def test_hostile_96_a_file_that_shrinks_is_an_error_and_no_signal(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": np.ones(10_000, np.float32)}, path)
    graph = cc.open(path)
    os.truncate(path, 5000)
    with pytest.raises(cc.FileAccessError, match="E-IO-SHRANK") as caught:
        graph["x"].numpy()
    assert caught.value.offset == 5000
    with pytest.raises(cc.Error):
        cc.convert(path, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


def test_hostile_99_a_config_with_huge_values_costs_nothing(tmp_path, sandbox):
    save_file({"model.embed_tokens.weight": np.zeros((4, 4), np.float32)}, tmp_path / "model.safetensors")
    huge = {
        "model_type": "llama",
        "num_hidden_layers": 10**9,
        "vocab_size": 1 << 62,
        "hidden_size": -1,
        "rope_theta": 1e308,
        "x": "y" * 100_000,
    }
    (tmp_path / "config.json").write_text(json.dumps(huge))
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    for action in ("open", "convert"):
        outcome = sandbox.outcome(tmp_path, action)
        assert (outcome.code, outcome.quick) == ("", True), outcome


def test_a_directory_of_many_texts_takes_only_the_models(tmp_path):
    save_file({"x": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    for number in range(3000):
        (tmp_path / f"{number}.txt").write_text("a text of a data set")
    for name in ("config.json", "tokenizer.json", "merges.txt"):
        (tmp_path / name).write_text("{}")
    graph = cc.open(tmp_path)
    assert set(graph.attachments) == {"config.json", "tokenizer.json", "merges.txt"}
    assert [note.code for note in graph.notes] == ["W-ATTACHMENT"]


def test_what_is_attached_and_what_is_too_large(tmp_path):
    save_file({"x": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    for name in (
        "config.json",
        "tokenizer.model",
        "chat_template.jinja",
        "README.md",
        "notes.py",
        "model.safetensors.index.json.bak",
    ):
        (tmp_path / name).write_bytes(b"x")
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(65 << 20)
    os.mkfifo(tmp_path / "pipe.json")
    graph = cc.open(tmp_path)
    assert set(graph.attachments) == {"config.json", "tokenizer.model", "chat_template.jinja", "README.md"}
    assert "huge.json" in graph.notes[0].message


def test_an_attachment_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"x": np.zeros(4, np.float32)}, folder / "model.safetensors")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "config.json").symlink_to("../secret.json")
    with pytest.raises(cc.UnsafeFileError, match="E-PATH-ESCAPE"):
        cc.open(folder)


def test_a_directory_with_a_choice_says_so(tmp_path):
    for name in ("one.safetensors", "two.safetensors"):
        save_file({"x": np.zeros(4, np.float32)}, tmp_path / name)
    with pytest.raises(cc.UsageError, match="E-DIR-CHOICE") as caught:
        cc.open(tmp_path)
    assert "one.safetensors, two.safetensors" in caught.value.hint


def test_weights_are_preferred_in_order(tmp_path):
    import torch

    torch.save({"pickled": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    assert set(cc.open(tmp_path)) == {"pickled"}
    save_file({"safe": np.zeros(2, np.float32)}, tmp_path / "model.safetensors")
    assert set(cc.open(tmp_path)) == {"safe"}
    _index(tmp_path)
    assert set(cc.open(tmp_path)) == {"a", "b"}


def test_an_index_of_torch_shards(tmp_path):
    import torch

    names = [f"pytorch_model-{number:05d}-of-00002.bin" for number in (1, 2)]
    for number, name in enumerate(names):
        torch.save({f"w{number}": torch.full((2,), number)}, tmp_path / name)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"w0": names[0], "w1": names[1]}}))
    assert cc.open(tmp_path)["w1"].numpy().tolist() == [1, 1]


def _model(folder, config):
    """A model in a folder of its own; its weights."""
    folder.mkdir()
    cc.save_file({"w": np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json").write_text(config)
    return folder / "model.safetensors"


@pytest.mark.parametrize("config", ['{"model_type": "llama"}', '{"d_model": 8, "vocab_size": 10}'])
def test_weights_beside_a_models_config_are_that_model(config, tmp_path):
    weights = _model(tmp_path / "model", config)
    assert set(cc.open(weights).attachments) == {"config.json", "tokenizer.json"}
    index = weights.with_name("model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": {"w": weights.name}}))
    assert "config.json" in cc.open(index).attachments


@pytest.mark.parametrize("config", ["{}", "[1]", "no JSON", '{"model_type": ' + "[" * 100_000, '{"learning_rate": 1}'])
def test_a_config_that_is_no_models_is_not_looked_at(tmp_path, config):
    assert not cc.open(_model(tmp_path / "model", config)).attachments


def test_one_shard_is_not_the_whole_model(tmp_path):
    weights = _model(tmp_path / "model", '{"model_type": "llama"}')
    assert not cc.open(weights.rename(weights.with_name("model-00001-of-00002.safetensors"))).attachments


def test_a_config_of_millions_of_lists_beside_weights_costs_little(tmp_path, sandbox):
    weights = _model(tmp_path / "model", '{"model_type": [' + "[]," * 5_000_000 + "[]]}")
    outcome = sandbox.outcome(weights)
    assert not outcome.code, outcome
    assert outcome.quick
