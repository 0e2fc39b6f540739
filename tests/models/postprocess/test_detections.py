"""Boxes from outputs: those of transformers' image processors, and recorded ones of ultralytics."""

import numpy as np
import pytest
import torch
from candle_convert.models.postprocess.boxes import Boxes, suppressed
from candle_convert.models.postprocess.detections import Choice, darknet_boxes, focal_boxes, queried_boxes, yolo_boxes
from candle_convert.models.preprocess.placement import Placement
from candle_convert.models.preprocess.preparation import letterbox
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.ultralytics_results import CASES, INPUT, LETTERBOXES, predictions, recorded

RNG = np.random.default_rng(3)


def placed(size):
    """Where a letterboxed picture lies."""
    return letterbox(*INPUT).prepare(np.zeros((*size, 3), np.uint8)).at


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 0.9])
def test_boxes_of_queries_are_those_of_transformers(threshold):
    from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
    from transformers.models.detr.modeling_detr import DetrObjectDetectionOutput

    logits = RNG.normal(0, 3, (1, 40, 6)).astype(np.float32)
    centers = RNG.uniform(0.2, 0.5, (1, 40, 4)).astype(np.float32)
    outputs = DetrObjectDetectionOutput(logits=torch.from_numpy(logits), pred_boxes=torch.from_numpy(centers))
    (theirs,) = DetrImageProcessorPil().post_process_object_detection(outputs, threshold, target_sizes=[(120, 371)])
    ours = queried_boxes(logits[0], centers[0], (120, 371), Choice(threshold))
    order = np.argsort(-theirs["scores"].numpy(), kind="stable")
    assert np.allclose(ours.scores, theirs["scores"].numpy()[order], atol=1e-6)
    assert np.allclose(ours.corners, theirs["boxes"].numpy()[order], atol=1e-3)
    assert (ours.classes == theirs["labels"].numpy()[order]).all()
    some = queried_boxes(logits[0], centers[0], (120, 371), Choice(threshold, classes=[1, 4], most=3))
    assert (some.classes == ours.classes[np.isin(ours.classes, [1, 4])][:3]).all()


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9])
def test_boxes_of_sigmoids_are_those_of_transformers(threshold):
    from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil
    from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

    logits = RNG.normal(0, 3, (1, 40, 6)).astype(np.float32)
    centers = RNG.uniform(0.2, 0.5, (1, 40, 4)).astype(np.float32)
    outputs = RTDetrObjectDetectionOutput(logits=torch.from_numpy(logits), pred_boxes=torch.from_numpy(centers))
    (theirs,) = RTDetrImageProcessorPil().post_process_object_detection(outputs, threshold, target_sizes=[(120, 371)])
    ours = focal_boxes(logits[0], centers[0], (120, 371), Choice(threshold))
    assert np.allclose(ours.scores, theirs["scores"].numpy(), atol=1e-6)
    assert np.allclose(ours.corners, theirs["boxes"].numpy(), atol=1e-3)
    assert (ours.classes == theirs["labels"].numpy()).all()


@pytest.mark.parametrize("number", range(len(CASES)))
def test_boxes_are_those_of_ultralytics(number):
    case, expected = CASES[number], recorded()[f"boxes.{number}"]
    choice = Choice(case.get("threshold", 0.25), case.get("iou", 0.7), case.get("wanted"))
    found = yolo_boxes(predictions(number), case["classes"], placed(case["size"]), choice)
    assert len(found) == len(expected) > 5
    assert np.allclose(found.corners, expected[:, :4], atol=1e-3)
    assert np.allclose(found.scores, expected[:, 4])
    assert (found.classes == expected[:, 5]).all()
    if case["points"]:
        assert np.allclose(found.points.reshape(len(found), -1), expected[:, 6:], atol=1e-3)


def test_boxes_of_darknet_multiply_objectness():
    rows = predictions(0).T
    objectness = RNG.uniform(0.2, 1, (len(rows), 1)).astype(np.float32)
    joined = np.concatenate([rows[:, :4], rows[:, 4:] * objectness], 1)
    separate = np.concatenate([rows[:, :4], objectness, rows[:, 4:]], 1)
    at = placed(CASES[0]["size"])
    expected, found = yolo_boxes(joined.T, 5, at, Choice()), darknet_boxes(separate, at, Choice())
    assert len(found) == len(expected) > 0
    assert np.allclose(found.corners, expected.corners)


def test_classes_may_overlap_or_not():
    corners = np.array([[0, 0, 10, 10], [0, 1, 10, 11], [0, 0, 10, 9]], np.float32)
    boxes = Boxes(corners, np.array([0.9, 0.8, 0.7], np.float32), np.array([0, 1, 0]))
    assert suppressed(boxes, 0.5, 9).scores.tolist() == pytest.approx([0.9, 0.8])
    assert suppressed(boxes, 0.5, 9, by_class=False).scores.tolist() == pytest.approx([0.9])
    assert len(suppressed(boxes.at(np.zeros(0, np.int64)), 0.5, 9)) == 0


def test_letterboxes_are_those_of_ultralytics():
    for place, shape in enumerate(LETTERBOXES):
        for number, picture in enumerate(MADE):
            found = letterbox(*shape).prepare(picture).values.transpose(1, 2, 0)[::7, ::5] * 255
            assert np.abs(found - recorded()[f"letterbox.{place}.{number}"]).max() < 1.01


def test_boxes_stay_inside_the_picture():
    rows = np.array([[160, 160, 900, 900, 0.9]], np.float32).T
    found = yolo_boxes(rows, 1, Placement((100, 200), (160, 320), (80, 0), INPUT), Choice())
    assert found.corners.tolist() == [[0, 0, 200, 100]]
