"""What people type from llama.cpp, Optimum, mlx-lm or torch is taken, or answered with what to type here."""

import json
import os
import pickle
import shlex
import struct
import zipfile

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.runtime.base.nearest_name import nearest
from candle_convert.runtime.tensor.dtype import DTYPES, dtype_named
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cc.save_file({"a.weight": np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)}, "m.safetensors")
    written(tmp_path / "lm.gguf")
    return tmp_path


SAID = [
    (
        "quantize lm.gguf Q4_K_M",
        2,
        "missing argument OUT: 'Q4_K_M' is a type. Use candle-convert quantize lm.gguf lm-Q4_K_M.gguf Q4_K_M",
    ),
    (
        "quantize lm.gguf q4_km",
        2,
        "missing argument OUT: 'q4_km' looks like a type. Use candle-convert quantize lm.gguf lm-Q4_K_M.gguf Q4_K_M",
    ),
    ("quantize lm.gguf out/model.gguf", 2, "missing argument TYPE"),
    ("quantize Q4_K_M lm.gguf o.gguf", 2, "quantize lm.gguf o.gguf Q4_K_M"),
    ("quantize lm.gguf Q4_K_M o.gguf", 2, "quantize lm.gguf o.gguf Q4_K_M"),
    ("quantize lm.gguf o.gguf Q4_KM", 2, "'Q4_KM' is not a known type. Did you mean Q4_K_M?"),
    ("quantize lm.gguf o.gguf iq4xs", 2, "Did you mean iq4_xs?"),
    ("quantize lm.gguf o.gguf Q8_0 --tensor-type v=Q4_K_M", 2, "For a single type use q4_k"),
    ("quantize m.safetensors o.gguf IQ2_XS", 4, "candle-convert imatrix m.safetensors -d text.txt -o imatrix.gguf"),
    ("convert m.safetensors o.safetensors --dtype flaot16", 2, "Did you mean float16?"),
    ("convert nowhere.safetensors o.gguf --outtype q8_0", 2, "Use --quantize q8_0"),
    ("convert nowhere.safetensors o.gguf --outtype Q4_K_M", 2, "Use --quantize Q4_K_M"),
    ("convert nowhere.safetensors o.gguf --tensor-type a=q6_k", 2, "Use --quantize q6_k"),
    ("convert m.safetensors", 2, "Missing argument 'OUT'"),
    ("convert m.safetensors -", 2, "cannot be written to standard output"),
    ("convert - o.gguf", 2, "cannot be read from standard input"),
    ("m.safetensors", 2, "missing argument OUT"),
    ("quantze lm.gguf", 2, "'quantze' is neither a command nor a file. Did you mean candle-convert quantize?"),
    ("inspekt", 2, "Did you mean candle-convert inspect?"),
    ("xyzzy o.gguf", 2, "candle-convert --help lists the commands"),
    ("inspect m.safetensor", 7, "Did you mean m.safetensors?"),
    ("inspect Qwen/Qwen3-0.6B", 7, "For the Hugging Face repository use hf://Qwen/Qwen3-0.6B"),
    ("scan Qwen/Qwen3-0.6B", 7, "use hf://Qwen/Qwen3-0.6B"),
    ("merge Qwen/Qwen3-0.6B o.gguf", 7, "use hf://Qwen/Qwen3-0.6B"),
    ("inspect Qwen/Qwen3-0.6B-GGUF:Q4_K_M", 7, "hf://Qwen/Qwen3-0.6B-GGUF/FILE, where FILE is its Q4_K_M file"),
    ("inspect https://huggingface.co/a/b", 2, "Use hf://a/b"),
    ("inspect https://huggingface.co/a/b/tree/main", 2, "Use hf://a/b"),
    ("inspect http://hf.co/a/b/blob/main/x/y.gguf", 2, "Use hf://a/b/x/y.gguf"),
    ("inspect https://huggingface.co/a/b/resolve/v1.0/y.gguf?download=true", 2, "Use hf://a/b@v1.0/y.gguf"),
    ("inspect https://huggingface.co/a/b/resolve/refs%2Fpr%2F3/y.gguf", 2, "Use hf://a/b/y.gguf --revision refs/pr/3"),
    ("scan huggingface.co/a/b", 2, "Use hf://a/b"),
    ("inspect https://huggingface.co/datasets/a/b", 2, "not data sets"),
    ("inspect https://example.com/x.gguf", 2, "Download the file"),
    ("convert --hf-path m.safetensors o", 2, "For mlx_lm's -q use --quantize TYPE"),
    ("quantize lm.gguf o.gguf --q_bits 4", 2, "quantize IN OUT TYPE"),
    ("convert m.safetensors o.gguf --trust-remote-code", 2, "never executed"),
    ("generate lm.gguf -p x --max-newtokens 3", 2, "--max-new-tokens"),
    ("generate lm.gguf -p x -ngl 3", 2, "--gpu-layers N"),
    ("convert m.safetensors o.gguf --outypt f16", 2, "--outtype"),
    ("convert m.safetensors o.gguf --report -", 2, "Use --json"),
]


@pytest.mark.parametrize(("line", "code", "says"), SAID, ids=[row[0] for row in SAID])
def test_what_was_meant_is_said(folder, capsys, line, code, says):
    before = sorted(os.listdir())
    assert run(shlex.split(line)) == code
    found = capsys.readouterr()
    assert says in found.err
    assert found.out == "" or code == 4
    assert sorted(os.listdir()) == before


def test_hints_for_options_are_in_json_too(folder, capsys):
    assert run(["convert", "m.safetensors", "o.gguf", "--hf-path", "x", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], "hf://owner/repo" in error["hint"]) == ("E-USAGE", True)


@pytest.mark.parametrize("option", [["-o", "x.gguf"], ["-ox.gguf"], ["--output", "x.gguf"], ["--outfile=x.gguf"]])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["convert", "m.safetensors"], []),
        (["m.safetensors"], []),
        (["quantize", "m.safetensors"], ["Q8_0"]),
        (["dequantize", "m.safetensors"], []),
        (["merge", "m.safetensors"], ["--to", "gguf"]),
        (["split", "m.safetensors"], ["--shard-tensors", "1", "--to", "gguf"]),
        (["tokenizer", "export", "lm.gguf"], []),
    ],
    ids=lambda words: " ".join(words),
)
def test_the_output_may_be_an_option(folder, before, after, option):
    assert run([*before, *option, *after]) == 0
    assert os.path.exists("x.gguf")
    os.remove("x.gguf")
    assert run([*before, *after, *option]) == 0
    assert os.path.exists("x.gguf")


def test_text_goes_to_standard_output(folder, capsysbinary):
    assert run(["tokenizer", "export", "lm.gguf", "-"]) == 0
    assert "model" in json.loads(capsysbinary.readouterr().out)
    assert run(["hash", "m.safetensors", "--write", "-"]) == 0
    assert capsysbinary.readouterr().out.endswith(b"  a.weight\n")
    assert run(["verify", "m.safetensors", "m.safetensors", "--certificate", "-"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["faithful"]
    assert run(["tokenizer", "export", "lm.gguf", "-", "--json"]) == 2


SAME = [
    ("fp16", "f16"),
    ("float16", "f16"),
    ("half", "f16"),
    ("torch.float16", "f16"),
    (np.float16, "f16"),
    (np.dtype(">f2"), "f16"),
    (torch.half, "f16"),
    ("bfloat16", "bf16"),
    ("BF16", "bf16"),
    (ml_dtypes.bfloat16, "bf16"),
    (torch.bfloat16, "bf16"),
    ("fp32", "f32"),
    ("float", "f32"),
    ("float32", "f32"),
    ("double", "f64"),
    ("float8_e4m3fn", "f8_e4m3"),
    ("int8", "i8"),
    ("uint8", "u8"),
]


@pytest.mark.parametrize(("spelling", "name"), SAME, ids=str)
def test_dtypes_have_the_names_of_other_libraries(spelling, name):
    assert dtype_named(spelling) is DTYPES[name]


@pytest.mark.parametrize("spelling", ["fp16", "float16", "half", "FP16", "torch.float16"])
def test_every_place_takes_these_names(folder, spelling):
    assert run(["convert", "m.safetensors", "o.safetensors", "--dtype", spelling, "-f"]) == 0
    assert cc.open("o.safetensors")["a.weight"].dtype.name == "f16"
    for words in (
        ["dequantize", "m.safetensors", "d.gguf", "--dtype", spelling],
        ["quantize", "m.safetensors", "d.gguf", spelling],
        ["quantize", "m.safetensors", "d.gguf", "Q8_0", "--tensor-type", f"a={spelling}"],
    ):
        assert run([*words, "-f"]) == 0
    assert cc.open("d.gguf")["a.weight"].dtype.name == "f16"
    assert cc.open("m.safetensors")["a.weight"].cast(spelling).dtype.name == "f16"


def test_every_dtype_is_its_own_nearest():
    assert all(nearest(name, DTYPES) == name for name in DTYPES)
    assert nearest("zzz", DTYPES) is None


HEADS = {
    "m.tflite": (struct.pack("<I", 28) + b"TFL3" + bytes(99), "tf2onnx.convert --tflite m.tflite"),
    "renamed.bin": (struct.pack("<I", 28) + b"TFL3" + bytes(99), "TensorFlow Lite"),
    "frozen.pb": (b"\x0a\x10\x0a\x01x\x12\x0bPlaceholder\x22\x03\x08\xb0\x0a", "tf2onnx.convert --graphdef frozen.pb"),
    "saved_model.pb": (b"\x08\x01\x12\x20\x0a\x1e\x0a\x05serve" + bytes(23), "tf2onnx.convert --saved-model ."),
    "flax_model.msgpack": (
        b"\x81\xa6params\x81\xa5Dense\xc7\x10\x01" + bytes(16),
        "flax.serialization.msgpack_restore",
    ),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(600), 'keras.saving.load_model("m.h5")'),
    "m.mlmodel": (b"\x08\x04\x12\x10\x0a\x05\x0a\x01x\x1a\x00" + bytes(50), "Core ML"),
    "m.engine": (b"ftrt" + bytes(99), "TensorRT"),
    "m.plan": (b"ptrt" + bytes(99), "TensorRT"),
    "model.ckpt.index": (bytes(range(99)), 'tf.train.load_checkpoint("model.ckpt")'),
    "model.ckpt-5.data-00000-of-00001": (bytes(range(99)), 'tf.train.load_checkpoint("model.ckpt-5")'),
    "m.ort": (struct.pack("<I", 28) + b"ORTM" + bytes(99), "ORT format"),
    "m.pdmodel": (b"\x0a\x20" + bytes(99), "paddle2onnx"),
}


@pytest.mark.parametrize(("name", "data", "says"), [(name, *row) for name, row in HEADS.items()], ids=HEADS)
def test_models_of_other_frameworks_are_named(folder, capsys, name, data, says):
    (folder / "x").mkdir()
    os.chdir("x")
    with open(name, "wb") as file:
        file.write(data)
    assert run(["inspect", name]) == 3
    assert says in capsys.readouterr().err
    if name != "renamed.bin":
        assert run(["inspect", "."]) == 3
        assert "no weights that can be read" in capsys.readouterr().err


def zipped(name, member):
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr(member, "{}")


def test_archives_of_other_frameworks_are_named(folder, capsys):
    zipped("m.keras", "metadata.json")
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), "m.pt2")
    assert (run(["inspect", "m.keras"]), run(["inspect", "m.pt2"])) == (3, 3)
    said = capsys.readouterr().err
    assert 'keras.saving.load_model("m.keras")' in said
    assert 'torch.export.load("m.pt2")' in said


def test_a_page_under_a_models_name_is_a_page(folder, capsys):
    with open("model.pb", "w") as file:
        file.write("<!doctype html><html>log in</html>")
    assert run(["inspect", "model.pb"]) == 3
    assert "E-FILE-HTML" in capsys.readouterr().err


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)


def test_a_pickled_module_of_an_unknown_class_is_answered_with_its_state_dict(folder, capsys):
    torch.save(Own(), "net.pt")
    assert run(["inspect", "net.pt"]) == 5
    said = capsys.readouterr().err
    assert all(text in said for text in ("nn.Module", "torch.load('net.pt', weights_only=False)", "m.state_dict()"))
    assert run(["inspect", "net.pt", "--allow-global", f"{Own.__module__}.Own"]) == 0
    assert "inner.weight" in capsys.readouterr().out


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), Own()], ids=["torch", "own"])
def test_a_module_of_pickle_dump_is_answered_with_its_state_dict(folder, capsys, model):
    with open("net.pkl", "wb") as file:
        pickle.dump(model, file)
    assert run(["inspect", "net.pkl"]) == 5
    assert "state_dict()" in capsys.readouterr().err
