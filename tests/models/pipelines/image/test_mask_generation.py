"""Masks of points, boxes and whole pictures: as transformers finds them with its model and image processor."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.models.pipelines.image.mask_generation import Everything
from candle_convert.models.postprocess.run_lengths import run_lengths
from candle_convert.models.postprocess.segments import Segments, boxes_around
from candle_convert.models.preprocess.picture_crops import crops_of
from candle_convert.tests.builders.image_checkpoints import saved
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.segment_anything import SIDE, segment_anything

PICTURE = MADE[0]
HEIGHT, WIDTH = PICTURE.shape[:2]
PROMPTS = {
    "point": ({"points": [[40, 60]]}, {"input_points": [[[40, 60]]]}),
    "points": (
        {"points": [[40, 60], [100, 20, 0]]},
        {"input_points": [[[40, 60], [100, 20]]], "input_labels": [[1, 0]]},
    ),
    "boxes": ({"boxes": [[10, 20, 90, 80], [30, 5, 60, 96]]}, {"input_boxes": [[[10, 20, 90, 80], [30, 5, 60, 96]]]}),
    "point and box": (
        {"points": [[40, 60]], "boxes": [[10, 20, 90, 80]]},
        {"input_points": [[[[40, 60]]]], "input_boxes": [[[10, 20, 90, 80]]]},
    ),
}


@pytest.fixture(scope="module")
def processor():
    from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

    return SamImageProcessorPil(size={"longest_edge": SIDE}, pad_size={"height": SIDE, "width": SIDE})


@pytest.fixture(scope="module")
def theirs():
    return segment_anything()


@pytest.fixture(scope="module")
def folder(theirs, processor, tmp_path_factory):
    found = saved(theirs, tmp_path_factory.mktemp("sam") / "m")
    processor.save_pretrained(found)
    return found


@pytest.fixture(scope="module")
def ours(folder):
    return models.load(folder, threads=1)


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts(ours, theirs, processor, name):
    from transformers import SamProcessor

    given, expected = PROMPTS[name]
    inputs = SamProcessor(processor)(PICTURE, return_tensors="pt", **expected)
    sizes = [inputs.pop(each) for each in ("original_sizes", "reshaped_input_sizes")]
    with torch.no_grad():
        outputs = theirs(**inputs, multimask_output=name == "point")
    (masks,) = processor.post_process_masks(outputs.pred_masks, *sizes)
    masks, scores = masks.flatten(0, 1).numpy(), outputs.iou_scores.flatten().numpy()
    order = np.argsort(-scores, kind="stable")
    found = ours.predict(PICTURE, **given)
    assert [row["number"] for row in found] == list(range(1, len(order) + 1))
    assert np.allclose([row["score"] for row in found], scores[order], atol=1e-4)
    for row, place in zip(found, order, strict=True):
        assert (np.asarray(row["mask"]) != masks[place]).mean() < 1e-3
        assert row["area"] == np.asarray(row["mask"]).sum()


def test_everything(ours, theirs, processor):
    """The masks of a grid of points, of which none is left out as a duplicate."""
    from transformers.models.sam.image_processing_pil_sam import _compute_stability_score

    inputs = processor(PICTURE, return_tensors="pt")
    crops, points, _, labels = processor.generate_crop_boxes(PICTURE, SIDE, points_per_crop=9)
    with torch.no_grad():
        outputs = theirs(inputs["pixel_values"], input_points=points, input_labels=labels)
    sizes = [inputs[each] for each in ("original_sizes", "reshaped_input_sizes")]
    (masks,) = processor.post_process_masks(outputs.pred_masks, *sizes, binarize=False)
    stable = float(torch.quantile(_compute_stability_score(masks.flatten(0, 1), 0.0, 1.0), 0.5))
    threshold = max(1e-3, float(torch.quantile(outputs.iou_scores, 0.5)))
    expected, scores, boxes = processor.filter_masks(
        masks, outputs.iou_scores[0], (HEIGHT, WIDTH), crops[0], threshold, stable
    )
    order = np.argsort(-scores.numpy(), kind="stable")
    found = ours.predict(PICTURE, grid=9, threshold=threshold, stability=stable, iou=1.0)
    assert 9 < len(order) < 3 * 81
    assert np.allclose([row["score"] for row in found], scores.numpy()[order], atol=1e-4)
    same = [row["mask"].to_coco() == expected[place] for row, place in zip(found, order, strict=True)]
    assert np.mean(same) > 0.9, "equal but for pixels at the threshold"
    corners = np.array([list(row["box"].values()) for row in found])
    assert (np.abs(corners - boxes.numpy()[order]) <= 1).mean() > 0.99
    best = ours.predict(PICTURE, grid=9, threshold=threshold, stability=stable, iou=0.5, top=3)
    assert 0 < len(best) <= 3
    assert best[0]["mask"].to_coco() == found[0]["mask"].to_coco()


def test_everything_in_crops(ours, theirs, processor):
    """The masks of a picture and its crops; those at the edge of a crop are left out."""
    picture, rules = np.kron(PICTURE, np.ones((3, 3, 1), np.uint8)), {"threshold": 1e-3, "stability": 0.0, "iou": 1.0}
    crops, points, pieces, labels = processor.generate_crop_boxes(picture, SIDE, crop_n_layers=1, points_per_crop=4)
    assert [list(crop) for _, crop in crops_of(picture.shape[:2], 1, 512 / 1500)] == crops.int().tolist()
    scores = []
    for place, piece in enumerate(pieces):
        inputs, some = processor(piece, return_tensors="pt"), slice(place, place + 1)
        with torch.no_grad():
            outputs = theirs(inputs["pixel_values"], input_points=points[:, :, some], input_labels=labels[:, :, some])
        sizes = [inputs[each] for each in ("original_sizes", "reshaped_input_sizes")]
        (masks,) = processor.post_process_masks(outputs.pred_masks, *sizes, binarize=False)
        _, kept, _ = processor.filter_masks(masks, outputs.iou_scores[0], picture.shape[:2], crops[place], 1e-3, 0.0)
        scores += kept.tolist()
    found = ours.predict(picture, grid=4, crop_layers=1, batch=4, **rules)
    assert len(found) == len(scores)
    assert np.allclose([row["score"] for row in found], sorted(scores, reverse=True), atol=1e-4)


def test_masks_of_crops_lie_in_the_picture():
    masks = np.zeros((2, 60, 80), bool)
    masks[0, 22:30, 25:40] = masks[1, 10:30, 30:40] = True
    rows = [run_lengths(mask) for mask in masks]
    found = Segments(rows, np.ones(2), np.ones(2), boxes_around(masks), np.zeros((2, 2)))
    placed = found.placed((50, 40, 130, 100), (200, 300))
    assert placed.boxes.tolist() == [[75, 62, 89, 69]], "the other one is cut off"
    (mask,) = map(np.asarray, placed.masks)
    assert mask.shape == (200, 300)
    assert mask[62:70, 75:90].all()
    assert mask.sum() == masks[0].sum()
    assert placed.points.tolist() == [[50, 40]]
    assert [len(Everything(grid=4, crop_divisor=2).points(layer)) for layer in range(3)] == [16, 4, 1]


@pytest.mark.parametrize("name", ["crop_layers", "crop_divisor", "grid"])
def test_rules_out_of_range_are_refused(ours, name):
    with pytest.raises(cc.Error, match=f"{name} is -1"):
        ours.predict(PICTURE, **{name: -1})


def test_small_regions_are_removed(ours):
    from skimage.measure import label, regionprops

    rules = {"grid": 2, "threshold": -9, "stability": 0.0, "iou": 1.0}
    before, after = (ours.predict(PICTURE, **rules, min_area=area) for area in (0, 40))
    areas = [[each.area for each in regionprops(label(np.asarray(row["mask"]), connectivity=2))] for row in before]
    assert len(after) == len(before) == 12
    assert min(map(min, areas)) < 40
    for row in after:
        mask = np.asarray(row["mask"])
        found = [each.area for each in regionprops(label(mask, connectivity=2))]
        assert min(found) >= 40 or len(found) == 1
        assert all(each.area >= 40 for each in regionprops(label(~mask, connectivity=2)))
        x, y = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
        assert list(row["box"].values()) == [x[0], y[0], x[-1], y[-1]]


def test_several_pictures_and_original_preparation(ours, folder):
    """Without preprocessor_config.json pictures are prepared as segment-anything does."""
    single = [ours.predict(each, points=[[20, 20]]) for each in MADE[:3]]
    (folder / "preprocessor_config.json").rename(folder / "other.json")
    several = models.load(folder).predict(list(MADE[:3]), points=[[20, 20]], batch=2)
    for found, rows in zip(several, single, strict=True):
        assert [row["score"] for row in found] == pytest.approx([row["score"] for row in rows], abs=1e-5)
    (folder / "other.json").rename(folder / "preprocessor_config.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": [[900, 4]]}, "outside of the picture"),
        ({"points": [[9, 4, 3]]}, "not a point"),
        ({"points": [[-1, 4]]}, "the point -1, 4 is outside of the picture"),
        ({"boxes": [[9, 4, 3, 8]]}, "not a box"),
        ({"boxes": [[9, 4, 9, 8]]}, "not a box"),
        ({"points": [[1e308, 4]]}, "not a point"),
        ({"boxes": [[9, 4, 1e308, 8]]}, "not a box"),
        ({"boxes": [[9, float("nan"), 12, 8]]}, "not a box"),
        ({"boxes": [[1, 2, 3, 4], [900, 4, 950, 8]]}, "the box 900, 4, 950, 8 is outside of the picture"),
        ({"points": [[9, 4]], "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]]}, "several boxes"),
        ({"points": [[9, 4]], "grid": 3}, "grid"),
    ],
)
def test_wrong_prompts_are_refused(ours, options, message):
    with pytest.raises(cc.Error, match=message):
        ours.predict(PICTURE, **options)
