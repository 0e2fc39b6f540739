"""A conversion that would lose what it should keep says so and stops: values out of range, nothing quantized, a model
without its architecture."""

import json
import os
import signal
import subprocess
import sys

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.runtime.passes.precision.cast_weights import Audit

RANDOM = np.random.default_rng(0)


def weights(path, **arrays):
    cc.save_file(arrays, path)
    return str(path)


@pytest.fixture
def large(tmp_path):
    """A tensor that mostly exceeds f16, and one that fits."""
    big = (RANDOM.standard_normal(131_072) * 1e6).astype(np.float32)
    return weights(tmp_path / "big.safetensors", big=big, small=np.ones(9, np.float32)), int(
        np.isinf(big.astype(np.float16)).sum()
    )


@pytest.mark.parametrize("out", ["out.safetensors", "out.gguf", "out.npz", "out.pth", "out"])
def test_overflow_is_refused(large, out, tmp_path, capsys):
    source, count = large
    assert (
        run(
            ["convert", source, str(tmp_path / out), "--dtype", "f16", *(["-t", "safetensors"] if out == "out" else [])]
        )
        == 5
    )
    said = capsys.readouterr()
    assert f"'big': {count:,} of 131,072 values exceed f16" in said.err
    assert "equal" not in said.out
    assert os.listdir(tmp_path) == ["big.safetensors"]


def test_overflow_is_allowed_and_told(large, tmp_path, capsys):
    source, count = large
    out = str(tmp_path / "out.safetensors")
    assert run(["convert", source, out, "--dtype", "f16", "--allow-overflow"]) == 0
    said = capsys.readouterr()
    assert f"big: {count:,} of 131,072 values exceed the range of f16" in said.err
    assert f"{count:,} values of the source are out of range" in said.out
    assert "samples equal\n" not in said.out
    assert torch.equal(torch.from_numpy(cc.load_file(out)["big"]), torch.from_numpy(cc.load_file(source)["big"]).half())
    assert run(["verify", source, out]) == 1
    assert cc.convert(source, tmp_path / "py.safetensors", dtype="f16", allow_overflow=True).overflows == count
    with pytest.raises(cc.UnsafeFileError, match="E-CAST-OVERFLOW"):
        cc.convert(source, tmp_path / "no.safetensors", dtype="f16")


def test_other_ways_to_cast_refuse_too(large, tmp_path):
    source, _ = large
    out = tmp_path / "out.gguf"
    assert run(["convert", source, str(out), "--tensor-type", "big=f16"]) == 5
    assert run(["convert", source, str(out), "--dtype", "bf16"]) == 0
    matrix = weights(tmp_path / "m.gguf", **{"blk.0.ffn_up.weight": np.full((64, 256), 1e5, np.float32)})
    assert run(["quantize", matrix, str(out), "F16", "-f"]) == 5
    assert run(["quantize", matrix, str(out), "F16", "-f", "--allow-overflow"]) == 0
    assert run(["quantize", matrix, str(out), "Q8_0", "-f"]) == 0
    assert run(["dequantize", str(out), str(tmp_path / "d.safetensors"), "--dtype", "f16"]) == 5
    assert run(["dequantize", str(out), str(tmp_path / "d.safetensors"), "--dtype", "f16", "--allow-overflow"]) == 0


def test_a_few_values_are_a_warning(tmp_path, capsys):
    values = np.ones(10_000, np.float32)
    values[:10] = -1e9
    source = weights(tmp_path / "a.safetensors", a=values)
    assert run(["convert", source, str(tmp_path / "b.safetensors"), "--dtype", "f16"]) == 0
    assert "W-OVERFLOW  a: 10 of 10,000 values" in capsys.readouterr().err
    values[10] = 1e9
    assert (
        run(
            [
                "convert",
                weights(tmp_path / "c.safetensors", a=values),
                str(tmp_path / "d.safetensors"),
                "--dtype",
                "f16",
            ]
        )
        == 5
    )


@pytest.mark.parametrize("dtype", ["f16", "f8_e4m3", "f8_e5m2"])
def test_what_becomes_zero_is_told(dtype, tmp_path, capsys):
    values = np.where(np.arange(50_000) % 5, 1.0, -1e-12).astype(np.float32)
    values[::10] = -0.0
    source = weights(tmp_path / "a.safetensors", tiny=values)
    assert run(["convert", source, str(tmp_path / "b.safetensors"), "--dtype", dtype]) == 0
    assert "W-UNDERFLOW  tiny: 5,000 of 50,000 values are too small" in capsys.readouterr().err
    assert run(["convert", source, str(tmp_path / "c.safetensors"), "--dtype", "bf16"]) == 0
    assert "W-UNDERFLOW" not in capsys.readouterr().err


NARROW = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2,
    "f4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize(
    "source", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda kind: np.dtype(kind).name
)
@pytest.mark.parametrize("target", NARROW)
def test_counts_are_exact(source, target):
    drawn = RANDOM.standard_normal(4000) * 10.0 ** RANDOM.integers(-50, 50, 4000)
    with np.errstate(all="ignore"):
        before = drawn.astype(source)
        after = before.astype(NARROW[target])
    before[:7] = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1]
    with np.errstate(all="ignore"):
        after = (
            before.astype(np.float32).astype(NARROW[target])
            if source is not np.float64
            else before.astype(NARROW[target])
        )
        plain, made = before.astype(np.float64), after.astype(np.float64)
    audit = Audit("x", "keep", before.size, target)
    audit(0, before, after)
    finite = np.isfinite(plain)
    beyond = ~np.isfinite(made) | (np.abs(plain) > float(ml_dtypes.finfo(NARROW[target]).max)) * (target == "f4")
    assert audit.overflows == (finite & beyond).sum()
    assert audit.underflows == ((plain != 0) & (made == 0)).sum() or target == "f4"
    assert audit.nans == np.isnan(plain).sum()


def test_a_run_that_goes_on_knows_what_was_lost_before(tmp_path):
    """The tensor that overflows is written by a run that is killed; the one that goes on does not read it again."""
    values = np.ones(48_000_000, np.float32)
    values[:1_000_000] = 1e9
    source = weights(tmp_path / "a.safetensors", a=values)
    out = tmp_path / "b.safetensors"
    command = [
        sys.executable,
        "-m",
        "candle_convert.convert",
        source,
        str(out),
        "--dtype",
        "f16",
        "--threads",
        "1",
        "--max-memory",
        "4MiB",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "b.safetensors.partial.journal"
    while process.poll() is None and not (journal.exists() and journal.read_text().count("\n[") > 1):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    if out.exists() or not journal.exists():
        pytest.skip("the run was over before it was killed")
    assert (
        run(["convert", source, str(out), "--dtype", "f16", "--threads", "1", "--max-memory", "4MiB", "--resume"]) == 5
    )
    assert not out.exists()


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q8_0", "IQ4_NL", "TQ2_0"])
def test_nothing_to_quantize_is_an_error(kind, tmp_path, capsys):
    source = weights(tmp_path / "a.gguf", **{"a.weight": np.ones(7, np.float32), "nan": np.full(3, np.nan, np.float32)})
    out = str(tmp_path / "q.gguf")
    assert run(["quantize", source, out, kind]) == 4
    assert "E-QUANT-NOTHING" in capsys.readouterr().err
    assert run(["quantize", source, out, kind, "--dry-run"]) == 4
    assert run(["convert", source, out, "--quantize", kind]) == 4
    with pytest.raises(cc.UnsupportedError, match="E-QUANT-NOTHING"):
        cc.quantize(source, out, kind)
    assert not os.path.exists(out)
    assert run(["quantize", source, out, "COPY"]) == 0


def test_what_keeps_all_its_types_is_not_quantized(tmp_path):
    matrix = {"blk.0.ffn_up.weight": RANDOM.standard_normal((64, 256)).astype(np.float32)}
    source = weights(tmp_path / "m.gguf", **matrix)
    out, again = str(tmp_path / "q.gguf"), str(tmp_path / "r.gguf")
    assert run(["quantize", source, out, "Q8_0"]) == 0
    assert run(["quantize", out, again, "Q8_0"]) == 4
    assert run(["quantize", source, again, "Q4_K_M", "--tensor-type", "ffn_up=f32"]) == 4
    assert run(["quantize", source, again, "F32"]) == 0


@pytest.fixture
def unknown(tmp_path):
    folder = tmp_path / "perceiver"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "perceiver", "architectures": ["PerceiverModel"], "hidden_size": 4})
    )
    weights(folder / "model.safetensors", **{"embeddings.word_embeddings.weight": np.ones((8, 4), np.float32)})
    return folder


def test_a_model_without_its_architecture_is_refused(unknown, tmp_path, capsys):
    out = tmp_path / "out.gguf"
    for command, *more in (["convert"], ["quantize", "Q8_0"], ["convert", "--dry-run"]):
        assert run([command, str(unknown), str(out), *more]) == 4
        said = capsys.readouterr().err
        assert "E-OUT-ARCH" in said
        assert "--weights-only" in said
        assert not out.exists()
    with pytest.raises(cc.UnsupportedError, match="E-OUT-ARCH"):
        cc.convert(unknown, out)
    assert run(["convert", str(unknown), str(out), "--weights-only"]) == 0
    assert list(cc.open(out).weights) == ["embeddings.word_embeddings.weight"]
    cc.convert(unknown, out, weights_only=True, force=True)
    assert run(["convert", str(unknown), str(tmp_path / "model.safetensors")]) == 0
    assert run(["convert", str(unknown), str(tmp_path / "copy"), "-t", "safetensors"]) == 0


def test_a_gguf_of_unknown_architecture_is_no_directory_of_a_model(tmp_path):
    arrays = {"blk.0.x.weight": np.ones((4, 4), np.float32)}
    cc.save_file(
        arrays, tmp_path / "x.gguf", metadata={"general.architecture": "never", "never.block_count": np.uint32(1)}
    )
    assert run(["convert", str(tmp_path / "x.gguf"), str(tmp_path / "out"), "-t", "safetensors"]) == 4
    assert run(["convert", str(tmp_path / "x.gguf"), str(tmp_path / "out"), "-t", "safetensors", "--weights-only"]) == 0
    assert run(["convert", str(tmp_path / "x.gguf"), str(tmp_path / "out.safetensors")]) == 0
