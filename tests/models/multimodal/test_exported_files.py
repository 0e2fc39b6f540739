"""Exported vision-language models in Transformers.js, whose processors prepare pictures and prompts: logits and tokens
of transformers for the same arrays."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from candle_convert.tests.builders.patch_models import FAMILIES as PATCH_FAMILIES
from candle_convert.tests.builders.patch_models import patch_folder
from candle_convert.tests.builders.vision_language import FAMILIES, generated, vision_language_folder
from candle_convert.tests.oracles.transformers_js import answered, needs_node
from PIL import Image

COUNT = 6
GENERATE = """
  const image = await js.RawImage.read(given.picture);
  const processor = await js.AutoProcessor.from_pretrained('model');
  const inputs = await (given.first ? processor(image, given.text) : processor(given.text, image));
  const options = { dtype: given.dtype };
  const model = await js.AutoModelForImageTextToText.from_pretrained('model', options);
  const { logits } = await model(inputs);
  const made = await model.generate({ ...inputs, max_new_tokens: given.count, do_sample: false });
  return { ids: plain(inputs.input_ids), pixels: plain(inputs.pixel_values), logits: plain(logits),
           tokens: plain(made) };
"""
"""Prompts, pixels, logits and tokens of a model in the folder ``model``."""
PICTURES_FIRST = ("llava", "pixtral", "mistral3", "paligemma")
"""Families whose processors take the picture before the text."""
GROUPED = ("gemma3", "qwen3_vl", "paddleocr_vl")
"""Families that Transformers.js does not compute: it has no groups of tokens, no deepstack features, no such class."""
CASES = [name for name in (*FAMILIES, *PATCH_FAMILIES) if name not in GROUPED]
BOUNDS = {"fp32": 3e-5, "fp16": 2e-2, "q8": 0.2, "q4": 0.5}
"""Largest difference of logits, relative to the largest one."""


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """The name of a family, its model and processor in transformers, its directory and one with its export."""
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    made = vision_language_folder if name in FAMILIES else patch_folder
    model, processor = made(name, folder)
    if isinstance(processor, transformers.ProcessorMixin):
        (folder / "preprocessor_config.json").unlink()
        processor.save_pretrained(folder)
    target = tmp_path_factory.mktemp("exported")
    cc.convert(folder, target / "model", to="onnx", dtypes=("f32", "f16", "q8", "q4"))
    return name, model, processor, folder, target


def prompt(name):
    if name in FAMILIES:
        return f"{FAMILIES[name][1]}what is this?"
    start, end, image = PATCH_FAMILIES[name][1]
    return f"{start}{image}{end}what is this?"


def processed(case):
    """transformers' arrays of the prompt with a picture."""
    name, _, processor, folder, _ = case
    options = {"return_tensors": "pt"} if name in FAMILIES else {}
    return processor(text=prompt(name), images=[Image.open(folder / "a.png").convert("RGB")], **options)


@needs_node
@pytest.mark.parametrize("dtype", BOUNDS)
def test_transformers_js(case, dtype):
    """Its pixels differ from those of Pillow where pictures are resized, so that transformers gets them too."""
    name, model, _, folder, target = case
    picture = str(folder / "a.png")
    given = {"picture": picture, "text": prompt(name), "first": name in PICTURES_FIRST, "dtype": dtype, "count": COUNT}
    found = answered(GENERATE, target, **given)
    inputs = processed(case)
    assert found["ids"]["data"] == inputs["input_ids"][0].tolist()
    pixels = np.array(found["pixels"]["data"], np.float32).reshape(found["pixels"]["dims"])
    assert pixels.shape == inputs["pixel_values"].shape
    inputs["pixel_values"] = torch.tensor(pixels)
    with torch.no_grad():
        want = model(**inputs).logits.numpy()
    logits = np.array(found["logits"]["data"]).reshape(found["logits"]["dims"])
    assert np.abs(logits - want).max() <= BOUNDS[dtype] * np.abs(want).max()
    if dtype == "fp32":
        assert found["tokens"]["data"][len(found["ids"]["data"]) :] == generated(model, inputs, COUNT)


@pytest.mark.parametrize("family", ["gemma3", "qwen3_vl"])
def test_what_transformers_js_does_otherwise_is_said(family, tmp_path):
    (tmp_path / "model").mkdir()
    (vision_language_folder if family in FAMILIES else patch_folder)(family, tmp_path / "model")
    (note,) = (
        note
        for note in cc.convert(tmp_path / "model", tmp_path / "onnx", to="onnx").notes
        if note.code == "W-ONNX-TRANSFORMERS-JS"
    )
    assert note.message.startswith("Transformers.js")


def test_tiles_that_fill_up_a_batch(tmp_path):
    """Two texts with other numbers of tiles in ONNX Runtime: transformers' features of the real ones."""
    (tmp_path / "model").mkdir()
    model, _ = vision_language_folder("smolvlm", tmp_path / "model")
    cc.convert(tmp_path / "model", tmp_path / "onnx", to="onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "onnx" / "vision_encoder.onnx", providers=["CPUExecutionProvider"]
    )
    pixels = np.random.default_rng(0).standard_normal((2, 3, 3, 32, 32)).astype(np.float32)
    pixels[1, 1:] = 0
    (found,) = session.run(None, {"pixel_values": pixels})
    with torch.no_grad():
        want = model.model.get_image_features(torch.tensor(pixels)).pooler_output
    want = torch.cat(tuple(want)).reshape(found.shape).numpy()
    assert found.shape == (4, 4, 64)
    assert np.abs(found - want).max() <= 3e-5 * np.abs(want).max()


def test_an_exported_prefix(tmp_path):
    """PaliGemma's decoder is causal without ``token_type_ids``, also where the graphs are ONNX files."""
    (tmp_path / "model").mkdir()
    model, _ = vision_language_folder("paligemma", tmp_path / "model")
    cc.convert(tmp_path / "model", tmp_path / "onnx", to="onnx")
    ids = np.array([[60, 61, 62, 63, 64]])
    exported = cc.models.load(tmp_path / "onnx", threads=1, activations="f32")
    for types in (None, np.zeros_like(ids), np.array([[0, 0, 0, 1, 1]])):
        given = {} if types is None else {"token_type_ids": types}
        with torch.no_grad():
            tensors = {name: torch.tensor(array) for name, array in given.items()}
            want = model(input_ids=torch.tensor(ids), **tensors).logits.numpy()
        found = exported(input_ids=ids, **given)["logits"]
        assert np.abs(found - want).max() <= 3e-5 * np.abs(want).max()


def test_files_that_transformers_reads(case):
    """transformers' own processor of the exported folder makes the same ids and pixels."""
    name, _, processor, folder, target = case
    if not isinstance(processor, transformers.ProcessorMixin):
        pytest.skip("transformers' class needs torchvision")
    settings = json.loads((target / "model" / "preprocessor_config.json").read_text())
    assert settings["processor_class"] == type(processor).__name__
    images = type(processor.image_processor).from_pretrained(target / "model")
    again = type(processor).from_pretrained(target / "model", image_processor=images)
    picture = Image.open(folder / "a.png").convert("RGB")
    want, found = (each(text=prompt(name), images=[picture], return_tensors="pt") for each in (processor, again))
    assert want["input_ids"].tolist() == found["input_ids"].tolist()
    assert torch.equal(want["pixel_values"], found["pixel_values"])
