"""``--dtypes``: variants of an export in onnxruntime and, where it is installed, in Transformers.js."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.write.graph_variants import VARIANTS
from candle_convert.tests.builders import speech_checkpoints, text_checkpoints
from candle_convert.tests.builders.audio_networks import WAV2VEC2
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.oracles.exact_onnxruntime import exact_session
from candle_convert.tests.oracles.transformers import made

EXAMPLE = Path(cc.__file__).parent / "examples" / "tiny_llama"
MODULES = os.environ.get("CANDLE_TRANSFORMERS_JS")
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
BOUNDS = {"f32": 2e-6, "f16": 1e-3, "q8": 0.03, "int8": 0.03, "uint8": 0.03, "q4": 0.1, "q4f16": 0.1}
"""Root mean square of the difference of logits from those of the checkpoint, relative to that of the logits."""
SCRIPT = """
import { pipeline, env } from '@huggingface/transformers';
env.allowRemoteModels = false; env.localModelPath = process.argv[2];
const generate = await pipeline('text-generation', 'model', { dtype: process.argv[3] });
const found = await generate('In the beginning', { max_new_tokens: 12, do_sample: false });
console.log(JSON.stringify(found[0].generated_text));
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variants") / "model"
    assert run(["convert", str(EXAMPLE), str(folder), "-t", "onnx", "--dtypes", ",".join(VARIANTS), "-q"]) == 0
    return folder


def logits(path, ids):
    session = exact_session(path, "ORT_ENABLE_ALL")
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.shape[1])[None]}
    feeds = {
        item.name: known[item.name]
        if item.name in known
        else np.zeros([1, item.shape[1], 0, item.shape[3]], FLOATS[item.type])
        for item in session.get_inputs()
    }
    return session.run(["logits"], feeds)[0].astype(np.float32)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_computes_the_model(exported, name):
    path = exported / "onnx" / f"model{VARIANTS[name].suffix}.onnx"
    onnx.checker.check_model(str(path))
    ids = np.array([[44, 361, 380, 295, 301, 440]])
    want = cc.models.load(EXAMPLE, activations="f32")(ids)["logits"]
    error = logits(path, ids) - want
    assert np.sqrt(np.mean(error**2) / np.mean(want**2)) <= BOUNDS[name]


def test_files_are_where_transformers_js_looks(exported):
    assert {path.name for path in (exported / "onnx").iterdir()} == {
        "model.onnx", "model_fp16.onnx", "model_quantized.onnx", "model_int8.onnx", "model_uint8.onnx",
        "model_q4.onnx", "model_q4f16.onnx",
    }  # fmt: skip
    config = json.loads((exported / "config.json").read_text())
    assert config["transformers.js_config"] == {"kv_cache_dtype": {"fp16": "float16", "q4f16": "float16"}}
    assert (exported / "tokenizer.json").is_file()


def written_f16(folder):
    """The f16 variant of a checkpoint's export; Transformers.js' files without and with it."""
    out = folder / "out"
    cc.convert(folder, out, to="onnx", dtypes=("f32", "f16"))
    halves = sorted((out / "onnx").glob("*_fp16.onnx"))
    return [(path.with_name(path.name.replace("_fp16", "")), path) for path in halves]


def drawn(item, rng):
    """Values for an input: ids, a mask of ones, a switch that is off, an empty cache, or numbers."""
    sizes = {"batch_size": 1, "batch": 1, "height": 32, "width": 32, "samples": 4000, "channels": 3}
    past = item.name.startswith("past_")
    shape = [
        size if isinstance(size, int) else sizes.get(size, 0 if past and axis == 2 else 6)
        for axis, size in enumerate(item.shape)
    ]
    if item.type == "tensor(bool)":
        return np.zeros(shape, bool)
    if item.type == "tensor(int64)":
        fixed = {"attention_mask": 1, "encoder_attention_mask": 1, "token_type_ids": 0}
        return np.full(shape, fixed[item.name]) if item.name in fixed else rng.integers(3, 90, shape)
    return rng.standard_normal(shape).astype(np.float16 if item.type == "tensor(float16)" else np.float32)


VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8, "num_labels": 5,
}  # fmt: skip
MODELS = {
    "embeddings": lambda folder: text_checkpoints.checkpoint("BertModel", folder),
    "masked language model": lambda folder: text_checkpoints.checkpoint("BertForMaskedLM", folder),
    "text classes": lambda folder: text_checkpoints.checkpoint("DistilBertForSequenceClassification", folder),
    "answers": lambda folder: text_checkpoints.checkpoint("RobertaForQuestionAnswering", folder),
    "seq2seq": lambda folder: made(ENCODER_DECODERS[0], 0, folder),
    "whisper": lambda folder: speech_checkpoints.whisper(speech_checkpoints.WHISPERS[0], 0, folder),
    "decoder": lambda folder: shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True),
    "ctc": lambda folder: saved(image_model("Wav2Vec2ForCTC", **WAV2VEC2), folder),
    "picture classes": lambda folder: saved(image_model("ViTForImageClassification", **VIT), folder),
    "boxes": lambda folder: saved(
        image_model("YolosForObjectDetection", **{**VIT, "image_size": [32, 32], "num_detection_tokens": 7}), folder
    ),
}
"""One of each task, by what its graphs give."""


@pytest.mark.parametrize("task", MODELS)
def test_f16_keeps_f32_borders(task, tmp_path):
    """As onnxconverter-common's keep_io_types does, which Transformers.js' own files are made with."""
    folder = tmp_path / "model"
    folder.mkdir()
    MODELS[task](folder)
    rng, compared = np.random.default_rng(0), 0
    for whole, half in written_f16(folder):
        sessions = [exact_session(path, "ORT_ENABLE_ALL") for path in (whole, half)]
        borders = [*sessions[1].get_inputs(), *sessions[1].get_outputs()]
        assert {item.name for item in borders if item.type == "tensor(float16)"} <= {
            item.name for item in borders if item.name.startswith(("past_", "present"))
        }
        feeds = {item.name: drawn(item, rng) for item in sessions[0].get_inputs()}
        types = {item.name: FLOATS.get(item.type) for item in sessions[1].get_inputs()}
        narrow = {name: array.astype(types[name]) if types[name] else array for name, array in feeds.items()}
        for item, want, got in zip(
            sessions[0].get_outputs(), sessions[0].run(None, feeds), sessions[1].run(None, narrow), strict=True
        ):
            if want.size and not item.name.startswith("present"):
                assert got.dtype == want.dtype
                assert np.abs(got - want).max() <= 2e-2 * np.abs(want).max(), item.name
                compared += 1
        assert any(init.data_type == onnx.TensorProto.FLOAT16 for init in onnx.load(half).graph.initializer), (
            "the weights are f16"
        )
    assert compared


def test_a_network_has_variants_too(tmp_path):
    source = EXAMPLE.parent / "digits.onnx"
    cc.convert(source, tmp_path / "out", to="onnx", dtypes=("f32", "q8"))
    names = sorted(path.name for path in (tmp_path / "out" / "onnx").iterdir())
    assert names == ["model.onnx", "model_quantized.onnx"]
    image = cc.load_file(EXAMPLE.parent / "digits.npz")["image"][:8]
    one, other = (
        exact_session(path, "ORT_ENABLE_ALL").run(None, {"image": image})[0]
        for path in (source, tmp_path / "out" / "onnx" / "model_quantized.onnx")
    )
    assert (one.argmax(1) == other.argmax(1)).all()
    assert 0 < np.abs(one - other).max() < 2


def test_external_data_is_told_to_transformers_js(tmp_path):
    cc.convert(EXAMPLE, tmp_path / "out", to="onnx", dtypes=("f32",), external_data="always")
    names = sorted(path.name for path in (tmp_path / "out" / "onnx").iterdir())
    assert names == ["model.onnx", "model.onnx_data"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["transformers.js_config"] == {"use_external_data_format": {"model.onnx": 1}}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["out.onnx", "--dtypes", "f32,q4"], "--dtypes writes a file for each variant"),
        (["out", "-t", "onnx", "--dtypes", "q5"], "unknown variant 'q5'"),
        (["out", "-t", "onnx", "--dtypes", "q4", "--dtype", "f16"], "contradict each other"),
        (["out.onnx", "--allow-requantize"], "--allow-requantize has nothing to quantize again"),
        (["out", "-t", "safetensors", "--dtypes", "f32"], "--dtypes is for graphs"),
    ],
)
def test_contradictions_are_refused(tmp_path, monkeypatch, capsys, arguments, why):
    monkeypatch.chdir(tmp_path)
    assert run(["convert", str(EXAMPLE), *arguments]) == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(MODULES is None, reason="CANDLE_TRANSFORMERS_JS names no folder with @huggingface/transformers")
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "q8", "q4"])
def test_transformers_js_generates(exported, tmp_path, dtype):
    script = Path(MODULES) / "candle_generate.mjs"
    script.write_text(SCRIPT)
    found = subprocess.run(
        ["node", str(script), str(exported.parent), dtype], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    written = exported / "onnx" / f"model{VARIANTS['q4'].suffix}.onnx"
    model = cc.models.load(written if dtype == "q4" else EXAMPLE)
    want = model.generate("In the beginning", max_tokens=12, temperature=0)
    assert json.loads(found.stdout.splitlines()[-1]) == f"In the beginning{want}"
