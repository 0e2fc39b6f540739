"""Models whose pictures are patches of any size (Qwen2-VL, Qwen2.5-VL, Qwen3-VL, PaddleOCR-VL) against transformers."""

import json
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.models.layers.packed_patches.patch_encoder import window_tables
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.patch_models import FAMILIES, SIZES, patch_folder
from candle_convert.tests.builders.vision_language import generated
from PIL import Image

TOLERANCE = 3e-5
GRIDS = np.array([[1, 4, 6], [2, 8, 4], [1, 2, 2]])


@pytest.fixture(scope="module", params=FAMILIES)
def case(request, tmp_path_factory):
    """The name of a family, its model and processor in transformers, and its directory."""
    folder = tmp_path_factory.mktemp(request.param)
    model, processor = patch_folder(request.param, folder)
    return request.param, model, processor, folder


@pytest.fixture(scope="module")
def loaded(case):
    return cc.models.load(case[3], threads=1, activations="f32")


def prompt(case, *letters):
    """A text with pictures between its words."""
    start, end, image = FAMILIES[case[0]][1]
    return "what is this?" + "".join(f"{start}{image}{end} and {letter}" for letter in letters)


def processed(case, *letters):
    """transformers' arrays of `prompt`."""
    _, _, processor, folder = case
    return processor(prompt(case, *letters), [Image.open(folder / f"{letter}.png") for letter in letters])


def paths(case, *letters):
    return [str(case[3] / f"{letter}.png") for letter in letters]


def close(found, want):
    return found.shape == want.shape and np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("letters", ["ab", *((name,) for name in SIZES)])
def test_processor(case, loaded, letters):
    want = processed(case, *letters)
    found = loaded.prompted(prompt(case, *letters), paths(case, *letters))
    assert found.ids == want["input_ids"][0].tolist()
    assert found.arrays["image_grid_thw"].tolist() == want["image_grid_thw"].tolist()
    pixels = want["pixel_values"].numpy()
    difference = np.abs(found.arrays["pixel_values"] - pixels.reshape(len(pixels), -1))
    assert difference.max() * min(case[2].image_processor.image_std) <= 1 / 255


@pytest.mark.parametrize("letters", ["a", "ab"])
def test_logits_and_generated_tokens(case, loaded, letters):
    inputs = processed(case, *letters)
    with torch.no_grad():
        want = case[1](**inputs).logits.numpy()
    arrays = {name: inputs[name].numpy() for name in ("input_ids", "pixel_values", "image_grid_thw")}
    assert close(loaded(**arrays)["logits"], want)
    (made,) = loaded.generate_batch(
        [prompt(case, *letters)], images=[paths(case, *letters)], max_tokens=8, temperature=0
    )
    assert made.tokens == generated(case[1], inputs, 8)


def test_a_batch_is_as_each_prompt_alone(case, loaded):
    prompts, images = [prompt(case, "a", "b"), prompt(case)], [paths(case, "a", "b"), []]
    batch = loaded.generate_batch(prompts, images=images, max_tokens=6, temperature=0)
    for made, text, own in zip(batch, prompts, images, strict=True):
        assert made.text == loaded.generate(text, images=own, max_tokens=6, temperature=0)


def test_pictures_stand_before_a_text_without_markers(case, loaded):
    start, end, image = FAMILIES[case[0]][1]
    found = loaded.prompted("two dogs", paths(case, "a"))
    assert found.ids == loaded.prompted(f"{start}{image}{end}two dogs", paths(case, "a")).ids


def test_exported_encoder_of_several_pictures(case, tmp_path):
    """One run of ONNX Runtime on pictures and frames of several sizes, which do not see each other."""
    name, model, _, folder = case
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    path = next((tmp_path / "onnx").rglob("vision_encoder.onnx"))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    patch = 8 * 8 * 3 * (1 if name == "paddleocr_vl" else 2)
    pixels = random.standard_normal((int(GRIDS.prod(1).sum()), patch)).astype(np.float32)
    grids = "image_grid_thw" if name in ("qwen2_5_vl", "qwen3_vl") else "grid_thw"
    found = session.run(None, {"pixel_values": pixels, grids: GRIDS})
    shaped = pixels.reshape(len(pixels), 3, 8, 8) if name == "paddleocr_vl" else pixels
    with torch.no_grad():
        features = model.model.get_image_features(torch.from_numpy(shaped), torch.from_numpy(GRIDS))
    assert close(found[0], torch.cat(tuple(features.pooler_output)).numpy())
    for own, want in zip(found[1:], getattr(features, "deepstack_features", ()), strict=True):
        assert close(own, (torch.cat(want) if isinstance(want, tuple) else want).numpy())


def test_written_files_load_in_transformers(case, tmp_path):
    _, model, _, folder = case
    cc.convert(folder, tmp_path / "copy", to="safetensors")
    again, said = type(model).from_pretrained(tmp_path / "copy", output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["unexpected_keys"]
    inputs = processed(case, "a")
    with torch.no_grad():
        assert close(again.eval()(**inputs).logits.numpy(), model(**inputs).logits.numpy())


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_a_configuration_without_text_config(family, tmp_path):
    """Older files state the language model's hyper-parameters at the top."""
    model, processor = patch_folder(family, tmp_path)
    whole = (family, model, processor, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    text = config.pop("text_config")
    theta = text["rope_parameters"]
    text |= {"rope_theta": theta["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    del text["rope_parameters"], text["model_type"]
    (tmp_path / "config.json").write_text(json.dumps({**text, **config}))
    inputs = processed(whole, "a")
    arrays = {name: inputs[name].numpy() for name in ("input_ids", "pixel_values", "image_grid_thw")}
    with torch.no_grad():
        want = model(**inputs).logits.numpy()
    assert close(cc.models.load(tmp_path, threads=1, activations="f32")(**arrays)["logits"], want)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"image_grid_thw": None}, "pixel_values need image_grid_thw"),
        ({"image_grid_thw": [[1, 4]]}, "three positive integers"),
        ({"image_grid_thw": [[1, 4, 0]]}, "three positive integers"),
        ({"image_grid_thw": [[1, 3, 8]]}, "3 x 8 patches cannot be merged by 2 x 2"),
        ({"image_grid_thw": [[1, 2, 2]]}, "do not fit the grids"),
        ({"input_ids": [[6, 7, 8]]}, "0 placeholders in the prompt"),
    ],
)
def test_bad_input(case, loaded, change, why):
    inputs = processed(case, "a")
    arrays = {name: inputs[name].numpy() for name in ("input_ids", "pixel_values", "image_grid_thw")}
    arrays |= {name: np.array(value) for name, value in change.items() if value is not None}
    arrays = {name: value for name, value in arrays.items() if name not in change or change[name] is not None}
    with pytest.raises(UsageError, match=why):
        loaded(**arrays)


def test_a_narrow_picture(case, loaded):
    with pytest.raises(FormatError, match="too narrow"):
        loaded.generate(prompt(case, "a"), images=[np.zeros((20, 4400, 3), np.uint8)])


def test_placeholders_of_swapped_pictures(case, loaded):
    """The total is right, but not that of each picture."""
    inputs = processed(case, "a", "tiny")
    arrays = {name: inputs[name].numpy() for name in ("input_ids", "pixel_values", "image_grid_thw")}
    first, second = arrays["image_grid_thw"]
    assert first.prod() != second.prod()
    with pytest.raises(UsageError, match="in a row for a picture"):
        loaded(**{**arrays, "image_grid_thw": np.stack([second, first])})


@pytest.mark.parametrize("settings", [{"do_resize": False}, {"image_processor_type": None}])
def test_a_prepared_picture_that_patches_do_not_fill(case, settings, tmp_path):
    """Where the file leaves the size of the picture as it is."""
    shutil.copytree(case[3], tmp_path / "model")
    path = tmp_path / "model" / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    model = cc.models.load(tmp_path / "model", threads=1)
    with pytest.raises(FormatError, match=r"E-PREPROCESSOR.*is not made of squares of (8|16) pixels"):
        model.prompted(prompt(case, "b"), paths(case, "b"))


def test_frames_of_pictures(case, loaded):
    """Frames and pictures do not see each other, without a mask of patches times patches."""
    name, model, _, _ = case
    patch = 8 * 8 * 3 * (1 if name == "paddleocr_vl" else 2)
    pixels = np.random.default_rng(0).standard_normal((int(GRIDS.prod(1).sum()), patch)).astype(np.float32)
    shaped = pixels.reshape(len(pixels), 3, 8, 8) if name == "paddleocr_vl" else pixels
    with torch.no_grad():
        features = model.model.get_image_features(torch.from_numpy(shaped), torch.from_numpy(GRIDS))
    token = loaded.options.config.image_token
    counts = GRIDS.prod(1) // 4
    ids = np.array([[60, *[token] * counts[0], 61, *[token] * counts[1], 62, *[token] * counts[2]]])
    prompt = loaded.embedded(ids, None, {"pixel_values": pixels, "image_grid_thw": GRIDS})
    assert close(prompt.inputs["inputs_embeds"][ids == token], torch.cat(tuple(features.pooler_output)).numpy())
    shapes = [value.shape for value in loaded.graphs["vision_encoder"].inputs]
    assert not [shape for shape in shapes if shape.count("patches") > 1]


@pytest.mark.parametrize("window", [8192, (1 << 31) - 1])
def test_a_window_larger_than_the_picture(window, tmp_path):
    """transformers pads pictures to whole windows: it gets one that is larger than all pictures, too, but not 2^31."""
    model, processor = patch_folder("qwen2_5_vl", tmp_path)
    model.model.visual.window_size = 8192
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"] |= {"window_size": window}
    (tmp_path / "config.json").write_text(json.dumps(config))
    whole = ("qwen2_5_vl", model, processor, tmp_path)
    inputs = processed(whole, "a", "large", "tiny")
    arrays = {name: inputs[name].numpy() for name in ("input_ids", "pixel_values", "image_grid_thw")}
    with torch.no_grad():
        want = model(**inputs).logits.numpy()
    assert close(cc.models.load(tmp_path, threads=1, activations="f32")(**arrays)["logits"], want)


@pytest.mark.parametrize(
    ("rows", "columns", "merge", "side"),
    [
        (4, 6, 2, 4), (8, 4, 2, 2), (2, 2, 2, 8), (3, 5, 1, 2), (6, 10, 2, 8), (2, 400, 2, 1 << 31), (400, 2, 2, 398),
        (28, 28, 2, 1170),
    ],
)  # fmt: skip
def test_window_tables(rows, columns, merge, side):
    """Patches of one window are those of one square of the picture, whose order the squares of patches give."""
    table, slots = window_tables(rows, columns, merge, side)
    order = [
        (row + i, column + j)
        for row in range(0, rows, merge)
        for column in range(0, columns, merge)
        for i in range(merge)
        for j in range(merge)
    ]
    want = {}
    for patch, (row, column) in enumerate(order):
        want.setdefault((row // side, column // side), set()).add(patch)
    assert [set(window) - {rows * columns} for window in table.tolist()] == [want[key] for key in sorted(want)]
    assert table.ravel()[slots].tolist() == list(range(rows * columns))
    assert table.size < 4 * rows * columns
