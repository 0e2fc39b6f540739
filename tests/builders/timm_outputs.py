"""Tiny models of timm and torchvision with their logits, recorded in `vectors/timm_outputs.npz`.

Weights and pixels are made of the names and shapes alone, so that only the statistics of batch norms, which a forward
pass sets, and the results are stored. Run this file where timm 1.0.31 and torchvision 0.28 are installed to record
again: ``python tests/builders/timm_outputs.py``.
"""

import json
import zlib
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("vectors") / "timm_outputs.npz"
LABELS = 5
COUNTER = "num_batches_tracked"
STATISTICS = ("running_mean", "running_var")
RESNET = {"layers": (1, 2, 1, 1), "channels": (8, 16, 16, 24)}
VIT = {"embed_dim": 32, "depth": 2, "num_heads": 2}
CASES = {
    "resnet18": (RESNET, (64, 96)),
    "resnext50_32x4d": ({**RESNET, "cardinality": 4, "base_width": 8}, (64, 96)),
    "seresnet50": (RESNET, (64, 96)),
    "resnet26d": (RESNET, (64, 96)),
    "vit_tiny_patch16_224": ({**VIT, "img_size": 64}, (64, 64)),
    "vit_base_patch16_siglip_224": ({**VIT, "img_size": 64}, (64, 64)),
    "vit_small_patch14_reg4_dinov2": ({**VIT, "img_size": 56}, (56, 56)),
    "deit_tiny_distilled_patch16_224": ({**VIT, "img_size": 64}, (64, 64)),
    "beit_base_patch16_224": ({**VIT, "img_size": 64}, (64, 64)),
    "eva02_tiny_patch14_224": ({**VIT, "img_size": 56}, (56, 56)),
    "eva02_base_patch14_224": ({**VIT, "img_size": 56}, (56, 56)),
    "eva02_base_patch16_clip_224": ({**VIT, "img_size": 64}, (64, 64)),
    "eva02_enormous_patch14_clip_224": ({**VIT, "img_size": 56}, (56, 56)),
    "beit3_base_patch16_224": ({**VIT, "img_size": 64}, (64, 64)),
    "vit_giant_patch14_dinov2": ({**VIT, "img_size": 56}, (56, 56)),
    "vit_medium_patch16_reg4_gap_256": ({**VIT, "img_size": 64}, (64, 64)),
    "vit_so150m_patch16_reg4_map_256": ({**VIT, "img_size": 64}, (64, 64)),
    "vit_so400m_patch16_siglip_256": ({**VIT, "img_size": 64}, (64, 64)),
    "convnext_atto": ({"depths": (1, 1, 2, 1), "dims": (8, 16, 16, 24)}, (64, 96)),
    "convnextv2_tiny": ({"depths": (1, 1, 2, 1), "dims": (8, 16, 16, 24)}, (64, 96)),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 112, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 4)},
        (112, 112),
    ),
    "hiera_tiny_224": ({"embed_dim": 8, "stages": (1, 1, 1, 1), "img_size": (64, 64)}, (64, 64)),
    "hiera_small_abswin_256": ({"embed_dim": 8, "stages": (1, 1, 1, 1), "img_size": (128, 128)}, (128, 128)),
    "regnety_002": ({}, (64, 96)),
    "densenet121": ({"block_config": (2, 2, 1, 1), "growth_rate": 8}, (64, 96)),
    "repvgg_a0": ({}, (64, 96)),
    "mobileone_s1": ({}, (64, 96)),
    "fastvit_sa12": ({"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 32, 64)}, (64, 96)),
    "fastvit_mci0": ({"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 32, 64)}, (64, 96)),
    "efficientvit_m0": (
        {"img_size": 128, "embed_dim": (16, 32, 48), "depth": (1, 1, 1), "num_heads": (2, 2, 2)},
        (128, 128),
    ),
    "tiny_vit_5m_224": ({"embed_dims": (8, 16, 24, 32), "depths": (1, 1, 1, 1), "num_heads": (1, 2, 3, 4)}, (64, 96)),
    "efficientnet_b0": ({"channel_multiplier": 0.25, "depth_multiplier": 0.3}, (64, 96)),
    "tf_efficientnetv2_b0": ({"channel_multiplier": 0.25, "depth_multiplier": 0.3}, (65, 96)),
    "mobilenetv2_100": ({"channel_multiplier": 0.25}, (64, 96)),
    "mobilenetv3_small_100": ({"channel_multiplier": 0.35}, (64, 96)),
    "mobilenetv4_conv_small": ({"channel_multiplier": 0.35}, (64, 96)),
    "mobilenetv4_hybrid_medium": ({"channel_multiplier": 0.25}, (64, 96)),
    "convmixer_768_32": ({"dim": 16, "depth": 2, "kernel_size": 5, "patch_size": 7}, (63, 70)),
}
"""By timm's name: the arguments that make a model small, and the size of its images."""

MAKERS = {
    "efficientnet_b0": ("efficientnet", "_gen_efficientnet", {}),
    "tf_efficientnetv2_b0": ("efficientnet", "_gen_efficientnetv2_base", {"bn_eps": 1e-3, "pad_type": "same"}),
    "mobilenetv2_100": ("efficientnet", "_gen_mobilenet_v2", {}),
    "mobilenetv3_small_100": ("mobilenetv3", "_gen_mobilenet_v3", {}),
    "mobilenetv4_conv_small": ("mobilenetv3", "_gen_mobilenet_v4", {}),
    "mobilenetv4_hybrid_medium": ("mobilenetv3", "_gen_mobilenet_v4", {}),
}
"""What makes the models whose widths timm does not take as arguments."""


def values(name, shape):
    """The elements of a weight, made of its name: norms about 1, factors about 0.4, matrices that keep the scale."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = random.standard_normal(shape).astype(np.float32)
    if name.endswith("running_var"):
        return (0.6 + 0.8 * random.random(shape)).astype(np.float32)
    if "gamma" in name:
        return 0.4 + 0.1 * drawn
    if len(shape) < 2:
        return (1 + 0.2 * drawn) if name.endswith(".weight") else 0.1 * drawn
    if ("embed" in name and "proj" not in name and "conv" not in name) or name.endswith(("token", "table", "biases")):
        return 0.3 * drawn
    return 1.2 * drawn / np.float32(np.prod(shape[1:])) ** 0.5


def pixels(height, width):
    """Two images f32 [2, 3, height, width]."""
    return np.random.default_rng(1).standard_normal((2, 3, height, width)).astype(np.float32)


def recorded():
    """By name: the arguments, the shapes of all weights, the statistics of batch norms, and the logits."""
    found = np.load(FILE)
    cases = json.loads(bytes(found["cases"]))
    for name, case in cases.items():
        case["logits"] = found[f"{name}/logits"]
        parts = np.split(found[f"{name}/statistics"].astype(np.float32), case["ends"])
        case["statistics"] = dict(zip(case["norms"], parts, strict=False))
    return cases


def weights(case):
    """The weights of a recorded case by their names."""
    made = {}
    for name, shape in case["shapes"].items():
        plain = np.array(1) if name.endswith(COUNTER) else values(name, tuple(shape))
        made[name] = case["statistics"].get(name, plain)
    return made


def _models():
    import importlib

    import timm
    import torch

    for name, (arguments, size) in CASES.items():
        if name in MAKERS:
            module, maker, fixed = MAKERS[name]
            make = getattr(importlib.import_module(f"timm.models.{module}"), maker)
            model = make(name, num_classes=LABELS, **fixed, **arguments)
        elif name.startswith("convmixer"):
            kind = importlib.import_module("timm.models.convmixer").ConvMixer
            model = kind(num_classes=LABELS, act_layer=torch.nn.ReLU, **arguments)
        else:
            model = timm.create_model(name, pretrained=False, num_classes=LABELS, **arguments)
        yield name, arguments, size, model


def record():
    """Write `FILE`."""
    import torch

    cases, arrays = {}, {}
    for name, arguments, size, model in _models():
        state = model.state_dict()
        with torch.no_grad():
            for key, tensor in state.items():
                if not key.endswith(COUNTER):
                    tensor.copy_(torch.from_numpy(values(key, tuple(tensor.shape))))
            inputs = torch.from_numpy(pixels(*size))
            norms = [each for each in model.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)]
            model.eval()
            for norm in norms:
                norm.train()
                norm.momentum = 1.0
            model(inputs)
            model.eval()
            for norm in norms:
                norm.running_var.clamp_(min=1e-3)
                for statistic in (norm.running_mean, norm.running_var):
                    statistic.copy_(statistic.half().float())
            arrays[f"{name}/logits"] = model(inputs).numpy()
        state = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
        names = [key for key in state if key.endswith(STATISTICS)]
        joined = np.concatenate([np.zeros(0, np.float32), *(state[key] for key in names)])
        arrays[f"{name}/statistics"] = joined.astype(np.float16)
        ends = np.cumsum([state[key].size for key in names])[:-1].tolist() if names else []
        shapes = {key: list(array.shape) for key, array in state.items()}
        cases[name] = {"arguments": arguments, "size": size, "shapes": shapes, "norms": names, "ends": ends}
    packed = np.frombuffer(json.dumps(cases).encode(), np.uint8)
    np.savez_compressed(FILE, cases=packed, **arrays)


if __name__ == "__main__":
    record()
