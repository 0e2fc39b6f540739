"""Whisper from files of OpenAI, whisper.cpp, CTranslate2 and GGUF is a directory that transformers loads and generates
with, and graphs that transcribe."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import candle_convert as cc
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.ctranslate2_files import ctranslate2_file
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.whisper_files import END, ctranslate2_variables, openai_names, published
from transformers.models.whisper.tokenization_whisper import LANGUAGES

MODULES = os.environ.get("CANDLE_TRANSFORMERS_JS")
START = END + 1
SETTINGS = "generation_config.json"
PUBLISHED = {
    "bos_token_id": 50257, "eos_token_id": 50257, "pad_token_id": 50257, "decoder_start_token_id": 50258,
    "no_timestamps_token_id": 50363, "prev_sot_token_id": 50361, "is_multilingual": True,
    "task_to_id": {"transcribe": 50359, "translate": 50358}, "max_initial_timestamp_index": 50, "max_length": 96,
    "lang_to_id": {f"<|{code}|>": START + 1 + at for at, code in enumerate(list(LANGUAGES)[:99])},
}  # fmt: skip
"""generation_config.json of openai/whisper-tiny , but for lists of tokens and the length of texts."""
SCRIPT = """
import { pipeline, env } from '@huggingface/transformers';
env.allowRemoteModels = false; env.localModelPath = process.argv[2];
const heard = await pipeline('automatic-speech-recognition', 'onnx', { dtype: process.argv[3] });
const samples = Float32Array.from({ length: 16000 }, (_, at) => Math.sin(at / 9));
console.log(JSON.stringify(await heard(samples, { language: 'en', task: 'transcribe', max_new_tokens: 9 })));
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "hf"
    folder.mkdir()
    return folder, published(0, folder)


def openai(checkpoint, folder):
    weights, dims = openai_names(checkpoint[1])
    torch.save({"dims": dims, "model_state_dict": weights}, folder / "tiny.pt")
    return folder / "tiny.pt", {"tokenizer": str(checkpoint[0])}


def whisper_cpp(checkpoint, folder):
    cc.convert(checkpoint[0], folder / "tiny.whisper.bin", to="whisper", dtype="f32")
    return folder / "tiny.whisper.bin", {}


def ctranslate2(checkpoint, folder, vocabulary=True):
    (folder / "ct2").mkdir()
    (folder / "ct2" / "model.bin").write_bytes(ctranslate2_file(*ctranslate2_variables(checkpoint[1], False)))
    lists = {"suppress_ids": [1, 2, 7], "suppress_ids_begin": [220, END], "alignment_heads": [[1, 0]]}
    (folder / "ct2" / "config.json").write_text(json.dumps(lists))
    tokenizer = checkpoint[0] / "tokenizer.json"
    if not vocabulary:
        (folder / "ct2" / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    else:
        ids = json.loads(tokenizer.read_text())["model"]["vocab"]
        texts = [*sorted(ids, key=ids.get), *(f"<|{at}|>" for at in range(51865 - END))]
        (folder / "ct2" / "vocabulary.json").write_text(json.dumps(texts))
    return folder / "ct2", {}


def ctranslate2_with_tokenizer(checkpoint, folder):
    return ctranslate2(checkpoint, folder, vocabulary=False)


def gguf(checkpoint, folder):
    cc.convert(checkpoint[0], folder / "tiny.gguf")
    return folder / "tiny.gguf", {}


SOURCES = [openai, whisper_cpp, ctranslate2, ctranslate2_with_tokenizer, gguf]


def converted(source, checkpoint, folder, to):
    folder.mkdir(exist_ok=True)
    path, options = source(checkpoint, folder)
    out = folder / to
    cc.convert(path, out, to=None if "." in to else to, **options)
    return out


@pytest.mark.parametrize("source", SOURCES)
def test_transformers_generates(source, checkpoint, tmp_path):
    out = converted(source, checkpoint, tmp_path, "safetensors")
    processor = transformers.AutoProcessor.from_pretrained(out)
    assert type(processor).__name__ == "WhisperProcessor"
    model = transformers.WhisperForConditionalGeneration.from_pretrained(out).eval()
    said = json.loads((out / SETTINGS).read_text())
    assert {name: said[name] for name in PUBLISHED} == PUBLISHED
    if source in (ctranslate2, ctranslate2_with_tokenizer):
        assert (said["suppress_tokens"], said["alignment_heads"]) == ([1, 2, 7], [[1, 0]])
    reference = checkpoint[1]
    lists = {name: said[name] for name in ("suppress_tokens", "begin_suppress_tokens")}
    reference.generation_config = transformers.GenerationConfig(**PUBLISHED, **lists)
    features = processor(tones(2), sampling_rate=16_000, return_tensors="pt").input_features
    assert features.shape == (1, 80, 3000)
    for options in ({"language": "en"}, {"language": "de", "task": "translate", "return_timestamps": True}, {}):
        got, want = (each.generate(features, max_new_tokens=9, **options) for each in (model, reference))
        assert torch.equal(got, want)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(checkpoint[0] / "tokenizer.json"))
    text = " Say 'aa bb', please: 12 é"
    assert processor.tokenizer(text, add_special_tokens=False).input_ids == tokenizer(text).input_ids
    ids = [START, START + 1, 50359, 50364, *tokenizer(text).input_ids, 50400, END]
    assert processor.decode(ids, skip_special_tokens=True) == text
    assert processor.decode(ids, decode_with_timestamps=True, skip_special_tokens=True) == f"<|0.00|>{text}<|0.72|>"
    pipeline = transformers.pipeline("automatic-speech-recognition", model=str(out))
    assert isinstance(pipeline(tones(2), generate_kwargs={"language": "en", "max_new_tokens": 9})["text"], str)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("to", ["safetensors", "onnx", "m.safetensors", "m.npz"])
@pytest.mark.parametrize("source", SOURCES)
def test_transcribe(source, to, checkpoint, tmp_path):
    out = converted(source, checkpoint, tmp_path, to)
    assert not (out / "whisper.tiktoken").exists()
    options = {"language": "en", "temperature": 0.0, "beams": 1}
    stated = (out if out.is_dir() else converted(source, checkpoint, tmp_path / "other", "safetensors")) / SETTINGS
    plain = shutil.copytree(checkpoint[0], tmp_path / "plain")
    (plain / SETTINGS).write_bytes(stated.read_bytes())
    want = cc.models.load(plain, threads=1).transcribe(tones(2), 16_000, **options)
    found = cc.models.load(out, threads=1).transcribe(tones(2), 16_000, **options)
    assert found.text == want.text
    assert [(each.start, each.end) for each in found.segments] == [(each.start, each.end) for each in want.segments]


@pytest.mark.parametrize("name", ["ggml-tiny.bin", "tiny.whisper.bin", "GGML-TINY.BIN"])
def test_a_name_of_whisper_cpp_is_kept(name, checkpoint, tmp_path):
    assert run(["convert", str(checkpoint[0]), str(tmp_path / name), "-t", "whisper"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert cc.open(tmp_path / name).format == "whisper"


def test_a_source_without_vocabulary_says_so(checkpoint, tmp_path, capsys):
    path, _ = openai(checkpoint, tmp_path)
    assert run(["convert", str(path), str(tmp_path / "out"), "-t", "safetensors", "--dry-run"]) == 0
    assert "no vocabulary" in capsys.readouterr().err
    assert run(["convert", str(path), str(tmp_path / "out"), "-t", "safetensors"]) == 0
    assert "transcribe " not in capsys.readouterr().err.rpartition(" next ")[2]
    assert run(["convert", str(path), str(tmp_path / "ggml.bin"), "-t", "whisper"]) == 4
    assert "--tokenizer DIR" in capsys.readouterr().err


@pytest.mark.skipif(MODULES is None, reason="CANDLE_TRANSFORMERS_JS names no folder with @huggingface/transformers")
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_transformers_js_transcribes(dtype, checkpoint, tmp_path):
    path, options = whisper_cpp(checkpoint, tmp_path)
    cc.convert(path, tmp_path / "onnx", to="onnx", dtypes=("f32", "f16"), **options)
    script = Path(MODULES) / "candle_transcribe.mjs"
    script.write_text(SCRIPT)
    found = subprocess.run(["node", str(script), str(tmp_path), dtype], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert isinstance(json.loads(found.stdout.splitlines()[-1])["text"], str)
