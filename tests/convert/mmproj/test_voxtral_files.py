"""Voxtral in llama.cpp's two files: names of gguf-py, and transformers' model again. The pinned release of mtmd
loads the file, and aborts on each sound of a Voxtral: it counts 187 tokens of 1,500 frames, its graph has 188."""

import candle_convert as cc
import gguf
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import vision_language
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.oracles.libllama import NAME
from candle_convert.tests.oracles.libmtmd import Libmtmd

AUDIO = {
    "hidden_size": 64, "intermediate_size": 256, "max_source_positions": 1500, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_mel_bins": 80, "head_dim": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model in transformers, and the folder with its directory `hf` and both files `m.gguf`."""
    folder = tmp_path_factory.mktemp("voxtral")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(vision_language, "MARKS", (*vision_language.MARKS, "[AUDIO]", "[BEGIN_AUDIO]"))
        tokenizer = vision_language.tokenizer_of("[AUDIO]")
    config = transformers.VoxtralConfig(
        audio_config=AUDIO, audio_token_id=tokenizer.convert_tokens_to_ids("[AUDIO]"),
        text_config={**vision_language.TEXT, "model_type": "llama", "vocab_size": len(tokenizer)},
    )  # fmt: skip
    model = randomized(transformers.VoxtralForConditionalGeneration(config)).eval()
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=2)
    for part in (model, tokenizer, transformers.WhisperFeatureExtractor(feature_size=80)):
        part.save_pretrained(folder / "hf")
    cc.convert(folder / "hf", folder / "m.gguf")
    return model, folder


def wave():
    time = np.arange(2 * 16000) / 16000
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time)).astype(np.float32)


def logits(model, prompt):
    with torch.no_grad():
        arrays = {name: torch.from_numpy(np.asarray(array)) for name, array in prompt.arrays.items()}
        return model(input_ids=torch.tensor([prompt.ids]), **arrays).logits.numpy()


def test_names_are_those_of_gguf_py(case):
    reader = gguf.GGUFReader(case[1] / "mmproj-m.gguf")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 8)
    known = {names.mapping[key][1] for key in names.mapping}
    assert {tensor.name.rpartition(".")[0] for tensor in reader.tensors} <= known
    assert reader.fields["clip.projector_type"].contents() == "voxtral"
    keys = {
        value for holder in (gguf.Keys.Clip, gguf.Keys.ClipAudio, gguf.Keys.ClipAudio.Attention,
                             gguf.Keys.ClipAudio.Projector)
        for value in vars(holder).values() if isinstance(value, str)
    }  # fmt: skip
    assert {key for key in reader.fields if key.startswith("clip.")} <= keys
    assert all(list(tensor.shape[:1]) == [1] for tensor in reader.tensors if tensor.name.startswith("a.conv1d.1.bias"))


@pytest.mark.skipif(NAME is None, reason="llama.cpp's library is missing")
def test_mtmd_loads_the_file(case):
    Libmtmd(case[1] / "m.gguf", case[1] / "mmproj-m.gguf").close()


def test_the_files_give_the_model_back(case):
    model, folder = case
    cc.convert(folder / "m.gguf", folder / "back", to="safetensors")
    again, info = type(model).from_pretrained(folder / "back", output_loading_info=True)
    assert not any(info.values()), info
    want = None
    for source in ("hf", "m.gguf", "back"):
        loaded = cc.models.load(folder / source, threads=1, activations="f32")
        prompt = loaded.prompted("what is said", [], [wave()])
        want = logits(model, prompt) if want is None else want
        found = loaded(input_ids=np.array([prompt.ids]), **prompt.arrays)["logits"]
        assert np.abs(found - want).max() <= 3e-5 * np.abs(want).max()
    assert np.abs(logits(again.eval(), prompt) - want).max() <= 1e-5 * np.abs(want).max()


def test_verify_compares_the_whole_model(case):
    assert run(["verify", str(case[1] / "hf"), str(case[1] / "m.gguf")]) == 0


def test_a_number_of_frames_that_llama_cpp_does_not_have(case, tmp_path, capsys):
    """One line that says what is lost, and nothing written."""
    config = transformers.VoxtralConfig(
        audio_config={**AUDIO, "intermediate_size": 128}, audio_token_id=3,
        text_config={**vision_language.TEXT, "model_type": "llama", "vocab_size": 96},
    )  # fmt: skip
    transformers.VoxtralForConditionalGeneration(config).save_pretrained(tmp_path / "hf")
    assert run(["convert", str(tmp_path / "hf"), str(tmp_path / "out" / "m.gguf")]) != 0
    assert "E-GGUF-MMPROJ" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
