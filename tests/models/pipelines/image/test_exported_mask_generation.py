"""Folders of exported graphs of Segment Anything, our own and Optimum's, against transformers and our checkpoint."""

import shutil

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.image_checkpoints import images, saved
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.segment_anything import GRID, SIDE, WIDTH, segment_anything

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
ENCODER, DECODER, MASK_ENCODER = "vision_encoder", "prompt_encoder_mask_decoder", "mask_encoder"
OUTPUTS = {ENCODER: ["image_embeddings", "image_positional_embeddings"], DECODER: ["iou_scores", "pred_masks"]}
POINTS, LABELS = np.array([[[[9, 20], [50, 7]], [[30, 31], [4, 60]]]] * 2, np.float32), np.array([[[1, 0]] * 2] * 2)
PROMPTS = (
    {"points": [[40, 60]]},
    {"points": [[40, 60], [100, 20, 0]]},
    {"points": [[40, 60]], "boxes": [[10, 20, 90, 80]]},
    {"grid": 3, "threshold": -9, "stability": 0.0},
)


class Encoder(torch.nn.Module):
    """What Optimum exports as ``vision_encoder.onnx``."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        places = self.model.get_image_wide_positional_embeddings().repeat(pixel_values.shape[0], 1, 1, 1)
        return self.model.vision_encoder(pixel_values).last_hidden_state, places


class Decoder(Encoder):
    """What Optimum exports as ``prompt_encoder_mask_decoder.onnx``."""

    def forward(self, input_points, input_labels, image_embeddings, image_positional_embeddings):
        sparse, dense = self.model.prompt_encoder(input_points, input_labels, None, None)
        masks, scores = self.model.mask_decoder(image_embeddings, image_positional_embeddings, sparse, dense, True)
        return scores, masks


@pytest.fixture(scope="module")
def theirs():
    return segment_anything()


@pytest.fixture(scope="module")
def checkpoint(theirs, tmp_path_factory):
    return saved(theirs, tmp_path_factory.mktemp("sam") / "hf")


@pytest.fixture(scope="module")
def own(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    cc.convert(checkpoint, folder, to="onnx")
    return folder


@pytest.fixture(scope="module")
def optimum(theirs, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("optimum")
    shutil.copy(checkpoint / "config.json", folder)
    (folder / "onnx").mkdir()
    several = {0: "batch_size", 1: "point_batch_size"}
    values = torch.zeros(2, WIDTH, GRID, GRID)
    points = several | {2: "nb_points_per_image"}
    given = {
        ENCODER: {"pixel_values": (torch.zeros(2, 3, SIDE, SIDE), {0: "batch_size"})},
        DECODER: {
            "input_points": (torch.from_numpy(POINTS), points),
            "input_labels": (torch.from_numpy(LABELS), points),
            "image_embeddings": (values, {0: "batch_size"}),
            "image_positional_embeddings": (values, {0: "batch_size"}),
        },
    }
    for name, module in ((ENCODER, Encoder(theirs)), (DECODER, Decoder(theirs))):
        exported(module, folder / "onnx" / f"{name}.onnx", given[name], OUTPUTS[name])
    return folder


def exported(module, path, inputs, outputs):
    torch.onnx.export(
        module,
        tuple(value for value, _ in inputs.values()),
        str(path),
        dynamo=False,
        opset_version=18,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes={name: axes for name, (_, axes) in inputs.items()},
    )


@pytest.mark.parametrize("prompts", PROMPTS, ids=str)
def test_our_own_export_is_the_model(checkpoint, own, prompts):
    expected, found = (models.load(folder, threads=1).predict(MADE[0], **prompts) for folder in (checkpoint, own))
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    for row, other in zip(found, expected, strict=True):
        assert (np.asarray(row["mask"]) != np.asarray(other["mask"])).mean() < 1e-3


def test_verify_runs_each_graph(checkpoint, own, capsys):
    assert run(["verify", str(checkpoint), str(own)]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}\n" in said for name in (ENCODER, DECODER, MASK_ENCODER))
    assert run(["models", "show", str(own)]) == 0
    assert "all weights are present" in capsys.readouterr().out


def test_an_export_of_optimum_as_transformers(theirs, optimum):
    model = models.load(optimum, threads=1)
    pixels = images(2, SIDE, SIDE)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(pixels), torch.from_numpy(POINTS), torch.from_numpy(LABELS))
    found = model(pixels, POINTS, LABELS)
    for name in ("pred_masks", "iou_scores"):
        assert np.abs(found[name] - expected[name].numpy()).max() <= 1e-4 * np.abs(expected[name].numpy()).max()
    with pytest.raises(cc.Error, match="does not take boxes"):
        model.predict(MADE[0], boxes=[[1, 2, 30, 40]])
    with pytest.raises(cc.Error, match="does not take masks"):
        model(pixels, POINTS, LABELS, input_masks=np.zeros((2, 1, 4 * GRID, 4 * GRID)))


def test_several_points_give_the_best_of_three_masks(theirs, optimum):
    from transformers import SamProcessor
    from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

    processor = SamProcessor(
        SamImageProcessorPil(size={"longest_edge": SIDE}, pad_size={"height": SIDE, "width": SIDE})
    )
    inputs = processor(MADE[0], input_points=[[[40, 60], [100, 20]]], input_labels=[[1, 0]], return_tensors="pt")
    with torch.no_grad():
        scores = theirs(inputs["pixel_values"], inputs["input_points"], inputs["input_labels"]).iou_scores
    (best,) = models.load(optimum, threads=1).predict(MADE[0], points=[[40, 60], [100, 20, 0]])
    assert best["score"] == pytest.approx(float(scores.max()), abs=1e-4)


def test_the_variant_of_the_decoder_is_chosen(own, tmp_path):
    for name in (ENCODER, DECODER):
        shutil.copy(own / f"{name}.onnx", tmp_path / f"{name}_fp16.onnx")
    assert models.load(tmp_path).task == "mask-generation"
    shutil.copy(own / f"{DECODER}.onnx", tmp_path)
    with pytest.raises(cc.Error, match="holds 3 weight files"):
        models.load(tmp_path)


@pytest.mark.parametrize("name", [ENCODER, DECODER, MASK_ENCODER])
@pytest.mark.parametrize("command", [["predict"], ["models", "show"]], ids=" ".join)
def test_a_lone_graph_is_named(own, tmp_path, name, command, capsys):
    lone = shutil.copy(own / f"{name}.onnx", tmp_path / "renamed.onnx")
    words = ["x.png"] if command == ["predict"] else []
    assert run([*command, str(lone), *words]) == 2
    said = capsys.readouterr().err
    assert f"the graph {name} of a model for mask-generation does not run alone" in said
    assert said.count("\n") == 1


def test_graphs_of_other_models_are_refused(own, tmp_path):
    shutil.copy(own / f"{ENCODER}.onnx", tmp_path)
    shutil.copy(own / f"{ENCODER}.onnx", tmp_path / f"{DECODER}.onnx")
    with pytest.raises(cc.Error, match=f"not the graph {DECODER} of a model for mask-generation"):
        models.load(tmp_path)
