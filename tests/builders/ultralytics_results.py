"""What ultralytics makes of predictions and pictures: `python tests/builders/ultralytics_results.py` records it where
ultralytics is (AGPL; only its results are here)."""

from pathlib import Path

import numpy as np
from candle_convert.tests.builders.pictures import MADE

RECORDED = Path(__file__).parent / "vectors" / "ultralytics_results.npz"
CASES = (
    {"classes": 5, "points": 0, "size": (480, 640)},
    {"classes": 1, "points": 4, "size": (391, 260)},
    {"classes": 3, "points": 0, "size": (97, 131), "threshold": 0.6, "iou": 0.2},
    {"classes": 3, "points": 0, "size": (640, 640), "wanted": [0, 2]},
)
INPUT = (320, 320)
LETTERBOXES = ((96, 128), (160, 160), (64, 300))


def predictions(number):
    """[4 + classes + 3 * points, 400]: clusters of boxes with random scores."""
    case, generator = CASES[number], np.random.default_rng(number)
    centers = generator.uniform(20, 300, (2, 25)).repeat(16, 1) + generator.normal(0, 4, (2, 400))
    sizes = generator.uniform(20, 90, (2, 25)).repeat(16, 1) * generator.uniform(0.8, 1.2, (2, 400))
    scores = generator.uniform(0, 1, (case["classes"], 400)) ** 2
    points = generator.uniform(0, 320, (3 * case["points"], 400))
    return np.concatenate([centers, sizes, scores, points]).astype(np.float32)


def recorded():
    """Arrays by name: ``boxes.N`` rows of corners, score, class and points; ``letterbox.N.M`` pictures."""
    return np.load(RECORDED)


def record():
    """Write the file."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from ultralytics.data.augment import LetterBox
    from ultralytics.utils import nms
    from ultralytics.utils.ops import scale_boxes, scale_coords

    found = {}
    for number, case in enumerate(CASES):
        (rows,) = nms.non_max_suppression(
            torch.from_numpy(predictions(number))[None],
            case.get("threshold", 0.25),
            case.get("iou", 0.7),
            classes=case.get("wanted"),
            nc=case["classes"],
        )
        rows[:, :4] = scale_boxes(INPUT, rows[:, :4], case["size"])
        points = rows[:, 6:].reshape(len(rows), -1, 3)
        rows[:, 6:] = scale_coords(INPUT, points, case["size"]).reshape(len(rows), -1)
        found[f"boxes.{number}"] = rows.numpy()
    for place, shape in enumerate(LETTERBOXES):
        for number, picture in enumerate(MADE):
            found[f"letterbox.{place}.{number}"] = LetterBox(shape, auto=False)(image=picture)[::7, ::5]
    np.savez_compressed(RECORDED, **found)


__all__ = ["CASES", "INPUT", "LETTERBOXES", "predictions", "recorded"]

if __name__ == "__main__":
    record()
