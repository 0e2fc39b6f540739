"""Benchmarks: imports of the package exist, and the script that uses the planner runs."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.encoder_cases import ENCODERS, inputs
from candle_convert.tests.oracles.transformers import expected, made, texts

torch = pytest.importorskip("torch")

SCRIPTS = sorted(Path(__file__).parents[1].glob("benchmarks/**/*.py"))


def imports(path):
    """(module, name) of each `from candle_convert... import name`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "candle_convert":
            yield from ((node.module, alias.name) for alias in node.names)


def exists(module, name):
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_there_are_scripts():
    assert {"convert", "cuda", "generate", "onnx", "quantize"} <= {path.stem for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_imports_exist(path):
    missing = [f"{module}.{name}" for module, name in imports(path) if not exists(module, name)]
    assert missing == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_programs_parse_their_arguments(path):
    """So that --help explains a script rather than naming its output."""
    text = path.read_text(encoding="utf-8")
    assert ("__main__" in text) == ("ArgumentParser(" in text)
    assert "sys.argv[" not in text


def test_planning_runs():
    script = next(path for path in SCRIPTS if path.stem == "planning")
    command = [sys.executable, script, "--nodes", "20", "--runs", "2", "--against", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("chain", "branches", "views", "star", "resnet50", "encoder", "scalars"):
        assert f"\n| {name} | " in done.stdout


def compared(folder, inputs, outputs, tolerance):
    """Writes a reference case beside a checkpoint, runs the script and compares every array."""
    for name, variants in (("inputs", inputs), ("outputs", outputs)):
        arrays = {f"{variant}/{key}": item for variant, feeds in variants.items() for key, item in feeds.items()}
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "meta.json").write_text(json.dumps({"task": "", "tolerance": {"relative_to_max": tolerance}}))
    script = next(path for path in SCRIPTS if path.stem == "reference")
    done = subprocess.run(
        [sys.executable, script, folder, folder / "found.npz"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(folder / "found.npz") as computed:
        for name, want in arrays.items():
            bound = 0 if want.dtype == np.int64 else tolerance * np.abs(want).max()
            assert np.abs(computed[name] - want).max() <= bound, name
        return set(computed.files)


def test_an_encoder_case_is_computed(tmp_path):
    case = next(case for case in ENCODERS if case.name == "BertModel")
    model, arrays = made(case, 0, tmp_path), inputs(case, 0)
    found = {
        variant: {
            "last_hidden_state": model(**{name: torch.tensor(array) for name, array in feeds.items()})
            .last_hidden_state.detach()
            .numpy()
        }
        for variant, feeds in arrays.items()
    }
    found["padded"]["last_hidden_state"] *= arrays["padded"]["attention_mask"][..., None]
    assert compared(tmp_path, arrays, found, case.tolerance) == {f"{variant}/last_hidden_state" for variant in found}


def test_a_decoder_case_is_computed_from_each_checkpoint(tmp_path):
    """The cache, the generator, and a second file of weights."""
    case = decoder("llama")
    model = made(case, 0, tmp_path)
    ids = texts(case, 0, model)["long"][0][:1, :9]
    logits = expected(model, ids, None)
    sequences = model.generate(torch.tensor(ids), max_new_tokens=4, min_new_tokens=4, do_sample=False).numpy()
    outputs = {"single": {"logits": logits}, "cache": {"logits": logits}, "greedy": {"sequences": sequences}}
    feeds = {"input_ids": ids}
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    names = compared(
        tmp_path, {"single": feeds, "cache": feeds | {"prefill": np.array(4)}, "greedy": feeds}, outputs, case.tolerance
    )
    assert "pytorch_model.bin:greedy/sequences" in names
