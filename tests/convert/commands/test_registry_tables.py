"""Tables and the doctor derive from what is there; long work says how far it is."""

import dataclasses
import importlib.metadata
import json
import os
from fractions import Fraction

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.check import machine
from candle_convert.convert.cli.main import run
from candle_convert.convert.console import progress
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.tensor.dtype import DTYPES


def answer(capsys, *words):
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_types_are_ggufs(capsys):
    rows = {row["name"]: row for row in answer(capsys, "types")["types"]}
    assert set(rows) == set(DTYPES)
    # whose scales gguf-py takes for float32
    right = {kind: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    for kind, (length, size) in right.items():
        row = next((row for row in rows.values() if row["ggml"] is not None and row["ggml"]["id"] == kind.value), None)
        if row is not None:
            assert (row["block"], row["block_bytes"], row["ggml"]["name"]) == (length, size, kind.name)
            assert row["bits_per_weight"] == float(Fraction(size * 8, length))


def test_types_can_be_chosen(capsys):
    assert [row["name"] for row in answer(capsys, "types", "q4_k", "BF16")["types"]] == ["q4_k", "bf16"]
    held = {row["name"] for row in answer(capsys, "types", "--format", "safetensors")["types"]}
    assert held == {dtype.name for format in formats() if format.name == "safetensors" for dtype in format.dtypes}
    assert run(["types", "q99"]) == 2
    assert run(["types", "--format", "nothing"]) == 2


def test_formats_are_the_registrys(capsys):
    rows = answer(capsys, "formats")["formats"]
    assert [(row["name"], row["written"]) for row in rows] == [
        (format.name, format.layout is not None) for format in formats()
    ]
    assert all(row["written"] for row in answer(capsys, "formats", "--written")["formats"])


def test_doctor_tells_the_truth(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    told = answer(capsys, "doctor")
    versions = {row["name"]: row["version"] for row in told["packages"]}
    assert {"numpy", "numba", "click", "huggingface_hub"} < set(versions)
    assert all(version == importlib.metadata.version(name) for name, version in versions.items() if version is not None)
    assert told["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert told["caches"]["hub"] == str(tmp_path / "hub")
    assert told["caches"]["offline"]
    assert told["disks"][0]["path"] == os.getcwd()
    assert {
        "status": "ok",
        "subject": "hub",
        "message": "is offline (HF_HUB_OFFLINE): hf:// reads the cache only",
    } in told["verdicts"]


VERDICTS = [
    (("packages", 0, "version"), None, "problem"),
    (("packages", 0, "version"), "0.0.1", "problem"),
    (("disks", 0, "free"), 1000, "warning"),
    (("disks", 0, "writable"), False, "warning"),
    (("hardware", "memory", "group_limit"), 2**28, "warning"),
    (("caches", "variables", "NUMBA_DISABLE_JIT"), "1", "warning"),
]


@pytest.mark.parametrize(("path", "value", "status"), VERDICTS)
def test_what_is_wrong_gets_advice(path, value, status):
    found = machine.report()
    place = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    before = {dataclasses.astuple(line) for line in machine.verdicts(machine.report())}
    after = {dataclasses.astuple(line) for line in machine.verdicts(found)}
    assert status in {line[0] for line in after - before}


@pytest.mark.parametrize(("driver", "shown"), [(None, False), ("580.1", True)])
def test_packages_for_a_card_are_no_fault_without_one(driver, shown):
    found = machine.report()
    found["hardware"]["cuda"] = {
        "driver": driver,
        "devices": [],
        "numba_cuda": "0.1",
        "cudnn": None,
        "simulator": False,
    }
    for row in found["packages"]:
        if row["extra"] == "cuda":
            row["version"] = "0.0.1" if row["name"] == "numba-cuda" else None
    lines = machine.verdicts(found)
    assert not [line for line in lines if line.status == "problem"]
    about = [line for line in lines if any(word in line.subject for word in ("nvidia", "numba-cuda", "nccl"))]
    assert bool(about) == shown
    (cuda,) = [line for line in lines if line.subject == "cuda"]
    assert cuda.status == "ok"
    assert ("CPU" in cuda.message) != shown


@pytest.mark.parametrize(
    ("version", "condition", "old"),
    [("1.9", ">=1.10", True), ("2.0.0", ">=2", False), ("2.13.0+cpu", ">=2.4", False), ("1", "", False)],
)
def test_versions_are_compared_as_numbers(version, condition, old):
    assert machine.too_old(version, condition) == old


class Recorder(progress.NoProgress):
    """Remembers what it was told."""

    shown = None

    def start(self, total, skipped=0):
        self.shown.append([total, 0])

    def advance(self, nbytes):
        self.shown[-1][1] += nbytes


LONG = [
    ["print", "a.safetensors", "w"],
    ["diff", "a.safetensors", "a.safetensors"],
    ["diff", "a.safetensors", "b.safetensors"],
    ["check", "a.safetensors"],
    ["scan", "."],
    ["hash", "a.safetensors"],
    ["hash", "--file", "a.safetensors", "b.safetensors"],
    ["split", "a.safetensors", "out/", "--shard-tensors", "1"],
    ["merge", "a.safetensors", "out.safetensors"],
    ["metadata", "set", "a.safetensors", "k", "v"],
    ["convert", "a.safetensors", "out.safetensors"],
    ["inspect", "a.safetensors", "--html", "page.html"],
    ["inspect", "q.gguf", "--html", "page.html"],
    ["print", "q.gguf", "w.weight"],
]


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_progress_ends_at_its_total(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(progress.STYLES, "none", Recorder)
    monkeypatch.setattr(Recorder, "shown", [])
    w = np.arange(300_000, dtype=np.float32)
    cc.save_file({"w": w, "x": np.ones(4, np.float16)}, "a.safetensors")
    cc.save_file({"w": np.where(w == 299_999, 0, w), "x": np.ones(4, np.float32)}, "b.safetensors")
    if "q.gguf" in words:
        cc.save_file({"w.weight": w.reshape(-1, 32)}, "c.safetensors")
        cc.quantize("c.safetensors", "q.gguf", cc.Recipe("Q4_0", pure=True))
        Recorder.shown.clear()
    assert run([*words, "--progress", "none"]) in (0, 1)
    assert Recorder.shown
    loose = Recorder.shown[:1] if words[0] == "check" else []
    assert all(done == total > 0 for total, done in Recorder.shown if [total, done] not in loose)
