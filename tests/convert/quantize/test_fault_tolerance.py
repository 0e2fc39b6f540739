"""Quantizing under difficult conditions: killed, on full disks, tensors of all shapes and sizes, importance that does
not fit."""

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.reproducible_models import MODELS, noise, write_importance, write_model

RNG = np.random.default_rng(9)
PEAK = """
import sys
from candle_convert.convert.cli.main import run
from candle_convert.convert.console.memory import peak_rss
assert run(sys.argv[1:]) == 0
print(peak_rss())
"""


def command(*words):
    return [sys.executable, "-m", "candle_convert.convert", "quantize", *map(str, words)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model and its importance matrix."""
    write_importance(tmp_path / "imatrix.gguf", write_model(tmp_path / "model.gguf", **MODELS["llama"]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_killed_at_any_moment_and_resumed(tmp_path):
    moments = random.Random(1)
    values = np.tile(noise(1 << 19, 1).reshape(-1, 1024) * 0.02, (4, 1)).astype(np.float16)
    cc.save_file({f"layers.{layer}.weight": np.roll(values, layer) for layer in range(6)}, tmp_path / "in.safetensors")
    words = (tmp_path / "in.safetensors", tmp_path / "out.gguf", "q2_k", "--threads", "1", "--verify", "none")
    cc.quantize(tmp_path / "in.safetensors", tmp_path / "whole.gguf", "q2_k")
    finished = (tmp_path / "whole.gguf").read_bytes()
    whole = 1.0
    (tmp_path / "out.gguf").write_bytes(b"the old output")
    kills = resumed = 0
    for _ in range(8):
        process = subprocess.Popen(
            command(*words, "--resume", "--force"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        began = time.perf_counter()
        try:
            process.wait(moments.uniform(0.5, 2) * whole)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            whole = max(whole, time.perf_counter() - began) * 1.2
            journal = tmp_path / "out.gguf.partial.journal"
            resumed += journal.exists() and journal.read_text().count("\n") > 1
            assert (tmp_path / "out.gguf").read_bytes() in (b"the old output", finished), (
                "neither the old output nor the whole new one"
            )
            continue
        process.communicate()
        assert process.returncode == 0
        break
    else:
        subprocess.run(command(*words, "--resume", "--force"), check=True, capture_output=True)
    print(f"{kills} kills, {resumed} of them with finished jobs on record")
    assert (tmp_path / "out.gguf").read_bytes() == finished
    assert sorted(os.listdir(tmp_path)) == ["in.safetensors", "out.gguf", "whole.gguf"]


OTHERS = {
    "other importance": (("--imatrix", "imatrix.gguf"), ("--imatrix", "imatrix.gguf", "--exclude-weights", "attn_q")),
    "other blocks": (("--prune-layers", "0"), ("--prune-layers", "1")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_was_begun_otherwise_is_not_resumed(folder, monkeypatch, name):
    first, second = OTHERS[name]
    with monkeypatch.context() as patch:
        patch.setattr("candle_convert.convert.write.pipeline.verify", interrupted)
        assert run(["quantize", "model.gguf", "out.gguf", "Q4_K_M", *first, "-q"]) == 130
    assert (folder / "out.gguf.partial.journal").read_text().count("\n") > 1
    assert run(["quantize", "model.gguf", "out.gguf", "Q4_K_M", *second, "-q", "--resume"]) == 0
    assert run(["quantize", "model.gguf", "fresh.gguf", "Q4_K_M", *second, "-q"]) == 0
    assert (folder / "out.gguf").read_bytes() == (folder / "fresh.gguf").read_bytes()


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_disk_that_is_full(folder):
    limited = ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh"]  # blocks of 512 bytes
    (folder / "out.gguf").write_bytes(b"the old output")
    done = subprocess.run(
        [*limited, *command("model.gguf", "out.gguf", "Q8_0", "-f", "--json")], capture_output=True, text=True
    )
    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "E-OUT-FULL"
    assert (folder / "out.gguf").read_bytes() == b"the old output"


def peak(*words):
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, words)], check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1])


def test_a_tensor_larger_than_the_memory_allowed(tmp_path):
    header = json.dumps(
        {"w.weight": {"dtype": "F16", "shape": [24 * 1024, 4096], "data_offsets": [0, 24 * 2**23]}}
    ).encode()
    with open(tmp_path / "large.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 24 * 2**23)
    cc.save_file({"w.weight": np.zeros((8, 4096), np.float16)}, tmp_path / "small.safetensors")
    words = ("q4_0", "--max-memory", "16MiB", "--threads", "2", "-q")
    small = peak("quantize", tmp_path / "small.safetensors", tmp_path / "small.gguf", *words)
    assert peak("quantize", tmp_path / "large.safetensors", tmp_path / "large.gguf", *words) - small < 32 * 2**20
    assert cc.open(tmp_path / "large.gguf").weights["w.weight"].dtype.name == "q4_0"


ODD = {
    "scalar.weight": np.float32(1),
    "one.weight": np.ones(512, np.float32),
    "empty.weight": np.zeros((0, 256), np.float32),
    "none.weight": np.zeros((4, 0), np.float32),
    "short.weight": np.ones((4, 7), np.float32),
    "column.weight": np.ones((64, 1), np.float32),
    "row.weight": np.ones((1, 256), np.float32),
    "odd.weight": np.ones((4, 96), np.float32),
    "stacked.weight": RNG.standard_normal((2, 3, 4, 256)).astype(np.float32),
    "integers.weight": np.ones((4, 256), np.int32),
    "norm.bias": np.ones((4, 256), np.float32),
    "double.weight": RNG.standard_normal((4, 256)),
    "brain.weight": np.ones((4, 256), ml_dtypes.bfloat16),
}
BECOME = {
    "scalar.weight": "f32",
    "one.weight": "f32",
    "row.weight": "f32",
    "integers.weight": "i32",
    "norm.bias": "f32",
    "empty.weight": "q4_k",
    "none.weight": "q4_k",
    "short.weight": "f16",
    "column.weight": "f16",
    "odd.weight": "q5_0",
    "stacked.weight": "q4_k",
    "double.weight": "q4_k",
    "brain.weight": "q4_k",
}


def test_tensors_of_all_shapes(tmp_path, capsys):
    cc.save_file(ODD, tmp_path / "in.safetensors")
    out = str(tmp_path / "out.gguf")
    words = ["quantize", str(tmp_path / "in.safetensors"), out, "Q4_K"]
    assert run([*words, "--no-fallback"]) == 5
    assert "E-QUANT-FALLBACK" in capsys.readouterr().err
    assert not os.path.exists(out)
    assert run(words) == 0
    assert "W-FALLBACK" in capsys.readouterr().err
    graph = cc.open(out)
    assert {name: graph.weights[name].dtype.name for name in ODD} == BECOME
    assert {name: graph.weights[name].shape for name in ODD} == {name: np.shape(array) for name, array in ODD.items()}
    assert cc.verify(tmp_path / "in.safetensors", out).ok


@pytest.mark.parametrize("kind", ["nvfp4", "q1_0", "q2_0"])
def test_kernels_of_convolutions_become_f16(tmp_path, kind):
    arrays = {"conv.weight": RNG.standard_normal((8, 4, 3)), "plain.weight": RNG.standard_normal((8, 256))}
    cc.save_file({name: array.astype(np.float32) for name, array in arrays.items()}, tmp_path / "in.safetensors")
    assert run(["quantize", str(tmp_path / "in.safetensors"), str(tmp_path / "out.gguf"), kind]) == 0
    weights = cc.open(tmp_path / "out.gguf").weights
    assert {name: weights[name].dtype.name for name in arrays} == {"conv.weight": "f16", "plain.weight": kind}


@pytest.mark.parametrize("output", ["out.safetensors", "out.npz", "out.pth"])
def test_types_that_the_output_cannot_hold(folder, capsys, output):
    assert run(["quantize", "model.gguf", output, "Q4_0"]) == 4
    assert "GGUF" in capsys.readouterr().err
    assert run(["quantize", "model.gguf", output, "BF16"]) == 0 or output == "out.npz"
    assert not list(folder.glob("*.partial*"))


@pytest.mark.parametrize("source", ["in.safetensors", "in.pth", "in.npz", "in.gguf", "shards", "model"])
def test_every_format_and_directory_gives_the_same_blocks(tmp_path, source):
    arrays = {
        "a.weight": RNG.standard_normal((8, 256)).astype(np.float32),
        "b.weight": np.float16(RNG.standard_normal((8, 512))),
    }
    if source == "model":
        (tmp_path / source).mkdir()
        (tmp_path / source / "config.json").write_text("{}")
        cc.save_file(arrays, tmp_path / source / "model.safetensors")
    elif source == "shards":
        cc.save_file(arrays, tmp_path / "in.safetensors")
        cc.convert(tmp_path / "in.safetensors", tmp_path / source, to="safetensors", shard_tensors=1)
    else:
        cc.save_file(arrays, tmp_path / source)
    cc.quantize(tmp_path / source, tmp_path / "out.gguf", "q4_k")
    found = cc.open(tmp_path / "out.gguf").weights
    assert {name: bytes(found[name].raw()) for name in arrays} == {
        name: cc.encode(array, "q4_k").tobytes() for name, array in arrays.items()
    }


def test_quantized_again_only_when_allowed(folder, capsys):
    assert run(["quantize", "model.gguf", "q8.gguf", "Q8_0", "-q"]) == 0
    assert run(["quantize", "q8.gguf", "q4.gguf", "Q4_K_M"]) == 5
    assert "E-QUANT-AGAIN" in capsys.readouterr().err
    assert run(["quantize", "q8.gguf", "q4.gguf", "Q4_K_M", "--allow-requantize", "-q"]) == 0
    assert run(["quantize", "q8.gguf", "copy.gguf", "COPY", "-q"]) == 0
    assert cc.hash("copy.gguf") == cc.hash("q8.gguf")


def broken(path, name, sums, counts):
    cc.save_file(
        {f"{name}.in_sum2": np.asarray(sums, np.float32), f"{name}.counts": np.asarray(counts, np.float32)}, path
    )


IMPORTANCE = {
    "shape": (np.ones((1, 100)), [[1]], 3, "E-IMATRIX-SHAPE"),
    "negative": (-np.ones((1, 256)), [[1]], 3, "E-IMATRIX-VALUE"),
    "nan": (np.full((1, 256), np.nan), [[1]], 3, "E-IMATRIX-VALUE"),
    "counts": (np.ones((1, 256)), [[1], [1], [1]], 3, "E-IMATRIX-COUNTS"),
    "zero counts": (np.ones((1, 256)), [[0]], 0, "W-IMATRIX-ZERO"),
    "zero": (np.zeros((1, 256)), [[1]], 0, "W-IMATRIX-ZERO"),
}


@pytest.mark.parametrize("kind", IMPORTANCE)
def test_importance_that_does_not_fit(folder, capsys, kind):
    sums, counts, code, said = IMPORTANCE[kind]
    broken(folder / "i.gguf", "blk.0.attn_q.weight", sums, counts)
    assert run(["quantize", "model.gguf", "out.gguf", "Q4_K_S", "--imatrix", "i.gguf"]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "blk.0.attn_q.weight" in shown
    assert (folder / "out.gguf").exists() is (code == 0)
    assert not list(folder.glob("*.partial*"))
    if code == 0:
        assert "W-IMATRIX-MISSING" in shown
        assert cc.verify("model.gguf", "out.gguf").ok


def test_importance_of_columns_that_never_count(folder, capsys):
    sums = np.where(np.arange(256) % 32, 1.0, 0.0)[None]
    broken(folder / "i.gguf", "blk.0.attn_q.weight", sums, [[3]])
    assert run(["quantize", "model.gguf", "out.gguf", "Q4_K_S", "--imatrix", "i.gguf"]) == 0
    assert cc.verify("model.gguf", "out.gguf").ok


def test_nan_is_refused_told_or_kept(tmp_path, capsys):
    values = RNG.standard_normal((64, 512)).astype(np.float32)
    values[3, 300] = np.nan
    cc.save_file({"a.weight": values}, tmp_path / "in.safetensors")
    words = ["quantize", str(tmp_path / "in.safetensors"), str(tmp_path / "out.gguf"), "q4_k"]
    assert run(words) == 3
    assert f"element {3 * 512 + 300:,}" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["in.safetensors"]
    assert run([*words, "--nan", "warn"]) == 0
    assert "W-NAN" in capsys.readouterr().err

    after = cc.open(tmp_path / "out.gguf").weights["a.weight"].dequantize().numpy()
    assert np.isnan(after[3, 256:]).all()
    assert np.isnan(after).sum() == 256
    assert run([*words, "--nan", "keep", "-f"]) == 0
    assert "W-NAN" not in capsys.readouterr().err


def test_shards_that_are_kept_equal_llama_quantize(folder):
    cc.convert("model.gguf", "in.gguf", to="gguf", shard_tensors=8)
    assert run(["quantize", "in-00001-of-00003.gguf", "out.gguf", "Q4_K_M", "--keep-split", "-q"]) == 0
    digest = hashlib.sha256()
    for number in range(1, 4):
        digest.update(Path(f"out-{number:05d}-of-00003.gguf").read_bytes())
    assert digest.hexdigest() == "a9cce71a86153be4d64d6ace47d759c015b3f836b7bf06d4b892dda7d4057a74"


def test_reports_and_dry_runs(folder, capsys):
    words = ["quantize", "model.gguf", "out.gguf", "Q4_K_M", "--imatrix", "imatrix.gguf"]
    assert run([*words, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("rule", "SNR dB", "bpw", "total", "nothing written", "q6_k"))
    assert not (folder / "out.gguf").exists()
    assert run([*words, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert run([*words, "--report", "r.json"]) == 0
    report = json.loads((folder / "r.json").read_text())
    assert report["content_hash"] == cc.hash("out.gguf")
    assert planned["outputs"] == [{"path": "out.gguf", "bytes": (folder / "out.gguf").stat().st_size}]
    for name, entry in report["types"].items():
        assert entry["type"] == planned["types"][name]["type"] == cc.open("out.gguf").weights[name].dtype.name
        if entry["type"] != entry["from"]:
            assert {"rmse", "max_error", "snr_db"} <= entry.keys()
            assert entry["snr_db"] == pytest.approx(planned["types"][name]["snr_db"], abs=0.5)


def test_the_first_run_says_that_it_compiles(folder):
    fresh = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    runs = [
        subprocess.run(
            command("model.gguf", "out.gguf", "Q8_0", "--pure", "-f"),
            env=fresh,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert " compile  q8_0: once" in runs[0]
    assert "compile" not in runs[1]
