"""Single files of Stable Diffusion: written, read and compared, with diffusers' own reader of them as the oracle."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.diffusion.single_file import split
from candle_convert.convert.open.open_model import open_model
from candle_convert.models.diffusion.flux import pack
from candle_convert.models.diffusion.stable_diffusion_file import XL_FIRST, XL_SECOND
from candle_convert.models.schema.diffusion import autoencoder_names, unet_names
from candle_convert.models.schema.diffusion.module_names import renamed, swapped
from candle_convert.tests.builders.limited_memory import run_limited
from candle_convert.tests.builders.text_to_image import (
    flux,
    hyperparameters,
    published_tokenizer,
    stable_diffusion,
    stable_diffusion_3,
)

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
gguf = pytest.importorskip("gguf")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.usefixtures("frozen")
SETTINGS = {"steps": 2, "seed": 5, "size": (32, 32), "negative": "blurry"}


KINDS = {
    "1": (stable_diffusion, {}),
    "2": (stable_diffusion, {"second": True}),
    "xl": (stable_diffusion, {"xl": True}),
    "3": (stable_diffusion_3, {}),
    "flux": (flux, {"guidance": True, "dynamic": True}),
}
"""Models by name: what makes their pipelines."""
T5_TOKENIZERS = {"3": "tokenizer_3", "flux": "tokenizer_2"}
"""Tokenizers that stand next to single files."""


@pytest.fixture(scope="module")
def generations(tmp_path_factory):
    """By generation: the pipeline of diffusers, its folder, and the single file that we write."""
    found = {}
    for kind, (make, settings) in KINDS.items():
        folder = tmp_path_factory.mktemp("folder")
        pipeline = make(folder, published=True, tokenizer=published_tokenizer, **settings)
        path = tmp_path_factory.mktemp("file") / f"sd{kind}.safetensors"
        assert run(["convert", str(folder), str(path)]) == 0
        if kind in T5_TOKENIZERS:
            shutil.copytree(folder / T5_TOKENIZERS[kind], path.parent / T5_TOKENIZERS[kind])
        found[kind] = pipeline, folder, path
    return found


@pytest.fixture(scope="module")
def first(generations):
    """Stable Diffusion 1 of diffusers, its folder, and the single file that we write."""
    return generations["1"]


def same_weights(pipeline, read):
    """Whether two pipelines have the same parts."""
    for name in ("unet", "transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3"):
        if getattr(pipeline, name, None) is not None:
            expected, found = (getattr(each, name).state_dict() for each in (pipeline, read))
            assert found.keys() == expected.keys()
            own = [key for key in expected if not key.endswith("embed_tokens.weight")]  # T5's shared table again
            assert all(torch.equal(found[key], expected[key]) for key in own), name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flux"])  # whose reader has its sizes built in
def test_diffusers_reads_what_we_write(kind, generations):
    pipeline, folder, path = generations[kind]
    known = {name: part for name, part in pipeline.components.items() if name.startswith("tokenizer")}
    read = type(pipeline).from_single_file(str(path), config=str(folder), local_files_only=True, **known)
    same_weights(pipeline, read)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_files_are_drawn_from_as_they_are(kind, generations, tmp_path):
    """Single files need no tokenizer of CLIP's; that of T5 stands next to them."""
    pipeline, _, path = generations[kind]
    made = tmp_path / "made"
    assert run(["convert", str(path), f"{made}/", "--to", "safetensors"]) == 0
    read = diffusers.DiffusionPipeline.from_pretrained(str(made))
    assert type(read) is type(pipeline)
    same_weights(pipeline, read)
    read.set_progress_bar_config(disable=True)
    expected = read(
        prompt="a red FOX, in the snow!", negative_prompt="blurry", generator=torch.Generator().manual_seed(5),
        num_inference_steps=2, guidance_scale=4.0, height=32, width=32, output_type="latent",
    ).images.numpy()  # fmt: skip
    for model in (path, made):
        drawn = cc.models.load(model).draw("a red FOX, in the snow!", guidance=4.0, **SETTINGS)
        found = pack(drawn.latents) if kind == "flux" else drawn.latents
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_pipelines_are_gguf_files(kind, generations, tmp_path):
    """The names are those of the single file; another reader decodes the values, and the picture is drawn from them."""
    _, folder, path = generations[kind]
    if kind in T5_TOKENIZERS:
        shutil.copytree(folder / T5_TOKENIZERS[kind], tmp_path / T5_TOKENIZERS[kind])
    plain, blocks, again = (tmp_path / f"{name}.gguf" for name in ("plain", "blocks", "again"))
    assert run(["convert", str(path), str(plain)]) == 0
    assert run(["quantize", str(folder), str(blocks), "q8_0"]) == 0
    assert run(["quantize", str(path), str(again), "q8_0"]) == 0
    assert blocks.read_bytes() == again.read_bytes()
    expected = safetensors.load_file(path)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(blocks).tensors}
    assert stored.keys() == expected.keys()
    assert sum(tensor.tensor_type.name == "Q8_0" for tensor in stored.values()) > len(stored) // 10
    for name, tensor in stored.items():
        weight = expected[name].numpy()
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape)
        assert np.abs(values - weight).max() <= np.abs(weight).max() / 127, name
    same, own, quantized = (
        cc.models.load(model).draw("a red fox", guidance=4.0, **SETTINGS).latents for model in (plain, path, blocks)
    )
    assert np.array_equal(same, own)
    assert np.median(np.abs(quantized - own)) <= 0.02 * np.abs(own).max()
    assert not open_model(blocks).notes
    assert run(["verify", str(folder), str(plain)]) == 0


def test_a_folder_is_not_rebuilt_by_quantize(first, tmp_path, capsys):
    """Its scheduler and its configurations would be those that a single file implies."""
    _, folder, _ = first
    assert run(["quantize", str(folder), f"{tmp_path / 'out'}/", "f16", "--to", "safetensors", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-OUT-GRAPHS"
    assert not (tmp_path / "out").exists()


def test_folder_of_a_file(first, tmp_path, capsys):
    _, folder, path = first
    made = tmp_path / "made"
    assert run(["convert", str(path), f"{made}/", "--to", "safetensors"]) == 0
    assert "Stable Diffusion 1 file read as text_encoder, unet, vae" in capsys.readouterr().err
    for pair in ((path, made), (folder, path), (made, path)):
        assert run(["verify", *map(str, pair)]) == 0
    assert run(["diff", str(path), str(made)]) == 0


def original(module, names, prefix):
    """The weights of a part with its names in a single file."""
    modules = swapped(names.bound_modules(hyperparameters(module)))
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


def test_what_files_cannot_hold_is_refused(first, tmp_path, capsys):
    _, folder, _ = first
    copy = shutil.copytree(folder, tmp_path / "sd1")
    config = json.loads((copy / "vae/config.json").read_text())
    for change, why in (
        ({"layers_per_block": 2147483647}, "invalid parameter layers_per_block"),
        ({"scaling_factor": 0.5}, "scaling_factor is 0.5, but files imply 0.18215"),
        ({"block_out_channels": "wide"}, "invalid parameter block_out_channels"),
    ):
        (copy / "vae/config.json").write_text(json.dumps({**config, **change}))
        assert run(["convert", str(copy), str(tmp_path / "out.safetensors")]) != 0
        said = capsys.readouterr().err
        assert why in said
        assert "Traceback" not in said
        assert not (tmp_path / "out.safetensors").exists()


def test_stages_of_a_unet_that_do_not_fit(first, tmp_path, capsys):
    _, folder, _ = first
    copy = shutil.copytree(folder, tmp_path / "sd1")
    path, lora = copy / "unet/config.json", tmp_path / "lora.safetensors"
    safetensors.save_file({"lora_unet_conv_in.lora_up.weight": torch.ones(32, 1, 1, 1)}, lora)
    config = json.loads(path.read_text())
    for depths, code, why in (
        ([1], 3, "invalid parameter layers_per_block: a list of 1"),
        ([1, 2], 4, "unequal numbers of residual blocks"),
    ):
        path.write_text(json.dumps({**config, "layers_per_block": depths}))
        assert run(["convert", str(copy), str(tmp_path / "out.safetensors")]) == code
        assert why in capsys.readouterr().err
        assert run(["draw", str(copy), "-p", "a", "-o", str(tmp_path / "a.png"), "--lora", str(lora)]) != 0
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "part", "change", "why"),
    [
        ("1", "text_encoder", {"eos_token_id": 5}, "eos_token_id is 5, but files imply 49407"),
        ("3", "text_encoder_3", {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon is 1e-05, but files imply 1e-06"),
        ("flux", "text_encoder_2", {"feed_forward_proj": "gated-relu"}, 'feed_forward_proj is "gated-relu", but'),
        ("flux", "transformer", {"axes_dims_rope": [32, 48, 48]}, "axes_dims_rope is [32, 48, 48], but files imply"),
    ],
)
def test_settings_that_no_weight_shows_are_refused(kind, part, change, why, generations, tmp_path, capsys):
    copy = shutil.copytree(generations[kind][1], tmp_path / "model")
    path = copy / part / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert run(["convert", str(copy), str(tmp_path / "out.safetensors")]) != 0
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()


def test_files_without_the_first_projection(generations, tmp_path):
    """Files of Stable Diffusion 3 may lack it; diffusers takes one that changes nothing."""
    pipeline, _, path = generations["3"]
    name = "text_encoders.clip_l.transformer.text_projection.weight"
    weights = {key: value for key, value in safetensors.load_file(path).items() if key != name}
    safetensors.save_file(weights, tmp_path / "sd3.safetensors")
    made = split(cc.open(tmp_path / "sd3.safetensors")).parts["text_encoder"]
    expected = pipeline.text_encoder.text_projection.weight.detach().numpy()
    assert np.array_equal(made.weights["text_projection.weight"].numpy(), expected)


def test_the_missing_tokenizer_is_named(generations, tmp_path, capsys):
    _, _, path = generations["flux"]
    alone = shutil.copy(path, tmp_path / "flux.safetensors")
    line = ["draw", str(alone), "-p", "a fox", "-o", str(tmp_path / "fox.png"), "--steps", "1", "--size", "32x32"]
    assert run(line) != 0
    assert "into a folder tokenizer_2 next to the weights" in capsys.readouterr().err
    assert not (tmp_path / "fox.png").exists()
