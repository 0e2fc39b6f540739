"""Exported encoder-decoders in the layouts of Optimum, run from their ONNX files, against transformers' `generate`."""

import dataclasses
import json
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.convert.load.load_model import load_text_model
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, T5_SIZE, inputs, with_tokenizer
from candle_convert.tests.builders.exported_decoders import MERGED, branched, split
from candle_convert.tests.oracles.transformers import difference, made, transformers

TEXTS = ["translate: the object is a class", "Hello  world", "a b c"]
LAYOUTS = ("merged", "branches", "split", "without_past")
OWN_IDS = {"vocab_size": T5_SIZE, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
CASES = {case.name: dataclasses.replace(case, base={**case.base, **OWN_IDS}) for case in ENCODER_DECODERS}


@pytest.fixture(scope="module", params=["mt5", "marian"])
def exported(request, tmp_path_factory):
    """A case, its reference and the folder of its ONNX files."""
    folder = tmp_path_factory.mktemp(request.param)
    reference = made(CASES[request.param], 0, folder / "hf")
    with_tokenizer(folder / "hf")
    cc.convert(folder / "hf", folder / "onnx", to="onnx")
    return CASES[request.param], reference, folder / "onnx"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_as_transformers(exported, layout, tmp_path):
    case, reference, source = exported
    folder = tmp_path / ("onnx" if layout == "split" else "")
    folder.mkdir(exist_ok=True)
    for path in source.iterdir():
        shutil.copy(path, folder if path.suffix == ".onnx" else tmp_path)
    if layout == "branches":
        branched(folder, len(TEXTS))
    if layout in ("split", "without_past"):
        split(folder, len(TEXTS))
    if layout == "without_past":
        (folder / "decoder_with_past_model.onnx").unlink()
    model = models.load(tmp_path, threads=1)
    assert model.verbs == ("generate",)
    arrays = inputs(case, 0)["padded"]
    want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    logits, mask = model(**arrays)["logits"], arrays["decoder_attention_mask"]
    assert difference(logits, want.logits.detach().numpy() * mask[..., None], mask) <= case.tolerance
    if layout == "without_past":
        return
    tokenizer = transformers().AutoTokenizer.from_pretrained(source)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    for beams in (1, 3):
        ids = reference.generate(**batch, max_new_tokens=12, do_sample=False, num_beams=beams)
        found = model.generate_batch(TEXTS, max_tokens=12, beams=beams)
        assert [each.text for each in found] == tokenizer.batch_decode(ids, skip_special_tokens=True), beams


def test_commands(exported, tmp_path, capsys):
    """`generate` and `embed` from the directory, `verify` of it against the checkpoint, and a variant by its name."""
    _, _, source = exported
    hf, folder = source.parent / "hf", tmp_path / "variants"
    cc.convert(hf, folder, to="onnx", dtypes=["f32", "q8"])
    want = models.load(hf, threads=1)
    for path in (source, folder, folder / "onnx" / "decoder_model_merged_quantized.onnx"):
        assert run(["generate", str(path), "-p", TEXTS[0], "-n", "6", "--threads", "1"]) == 0
        printed = capsys.readouterr().out
        if path.is_dir():
            assert printed.strip() == want.generate(TEXTS[0], max_tokens=6).strip()
    assert run(["verify", str(hf), str(source), "--level", "none", "--prompt", TEXTS[0], "--json"]) == 0
    vectors = models.load(source, task="feature-extraction").embed(TEXTS)
    np.testing.assert_allclose(vectors, models.load(hf, task="feature-extraction").embed(TEXTS), rtol=0, atol=1e-4)
    assert run(["embed", str(source), TEXTS[0], "-o", str(tmp_path / "v.npy")]) == 0


def test_a_directory_is_one_model(exported, tmp_path, capsys):
    """`inspect`, `diff`, `verify` and `models show` see all graphs; copies in f16 and int8 run in ONNX Runtime."""
    _, reference, source = exported
    hf, half, int8 = source.parent / "hf", tmp_path / "half", tmp_path / "int8"
    graphs = {"encoder_model": "last_hidden_state", "decoder_model_merged": "logits"}
    assert run(["inspect", str(source), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["graphs"]
    assert {name: part["outputs"][0]["name"] for name, part in found.items()} == graphs
    assert run(["convert", str(source), str(half), "-t", "onnx", "--dtype", "f16"]) == 0
    assert run(["quantize", str(source), str(int8), "int8", "-t", "onnx"]) == 0
    batch = transformers().AutoTokenizer.from_pretrained(half)(TEXTS, return_tensors="np", padding=True)
    tensors = {name: torch.tensor(array) for name, array in batch.items()}
    mask = batch["attention_mask"]
    want = reference.get_encoder()(**tensors).last_hidden_state.detach().numpy()
    for folder, tolerance in ((half, 0.02), (int8, 0.5)):
        assert {path.name for path in folder.iterdir()} == {path.name for path in source.iterdir()}
        session = onnxruntime.InferenceSession(folder / "encoder_model.onnx")
        outputs = session.run(["last_hidden_state"], dict(batch))[0]
        assert difference(outputs * mask[..., None], want * mask[..., None], mask) <= tolerance, folder
        onnxruntime.InferenceSession(folder / MERGED)
        assert models.load(folder).generate(TEXTS[0], max_tokens=3) is not None
    cc.convert(source, tmp_path / "copy", to="onnx")
    assert run(["diff", str(hf), str(tmp_path / "copy")]) == 0
    assert run(["diff", str(source), str(half)]) == 1
    assert run(["verify", str(hf), str(half)]) == 0
    assert run(["models", "show", str(half)]) == 0
    assert run(["verify", str(source), str(tmp_path / "copy")]) == 0
    with pytest.raises(cc.UsageError, match=r"E-OUT-GRAPHS.*one of its files, such as"):
        cc.convert(source, tmp_path / "weights.safetensors")
    with pytest.raises(cc.UsageError, match="Choose a directory"):
        cc.convert(source, tmp_path / "one.onnx")


def test_a_decoder_without_its_encoder(exported, tmp_path):
    _, _, source = exported
    shutil.copy(source / MERGED, tmp_path)
    with pytest.raises(cc.FileAccessError, match="encoder_model"):
        models.load(tmp_path / MERGED)
    with pytest.raises(cc.UsageError, match="models for feature-extraction do not generate text"):
        load_text_model(source / "encoder_model.onnx")
    with pytest.raises(cc.UsageError, match="does not support the task 'fill-mask'"):
        models.load(source, task="fill-mask")
    with pytest.raises(cc.UsageError, match="cannot embed: its task is text2text-generation"):
        models.load(source).embed("a")
