"""Models of texts and pictures: CLIP, Chinese CLIP and SigLIP against transformers, and files with OpenCLIP's names."""

import json
import shutil

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.dual_encoders import TEXT, VISION, clip_folder, open_clip_names, pair_inputs
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.oracles.transformers_js import answered, needs_node
from PIL import Image

CASES = {
    "clip": ("CLIPModel", {"text_config": TEXT | {"eos_token_id": 95}, "projection_dim": 40}),
    "clip-legacy": ("CLIPModel", {"text_config": TEXT | {"eos_token_id": 2, "hidden_act": "gelu"}}),
    "chinese-clip": ("ChineseCLIPModel", {"text_config": TEXT, "projection_dim": 40}),
    "siglip": ("SiglipModel", {"text_config": TEXT}),
}
OUTPUTS = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
TOLERANCE = 2e-5


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    name, settings = CASES[request.param]
    kind = getattr(transformers, name)
    config = kind.config_class(**settings, vision_config=VISION)
    model = randomized(kind._from_config(config, attn_implementation="eager"))
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return model, folder, pair_inputs(masked="Siglip" not in name)


def expected(model, arrays):
    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in arrays.items()})
    return {name: found[name].numpy() for name in OUTPUTS}


def compare(found, want):
    for name, array in want.items():
        assert np.abs(found[name] - array).max() <= TOLERANCE * np.abs(array).max(), name


def test_outputs(case):
    model, folder, arrays = case
    compare(cc.models.load(folder, threads=1)(**arrays), expected(model, arrays))


def test_a_written_directory_loads_in_transformers(case, tmp_path):
    model, folder, arrays = case
    cc.convert(folder, tmp_path, to="safetensors")
    compare(expected(type(model).from_pretrained(tmp_path), arrays), expected(model, arrays))


def test_onnx_files(case, tmp_path):
    """One of both towers, and one of each, as Transformers.js loads them."""
    model, folder, arrays = case
    cc.convert(folder, tmp_path, to="onnx")
    want = expected(model, arrays)
    for name, own in (("model", OUTPUTS), ("text_model", OUTPUTS[2:3]), ("vision_model", OUTPUTS[3:])):
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"])
        given = {value.name for value in session.get_inputs()}
        assert ("attention_mask" in given) == (name != "vision_model" and "Siglip" not in type(model).__name__)
        defaults = {"attention_mask": np.ones_like(arrays["input_ids"]), "token_type_ids": 0 * arrays["input_ids"]}
        feeds = {key: array for key, array in (defaults | arrays).items() if key in given}
        names = [value.name for value in session.get_outputs()]
        found = dict(zip(names, session.run(None, feeds), strict=True))
        for output in own:
            vectors = found[output if output in found else "pooler_output"]
            vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) if name != "model" else vectors
            compare({output: vectors}, {output: want[output]})


@pytest.mark.parametrize("missing", ["input_ids", "pixel_values"])
def test_both_inputs_are_needed(case, missing):
    _, folder, arrays = case
    with pytest.raises(cc.UsageError, match=f"E-RUN-INPUT.*{missing}"):
        cc.models.load(folder)(**{name: array for name, array in arrays.items() if name != missing})


def test_files_of_open_clip(tmp_path):
    """Vectors, and the directory that transformers reads."""
    kind = transformers.CLIPModel
    text, vision = TEXT | {"eos_token_id": 2, "hidden_act": "gelu"}, VISION | {"hidden_act": "gelu"}
    config = kind.config_class(text_config=text, vision_config=vision, projection_dim=40)
    model, arrays = randomized(kind._from_config(config)), pair_inputs()
    source, out = tmp_path / "open_clip", tmp_path / "hf"
    source.mkdir()
    weights = open_clip_names({name: tensor.numpy() for name, tensor in model.state_dict().items()})
    for name in ("open_clip_model.safetensors", "open_clip_pytorch_model.npz"):
        cc.save_file(weights, source / name)
    said = {"model_cfg": {"text_cfg": {"heads": 4}, "vision_cfg": {"image_size": 32, "head_width": 16}}}
    (source / "open_clip_config.json").write_text(json.dumps(said))
    compare(cc.models.load(source)(**arrays), expected(model, arrays))
    cc.convert(source, out, to="safetensors")
    compare(expected(kind.from_pretrained(out), arrays), expected(model, arrays))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return clip_folder(tmp_path_factory.mktemp("clip"))


def test_labels_as_the_pipeline_of_transformers(folder):
    picture, labels = str(folder / "a.png"), ["a cat", "a dog", "an aeroplane over the sea"]
    pipeline = transformers.pipeline("zero-shot-image-classification", model=str(folder))
    want = pipeline(picture, candidate_labels=labels)
    found = cc.models.load(folder).predict(picture, classes=labels)
    assert [each["label"] for each in found] == [each["label"] for each in want]
    assert np.allclose([each["score"] for each in found], [each["score"] for each in want], atol=1e-5)


def test_texts_and_pictures_in_one_space(folder):
    model = cc.models.load(folder)
    texts, pictures = ["a cat", "a dog"], [folder / "a.png", folder / "b.png"]
    mixed = model.embed([texts[0], pictures[1], texts[1], pictures[0]])
    assert np.allclose(mixed[[0, 2]], model.embed(texts), atol=1e-6)
    assert np.allclose(mixed[[3, 1]], model.embed(images=[str(path) for path in pictures]), atol=1e-6)
    assert np.allclose(np.linalg.norm(mixed, axis=1), 1, atol=1e-6)


def test_commands(folder, capsys):
    picture = str(folder / "a.png")
    assert run(["predict", str(folder), picture, "--labels", "a cat, a dog", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert {each["label"] for each in result["found"]} == {"a cat", "a dog"}
    assert run(["embed", str(folder), picture, "a cat", "--similarity", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["similarity"]) == 2


@pytest.mark.parametrize(("arguments", "message"), [([], "missing labels"), (["--labels", " , "], "missing labels")])
def test_labels_are_needed(folder, capsys, arguments, message):
    assert run(["predict", str(folder), str(folder / "a.png"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_exported_files_run_as_the_directory(folder, tmp_path):
    """Also where the graphs do not name the scale of logits, as those of other exporters."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    cc.convert(folder, ours, to="onnx")
    shutil.copytree(ours, others)
    graph = onnx.load(others / "model.onnx")
    for tensor in graph.graph.initializer:
        tensor.name = tensor.name.replace("logit_scale", "constant")
    for node in graph.graph.node:
        node.input[:] = [name.replace("logit_scale", "constant") for name in node.input]
    onnx.save(graph, others / "model.onnx")
    picture, labels = folder / "a.png", ["a cat", "a dog", "an aeroplane over the sea"]
    native = cc.models.load(folder)
    want = native.predict(picture, classes=labels)
    for exported in (ours, others):
        model = cc.models.load(exported)
        assert np.allclose(model.embed(["a cat", picture]), native.embed(["a cat", picture]), atol=1e-5)
        found = model.predict(picture, classes=labels)
        assert [each["label"] for each in found] == [each["label"] for each in want]
        assert np.allclose([each["score"] for each in found], [each["score"] for each in want], atol=1e-5)


LABELS = """
  const label = await js.pipeline('zero-shot-image-classification', 'model', { dtype: given.dtype });
  const features = await js.pipeline('image-feature-extraction', 'model', { dtype: given.dtype });
  return { labels: await label(given.picture, given.labels), features: plain(await features(given.picture)) };
"""
PHOTO = "This is a photo of {}"
SHARES = {"fp32": 1e-5, "fp16": 1e-3, "q8": 0.1, "q4": 0.2}
"""Largest difference of scores."""


def siglip_folder(folder):
    """A directory of SigLIP with CLIP's tokenizer."""
    clip_folder(folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    text = TEXT | {"vocab_size": len(tokenizer), "projection_size": 64}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)
    randomized(transformers.SiglipModel._from_config(config)).save_pretrained(folder)
    transformers.SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


@needs_node
@pytest.mark.parametrize("dtype", SHARES)
@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_transformers_js(family, dtype, tmp_path):
    """Labels and features of a picture that need not be resized."""
    source, labels = tmp_path / "source", ["a cat", "a dog", "an aeroplane over the sea"]
    source.mkdir()
    (clip_folder if family == "clip" else siglip_folder)(source)
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)).save(source / "c.png")
    precision = {"fp32": "f32", "fp16": "f16"}.get(dtype, dtype)
    cc.convert(source, tmp_path / "model", to="onnx", dtypes=(precision,))
    found = answered(LABELS, tmp_path, picture=str(source / "c.png"), labels=labels, dtype=dtype)
    model = transformers.AutoModel.from_pretrained(source).eval()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(source)
    padding = "max_length" if family == "siglip" else True
    texts = tokenizer([PHOTO.format(label) for label in labels], padding=padding, return_tensors="pt")
    pixels = transformers.AutoImageProcessor.from_pretrained(source)(Image.open(source / "c.png"), return_tensors="pt")
    ids = {"input_ids": texts["input_ids"]} | (
        {} if family == "siglip" else {"attention_mask": texts["attention_mask"]}
    )
    with torch.no_grad():
        logits = model(**ids, **pixels).logits_per_image[0]
        features = model.vision_model(**pixels).last_hidden_state.numpy()
    want = (logits.sigmoid() if family == "siglip" else logits.softmax(-1)).tolist()
    scores = {each["label"]: each["score"] for each in found["labels"]}
    assert np.abs(np.array([scores[label] for label in labels]) - want).max() <= SHARES[dtype]
    own = np.array(found["features"]["data"]).reshape(found["features"]["dims"])
    assert own.shape == features.shape
    assert np.abs(own - features).max() <= 10 * SHARES[dtype] * np.abs(features).max()
