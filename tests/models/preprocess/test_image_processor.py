"""preprocessor_config.json: pictures prepared as the image processors of transformers do with Pillow."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import transformers
from candle_convert import FormatError, LimitError, UnsupportedError
from candle_convert.models.preprocess.image_processor import KINDS, preparation_of
from candle_convert.tests.builders.pictures import made, pictures
from PIL import Image

ELSEWHERE = {"DINOv3ViT", "ViTHybrid", "Idefics3", "SmolVLM", "Qwen2VL", "PaddleOCRVL"}
"""Classes that transformers has without Pillow, or no longer has, and those that cut pictures, which
`tests/models/multimodal` compares."""
SETTINGS = (
    ("ViT", {"size": 160, "resample": 3}),
    ("ViT", {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 150, "width": 200}}),
    ("ViT", {"do_rescale": False}),
    ("ViT", {"do_normalize": False, "resample": 1}),
    ("ConvNext", {"size": {"shortest_edge": 224}}),
    ("ConvNext", {"size": 160, "crop_pct": 0.95}),
    ("CLIP", {"size": 98, "crop_size": 90}),
    ("DPT", {"size": {"height": 518, "width": 518}, "ensure_multiple_of": 14, "keep_aspect_ratio": True}),
    ("DPT", {"size": 160, "ensure_multiple_of": 32, "do_pad": True, "size_divisor": 48}),
    ("Detr", {"size": 200, "max_size": 300}),
    ("Yolos", {"size": {"shortest_edge": 200, "longest_edge": 333}}),
    ("MobileNetV2", {"size": {"shortest_edge": 64}}),
    ("Sam", {"size": {"longest_edge": 200}, "pad_size": {"height": 200, "width": 210}}),
    ("EfficientNet", {"rescale_offset": True, "rescale_factor": 1 / 127.5, "do_center_crop": True}),
    ("Beit", {"do_center_crop": True, "crop_size": 200}),
    ("PoolFormer", {"size": {"height": 100, "width": 120}}),
)


def processor(name):
    """The class of transformers that computes with Pillow."""
    folder = Path(transformers.__file__).parent / "models"
    for path in folder.glob("*/image_processing_pil_*.py"):
        if re.search(rf"^class {name}ImageProcessorPil\(", path.read_text(), re.MULTILINE):
            module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            return getattr(module, f"{name}ImageProcessorPil")
    raise KeyError(name)


def steps(difference, preparation):
    """The largest difference in steps of a byte."""
    factors = np.array(preparation.factor).reshape(-1, 1, 1)
    return float(np.abs(difference / factors).max())


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in KINDS if name not in ELSEWHERE), *SETTINGS],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value),
)
def test_values_are_those_of_transformers(name, settings):
    theirs = processor(name)(**settings)
    ours = preparation_of({"image_processor_type": f"{name}ImageProcessor", **settings})
    for picture in pictures():
        expected = theirs(picture, return_tensors="np")
        found, _ = ours.batch([ours.prepare(picture)])
        assert found["pixel_values"].shape == expected["pixel_values"].shape
        assert steps(found["pixel_values"] - expected["pixel_values"], ours) < 0.01
        assert found.keys() == {key for key in expected if key.startswith("pixel")}


def test_saved_settings_are_read(tmp_path):
    processor("DPT")(size=90, ensure_multiple_of=6, keep_aspect_ratio=True).save_pretrained(tmp_path)
    said = json.loads((tmp_path / "preprocessor_config.json").read_text())
    expected = processor("DPT").from_pretrained(tmp_path)(pictures()[0], return_tensors="np")
    assert np.allclose(preparation_of(said).prepare(pictures()[0]).values, expected["pixel_values"][0], atol=1e-5)
    assert preparation_of({"image_processor": said}) == preparation_of(said)
    assert preparation_of({**said, "image_processor_type": "DPTImageProcessorFast"}) == preparation_of(said)
    old = {**said, "image_processor_type": None, "feature_extractor_type": "DPTFeatureExtractor"}
    assert preparation_of(old) == preparation_of(said)


@pytest.mark.parametrize("name", ["Detr", "Yolos", "Sam"])
def test_batches_are_padded(name):
    sizes = {"size": {"longest_edge": 120}, "pad_size": {"height": 120, "width": 120}}
    sizes = sizes if name == "Sam" else {"size": {"shortest_edge": 100, "longest_edge": 200}}
    theirs, ours = processor(name)(**sizes), preparation_of({"image_processor_type": f"{name}ImageProcessor", **sizes})
    expected = theirs(pictures(), return_tensors="np")
    found, placements = ours.batch([ours.prepare(picture) for picture in pictures()])
    assert np.allclose(found["pixel_values"], expected["pixel_values"], atol=1e-5)
    if name != "Sam":
        assert (found["pixel_mask"] == expected["pixel_mask"]).all()
    for placement, mask in zip(placements, found.get("pixel_mask", ()), strict=False):
        assert mask[placement.window].all()
        assert mask.sum() == np.prod(placement.resized)


def test_placements_lead_back_to_the_picture():
    for settings in (
        {"image_processor_type": "CLIPImageProcessor", "size": 50, "crop_size": 40},
        {"image_processor_type": "ViTImageProcessor"},
        {"image_processor_type": "DPTImageProcessor", "size": 64, "do_pad": True, "size_divisor": 50},
    ):
        ours = preparation_of(settings)
        picture = np.zeros((120, 200, 3), np.uint8)
        picture[40:80, 80:140] = 255
        values, (at,) = ours.batch([ours.prepare(picture)])
        bright = np.argwhere(values["pixel_values"][0, 0] > ours.factor[0] * 128 + ours.shift[0])
        box = np.array([*bright.min(0)[::-1], *(bright.max(0) + 1)[::-1]], np.float32)
        assert np.abs(at.boxes_to_picture(box) - [80, 40, 140, 80]).max() < 5
        corner = np.array([[80.0, 40.0]], np.float32)
        assert np.allclose(at.to_picture(at.to_input(corner)), corner, atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": {"height": 0, "width": 4}},
        {"size": {"height": 1 << 20, "width": 4}},
        {"size": {"height": True, "width": 4}},
        {"size": "large"},
        {"size": {}},
        {"size": {"longest_edge": 5}},
        {"resample": 9},
        {"resample": "bicubic"},
        {"image_mean": [0.5, 0.5]},
        {"image_std": [0.5, 0, 0.5]},
        {"image_mean": [0.5, float("nan"), 0.5]},
        {"rescale_factor": "1/255"},
        {"do_pad": True, "pad_size": {"height": 5}},
        {"image_processor_type": "ConvNextImageProcessor", "size": 224, "crop_pct": 0},
        {"image_processor_type": "DPTImageProcessor", "ensure_multiple_of": 0},
        {"image_processor_type": "GLPNImageProcessor", "size_divisor": 0},
    ],
    ids=json.dumps,
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(FormatError) as caught:
        preparation_of(settings, "preprocessor_config.json")
    assert caught.value.code == "E-PREPROCESSOR"


def test_other_classes_are_refused():
    with pytest.raises(UnsupportedError, match="GotOcr2ImageProcessor"):
        preparation_of({"image_processor_type": "GotOcr2ImageProcessor"})


def test_pictures_that_vanish_or_explode_are_refused():
    ours = preparation_of({"image_processor_type": "GLPNImageProcessor"})
    with pytest.raises(FormatError, match="would be resized to"):
        ours.prepare(made(20, 40))
    narrow = preparation_of({"size": {"shortest_edge": 4096}})
    with pytest.raises(LimitError):
        narrow.prepare(Image.new("RGB", (1, 20000)))
