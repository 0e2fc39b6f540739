"""Networks on two worker processes: metrics, calibration, quantization and comparisons as of one process."""

import json
import os
import subprocess
import sys

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.convert.cli import option_values
from candle_convert.convert.cli.main import run
from candle_convert.convert.console import progress
from candle_convert.tests.builders import networks, tiny_llama


@pytest.fixture(scope="module")
def address():
    with cc.cluster("local:2") as workers:
        yield workers.client.scheduler.address


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network with values that are limited to 6, samples of growing scale, of which the first is 0, and labels."""
    made = tmp_path_factory.mktemp("networks")
    onnx.save(networks.classifier(), made / "model.onnx")
    random = np.random.default_rng(0)
    shape = next(iter(networks.images(1)[0].values())).shape
    name = next(iter(networks.images(1)[0]))
    (made / "samples").mkdir()
    for number in range(40):
        array = random.standard_normal(shape).astype(np.float32) * np.float32(1 + number % 7 * 3) * (number > 0)
        np.savez(made / "samples" / f"{number:03}.npz", **{name: array})
    arrays = random.standard_normal((70, *shape[1:])).astype(np.float32)
    np.savez(made / "data.npz", **{name: arrays}, labels=random.integers(0, 4, 70))
    (made / "mine.py").write_text(
        "def metric(outputs, targets):\n    return next(iter(outputs.values())).max(axis=1)\n"
    )
    return made


def both(words, address, capsys):
    """What a command prints in one process, and on the cluster."""
    code = run(words)
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address]) == code
    assert capsys.readouterr().out == alone
    return json.loads(alone) if "--json" in words else alone


def test_eval(folder, address, capsys):
    """Metrics with their intervals, one of them a file of the user, and the difference from another network."""
    words = ["eval", str(folder / "model.onnx"), "-d", str(folder / "data.npz"), "--json", "--batch", "8"]
    words += ["--samples", "61", "--against", str(folder / "model.onnx")]
    found = both([*words, "--metric", "top1", "--metric", "top5"], address, capsys)
    assert found["samples"] == 61
    found = both([*words, "--metric", "top1", "--metric", str(folder / "mine.py")], address, capsys)
    assert found["metrics"][1]["metric"] == "mine"


def test_calibrate(folder, address, tmp_path, capsys):
    """Histograms of 40 samples, and further ones added: the bytes of one process."""
    for resumed in ([], ["--resume"]):
        for name, where in (("alone", []), ("shared", ["--cluster", address])):
            words = ["calibrate", str(folder / "model.onnx"), "-d", str(folder / "samples")]
            assert run([*words, "-o", str(tmp_path / f"{name}.json"), *resumed, *where]) == 0
        assert (tmp_path / "alone.json").read_bytes() == (tmp_path / "shared.json").read_bytes()
    assert json.loads((tmp_path / "shared.json").read_bytes())["samples"] == 80


def test_progress_of_calibrate(folder, address, tmp_path, monkeypatch):
    """Every sample advances the progress, in this process and on workers."""
    seen = []

    class Recorded(progress.NoProgress):
        def start(self, total, skipped=0, unit=progress.BYTES):
            seen.append((total, unit))

        def advance(self, count):
            seen.append(count)

    monkeypatch.setattr(option_values, "progress", lambda values: Recorded())
    for where in ([], ["--cluster", address]):
        seen.clear()
        words = ["calibrate", str(folder / "model.onnx"), "-d", str(folder / "samples")]
        for resumed in ([], ["--resume"]):
            assert run([*words, "-o", str(tmp_path / "ranges.json"), "--force", *resumed, *where]) == 0
            start, *steps = seen[-seen[::-1].index((40, "samples")) - 1 :]
            assert start == (40, "samples")
            assert sum(steps) == 40
            assert min(steps) > 0


@pytest.mark.parametrize("words", [["int8"], ["int4"], ["fp16"], ["int8", "--calib"]])
def test_quantize(folder, address, tmp_path, capsys, words):
    """Networks with weights, and with activations by ranges of samples: the bytes of one process."""
    words = [*words, str(folder / "samples")] if "--calib" in words else words
    shown = []
    for where in ([], ["--cluster", address]):
        assert run(["quantize", str(folder / "model.onnx"), str(tmp_path / "out.onnx"), *words, "--force", *where]) == 0
        shown.append((tmp_path / "out.onnx").read_bytes())
    assert shown[0] == shown[1]
    assert "cluster" in capsys.readouterr().out


OVERFLOWS = """
from candle_convert.convert.quantize.network.quantize_network import settings
from candle_convert.convert.quantize.network.request import Request
print(settings([(Request("f16", "half", wide=frozenset(map(str, range(20)))), {"b": (0.0, 1.5), "a": (-1.0, 2.0)})]))
"""


def test_settings():
    """Workers describe values that overflow, a set, as the client does, whose hashes of text differ."""
    found = {
        subprocess.run(
            [sys.executable, "-c", OVERFLOWS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert "1.5" in found.pop()


def test_verify(folder, address, tmp_path, capsys):
    """Outputs of two networks, with the first value that differs, and those of language models on a prompt."""
    assert run(["quantize", str(folder / "model.onnx"), str(tmp_path / "small.onnx"), "int4"]) == 0
    capsys.readouterr()
    words = ["verify", str(folder / "model.onnx"), str(tmp_path / "small.onnx"), "--input", "image=2x3x17x15"]
    found = both([*words, "--nodes", "--json"], address, capsys)
    assert found["first_difference"] is not None
    model = tiny_llama.written(tmp_path / "llama.gguf")
    cc.quantize(model, tmp_path / "small.gguf", "Q8_0")
    words = ["verify", str(model), str(tmp_path / "small.gguf"), "--level", "none", "--prompt", "A cat", "--json"]
    assert both(words, address, capsys)["outputs"][0]["name"] == "logits"


@pytest.mark.parametrize("scales", [[1, 2, 2, 1, 4, 3], [0, 0, 1, 0, 4], [1, 16, 1, 1024]])
def test_histograms(scales):
    """Runs that are counted apart and joined, with values at the edge of a histogram, as if seen one after another."""
    from candle_convert.convert.quantize.calibration.activation_range import Observed, Tally

    random = np.random.default_rng(1)
    arrays = [np.append(random.uniform(-1, 1, 999), [1, -1, 0]).astype(np.float32) * scale for scale in scales]
    alone, joined = Observed(), Observed()
    for array in arrays:
        alone.add(array)
    joined.add(arrays[0])
    for part in (arrays[1:3], arrays[3:]):
        tally = Tally(joined.reach)
        for array in part:
            tally.add(array)
        if tally.unknown:
            for array in part:
                joined.add(array)
        else:
            joined.join(tally)
    assert (joined.low, joined.high, joined.reach, joined.odd) == (alone.low, alone.high, alone.reach, alone.odd)
    np.testing.assert_array_equal(joined.counts, alone.counts)
