"""Quantized pipelines as folders: diffusers draws with the dequantized networks what `draw` does, sizes, refusals."""

import json
import math
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_to_image import flux, stable_diffusion, stable_diffusion_3, wuerstchen

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.usefixtures("frozen")
PROMPT = "A red fox in snow"
SIZE = {"seed": 5, "steps": 2, "size": (32, 32)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder of Stable Diffusion 1, and the pipeline of diffusers."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sd") / "sd"
    return folder, stable_diffusion(folder, published=True)


def dequantized(path):
    """The tensors of a GGUF file as gguf-py reads them, by diffusers' names of single files."""
    return {
        f"model.diffusion_model.{tensor.name}": torch.from_numpy(
            gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            .reshape(tuple(reversed(tensor.shape.tolist())))
            .copy()
        )
        for tensor in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_diffusers_draws_the_same_with_the_dequantized_network(kind, source, tmp_path):
    folder, pipeline = source
    out = tmp_path / "out"
    assert run(["quantize", str(folder), "-o", str(out), kind, "--tensor-type", "^text_encoder/=f32"]) == 0
    weights = dequantized(out / "unet" / "diffusion_pytorch_model.gguf")
    read = diffusers.UNet2DConditionModel.from_single_file(
        weights, config=str(folder / "unet"), local_files_only=True, torch_dtype=torch.float32
    )
    theirs = diffusers.StableDiffusionPipeline(**{**pipeline.components, "unet": read}, requires_safety_checker=False)
    theirs.set_progress_bar_config(disable=True)
    expected = theirs(
        PROMPT, num_inference_steps=2, height=32, width=32, output_type="latent",
        generator=torch.Generator().manual_seed(5),
    ).images.numpy()  # fmt: skip
    found = cc.models.load(out).draw(PROMPT, **SIZE).latents
    plain = cc.models.load(folder).draw(PROMPT, **SIZE).latents
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(plain - expected).max() > 1e-3 * np.abs(expected).max()


def test_types_of_parts(source, tmp_path, capsys):
    """Patterns are searched for in the name of the part and the tensor; the autoencoder stays as it is stored."""
    folder, _ = source
    out = tmp_path / "out"
    chosen = ["--tensor-type", "^text_encoder/=f16", "--tensor-type", "^unet/.*attn1=q4_0"]
    assert run(["quantize", str(folder), "-o", str(out), "q8_0", *chosen]) == 0
    said = capsys.readouterr()
    assert "vae written as stored" in said.err
    types = {
        part: {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors}
        for part, file in (
            ("unet", out / "unet" / "diffusion_pytorch_model.gguf"),
            ("text_encoder", out / "text_encoder" / "model.gguf"),
        )
    }
    assert set(types["text_encoder"].values()) == {"F16", "F32"}
    attention = {kind for name, kind in types["unet"].items() if ".attn1.to_q.weight" in name}
    others = {kind for name, kind in types["unet"].items() if ".attn2.to_q.weight" in name}
    assert (attention, others) == ({"Q4_0"}, {"Q8_0"})
    kept = "vae/diffusion_pytorch_model.safetensors"
    expected, found = (cc.load(each / kept) for each in (folder, out))
    assert expected.keys() == found.keys()
    assert all(np.array_equal(np.asarray(expected[name]), np.asarray(found[name])) for name in expected)
    for name in ("model_index.json", "scheduler/scheduler_config.json", "tokenizer/vocab.json", "unet/config.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert run(["verify", str(folder), str(out)]) == 0
    assert "368 tensors" in capsys.readouterr().out


def test_loss_is_that_of_the_pictures(source, tmp_path):
    folder, _ = source
    out = tmp_path / "out"
    found = cc.quantize(folder, out, cc.Recipe("q4_0"), measure=True).picture
    settings = {"seed": found.seed, "steps": found.steps, "size": (found.width, found.height)}
    before, after = (cc.models.load(each).draw(found.prompt, **settings) for each in (folder, out))
    noise = before.latents.astype(float) - after.latents
    assert math.isclose(
        found.latent_snr_db, 10 * math.log10((before.latents.astype(float) ** 2).sum() / (noise**2).sum())
    )
    gap = np.asarray(before).astype(float) - np.asarray(after)
    assert math.isclose(found.psnr_db, 10 * math.log10(255**2 / (gap**2).mean()))
    assert 5 < found.latent_snr_db < 60


def test_report(source, tmp_path, capsys):
    folder, _ = source
    assert run(["quantize", str(folder), "-o", str(tmp_path / "out"), "q8_0", "--measure", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["picture"]["latent_snr_db"] > 20
    assert found["types"]["unet/time_embed.2.weight"]["type"] == "q8_0"
    assert {path["path"] for path in found["outputs"]} >= {
        str(tmp_path / "out" / "unet" / "diffusion_pytorch_model.gguf"), str(tmp_path / "out" / "model_index.json")
    }  # fmt: skip


def test_target_size(source, tmp_path):
    folder, _ = source
    out, target = tmp_path / "out", 4_300_000
    assert run(["quantize", str(folder), "-o", str(out), "auto", "--target-size", str(target)]) == 0
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert 0.97 * target < size <= target
    assert run(["verify", str(folder), str(out)]) == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [
    lambda folder: stable_diffusion(folder, xl=True, published=True),
    lambda folder: stable_diffusion_3(folder),
    lambda folder: flux(folder, guidance=True, dynamic=True),
    wuerstchen,
])  # fmt: skip
def test_every_pipeline(make, tmp_path):
    """In f32 the folder draws what the original does; networks without an architecture in GGUF keep their names."""
    folder, out = tmp_path / "in", tmp_path / "out"
    make(folder)
    assert run(["quantize", str(folder), "-o", str(out), "f32"]) == 0
    assert not list(out.glob("*former/*.safetensors"))
    settings = {**SIZE, "size": (128, 128) if "decoder" in {path.name for path in folder.iterdir()} else (32, 32)}
    expected, found = (cc.models.load(each).draw(PROMPT, **settings).latents for each in (folder, out))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_single_file_becomes_a_folder(source, tmp_path):
    folder, _ = source
    path, out, direct = tmp_path / "sd.safetensors", tmp_path / "out", tmp_path / "direct"
    assert run(["convert", str(folder), str(path)]) == 0
    assert run(["quantize", str(path), "-o", str(out), "q8_0"]) == 0
    assert run(["quantize", str(folder), "-o", str(direct), "q8_0"]) == 0
    for name in ("unet/diffusion_pytorch_model.gguf", "text_encoder/model.gguf"):
        one, other = (
            {each.name: each.data.tobytes() for each in gguf.GGUFReader(made / name).tensors} for made in (out, direct)
        )
        assert one == other


def test_int8_of_an_exported_pipeline(source, tmp_path, capsys):
    """onnxruntime runs the quantized UNet, and the autoencoder stays as it is."""
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, _ = source
    exported, out = tmp_path / "onnx", tmp_path / "int8"
    assert run(["convert", str(folder), str(exported), "--to", "onnx"]) == 0
    assert run(["quantize", str(exported), "-o", str(out), "int8", "--reduce-range", "--to", "onnx", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["graphs"]) == {"text_encoder", "unet"}
    given = {
        "sample": np.ones((1, 4, 16, 16), np.float32), "timestep": np.array([7], np.int64),
        "encoder_hidden_states": np.ones((1, 5, 64), np.float32),
    }  # fmt: skip
    results = []
    for each in (exported, out):
        session = onnxruntime.InferenceSession(str(each / "unet" / "model.onnx"))
        kinds = {value.name: value.type for value in session.get_inputs()}
        fed = {name: item.astype(np.float32 if "float" in kinds[name] else np.int64) for name, item in given.items()}
        results.append(session.run(None, fed)[0])
    assert 1e-4 < np.abs(results[0] - results[1]).max() < 0.2 * np.abs(results[0]).max()
    assert (out / "unet" / "model.onnx").stat().st_size < 0.5 * (exported / "unet" / "model.onnx").stat().st_size
    for part in ("vae_decoder", "vae_encoder"):
        one, other = (cc.load(each / part / "model.onnx") for each in (exported, out))
        assert one.keys() == other.keys()
    assert cc.models.load(out).draw(PROMPT, **SIZE).size == (32, 32)


@pytest.mark.parametrize(("options", "why"), [
    (["--prune-layers", "1"], "--prune-layers does not apply to a pipeline"),
    (["--include", "unet"], "--include, --exclude, --rename or --map does not apply to a pipeline"),
    (["--shard-size", "1MB"], "--shard-size or --shard-tensors does not apply to a pipeline"),
])  # fmt: skip
def test_options_of_one_file_are_refused(options, why, source, tmp_path, capsys):
    folder, _ = source
    assert run(["quantize", str(folder), "-o", str(tmp_path / "out"), "q8_0", *options]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_part_that_differs_is_found(source, tmp_path, capsys):
    folder, _ = source
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    path = other / "text_encoder" / "model.safetensors"
    weights = {name: np.array(tensor) for name, tensor in cc.load(path).items()}
    name = "text_model.encoder.layers.0.mlp.fc1.weight" if any(n.startswith("text_model.") for n in weights) else (
        "encoder.layers.0.mlp.fc1.weight"
    )  # fmt: skip
    weights[name][0, 0] += 1
    cc.save(weights, path)
    assert run(["verify", str(folder), str(folder)]) == 0
    capsys.readouterr()
    assert run(["verify", str(folder), str(other)]) == 1
    assert f"text_encoder/{name}" in capsys.readouterr().out
