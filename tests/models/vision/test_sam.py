"""Segment Anything against transformers: by points, boxes and masks, under both names, through GGUF, and exported."""

import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import images, saved
from candle_convert.tests.builders.segment_anything import GRID, SIDE, original_names, segment_anything

TOLERANCE = 2e-5
POINTS, LABELS = np.array([[[[9, 20], [50, 7]], [[30, 31], [4, 60]]]] * 2, np.float32), np.array([[[1, 0]] * 2] * 2)
BOXES = np.array([[[6, 12, 44, 58]]] * 2, np.float32)
MASKS = np.random.default_rng(0).standard_normal((2, 1, 4 * GRID, 4 * GRID)).astype(np.float32)
PROMPTS = {
    "points": {"input_points": POINTS, "input_labels": LABELS},
    "box": {"input_boxes": BOXES, "multimask_output": False},
    "box and mask": {"input_boxes": BOXES, "input_masks": MASKS},
    "points and boxes": {"input_points": POINTS[:, :1], "input_labels": LABELS[:, :1], "input_boxes": BOXES},
}


@pytest.fixture(scope="module")
def model():
    return segment_anything()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return saved(model, tmp_path_factory.mktemp("sam") / "hf")


def _compare(found, model, prompts):
    given = {name: torch.from_numpy(value) for name, value in prompts.items() if name != "multimask_output"}
    options = {"multimask_output": prompts.get("multimask_output", True)}
    with torch.no_grad():
        expected = model(pixel_values=torch.from_numpy(images(2, SIDE, SIDE)), **given, **options)
    for name in ("pred_masks", "iou_scores"):
        value = expected[name].numpy()
        assert found[name].shape == value.shape
        assert np.abs(found[name] - value).max() <= TOLERANCE * np.abs(value).max(), name


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_prompts(model, folder, prompts):
    _compare(cc.models.load(folder)(images(2, SIDE, SIDE), **prompts), model, prompts)


@pytest.mark.parametrize("own", [True, False])
def test_a_stored_matrix_of_points(own, model, folder, tmp_path):
    """transformers computes points with the matrix of the file, where it stores both."""
    weights = cc.load_file(folder / "model.safetensors")
    shared = np.asarray(weights["shared_image_embedding.positional_embedding"])
    stored = np.random.default_rng(1).standard_normal(shared.shape).astype(np.float32) if own else shared.copy()
    weights["prompt_encoder.shared_embedding.positional_embedding"] = stored
    shutil.copytree(folder, tmp_path / "hf")
    cc.save_file(weights, tmp_path / "hf" / "model.safetensors")
    reference = type(model).from_pretrained(tmp_path / "hf").eval()
    matrix = reference.prompt_encoder.shared_embedding.positional_embedding
    assert np.array_equal(matrix.detach().numpy(), stored)
    cc.convert(tmp_path / "hf", tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    for source in ("hf", "m.gguf", "back"):
        _compare(
            cc.models.load(tmp_path / source)(images(2, SIDE, SIDE), **PROMPTS["points"]), reference, PROMPTS["points"]
        )
    again = type(model).from_pretrained(tmp_path / "back").eval()
    assert np.array_equal(again.prompt_encoder.shared_embedding.positional_embedding.detach().numpy(), stored)


def test_original_names(model, folder, tmp_path):
    cc.save_file(original_names(cc.load_file(folder / "model.safetensors")), tmp_path / "sam.safetensors")
    _compare(
        cc.models.load(tmp_path / "sam.safetensors")(images(2, SIDE, SIDE), **PROMPTS["points"]),
        model,
        PROMPTS["points"],
    )


def test_gguf_and_back(model, folder, tmp_path):
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    again, report = type(model).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert {name.rpartition(".")[2] for name in report["missing_keys"]} <= {"positional_embedding"}
    for path in (tmp_path / "m.gguf", tmp_path / "hf"):
        _compare(cc.models.load(path)(images(2, SIDE, SIDE), **PROMPTS["points"]), model, PROMPTS["points"])
    assert again.config.vision_config.global_attn_indexes == [1]


def test_export(model, folder, tmp_path):
    cc.convert(folder, tmp_path, to="onnx")
    names = ("vision_encoder", "prompt_encoder_mask_decoder", "mask_encoder")
    encoder, decoder, masks = (onnxruntime.InferenceSession(tmp_path / f"{name}.onnx") for name in names)
    embeddings, places = encoder.run(None, {"pixel_values": images(2, SIDE, SIDE)})
    (added,) = masks.run(None, {"input_masks": MASKS})
    feeds = {
        "input_points": BOXES.reshape(2, 1, 2, 2),
        "input_labels": np.array([[[2, 3]]] * 2),
        "image_embeddings": embeddings + added,
        "image_positional_embeddings": places,
    }
    outputs = [output.name for output in decoder.get_outputs()]
    _compare(dict(zip(outputs, decoder.run(None, feeds), strict=True)), model, PROMPTS["box and mask"])


def test_wrong_prompts_are_refused(folder):
    model, pixels = cc.models.load(folder), images(1, SIDE, SIDE)
    with pytest.raises(cc.Error, match="do not fit"):
        model(pixels, input_points=POINTS[:1], input_labels=LABELS[:1, :, :1])
    with pytest.raises(cc.Error, match="boxes of a wrong shape"):
        model(pixels, input_boxes=np.zeros((1, 4)))
    with pytest.raises(cc.Error, match="another shape"):
        model(images(1, SIDE, 2 * SIDE))
