"""Objects, segments and depth of pictures: what the pipelines make of the outputs of models."""

import numpy as np
import pytest
from candle_convert import UsageError
from candle_convert.models.pipelines.image.depth_estimation import DepthEstimation
from candle_convert.models.pipelines.image.image_segmentation import ImageSegmentation
from candle_convert.models.pipelines.image.object_detection import ObjectDetection
from candle_convert.models.preprocess.image_processor import preparation_of
from candle_convert.models.preprocess.preparation import letterbox
from candle_convert.runtime.contract.architecture import Config, RunOptions

PICTURE = np.zeros((60, 120, 3), np.uint8)
WHOLE = preparation_of({"size": {"height": 40, "width": 40}})


class Given:
    """A model whose outputs are given."""

    def __init__(self, labels, **outputs):
        self.options = RunOptions(config=Config({"label_names": labels}))
        self._outputs = outputs

    def __call__(self, pixel_values):
        return {name: np.repeat(array[None], len(pixel_values), 0) for name, array in self._outputs.items()}


def test_boxes_of_queries():
    logits = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9]], np.float32)
    centers = np.array([[0.5, 0.5, 0.2, 0.4], [0.25, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]], np.float32)
    pipeline = ObjectDetection(Given(["cat", "dog"], logits=logits, pred_boxes=centers))
    found = pipeline.predict([PICTURE, PICTURE], preparation=WHOLE)
    assert len(found) == 2
    assert [(each["label"], each["box"]) for each in found[0]] == [
        ("cat", {"xmin": 48, "ymin": 18, "xmax": 72, "ymax": 42}),
        ("dog", {"xmin": 0, "ymin": 0, "xmax": 60, "ymax": 60}),
    ]
    assert [each["label"] for each in pipeline.predict(PICTURE, classes=["dog"], preparation=WHOLE)] == ["dog"]
    assert [each["label"] for each in pipeline.predict(PICTURE, classes=["1"], preparation=WHOLE)] == ["dog"]
    with pytest.raises(UsageError, match="no class 'dogs'"):
        pipeline.predict(PICTURE, classes=["dogs"], preparation=WHOLE)


def test_boxes_and_key_points_of_yolo():
    boxes = np.array([[40, 41, 70], [40, 40, 40], [20, 20, 10], [10, 10, 10]], np.float32)
    points = np.array([[40, 41, 70], [40, 40, 40], [0.9, 0.9, 0.1]], np.float32)
    scores = np.array([[0.9, 0.8, 0.5]], np.float32)
    model = Given(["person"], boxes_xywh=boxes, scores=scores, keypoints=points)
    found = ObjectDetection(model).predict(PICTURE, preparation=letterbox(80, 80))
    assert [each["box"] for each in found] == [
        {"xmin": 45, "ymin": 22.5, "xmax": 75, "ymax": 37.5},
        {"xmin": 97.5, "ymin": 22.5, "xmax": 112.5, "ymax": 37.5},
    ]
    assert found[0]["keypoints"] == [[60, 30, 0.9]]
    assert len(ObjectDetection(model).predict(PICTURE, iou=0.99, preparation=letterbox(80, 80))) == 3
    assert len(ObjectDetection(model).predict(PICTURE, threshold=0.6, preparation=letterbox(80, 80))) == 1
    darknet = Given(["person"], boxes_xywh=boxes.T, objectness_and_scores=np.stack([scores[0], np.ones(3)], -1))
    again = ObjectDetection(darknet).predict(PICTURE, preparation=letterbox(80, 80))
    assert [each["box"] for each in again] == [each["box"] for each in found]


def test_segments():
    logits = np.zeros((3, 10, 10), np.float32)
    logits[1, :, 7:], logits[2, :2] = 1, 2
    found = ImageSegmentation(Given(["floor", "wall", "sky"], logits=logits)).predict(PICTURE, preparation=WHOLE)
    assert [each["label"] for each in found] == ["floor", "wall", "sky"]
    assert sum(each["share"] for each in found) == pytest.approx(1)
    assert np.stack([each["mask"] for each in found]).sum(0).tolist() == np.ones((60, 120)).tolist()
    assert found[2]["mask"][0, 0]
    assert found[1]["mask"][50, 100]


def test_depth():
    depth = np.linspace(0, 9, 100, dtype=np.float32).reshape(10, 10)
    (found,) = DepthEstimation(Given([], predicted_depth=depth)).predict(PICTURE, preparation=WHOLE)
    assert found["depth"].shape == (60, 120)
    assert found["least"] == pytest.approx(0, abs=0.2)
    assert found["most"] == pytest.approx(9, abs=0.2)


def test_outputs_of_other_models_are_refused():
    with pytest.raises(UsageError, match="no boxes"):
        ObjectDetection(Given([], logits=np.zeros(3, np.float32))).predict(PICTURE, preparation=WHOLE)
