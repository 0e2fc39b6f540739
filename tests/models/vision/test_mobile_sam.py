"""MobileSAM: its image encoder against a module of torch, masks against transformers' decoder; GGUF and ONNX."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import images
from candle_convert.tests.builders.mobile_sam import SIDE, image_encoder
from candle_convert.tests.builders.segment_anything import original_names, segment_anything

TOLERANCE = 2e-5
PROMPTS = {"input_points": np.array([[[[19, 40], [100, 14]]]], np.float32), "input_labels": np.array([[[1, 0]]])}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A checkpoint as the repository writes it, what it computes of an image, and the masks."""
    folder, encoder, model = tmp_path_factory.mktemp("mobile_sam"), image_encoder(), segment_anything(SIDE)
    decoder = {name: tensor.numpy() for name, tensor in model.state_dict().items() if "vision_encoder" not in name}
    encoded = {f"image_encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    weights = {name: torch.tensor(array) for name, array in original_names(decoder).items()}
    torch.save({**encoded, **weights}, folder / "mobile_sam.pt")
    (folder / "config.json").write_text(json.dumps({"img_size": SIDE}))
    given = {name: torch.from_numpy(value) for name, value in PROMPTS.items()}
    with torch.no_grad():
        embeddings = encoder(torch.from_numpy(images(1, SIDE, SIDE)))
        masks = model(image_embeddings=embeddings, **given)
    expected = {name: masks[name].numpy() for name in ("pred_masks", "iou_scores")}
    return folder, {"image_embeddings": embeddings.numpy(), **expected}


def _compare(found, expected):
    for name, value in found.items():
        assert value.shape == expected[name].shape
        assert np.abs(value - expected[name]).max() <= TOLERANCE * np.abs(expected[name]).max(), name


def test_masks_of_points(case, tmp_path):
    folder, expected = case
    cc.convert(folder, tmp_path / "m.gguf")
    for path in (folder, tmp_path / "m.gguf"):
        model = cc.models.load(path)
        assert model.task == "mask-generation"
        found = model(images(1, SIDE, SIDE), **PROMPTS)
        _compare({name: found[name] for name in ("pred_masks", "iou_scores")}, expected)


def test_export(case, tmp_path):
    folder, expected = case
    cc.convert(folder, tmp_path, to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "vision_encoder.onnx")
    (found,) = session.run(["image_embeddings"], {"pixel_values": images(1, SIDE, SIDE)})
    _compare({"image_embeddings": found}, expected)
