"""Image models against transformers: at the trained size and at others, through GGUF and back, and exported to ONNX."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from candle_convert.tests.builders.image_checkpoints import DETR, RESNET, VIT, image_model, images, saved

ANY, INTERPOLATED, FIXED = "any", "interpolated", "fixed"
"""Which sizes of images a model takes: any, any with interpolated position embeddings, the trained one."""
DINO = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7}
BEIT = {"use_relative_position_bias": True, "layer_scale_init_value": 0.1, "use_mean_pooling": True}
SWIN = {"image_size": 40, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
CONVNEXT = {"hidden_sizes": [8, 16, 16, 24], "depths": [1, 1, 2, 1], "num_labels": 5}
SEGFORMER = {
    "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4], "depths": [1, 2, 1, 1],
    "decoder_hidden_size": 16, "num_labels": 5,
}  # fmt: skip
EFFICIENTNET = {
    "width_coefficient": 0.25, "depth_coefficient": 0.4, "hidden_dim": 320, "image_size": 64, "num_labels": 5,
    "num_hidden_layers": 9,
}  # fmt: skip
HIERA = {"embed_dim": 16, "depths": [1, 2, 1, 1], "image_size": [64, 64]}
DINOV3 = {
    "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_register_tokens": 3,
}  # fmt: skip
DEPTH = {
    "backbone_config": {
        "model_type": "dinov2", **DINO, "num_hidden_layers": 5, "out_indices": [2, 3, 4, 5], "apply_layernorm": True,
        "reshape_hidden_states": False,
    },
    "patch_size": 7, "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 12, 16, 20], "fusion_hidden_size": 16,
    "head_hidden_size": 8, "depth_estimation_type": "metric", "max_depth": 20,
}  # fmt: skip
CASES = {
    "resnet": ("ResNetForImageClassification", {**RESNET, "layer_type": "bottleneck"}, ANY),
    "resnet-basic": ("ResNetForImageClassification", {**RESNET, "layer_type": "basic", "hidden_act": "gelu"}, ANY),
    "resnet-strides": (
        "ResNetForImageClassification",
        {**RESNET, "downsample_in_first_stage": True, "downsample_in_bottleneck": True},
        ANY,
    ),
    "vit": ("ViTForImageClassification", VIT, INTERPOLATED),
    "vit-layers": ("ViTModel", {**VIT, "qkv_bias": False, "hidden_act": "gelu_new"}, INTERPOLATED),
    "deit": ("DeiTForImageClassificationWithTeacher", VIT, INTERPOLATED),
    "dinov2": ("Dinov2ForImageClassification", {**DINO, "num_labels": 5}, INTERPOLATED),
    "dinov2-gated": ("Dinov2Model", {**DINO, "use_swiglu_ffn": True}, INTERPOLATED),
    "dinov2-registers": ("Dinov2WithRegistersModel", DINO, INTERPOLATED),
    "beit": ("BeitForImageClassification", VIT | BEIT, FIXED),
    "swin": ("SwinForImageClassification", SWIN | {"num_labels": 5}, INTERPOLATED),
    "swin-layers": ("SwinModel", SWIN, INTERPOLATED),
    "convnext": ("ConvNextForImageClassification", CONVNEXT, ANY),
    "convnextv2": ("ConvNextV2ForImageClassification", CONVNEXT, ANY),
    "segformer": ("SegformerForSemanticSegmentation", SEGFORMER, ANY),
    "segformer-classes": ("SegformerForImageClassification", SEGFORMER, ANY),
    "detr": ("DetrForObjectDetection", DETR, ANY),
    "detr-learned": ("DetrForObjectDetection", DETR | {"position_embedding_type": "learned"}, ANY),
    "yolos": ("YolosForObjectDetection", VIT | {"image_size": [32, 32], "num_detection_tokens": 5}, ANY),
    "yolos-layers": (
        "YolosModel",
        VIT | {"image_size": [32, 32], "num_detection_tokens": 5, "use_mid_position_embeddings": False},
        ANY,
    ),
    "dinov3": ("DINOv3ViTModel", DINOV3, ANY),
    "dinov3-gated": ("DINOv3ViTModel", DINOV3 | {"use_gated_mlp": True, "hidden_act": "silu", "key_bias": True}, ANY),
    "depth-anything": ("DepthAnythingForDepthEstimation", DEPTH, ANY),
    "clip": ("CLIPVisionModel", VIT, INTERPOLATED),
    "clip-projection": ("CLIPVisionModelWithProjection", VIT | {"projection_dim": 20}, INTERPOLATED),
    "siglip": ("SiglipVisionModel", VIT, INTERPOLATED),
    "blip": ("BlipVisionModel", VIT, INTERPOLATED),
    "siglip-layers": ("SiglipVisionModel", VIT | {"vision_use_head": False}, INTERPOLATED),
    "efficientnet": ("EfficientNetForImageClassification", EFFICIENTNET, ANY),
    "efficientnet-padding": (
        "EfficientNetForImageClassification",
        EFFICIENTNET | {"depthwise_padding": [1, 3], "pooling_type": "max"},
        ANY,
    ),
    "efficientnet-layers": ("EfficientNetModel", EFFICIENTNET, ANY),
    "hiera": ("HieraForImageClassification", HIERA | {"num_labels": 5}, FIXED),
    "hiera-layers": ("HieraModel", HIERA | {"num_heads": [2, 4, 8, 16]}, FIXED),
    "mobilenet-v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.35, "num_labels": 5}, ANY),
    "mobilenet-v2-padding": (
        "MobileNetV2ForImageClassification",
        {"depth_multiplier": 0.35, "num_labels": 5, "tf_padding": False},
        ANY,
    ),
}
"""By name: the class, its configuration, and the sizes that it takes."""
TOLERANCE = 3e-5
HIDDEN = ("last_hidden_state", "encoder_last_hidden_state")
"""What detectors of transformers return beside boxes."""


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    kind, settings, sizes = CASES[request.param]
    model = image_model(kind, **settings)
    return model, saved(model, tmp_path_factory.mktemp(request.param) / "hf"), sizes


def _side(model):
    """Of the images that the model is trained on."""
    config = getattr(model.config, "backbone_config", None) or model.config
    side = getattr(config, "image_size", 32)
    return side if isinstance(side, int) else side[0]


def _expected(model, pixels, sizes):
    options = (
        {"interpolate_pos_encoding": True} if sizes == INTERPOLATED and "Dinov2" not in type(model).__name__ else {}
    )
    with torch.no_grad():
        found = model(pixel_values=torch.from_numpy(pixels), **options)
    skipped = HIDDEN if "pred_boxes" in found else ()
    return {name: value.numpy() for name, value in found.items() if torch.is_tensor(value) and name not in skipped}


def _compare(found, expected):
    for name, value in expected.items():
        got = found[name].reshape(value.shape)
        assert np.abs(got - value).max() <= TOLERANCE * np.abs(value).max(), name


@pytest.mark.parametrize("size", [(1, 32, 32), (2, 32, 48)], ids=["trained", "other"])
def test_outputs(case, size):
    model, folder, sizes = case
    if sizes == FIXED and size[1] != size[2]:
        pytest.skip("the model takes images of the trained size")
    side = _side(model)
    pixels = images(size[0], side, side * size[2] // size[1])
    _compare(cc.models.load(folder)(pixel_values=pixels), _expected(model, pixels, sizes))


@pytest.mark.sampled(2)
def test_gguf_and_back(case, tmp_path):
    model, folder, sizes = case
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    side = _side(model)
    pixels = images(2, side, side)
    expected = _expected(model, pixels, sizes)
    _compare(cc.models.load(tmp_path / "m.gguf")(pixel_values=pixels), expected)
    _compare(cc.models.load(tmp_path / "hf")(pixel_values=pixels), expected)
    again, report = type(model).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert all("num_batches" in name for name in report["missing_keys"])
    _compare(_expected(again.eval(), pixels, sizes), expected)


@pytest.mark.sampled(2)
def test_export(case, tmp_path):
    model, folder, sizes = case
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    side = _side(model)
    widths = (side,) if sizes == FIXED else (side, 2 * side)
    for pixels in (images(2, side, width) for width in widths):
        found = session.run(None, {"pixel_values": pixels})
        names = [output.name for output in session.get_outputs()]
        _compare(dict(zip(names, found, strict=True)), _expected(model, pixels, sizes))


@pytest.mark.parametrize("positions", ["sine", "learned"])
def test_padding_is_masked(positions, tmp_path):
    model = image_model("DetrForObjectDetection", **DETR | {"position_embedding_type": positions})
    folder = saved(model, tmp_path / "hf")
    pixels, mask = images(2, 64, 96), np.zeros((2, 64, 96), np.int64)
    mask[0], mask[1, :40, :70] = 1, 1
    with torch.no_grad():
        outputs = model(pixel_values=torch.from_numpy(pixels), pixel_mask=torch.from_numpy(mask))
    expected = {name: outputs[name].numpy() for name in ("logits", "pred_boxes")}
    _compare(cc.models.load(folder)(pixel_values=pixels, pixel_mask=mask), expected)
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(list(expected), {"pixel_values": pixels, "pixel_mask": mask})
    _compare(dict(zip(expected, found, strict=True)), expected)
    _compare(cc.models.load(tmp_path / "m.onnx")(pixel_values=pixels, pixel_mask=mask), expected)


def test_a_mask_that_does_not_fit_is_refused(tmp_path):
    detector = cc.models.load(saved(image_model("DetrForObjectDetection", **DETR), tmp_path / "detr"))
    with pytest.raises(cc.Error, match="does not have the batch, height and width"):
        detector(pixel_values=images(1, 64, 96), pixel_mask=np.ones((1, 2, 2), np.int64))
    classifier = cc.models.load(saved(image_model("ViTForImageClassification", **VIT), tmp_path / "vit"))
    with pytest.raises(cc.Error, match="takes no pixel_mask"):
        classifier(pixel_values=images(1, 32, 32), pixel_mask=np.ones((1, 32, 32), np.int64))


@pytest.mark.sampled(2)
def test_folded_norms_are_not_in_the_graph(case, tmp_path):
    _, folder, _ = case
    cc.convert(folder, tmp_path / "m.onnx")
    assert not any(node.op.name == "BatchNormalization" for node in cc.open(tmp_path / "m.onnx").nodes)


def test_other_arrays_are_refused(case):
    with pytest.raises(cc.Error, match="pixel_values have another shape"):
        cc.models.load(case[1])(pixel_values=np.zeros((1, 4, 32, 32), np.float32))


def test_weights_of_another_variant_are_refused(tmp_path):
    folder = saved(image_model(*CASES["resnet"][:1], **CASES["resnet"][1]), tmp_path / "hf")
    weights = cc.load_file(folder / "model.safetensors")
    extra = next(name for name in weights if name.endswith("layer.1.convolution.weight"))
    cc.save_file({**weights, extra.replace(".1.conv", ".7.conv"): weights[extra]}, folder / "model.safetensors")
    with pytest.raises(cc.Error, match=r"conv8\.weight"):
        cc.models.load(folder)


def test_a_missing_weight_is_named(tmp_path):
    folder = saved(image_model("ViTForImageClassification", **VIT), tmp_path / "hf")
    weights = cc.load_file(folder / "model.safetensors")
    del weights["vit.encoder.layer.1.output.dense.weight"]
    cc.save_file(weights, folder / "model.safetensors")
    with pytest.raises(cc.Error, match=r"blocks\.1\.mlp\.fc2\.weight"):
        cc.models.load(folder)


def test_labels_are_carried(tmp_path):
    names = {0: "cat", 1: "dog", 2: "cow"}
    folder = saved(image_model("ViTForImageClassification", **VIT | {"num_labels": 3}), tmp_path / "hf")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.id2label = names
    config.save_pretrained(folder)
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "back").id2label == names
