"""FLUX.1's transformer with random weights, from diffusers' directories and from files with the authors' names: the
prediction is diffusers'."""

import inspect
import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert import models
from candle_convert.models.diffusion.flux_transformer import KEYS
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError
from candle_convert.runtime.contract.architecture import Key
from candle_convert.tests.builders import diffusion_transformers as builders
from safetensors.torch import load_file, save_file

diffusers = pytest.importorskip("diffusers")
single_file = pytest.importorskip("diffusers.loaders.single_file_utils")
embeddings = pytest.importorskip("diffusers.models.embeddings")

VARIANTS = {
    "dev": {},
    "schnell": {"guidance_embeds": False},
    "fill": {"in_channels": 24, "out_channels": 4},
    "patches": {"patch_size": 2},
    "two axes": {"axes_dims_rope": (10, 6), "num_layers": 1, "num_single_layers": 3},
}
HIDDEN = 64


def close(sample, expected, moved=0.0):
    assert sample.shape == expected.shape
    np.testing.assert_allclose(sample, expected, atol=2e-5 * np.abs(expected).max() + moved)


def moved_by_a_bit(model, inputs, monkeypatch):
    """How far the prediction moves where the frequencies of timesteps and guidance are one bit larger: angles have
    thousands of radians, and torch's exp rounds differently from processor to processor."""
    expected, exp = builders.predicted(model, inputs), torch.exp
    with monkeypatch.context() as patch:
        patch.setattr(embeddings.torch, "exp", lambda x: torch.nextafter(exp(x), torch.tensor(torch.inf)))
        found = builders.predicted(model, inputs)
    moved = np.abs(found - expected).max()
    assert 0 < moved < 1e-3 * np.abs(expected).max()
    return moved


def converted_by_diffusers(weights):
    """diffusers' names of the authors' weights. Its function splits layers of the published width only, a constant in
    its code, which is replaced."""
    convert = single_file.convert_flux_transformer_checkpoint_to_diffusers
    constants = tuple(HIDDEN if constant == 3072 else constant for constant in convert.__code__.co_consts)
    assert constants != convert.__code__.co_consts
    changed = type(convert)(convert.__code__.replace(co_consts=constants), convert.__globals__)
    return changed(dict(weights))


@pytest.fixture(scope="module")
def dev():
    return builders.flux()


@pytest.fixture(scope="module")
def folder(dev, tmp_path_factory):
    path = tmp_path_factory.mktemp("flux")
    dev.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def file(dev, tmp_path_factory):
    weights = builders.original(dev.state_dict(), builders.FLUX_MODULES)
    return builders.saved_original(
        tmp_path_factory.mktemp("original") / "model.safetensors", weights, builders.flux_config(dev)
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("seed", "rows", "columns", "tokens"), [(0, 4, 6, 7), (1, 9, 3, 1), (2, 1, 1, 20)])
def test_prediction(tmp_path, variant, seed, rows, columns, tokens):
    reference = builders.flux(seed, **VARIANTS[variant])
    reference.save_pretrained(tmp_path)
    inputs = (
        builders.flux_inputs(reference, seed, rows, columns, tokens) if variant != "two axes" else two_axes(reference)
    )
    close(models.load(tmp_path, threads=1)(**inputs)["sample"], builders.predicted(reference, inputs))


def two_axes(reference):
    inputs = builders.flux_inputs(builders.flux())
    return inputs | {name: inputs[name][:, 1:] for name in ("img_ids", "txt_ids")}


def test_positions_of_text_and_far_patches_rotate(dev, folder):
    inputs = builders.flux_inputs(dev)
    inputs["txt_ids"] += np.arange(7, dtype=np.float32)[:, None]
    inputs["img_ids"] += np.float32(100)
    close(models.load(folder, threads=1)(**inputs)["sample"], builders.predicted(dev, inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_two_bytes(tmp_path, dtype):
    stored = builders.flux(3).to(dtype)
    stored.save_pretrained(tmp_path)
    reference, inputs = stored.float(), builders.flux_inputs(stored, 3)
    sample = models.load(tmp_path, threads=1, activations="f32")(**inputs)["sample"]
    close(sample, builders.predicted(reference, inputs))


def test_graph_in_onnxruntime(dev, folder, tmp_path, monkeypatch):
    cc.convert(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for rows, batch in ((4, 2), (5, 1)):
        inputs = builders.flux_inputs(dev, rows, rows=rows, batch=batch)
        moved = moved_by_a_bit(dev, inputs, monkeypatch)
        close(session.run(["sample"], inputs)[0], builders.predicted(dev, inputs), moved)


def test_names_of_the_authors(dev, folder, file):
    weights = load_file(file)
    assert all(torch.equal(tensor, dev.state_dict()[name]) for name, tensor in converted_by_diffusers(weights).items())
    inputs = builders.flux_inputs(dev, 5)
    samples = [models.load(path, threads=1)(**inputs)["sample"] for path in (folder, file)]
    np.testing.assert_array_equal(*samples)
    close(samples[1], builders.predicted(dev, inputs))


def test_file_without_configuration(tmp_path):
    reference = builders.flux(
        4, attention_head_dim=128, num_attention_heads=1, axes_dims_rope=(16, 56, 56), guidance_embeds=False
    )
    weights = builders.original(reference.state_dict(), builders.FLUX_MODULES)
    plain = builders.saved_original(tmp_path / "flux.safetensors", weights)
    prefixed = tmp_path / "prefixed.safetensors"
    builders.saved_original(prefixed, {f"model.diffusion_model.{name}": each for name, each in weights.items()})
    inputs = builders.flux_inputs(reference, 4)
    samples = [models.load(path, threads=1)(**inputs)["sample"] for path in (plain, prefixed)]
    close(samples[0], builders.predicted(reference, inputs))
    np.testing.assert_array_equal(*samples)


def test_file_of_bf16_under_the_names_of_diffusers(tmp_path):
    stored = builders.flux(6).to(torch.bfloat16)
    file = builders.saved_original(
        tmp_path / "flux.safetensors",
        builders.original(stored.state_dict(), builders.FLUX_MODULES),
        builders.flux_config(stored),
    )
    cc.convert(file, tmp_path / "diffusers.safetensors", names="hf")
    written = load_file(tmp_path / "diffusers.safetensors")
    assert written.keys() == stored.state_dict().keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in stored.state_dict().items())


def test_directory_of_a_file_in_diffusers(dev, file, tmp_path):
    cc.convert(file, tmp_path / "out", to="safetensors", names="hf")
    (tmp_path / "out" / "model.safetensors").rename(tmp_path / "out" / "diffusion_pytorch_model.safetensors")
    inputs = builders.flux_inputs(dev)
    written = diffusers.FluxTransformer2DModel.from_pretrained(tmp_path / "out").eval()
    np.testing.assert_array_equal(builders.predicted(written, inputs), builders.predicted(dev, inputs))


def test_directory_under_the_names_of_the_authors(folder, file, tmp_path):
    cc.convert(folder, tmp_path / "original.safetensors", names="original")
    written, expected = load_file(tmp_path / "original.safetensors"), load_file(file)
    assert written.keys() == expected.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in expected.items())


def test_defaults_are_those_of_diffusers():
    parameters = inspect.signature(diffusers.FluxTransformer2DModel.__init__).parameters
    neutral = {"out_channels": KEYS[2].default, "axes_dims_rope": [16, 56, 56]}
    assert {key.hf: key.default for key in KEYS if isinstance(key, Key)} == {
        name: neutral.get(name, parameter.default) for name, parameter in parameters.items() if name != "self"
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("axes_dims_rope", [4, 6, 8]),
        ("axes_dims_rope", [5, 5, 6]),
        ("axes_dims_rope", []),
        ("axes_dims_rope", 16),
        ("attention_head_dim", 32),
        ("attention_head_dim", 0),
        ("num_attention_heads", 2**31 - 1),
        ("num_attention_heads", 10**30),
        ("num_layers", 1024),
        ("num_layers", 2**40),
        ("num_single_layers", 3),
        ("num_single_layers", -1),
        ("in_channels", 10**9),
        ("in_channels", "16"),
        ("patch_size", 10**6),
        ("guidance_embeds", False),
        ("guidance_embeds", "yes"),
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
    ("key", "value"),
    [
        ("theta", 5000),
        ("mlp_ratio", 3.0),
        ("qkv_bias", False),
        ("num_heads", 2),
        ("depth", 2**40),
        ("guidance_embed", False),
        ("axes_dim", [16, 56, 56]),
        ("axes_dim", "16"),
        ("hidden_size", [64]),
    ],
)
def test_bad_configurations_of_the_authors(file, tmp_path, key, value):
    config = json.loads(file.with_name("config.json").read_text()) | {key: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(file)
    with pytest.raises(FormatError, match="axes" if key == "axes_dim" else key):
        models.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("img_in.weight", (64,)),
        ("img_in.weight", (0, 16)),
        ("vector_in.in_layer.weight", ()),
        ("double_blocks.0.img_attn.qkv.weight", (191, 64)),
        ("single_blocks.1.linear1.weight", (450, 64)),
        ("double_blocks.0.img_attn.norm.query_norm.scale", (16, 1)),
        ("final_layer.adaLN_modulation.1.weight", (127, 64)),
        ("double_blocks.999999999.img_attn.qkv.weight", (192, 64)),
        ("single_blocks.2.linear1.weight", (448, 64)),
        ("distilled_guidance_layer.in_proj.weight", (64, 64)),
    ],
)
def test_bad_shapes_and_names(file, tmp_path, name, shape):
    save_file(load_file(file) | {name: torch.zeros(shape)}, tmp_path / "model.safetensors")
    config = json.loads(file.with_name("config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"axes_dim": config["axes_dim"]}))
    with pytest.raises(FormatError) as caught:
        models.load(tmp_path / "model.safetensors")
    assert "\n" not in str(caught.value)


def test_axes_of_a_file_without_configuration_have_to_fit(file, tmp_path):
    (tmp_path / "flux.safetensors").write_bytes(file.read_bytes())
    with pytest.raises(FormatError, match=r"128 elements in all, where a head has 16"):
        models.load(tmp_path / "flux.safetensors")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("img_ids", lambda item: item[1:]),
        ("txt_ids", lambda item: item[:, :2]),
        ("timestep", lambda item: np.append(item, item)),
        ("hidden_states", lambda item: item[..., 1:]),
        ("guidance", None),
    ],
)
def test_bad_inputs(dev, folder, name, change):
    inputs = builders.flux_inputs(dev)
    inputs = {each: item if each != name else change and change(item) for each, item in inputs.items()}
    with pytest.raises(UsageError, match=name):
        models.load(folder, threads=1)(**{each: item for each, item in inputs.items() if item is not None})


def test_a_prediction_that_is_not_finite_is_refused(dev, folder):
    inputs = builders.flux_inputs(dev)
    inputs["guidance"][0] = np.nan
    with pytest.raises(UnsupportedError, match="sample"):
        models.load(folder, threads=1)(**inputs)
