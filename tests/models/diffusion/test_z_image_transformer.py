"""Z-Image's transformer with random weights, from diffusers' directories and from single files: the prediction is
diffusers'."""

import inspect
import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert import models
from candle_convert.models.diffusion.z_image_transformer import KEYS
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.contract.architecture import Key
from candle_convert.tests.builders import diffusion_transformers as builders
from safetensors.torch import load_file

diffusers = pytest.importorskip("diffusers")
single_file = pytest.importorskip("diffusers.loaders.single_file_utils")

VARIANTS = {
    "two refiners": {"n_refiner_layers": 2, "n_layers": 1, "rope_theta": 500.0, "t_scale": 10.0, "norm_eps": 1e-3},
    "no norm of heads": {"qk_norm": False},
    "wide": {"dim": 264, "n_heads": 2, "n_kv_heads": 2, "axes_dims": [32, 50, 50], "n_layers": 1},
}


def close(sample, expected):
    assert sample.shape == expected.shape
    np.testing.assert_allclose(sample, expected, atol=2e-5 * np.abs(expected).max())


@pytest.fixture(scope="module")
def reference():
    return builders.z_image()


@pytest.fixture(scope="module")
def folder(reference, tmp_path_factory):
    path = tmp_path_factory.mktemp("z_image")
    reference.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [
        (0, {}),
        (1, {"height": 16, "width": 16, "tokens": 32}),
        (2, {"height": 2, "width": 2, "tokens": 1}),
        (3, {"frames": 3, "height": 4, "width": 22, "tokens": 33}),
        (4, {"batch": 2, "height": 10, "width": 6, "tokens": 64}),
    ],
)
def test_prediction(folder, reference, seed, sizes):
    inputs = builders.z_image_inputs(reference, seed, **sizes)
    close(models.load(folder, threads=1)(**inputs)["sample"], builders.predicted(reference, inputs))


@pytest.mark.parametrize("variant", VARIANTS)
def test_settings(tmp_path, variant):
    reference = builders.z_image(5, **VARIANTS[variant])
    reference.save_pretrained(tmp_path)
    inputs = builders.z_image_inputs(reference, 5)
    close(models.load(tmp_path, threads=1)(**inputs)["sample"], builders.predicted(reference, inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_two_bytes(tmp_path, dtype):
    stored = builders.z_image(3).to(dtype)
    stored.save_pretrained(tmp_path)
    reference, inputs = stored.float(), builders.z_image_inputs(stored, 3)
    sample = models.load(tmp_path, threads=1, activations="f32")(**inputs)["sample"]
    close(sample, builders.predicted(reference, inputs))


def test_graph_in_onnxruntime(reference, folder, tmp_path):
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for height, tokens in ((8, 7), (16, 32)):
        inputs = builders.z_image_inputs(reference, height, height=height, width=16, tokens=tokens)
        close(session.run(["sample"], inputs)[0], builders.predicted(reference, inputs))


@pytest.fixture(scope="module")
def published():
    """A model with the published heads, which single files do not state, and its weights in such a file."""
    model = builders.z_image(6, dim=256, n_heads=2, n_kv_heads=2, axes_dims=[32, 48, 48])
    weights = builders.original(model.state_dict(), builders.Z_IMAGE_MODULES)
    return model, weights | {"norm_final.weight": torch.ones(256)}


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_single_file(tmp_path, published, prefix):
    reference, weights = published
    state = reference.state_dict()
    names = single_file.convert_z_image_transformer_checkpoint_to_diffusers(dict(weights))
    assert names.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in names.items())
    reference.save_pretrained(tmp_path / "folder")
    file = tmp_path / "z_image.safetensors"
    builders.saved_original(file, {prefix + name: tensor for name, tensor in weights.items()})
    inputs = builders.z_image_inputs(reference, 6)
    samples = [models.load(path, threads=1)(**inputs)["sample"] for path in (tmp_path / "folder", file)]
    np.testing.assert_array_equal(*samples)
    close(samples[1], builders.predicted(reference, inputs))


def test_names_of_single_files(folder, reference, tmp_path):
    cc.convert(folder, tmp_path / "single.safetensors", names="original")
    written = load_file(tmp_path / "single.safetensors")
    names = single_file.convert_z_image_transformer_checkpoint_to_diffusers(written)
    state = reference.state_dict()
    assert names.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in names.items())


def test_defaults_are_those_of_diffusers():
    parameters = inspect.signature(diffusers.ZImageTransformer2DModel.__init__).parameters
    stated = {key.hf: key.default for key in KEYS if isinstance(key, Key) and key.hf}
    expected = {name: parameter.default for name, parameter in parameters.items() if name != "self"}
    assert stated == {name: list(item) if isinstance(item, tuple) else item for name, item in expected.items()}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("all_patch_size", [4]),
        ("all_f_patch_size", [1, 2]),
        ("siglip_feat_dim", 1152),
        ("dim", 2**31 - 1),
        ("dim", 63),
        ("n_heads", 3),
        ("n_heads", 0),
        ("n_layers", 1024),
        ("n_layers", 10**12),
        ("n_refiner_layers", 2),
        ("qk_norm", False),
        ("norm_eps", 0),
        ("norm_eps", float("nan")),
        ("rope_theta", float("inf")),
        ("t_scale", -1),
        ("axes_dims", [4, 6]),
        ("axes_dims", [2, 14, 0]),
        ("cap_feat_dim", 10**9),
    ],
)
def test_bad_configurations(folder, tmp_path, key, value):
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "diffusion_pytorch_model.safetensors")
    with pytest.raises(FormatError) as caught:
        models.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("x_embedder.weight", (256,), "x_embedder.weight"),
        ("layers.0.attention.qkv.weight", (767, 256), "attention.qkv"),
        ("layers.0.attention.q_norm.weight", (), "axes"),
        ("layers.999999999.attention.qkv.weight", (768, 256), "layers"),
        ("siglip_embedder.0.weight", (256,), "siglip_embedder"),
    ],
)
def test_bad_shapes_and_names(published, tmp_path, name, shape, why):
    file = builders.saved_original(tmp_path / "z.safetensors", published[1] | {name: torch.zeros(shape)})
    with pytest.raises(FormatError, match=why) as caught:
        models.load(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_latents_that_do_not_divide_are_refused(folder, reference, axis):
    with pytest.raises(UsageError, match=f"the {axis} of x is not divisible by 2"):
        models.load(folder, threads=1)(**builders.z_image_inputs(reference, **{axis: 7}))


def test_inputs_of_two_batches_are_refused(folder, reference):
    inputs = builders.z_image_inputs(reference, batch=2)
    with pytest.raises(UsageError, match=r"\bt has another shape"):
        models.load(folder, threads=1)(**inputs | {"t": inputs["t"][:1]})
