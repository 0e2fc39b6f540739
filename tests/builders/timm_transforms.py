"""What timm's transforms make of pictures: `python tests/builders/timm_transforms.py` records it where timm is."""

import json
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.pictures import MADE

RECORDED = Path(__file__).parent / "vectors" / "timm_transforms.json"
CONFIGS = (
    {},
    {"input_size": [3, 160, 160], "crop_pct": 0.95, "interpolation": "bilinear"},
    {"input_size": [3, 96, 128], "crop_pct": 0.9},
    {"crop_mode": "squash", "crop_pct": 1.0},
    {"crop_mode": "border", "crop_pct": 0.9, "mean": [0.5, 0.4, 0.3]},
    {"input_size": [3, 97, 97], "crop_pct": 0.8},
    {"crop_mode": "squash", "crop_pct": 0.9, "input_size": [3, 101, 64]},
    {"interpolation": "lanczos", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.5, 0.75]},
)
SAMPLES = 48


def sampled(values):
    """The shape and some values of an array."""
    chosen = np.random.default_rng(5).integers(0, values.size, SAMPLES)
    return {"shape": list(values.shape), "values": [round(float(each), 5) for each in values.ravel()[chosen]]}


def recorded():
    """For each configuration what timm made of each picture."""
    return json.loads(RECORDED.read_text())


def record():
    """Write the file. A CPU build of torch without torchvision's operators is enough."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    found = []
    for config in CONFIGS:
        transform = create_transform(**resolve_data_config(pretrained_cfg=config or {"crop_mode": "center"}))
        found.append([sampled(transform(Image.fromarray(picture)).numpy()) for picture in MADE])
    RECORDED.write_text(json.dumps(found))


__all__ = ["CONFIGS", "recorded", "sampled"]

if __name__ == "__main__":
    record()
