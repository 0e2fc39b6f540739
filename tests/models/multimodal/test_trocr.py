"""TrOCR against transformers: logits, generated text and exported graphs."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.dual_encoders import END, START, VISION, clip_tokenizer
from candle_convert.tests.builders.image_checkpoints import images, randomized
from candle_convert.tests.oracles.transformers import stored_ties
from candle_convert.tests.oracles.transformers_js import answered, needs_node
from PIL import Image

DECODER = {
    "d_model": 48, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64,
    "add_cross_attention": True, "max_position_embeddings": 64, "is_decoder": True,
    "cross_attention_hidden_size": 64, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    "bos_token_id": 0,
}  # fmt: skip
CASES = {
    "learned": ("vit", {"layernorm_embedding": True, "tie_word_embeddings": True}),
    "sinusoids": (
        "deit",
        {
            "use_learned_position_embeddings": False,
            "scale_embedding": True,
            "layernorm_embedding": False,
            "activation_function": "relu",
            "tie_word_embeddings": False,
        },
    ),
}
TOLERANCE = 3e-5


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """The model in transformers and its directory, with a tokenizer, a preprocessor and a picture."""
    kind, settings = CASES[request.param]
    tokenizer = clip_tokenizer()
    encoder = transformers.AutoConfig.for_model(kind, **VISION)
    decoder = transformers.TrOCRConfig(**DECODER, vocab_size=tokenizer.get_vocab_size(), **settings)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 1, 1
    config.tie_word_embeddings = False
    model = randomized(transformers.VisionEncoderDecoderModel(config=config))
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=0, pad_token_id=1, eos_token_id=1, max_length=12
    )
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 70, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    return model.eval(), folder


def arrays():
    return {"pixel_values": images(2, 32, 32), "decoder_input_ids": np.array([[0, 5, 9, 30], [0, 7, 7, 200]])}


def expected(model):
    with torch.no_grad():
        return model(**{name: torch.tensor(array) for name, array in arrays().items()}).logits.numpy()


def compare(found, want):
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_logits(case):
    model, folder = case
    compare(cc.models.load(folder, threads=1)(**arrays())["logits"], expected(model))


@pytest.mark.parametrize("case", ["learned"], indirect=True)
def test_a_head_that_is_stored_and_tied(case, tmp_path):
    model, folder = case
    reference, names = stored_ties(type(model), folder, tmp_path)
    assert len(names) == 1
    compare(cc.models.load(tmp_path, threads=1)(**arrays())["logits"], expected(reference))


@pytest.mark.parametrize("beams", [1, 3])
def test_text_as_transformers_generates_it(case, beams):
    model, folder = case
    found = cc.models.load(folder, activations="f32")
    pixels = images(2, 32, 32)
    want = model.generate(torch.tensor(pixels), num_beams=beams, do_sample=False)
    written = found.write(pixels, num_beams=beams)
    ends = [row.tolist() for row in want]
    for row, made in zip(ends, written, strict=True):
        row = row[1:]
        assert made.tokens == (row[: row.index(1) + 1] if 1 in row else row)


def test_predictions_of_a_directory_and_of_its_export(case, tmp_path, capsys):
    _, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    assert {"encoder_model.onnx", "decoder_model_merged.onnx"} <= {path.name for path in tmp_path.iterdir()}
    picture = folder / "a.png"
    (want,) = cc.models.load(folder, activations="f32").predict(picture)
    (found,) = cc.models.load(tmp_path, activations="f32").predict(picture)
    assert found == want
    assert want["generated_text"]
    assert run(["predict", str(folder), str(picture), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["found"][0].keys() == {"generated_text"}


def test_other_pictures_are_refused(case):
    _, folder = case
    with pytest.raises(cc.UsageError, match="E-RUN-SHAPE"):
        cc.models.load(folder)(np.zeros((1, 4, 32, 32)), [[0]])


READ = """
  const read = await js.pipeline('image-to-text', 'model', { dtype: given.dtype });
  return await read(given.picture, { max_new_tokens: 8, do_sample: false });
"""


@needs_node
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_transformers_js(case, dtype, tmp_path):
    """The text of a picture that need not be resized."""
    model, folder = case
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8))
    picture.save(tmp_path / "c.png")
    cc.convert(folder, tmp_path / "model", to="onnx", dtypes=({"fp32": "f32", "fp16": "f16"}[dtype],))
    (found,) = answered(READ, tmp_path, picture=str(tmp_path / "c.png"), dtype=dtype)
    pixels = transformers.ViTImageProcessor.from_pretrained(folder)(picture, return_tensors="pt")["pixel_values"]
    tokens = model.generate(pixels, num_beams=1, do_sample=False, max_new_tokens=8)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert found["generated_text"] == tokenizer.decode(tokens[0], skip_special_tokens=True).strip()
