"""GGUF files of T5 models: in libllama, back in transformers, and refused where llama.cpp has another function."""

import dataclasses

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, T5_SIZE, inputs, with_tokenizer
from candle_convert.tests.oracles.libllama_encoder import NONE, EncoderInLibllama
from candle_convert.tests.oracles.libllama_encoder_decoder import EncoderDecoderInLibllama
from candle_convert.tests.oracles.transformers import Case, difference, made, transformers

CASES = {case.name: case for case in ENCODER_DECODERS}
LIBLLAMA = 4e-3
"""libllama computes GELU by a table of f16."""
PLAIN = {"relative_attention_max_distance": 128, "num_decoder_layers": 2}
"""What llama.cpp takes for granted of T5 1.1, and transformers in decoding."""


def written(name, folder, *, head, **config):
    """A checkpoint with a tokenizer and a head (``untied``, a ``copy`` of the embedding, or None); the model as
    transformers reads it, and the inputs of one text."""
    case = CASES[name]
    case = dataclasses.replace(case, config={**case.config, **config}, base={**case.base, "vocab_size": T5_SIZE})
    made(case, 0, folder)
    with_tokenizer(folder)
    if head:
        weights = {key: tensor.numpy() for key, tensor in cc.open(folder).weights.items()}
        embed = weights["shared.weight"]
        noise = 0.1 * np.random.default_rng(0).normal(size=embed.shape).astype(np.float32)
        cc.save_file({**weights, "lm_head.weight": embed if head == "copy" else noise}, folder / "model.safetensors")
    reference = transformers().AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return reference, inputs(case, 0)["single"]


def computed(reference, arrays):
    """Logits by transformers."""
    import torch

    with torch.no_grad():
        return reference(**{name: torch.tensor(array) for name, array in arrays.items()}).logits.numpy()


@pytest.mark.parametrize(
    ("name", "head", "scaled_there"),
    [
        ("t5", None, False),
        ("t5", "copy", False),
        ("t5_1_1", "untied", True),
        ("mt5", "untied", True),
        ("umt5", "untied", True),
    ],
)
def test_as_libllama_and_back(name, head, scaled_there, tmp_path):
    """llama.cpp has no factor before the head: where the file has it as it is, the logits there are a multiple."""
    reference, arrays = written(name, tmp_path, head=head, **PLAIN)
    want = computed(reference, arrays)
    path = tmp_path / "gguf" / "model.gguf"
    path.parent.mkdir()
    cc.convert(tmp_path, path)
    model, source = models.load(path, threads=1), models.load(tmp_path, threads=1)
    assert difference(model(**arrays)["logits"], want) <= 3e-5
    text = "the object is a class"
    library = EncoderDecoderInLibllama(path)
    assert library.tokenize(text) == model.tokenizer.encode(text) == source.tokenizer.encode(text)
    assert model.generate(text, max_tokens=9) == source.generate(text, max_tokens=9)
    factor = 1 if scaled_there else reference.config.d_model**-0.5
    got = library.logits(arrays["input_ids"][0], arrays["decoder_input_ids"][0])
    library.close()
    assert difference(factor * got, want[0]) <= LIBLLAMA
    cc.convert(path, tmp_path / "hf", to="safetensors")
    again = transformers().AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    assert type(again) is type(reference) or name == "mt5"
    assert difference(computed(again, arrays), want) <= 3e-5
    tokenizer = transformers().AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer(text)["input_ids"] == source.tokenizer.encode(text)


def test_an_encoder(tmp_path):
    import torch

    config = {**CASES["t5_1_1"].config, **PLAIN, "architectures": ["T5EncoderModel"]}
    case = Case("encoder", "T5EncoderModel", config, {**CASES["t5_1_1"].base, "vocab_size": T5_SIZE})
    reference = made(case, 0, tmp_path)
    with_tokenizer(tmp_path)
    ids = np.random.default_rng(0).integers(3, T5_SIZE, (1, 40))

    def hidden(model):
        with torch.no_grad():
            return model(input_ids=torch.tensor(ids)).last_hidden_state.numpy()

    want, path = hidden(reference), tmp_path / "gguf" / "model.gguf"
    path.parent.mkdir()
    cc.convert(tmp_path, path)
    assert difference(models.load(path, threads=1)(input_ids=ids)["last_hidden_state"], want) <= 3e-5
    encoder = EncoderInLibllama(path, NONE)
    assert difference(encoder(ids[0]), want[0]) <= LIBLLAMA
    encoder.close()
    cc.convert(path, tmp_path / "hf", to="safetensors")
    again = transformers().T5EncoderModel.from_pretrained(tmp_path / "hf").eval()
    assert difference(hidden(again), want) <= 3e-5


@pytest.mark.parametrize(
    ("name", "config"), [("ul2", {}), ("t5_1_1", {"relative_attention_max_distance": 20}), ("t5", {})]
)
def test_what_gguf_cannot_say_is_refused(name, config, tmp_path):
    written(name, tmp_path, head="untied", **config)
    with pytest.raises(cc.UnsupportedError, match=r"GGUF files of (this|the) architecture"):
        cc.convert(tmp_path, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
