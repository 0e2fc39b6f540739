"""Types of encoders in llama.cpp's files by rules of quantize, against mtmd."""

import json

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import vision_language
from candle_convert.tests.builders.vision_language import vision_language_folder
from candle_convert.tests.oracles.libllama import NAME
from candle_convert.tests.oracles.libmtmd import MARKER, Libmtmd
from PIL import Image

RELATIVE = 2e-2
"""llama.cpp rounds what is multiplied with blocks to 8 bits."""


def types(path):
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}


def quantized(capsys, folder, *options):
    capsys.readouterr()
    out = folder / "out"
    out.mkdir(exist_ok=True)
    words = ["quantize", str(folder), str(out / "m.gguf"), "Q8_0", "--force", *options, "--json"]
    assert run(words) == 0, capsys.readouterr().err
    codes = [note["code"] for note in json.loads(capsys.readouterr().out)["warnings"]]
    return types(out / "mmproj-m.gguf"), types(out / "m.gguf"), codes


def test_rules_address_the_encoder_by_its_file(tmp_path, capsys):
    vision_language_folder("smolvlm", tmp_path)
    plain, text, _ = quantized(capsys, tmp_path)
    assert {plain["v.blk.0.attn_q.weight"], plain["mm.model.fc.weight"], plain["v.patch_embd.weight"]} == {"F16"}
    found, same, codes = quantized(capsys, tmp_path, "--tensor-type", "mmproj/v.blk=q8_0")
    assert same == text
    assert "W-RULE-UNUSED" not in codes
    assert {name for name in found if found[name] == "Q8_0"} == {
        name for name in plain if name.startswith("v.blk") and plain[name] == "F16"
    }
    found, _, _ = quantized(capsys, tmp_path, "--tensor-type", "mmproj/=f32")
    assert set(found.values()) == {"F32"}
    found, _, codes = quantized(capsys, tmp_path, "--tensor-type", "attn_v=f16", "--tensor-type", "mmproj/none=f32")
    assert found == plain
    assert codes == ["W-RULE-UNUSED"]
    found, _, codes = quantized(capsys, tmp_path, "--tensor-type", "mmproj/=q4_K")
    assert found == {**plain, "mm.model.fc.weight": "Q4_K"}  # the only rows of 256
    assert codes == ["W-FALLBACK"]
    (tmp_path / "r.toml").write_text('base = "keep"\n[[rule]]\nmatch = "^mmproj/.*ffn"\ntype = "q8_0"\n')
    found, same, _ = quantized(capsys, tmp_path, "--recipe", str(tmp_path / "r.toml"))
    assert same == text
    assert {name for name in found if found[name] == "Q8_0"} == {
        name for name in plain if "ffn" in name and plain[name] == "F16"
    }


@pytest.mark.skipif(NAME is None, reason="llama.cpp's library is missing")
@pytest.mark.parametrize(("family", "mark", "around", "side"), [
    ("smolvlm", "<image>", "", 64), ("gemma3", "<start_of_image>", "\n\n", 32), ("pixtral", "[IMG]", "", 32),
])  # fmt: skip
def test_mtmd_computes_encoders_of_blocks(tmp_path, capsys, monkeypatch, family, mark, around, side):
    monkeypatch.setattr(vision_language, "CORPUS", (*vision_language.CORPUS, *("\n\n",) * 40))
    vision_language_folder(family, tmp_path)
    found, _, codes = quantized(capsys, tmp_path, "--tensor-type", "mmproj/=q8_0")
    assert "Q8_0" in found.values()
    assert "W-FALLBACK" in codes
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))
    loaded = cc.models.load(tmp_path / "out" / "m.gguf", threads=1, activations="f32")
    prompt = loaded.prompted(f"{mark}what is this?", [picture])
    ours = loaded(input_ids=np.array([prompt.ids]), **prompt.arrays)["logits"][0, -1]
    mtmd = Libmtmd(tmp_path / "out" / "m.gguf", tmp_path / "out" / "mmproj-m.gguf")
    theirs = mtmd.logits(f"{around}{MARKER}{around}what is this?", [np.asarray(picture)])
    mtmd.close()
    assert np.abs(theirs - ours).max() <= RELATIVE * np.abs(ours).max()
