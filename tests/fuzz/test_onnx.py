"""Fuzzing ONNX: models changed in any field and in their bytes, through every command that takes one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.fuzz import onnx_corpus
from candle_convert.tests.fuzz.actions import NATIVE
from candle_convert.tests.fuzz.harness import Case, Forkserver, sweep
from candle_convert.tests.fuzz.protobuf import garbled, mutate

SEEDS, NATIVE_SEEDS = 20, 10
MEMORY, SECONDS = 3 << 30, 120
"""Address space and processor seconds of runs that compile kernels."""
MODEL = "{dir}/m.onnx"
ACTIONS = (
    ("inspect", MODEL, "--nodes"),
    ("inspect", MODEL, "--html", "{out}/page.html"),
    ("check", MODEL),
    ("scan", MODEL),
    ("ops", MODEL),
    ("hash", MODEL),
    ("run", MODEL, "--threads", "1"),
    ("bench", MODEL, "--runs", "1", "--warmup", "0", "--threads", "1"),
    ("profile", MODEL, "-o", "{out}/trace.json"),
    ("graph", "simplify", MODEL, "{out}/simple.onnx"),
    ("graph", "opset", MODEL, "{out}/opset.onnx", "--opset", "23"),
    ("graph", "shapes", MODEL, "{out}/shapes.onnx"),
    ("graph", "extract", MODEL, "{out}/part.onnx", "--outputs", "y"),
    ("graph", "rename", MODEL, "{out}/renamed.onnx", "--value", "x=image"),
    ("quantize", MODEL, "{out}/q.onnx", "--weight-type", "int8"),
    ("quantize", MODEL, "{out}/q4.onnx", "--weight-type", "int4"),
    ("convert", MODEL, "{out}/w.safetensors"),
    ("convert", MODEL, "{out}/w.npz"),
    ("convert", MODEL, "{out}/m.onnx"),
    ("convert", MODEL, "{out}/half.onnx", "--dtype", "f16"),
    ("convert", MODEL, "{out}/outside.onnx", "--external-data", "always"),
    ("verify", MODEL, MODEL),
    ("diff", MODEL, MODEL),
    ("metadata", "show", MODEL),
    ("metadata", "set", MODEL, "k", "v"),
)
BESIDE = np.arange(64, dtype=np.float32).tobytes()
EACH = 4
"""Commands that are tried on one model."""


def case(draw: random.Random) -> Case:
    """A model with one to six changes, and some commands."""
    made, donor = onnx_corpus.drawn(draw), onnx_corpus.drawn(draw)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        mutate(made, donor, draw)
    data = made.SerializeToString()
    while draw.random() < 0.15:
        data = garbled(data, draw)
    return Case({"m.onnx": data, onnx_corpus.OUTSIDE: BESIDE}, draw.sample(ACTIONS, EACH))


@pytest.mark.parametrize("make", onnx_corpus.SMALL)
def test_the_corpus_is_valid(make, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString())
    (tmp_path / onnx_corpus.OUTSIDE).write_bytes(BESIDE)
    assert run(["run", str(path), "--quiet"]) == 0


def test_changed_models(full):
    sweep(case, full, count=SEEDS)


def changed(draw: random.Random) -> Case:
    """A model with one to three changes, run with kernels."""
    made, donor = onnx_corpus.drawn(draw), onnx_corpus.drawn(draw)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        mutate(made, donor, draw)
    return Case({"m.onnx": made.SerializeToString(), onnx_corpus.OUTSIDE: BESIDE}, [(NATIVE, MODEL)])


def test_kernels_of_changed_models(full):
    with Forkserver(MEMORY, seconds=SECONDS) as server:
        sweep(changed, full, count=NATIVE_SEEDS, seconds=SECONDS, peak=MEMORY, server=server)
