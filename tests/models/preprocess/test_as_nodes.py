"""Preparation as nodes: ONNX Runtime, fed with bytes, computes what prepared pictures give."""

import json

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from candle_convert import UnsupportedError, UsageError, convert, models
from candle_convert.models.preprocess.as_nodes import take_bytes
from candle_convert.models.preprocess.preparation import letterbox
from candle_convert.models.preprocess.stated_preparation import preparation_from
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.preparations import PREPARATIONS, SIZE
from candle_convert.tests.builders.yolov8 import yolov8
from onnx import TensorProto, helper

VIT = {
    "image_size": 48, "patch_size": 16, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "num_labels": 4,
}  # fmt: skip
LETTERBOX = "letterbox"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(image_model("ViTForImageClassification", **VIT), tmp_path_factory.mktemp("vit"))


@pytest.mark.parametrize("name", [*PREPARATIONS, LETTERBOX])
def test_pixels_are_those_of_prepared_pictures(tmp_path, name):
    edges = ["batch", 3, "height", "width"]
    values = [helper.make_tensor_value_info(each, TensorProto.FLOAT, edges) for each in ("pixel_values", "out")]
    graph = helper.make_graph([helper.make_node("Identity", ["pixel_values"], ["out"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "same.onnx")
    network = cc.onnx.read(tmp_path / "same.onnx")
    preparation = letterbox(48, 56) if name == LETTERBOX else preparation_from(PREPARATIONS[name])
    take_bytes(network.graph, preparation)
    network.save(tmp_path / "prepared.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "prepared.onnx")
    for picture in MADE if name != "crop only" else (MADE[0], MADE[1]):
        ((expected,), *_) = preparation.batch([preparation.prepare(picture)])[0].values()
        (found,) = session.run(None, {"pixels": picture[None]})
        assert found.shape[1:] == expected.shape
        steps = np.abs(found[0] - expected) / np.array(preparation.factor)[:, None, None]
        assert np.quantile(steps, 0.99) < 1.01
        assert steps.max() < (8 if name == "cubic" else 2.01 if name == "divisible" else 1.01)
        assert steps.mean() < 0.25


@pytest.mark.parametrize("name", ["exact", "timm"])
def test_bytes_in_onnxruntime_give_what_prepared_pictures_give(folder, tmp_path, name):
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARATIONS[name]))
    convert(folder, tmp_path, to="onnx", with_preprocessing=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[-1]) == ("pixels", "tensor(uint8)", 3)
    model, preparation = models.load(folder, threads=1), preparation_from(PREPARATIONS[name])
    for picture in MADE if name != "crop only" else (MADE[0], MADE[1]):
        pixels = preparation.prepare(picture).values
        (expected,) = model(pixels).values()
        (found,) = session.run(["logits"], {"pixels": picture[None]})
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_other_steps_are_refused(folder, tmp_path):
    said = {"image_processor_type": "DPTImageProcessor", "size": SIZE, "do_pad": True, "pad_size": SIZE}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    with pytest.raises(UnsupportedError, match="padding to 48 x 48 of pictures that may be larger is not written"):
        convert(folder, tmp_path, to="onnx", with_preprocessing=True)
    assert not list(tmp_path.iterdir())


def _close(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["label"] == theirs["label"]
        assert mine["score"] == pytest.approx(theirs["score"], abs=0.02)
        assert list(mine["box"].values()) == pytest.approx(list(theirs["box"].values()), abs=1)


def test_detr_is_loaded_again(tmp_path):
    detector = saved(
        image_model(
            "YolosForObjectDetection",
            **VIT | {"image_size": [48, 48], "num_detection_tokens": 4, "num_hidden_layers": 2},
        ),
        tmp_path / "yolos",
    )
    said = {"image_processor_type": "YolosImageProcessor", "size": {"shortest_edge": 48, "longest_edge": 64}}
    (detector / "preprocessor_config.json").write_text(json.dumps(said | {"resample": 2}))
    convert(detector, tmp_path / "onnx", to="onnx", with_preprocessing=True)
    model, exported = models.load(detector, threads=1), models.load(tmp_path / "onnx" / "model.onnx", threads=1)
    for picture in MADE:
        expected = model.predict(picture, threshold=0)
        assert expected
        _close(exported.predict(picture, threshold=0), expected)
    with pytest.raises(UsageError, match="prepares pictures itself"):
        exported.predict(MADE[0], preparation=preparation_from(said))


def test_letterbox_is_loaded_again(tmp_path):
    torch.save(yolov8().state_dict(), tmp_path / "yolo.pth")
    convert(tmp_path / "yolo.pth", tmp_path / "yolo.onnx", with_preprocessing=True)
    model, exported = (models.load(tmp_path / f"yolo{suffix}", threads=1) for suffix in (".pth", ".onnx"))
    expected = model.predict(MADE[3], threshold=0, iou=1, top=20)
    assert len(expected) == 20
    _close(exported.predict(MADE[3], threshold=0, iou=1, top=20), expected)
