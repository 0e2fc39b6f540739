"""Image models of timm against its recorded logits: from its names, through GGUF, exported to ONNX, with branches."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.timm_outputs import CASES, pixels, recorded, weights

RECORDED = recorded()
BRANCHED = ("repvgg_a0", "mobileone_s1", "fastvit_sa12")
TOLERANCE = 1e-4
RENAMED = {"resnet18": "hf", "seresnet50": "torchvision", "convnext_atto": "hf", "efficientnet_b0": "torchvision"}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            case = RECORDED[name]
            config = {"architecture": name, "num_classes": 5, "model_args": case["arguments"]}
            (made[name] / "config.json").write_text(json.dumps(config))
            cc.save_file(weights(case), made[name] / "model.safetensors")
        return made[name]

    return folder


def _compare(found, name):
    expected = RECORDED[name]["logits"]
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


def _logits(model, name):
    return model(pixel_values=pixels(*RECORDED[name]["size"]))["logits"]


@pytest.mark.parametrize("name", CASES)
def test_logits(name, folder_of):
    _compare(_logits(cc.models.load(folder_of(name)), name), name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_through_gguf(name, folder_of, tmp_path):
    cc.convert(folder_of(name), tmp_path / "m.gguf")
    _compare(_logits(cc.models.load(tmp_path / "m.gguf"), name), name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_export(name, folder_of, tmp_path):
    cc.convert(folder_of(name), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (found,) = session.run(["logits"], {"pixel_values": pixels(*RECORDED[name]["size"])})
    _compare(found, name)


@pytest.mark.parametrize("name", BRANCHED)
def test_branches_are_one_convolution_unless_they_are_kept(name, folder_of, tmp_path):
    _compare(_logits(cc.models.load(folder_of(name), keep_branches=True), name), name)
    counts = []
    for keep in (False, True):
        cc.convert(folder_of(name), tmp_path / f"{keep}.onnx", keep_branches=keep)
        counts.append(sum(node.op.name == "Conv" for node in cc.open(tmp_path / f"{keep}.onnx").nodes))
    kernels = sum(each.endswith("conv.weight") for each in RECORDED[name]["shapes"])
    assert counts[0] < counts[1]
    assert kernels <= counts[1]


@pytest.mark.parametrize(("name", "names"), RENAMED.items())
def test_names_of_another_library_and_back(name, names, folder_of, tmp_path):
    cc.convert(folder_of(name), tmp_path / "there.safetensors", names=names)
    there = cc.load_file(tmp_path / "there.safetensors")
    ours = weights(RECORDED[name])
    assert len(there) == len(ours)
    if names == "hf":
        cc.convert(folder_of(name), tmp_path / "hf", to="safetensors", names=names)
        _compare(_logits(cc.models.load(tmp_path / "hf"), name), name)
        cc.convert(tmp_path / "hf", tmp_path / "back.pth", names="timm")
    else:
        cc.convert(tmp_path / "there.safetensors", tmp_path / "back.pth", names="timm")
    back = torch.load(tmp_path / "back.pth", weights_only=True)
    assert back.keys() == ours.keys()
    assert all(np.array_equal(back[key].numpy(), ours[key]) for key in ours)


def test_names_that_a_library_does_not_have(folder_of, tmp_path):
    with pytest.raises(cc.Error, match="no names of torchvision"):
        cc.convert(folder_of("eva02_tiny_patch14_224"), tmp_path / "m.safetensors", names="torchvision")
    with pytest.raises(cc.Error, match="hf has no names for"):
        cc.convert(folder_of("seresnet50"), tmp_path / "m.safetensors", names="hf")


def test_a_variant_that_is_not_known_is_refused(folder_of, tmp_path):
    case = RECORDED["resnet18"]
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnetaa50"}))
    cc.save_file(weights(case), tmp_path / "model.safetensors")
    with pytest.raises(cc.Error, match="unknown architecture"):
        cc.models.load(tmp_path)
