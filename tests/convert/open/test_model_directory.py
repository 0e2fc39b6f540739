"""A directory is one model: copies of it are passed over and named, several models are listed and nothing is done."""

import json
import os

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run


def saved(folder, *names, value=1.0):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name.endswith((".bin", ".ckpt", ".pt")):
            torch.save({"w": torch.full((3,), value)}, folder / name)
        elif name.endswith(".onnx"):
            (folder / name).write_bytes(b"\x08\x08")
        else:
            cc.save_file({"w": np.full(3, value, np.float32)}, folder / name)
    return folder


def sharded(folder, stem="model", **options):
    arrays = {f"w{number}": np.full(1000, number, np.float32) for number in range(4)}
    folder.mkdir(exist_ok=True)
    cc.save_file(arrays, folder / "one.safetensors")
    cc.convert(folder / "one.safetensors", folder / f"{stem}.safetensors", shard_tensors=1, **options)
    (folder / "one.safetensors").unlink()
    return folder


UNRELATED = (
    [f"model_{letter}.safetensors" for letter in "abcdefghijklmnopqrst"],
    ["first.safetensors", "second.gguf"],
    ["a.safetensors", *(f"b{number}.npz" for number in range(19))],
    ["model.safetensors", "other.safetensors"],
    ["model.safetensors", "style-lora.safetensors"],
    ["q4.gguf", "q8.gguf"],
    ["a.pth", "b.pt", "c.ckpt"],
    ["model.safetensors", "best.ckpt"],
)


@pytest.mark.parametrize("names", UNRELATED, ids=lambda names: f"{len(names)} {names[0]}")
@pytest.mark.parametrize("command", ["convert", "inspect", "quantize", "hash", "dequantize", "split"])
def test_several_models_are_listed(names, command, tmp_path, capsys):
    folder, out = saved(tmp_path / "many", *names), str(tmp_path / "out.gguf")
    own = {"quantize": (out, "Q8_0"), "split": (str(tmp_path / "parts"), "--shard-tensors", "1")}
    words = () if command in ("inspect", "hash") else own.get(command, (out,))
    assert run([command, str(folder), *words]) == 2
    said = capsys.readouterr()
    assert f"holds {len(names)} weight files" in said.out + said.err
    assert all(name in said.out + said.err for name in names)
    assert sorted(os.listdir(tmp_path)) == ["many"]


COPIES = (
    ("model.safetensors", ["pytorch_model.bin"]),
    ("model.safetensors", ["consolidated.safetensors"]),
    ("model.safetensors", ["consolidated.00.pth"]),
    ("model.safetensors", ["model.fp16.safetensors", "pytorch_model.bin"]),
    (
        "diffusion_pytorch_model.safetensors",
        ["diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.bin"],
    ),
    ("adapter_model.safetensors", ["adapter_model.bin"]),
    ("model.safetensors", ["model.onnx", "model_quantized.onnx"]),
)


@pytest.mark.parametrize(("chosen", "others"), COPIES, ids=str)
def test_copies_of_one_model_are_named(chosen, others, tmp_path, capsys):
    folder = saved(saved(tmp_path / "model", *others, value=2.0), chosen)
    saved(folder, "optimizer.bin", "rng_state_0.pth", "training_args.bin")
    assert cc.open(folder)["w"].numpy().tolist() == [1, 1, 1]
    assert run(["convert", str(folder), str(tmp_path / "out.safetensors")]) == 0
    said = capsys.readouterr().err
    assert "W-DIR-COPIES" in said
    assert all(name in said for name in [chosen, *others])
    assert "optimizer" not in said


@pytest.mark.parametrize("shards", [False, True])
def test_arrays_next_to_a_model_are_named(shards, tmp_path, capsys):
    """As transformers reads such a directory, and as our commands leave it: `-o vectors.npz`."""
    folder = sharded(tmp_path / "model") if shards else saved(tmp_path / "model", "model.safetensors")
    saved(folder, "inputs.npz", "outputs.npz", "pytorch_model.bin", value=2.0)
    assert cc.open(folder).keys() == ({"w0", "w1", "w2", "w3"} if shards else {"w"})
    assert run(["convert", str(folder), str(tmp_path / "out.safetensors")]) == 0
    said = capsys.readouterr().err
    assert "copies of the model: pytorch_model.bin; skipped arrays that are not the model: inputs.npz, outputs.npz" in (
        " ".join(said.split())
    )
    saved(folder, "unrelated.safetensors")
    with pytest.raises(cc.UsageError, match=r"E-DIR-CHOICE.*unrelated\.safetensors"):
        cc.open(folder)


def test_shards_with_an_index_and_copies_of_them(tmp_path):
    folder = saved(
        sharded(tmp_path / "model"),
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "consolidated.safetensors",
    )
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}})
    )
    graph = cc.open(folder)
    assert len(graph) == 4
    (note,) = [note for note in graph.notes if note.code == "W-DIR-COPIES"]
    assert "consolidated.safetensors" in note.message
    saved(folder, "unrelated.safetensors")
    with pytest.raises(cc.UsageError, match=r"unrelated\.safetensors"):
        cc.open(folder)


def test_an_index_names_shards_of_any_name(tmp_path):
    folder = saved(tmp_path / "model", "one.safetensors")
    cc.save_file({"v": np.ones(2, np.float32)}, folder / "two.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "one.safetensors", "v": "two.safetensors"}})
    )
    assert len(cc.open(folder)) == 2
    assert not cc.open(folder).notes


def test_a_split_gguf_is_one_model(tmp_path):
    folder = sharded(tmp_path / "parts")
    cc.convert(folder, tmp_path / "gguf" / "model.gguf", to="gguf", shard_tensors=1)
    assert len(cc.open(tmp_path / "gguf")) == 4


def test_folders_below_are_named(tmp_path):
    folder = tmp_path / "pipeline"
    for name in ("unet", "vae", "scheduler"):
        saved(folder / name, *(["diffusion_pytorch_model.safetensors"] if name != "scheduler" else []))
    (folder / "model_index.json").write_text("{}")
    with pytest.raises(cc.FormatError, match=r"E-DIR-EMPTY.*Use one of its folders: unet, vae"):
        cc.open(folder)


def test_a_stray_file_next_to_an_index_is_refused_by_all_commands(tmp_path, capsys):
    folder = saved(sharded(tmp_path / "model"), "unrelated.safetensors")
    codes = []
    for words in (["check", str(folder)], [str(folder), str(tmp_path / "out.safetensors")]):
        codes.append(run(words))
        assert "E-DIR-CHOICE" in "".join(capsys.readouterr())
    assert codes[0]
    assert codes[0] == codes[1]
    (folder / "model.safetensors.index.json").unlink()
    for name in os.listdir(folder):
        if "-of-" in name:
            (folder / name).unlink()
    saved(folder, "other.safetensors")
    assert run(["check", str(folder)]) == 0  # several models are checked one by one
