"""Single files of Stable Diffusion: written, read and compared, with diffusers' own reader of them as the oracle."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.diffusion.single_file import split
from candle_convert.models.diffusion.stable_diffusion_file import XL_FIRST, XL_SECOND
from candle_convert.models.schema.diffusion import autoencoder_names, unet_names
from candle_convert.models.schema.diffusion.module_names import renamed, swapped
from candle_convert.tests.builders.limited_memory import run_limited
from candle_convert.tests.builders.text_to_image import stable_diffusion

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
safetensors = pytest.importorskip("safetensors.torch")
SETTINGS = {"steps": 2, "seed": 5, "size": (32, 32), "negative": "blurry"}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Stable Diffusion 1 of diffusers, its folder, and the single file that we write."""
    folder = tmp_path_factory.mktemp("sd1")
    pipeline = stable_diffusion(folder, published=True)
    path = tmp_path_factory.mktemp("file") / "sd1.safetensors"
    assert run(["convert", str(folder), str(path)]) == 0
    return pipeline, folder, path


def test_diffusers_reads_what_we_write(first):
    pipeline, folder, path = first
    read = diffusers.StableDiffusionPipeline.from_single_file(
        str(path), config=str(folder), tokenizer=pipeline.tokenizer, local_files_only=True, safety_checker=None
    )
    for name in ("unet", "vae", "text_encoder"):
        expected, found = (getattr(each, name).state_dict() for each in (pipeline, read))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected), name


def test_folder_of_a_file(first, tmp_path, capsys):
    _, folder, path = first
    made = tmp_path / "made"
    assert run(["convert", str(path), f"{made}/", "--to", "safetensors"]) == 0
    assert "Stable Diffusion 1 file read as text_encoder, unet, vae" in capsys.readouterr().err
    for pair in ((path, made), (folder, path), (made, path)):
        assert run(["verify", *map(str, pair)]) == 0
    assert run(["diff", str(path), str(made)]) == 0
    shutil.copytree(folder / "tokenizer", made / "tokenizer")
    expected = cc.models.load(folder).draw("a fox", **SETTINGS)
    found = cc.models.load(made).draw("a fox", **SETTINGS)
    assert np.abs(found.latents - expected.latents).max() <= 1e-4 * np.abs(expected.latents).max()
    read = diffusers.UNet2DConditionModel.from_pretrained(made / "unet")
    assert sum(each.numel() for each in read.parameters()) > 0


def original(module, names, prefix):
    """The weights of a part with its names in a single file."""
    modules = swapped(names.stated_modules(json.loads(module.to_json_string())))
    found = {}
    for name, value in module.state_dict().items():
        changed = renamed(name, modules)
        flat = any(text in f".{changed}" for text in autoencoder_names.ATTENDED) and changed.endswith(".weight")
        found[prefix + changed] = value[..., None, None] if flat and names is autoencoder_names else value
    return {name: value.contiguous() for name, value in found.items()}


def open_clip(module):
    """The weights of a text encoder with OpenCLIP's names."""
    inner = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
    inner["self_attn.out_proj"] = "attn.out_proj"
    state = {name.removeprefix("text_model."): value for name, value in module.state_dict().items()}
    found = {
        "token_embedding.weight": state["embeddings.token_embedding.weight"],
        "positional_embedding": state["embeddings.position_embedding.weight"],
        "ln_final.weight": state["final_layer_norm.weight"],
        "ln_final.bias": state["final_layer_norm.bias"],
        "text_projection": state["text_projection.weight"].T,
        "logit_scale": torch.tensor(4.6),
    }
    for layer in range(module.config.num_hidden_layers):
        ours, theirs = f"encoder.layers.{layer}", f"transformer.resblocks.{layer}"
        for kind in ("weight", "bias"):
            found |= {f"{theirs}.{b}.{kind}": state[f"{ours}.{a}.{kind}"] for a, b in inner.items()}
            rows = [state[f"{ours}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
            found[f"{theirs}.attn.in_proj_{kind}"] = torch.cat(rows)
    return {name: value.contiguous() for name, value in found.items()}


def test_file_of_xl(tmp_path):
    folder = tmp_path / "xl"
    pipeline = stable_diffusion(folder, xl=True, published=True)
    text = {name.removeprefix("text_model."): each for name, each in pipeline.text_encoder.state_dict().items()}
    weights = {
        **original(pipeline.unet, unet_names, "model.diffusion_model."),
        **original(pipeline.vae, autoencoder_names, "first_stage_model."),
        **{f"{XL_FIRST}text_model.{name}": value for name, value in text.items()},
        **{f"{XL_SECOND}{name}": value for name, value in open_clip(pipeline.text_encoder_2).items()},
        "model_ema.decay": torch.ones(1),
    }
    path = tmp_path / "xl.safetensors"
    safetensors.save_file(weights, path)
    made = split(cc.open(path))
    assert set(made.parts) == {"text_encoder", "text_encoder_2", "unet", "vae"}
    assert not [note for note in made.notes if "no part" in note.message]
    out = tmp_path / "made"
    assert run(["convert", str(path), f"{out}/", "--to", "safetensors"]) == 0
    for name in ("tokenizer", "tokenizer_2", "scheduler"):
        shutil.copytree(folder / name, out / name, dirs_exist_ok=True)
    expected = cc.models.load(folder).draw("a fox", **SETTINGS)
    found = cc.models.load(out).draw("a fox", **SETTINGS)
    assert np.abs(found.latents - expected.latents).max() <= 1e-4 * np.abs(expected.latents).max()


def test_incomplete_files_are_refused(first, tmp_path, capsys):
    weights = safetensors.load_file(first[2])
    kept = {name: value for name, value in weights.items() if not name.startswith("first_stage_model.")}
    path = tmp_path / "cut.safetensors"
    safetensors.save_file(kept, path)
    assert run(["convert", str(path), f"{tmp_path}/out/", "--to", "safetensors"]) == 3
    assert "weights of vae are not those of a Stable Diffusion 1 file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_of_blocks_take_no_memory(first, tmp_path):
    """A name may hold any number, and a reader may not make as many modules."""
    weights = safetensors.load_file(first[2])
    path = tmp_path / "far.safetensors"
    weights["model.diffusion_model.input_blocks.4000000000.0.weight"] = torch.zeros(1)
    safetensors.save_file(weights, path)
    code, said = run_limited("convert", path, f"{tmp_path}/out/", "--to", "safetensors")
    assert code == 3, said
    assert "✗ E-SINGLE-FILE " in said
    assert "weights of unet are not those of a Stable Diffusion 1 file" in said
    assert not (tmp_path / "out").exists()
