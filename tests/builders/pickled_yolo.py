"""Checkpoints of ultralytics without it: pickles of whole models whose classes have its names."""

import sys
import types
from unittest import mock

import torch
from candle_convert.tests.builders import yolov8

PLACES = {
    "Conv": ("ultralytics.nn.modules.conv", "Conv"),
    "Bottleneck": ("ultralytics.nn.modules.block", "Bottleneck"),
    "C2f": ("ultralytics.nn.modules.block", "C2f"),
    "SPPF": ("ultralytics.nn.modules.block", "SPPF"),
    "Head": ("ultralytics.nn.modules.head", "Detect"),
    "YOLOv8": ("ultralytics.nn.tasks", "DetectionModel"),
}
"""Module and name in ultralytics of each class of the builder."""


def save_checkpoint(model, path, ema=None, **attributes):
    """`torch.save` of what ultralytics' trainer writes: the model itself, with `attributes`, its moving average `ema`,
    and other values."""
    for name, value in attributes.items():
        setattr(model, name, value)
    model.model["22"].stride = torch.tensor([8.0, 16.0, 32.0])
    held = {"epoch": -1, "model": model, "ema": ema, "train_args": {"imgsz": 64, "task": "detect"}, "date": "2023"}
    kinds = {getattr(yolov8, name): place for name, place in PLACES.items()}
    own = {kind: (kind.__module__, kind.__qualname__) for kind in kinds}
    stubs = ("ultralytics", "ultralytics.nn", "ultralytics.nn.modules")
    with mock.patch.dict(sys.modules, {name: types.ModuleType(name) for name in stubs}):
        for kind, (module, name) in kinds.items():
            setattr(sys.modules.setdefault(module, types.ModuleType(module)), name, kind)
            kind.__module__, kind.__qualname__ = module, name
        try:
            torch.save(held, path)
        finally:
            for kind, names in own.items():
                kind.__module__, kind.__qualname__ = names
