"""Whole files against llama-quantize: by the digests of what it wrote (vectors/make_files.py), and by what it writes
here."""

import hashlib
import json
from pathlib import Path

import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.paths import VECTORS
from candle_convert.tests.builders.reproducible_models import (
    LISTED,
    MODELS,
    NEED_IMPORTANCE,
    RUNS,
    name_of,
    write_importance,
    write_model,
)
from candle_convert.tests.oracles.llama_quantize import LATER, TOOL, quantized

DIGESTS = json.loads((VECTORS / "quantized_digests.json").read_text())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder for each model, with its importance matrix."""
    folder = tmp_path_factory.mktemp("models")
    for model, lengths in MODELS.items():
        (folder / model).mkdir()
        write_importance(folder / model / "imatrix.gguf", write_model(folder / model / "model.gguf", **lengths))
    return folder


@pytest.mark.parametrize("case", RUNS, ids=name_of)
def test_files_are_those_of_llama_quantize(models, monkeypatch, case):
    model, options, file_type = case
    monkeypatch.chdir(models / model)
    assert run(["quantize", "model.gguf", "out.gguf", file_type, *options, "-q", "-f"]) == 0
    assert hashlib.sha256(Path("out.gguf").read_bytes()).hexdigest() == DIGESTS[name_of(case)]


def test_every_run_has_a_digest():
    assert [name_of(case) for case in RUNS] == list(DIGESTS)


@pytest.mark.parametrize(
    "file_type", LISTED if TOOL else [name for name in LISTED if name not in (*NEED_IMPORTANCE, *LATER)]
)
def test_files_are_those_of_this_llama_quantize(models, monkeypatch, file_type):
    monkeypatch.chdir(models / "moe")
    importance = ("--imatrix", "imatrix.gguf") if TOOL else ()
    quantized("model.gguf", "theirs.gguf", file_type, *importance)
    assert run(["quantize", "model.gguf", "ours.gguf", file_type, *importance, "-q", "-f"]) == 0
    assert Path("ours.gguf").read_bytes() == Path("theirs.gguf").read_bytes()
