"""``verify --prompt`` of text-to-image models: the distance of one denoising step, against diffusers."""

import json
import shutil

import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_to_image import flux, published_tokenizer, stable_diffusion

pytestmark = pytest.mark.usefixtures("frozen")
torch = pytest.importorskip("torch")
PROMPT, GUIDANCE = "a red fox", 7.5


def prediction(pipeline):
    """The guided prediction of the first of two steps."""
    pipeline.scheduler.set_timesteps(2)
    latents = torch.randn((1, 4, 16, 16), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        prompt, negative = pipeline.encode_prompt(PROMPT, "cpu", 1, True, "")
        first, second = (
            pipeline.unet(latents, pipeline.scheduler.timesteps[0], encoder_hidden_states=each).sample.numpy()
            for each in (negative, prompt)
        )
    return first + GUIDANCE * (second - first)


def test_one_step_of_a_folder_and_a_changed_file(tmp_path, capsys):
    folder, path = tmp_path / "sd", tmp_path / "sd.safetensors"
    pipeline = stable_diffusion(folder, published=True, tokenizer=published_tokenizer)
    expected = prediction(pipeline)
    assert run(["convert", str(folder), str(path)]) == 0
    assert run(["verify", str(folder), str(path), "-p", PROMPT]) == 0
    assert "✓ denoising step on 256 rows: NMSE 0 (excellent)" in capsys.readouterr().out
    with torch.no_grad():
        pipeline.unet.conv_out.weight.mul_(1.2)
    pipeline.unet.save_pretrained(folder / "unet")
    changed = prediction(pipeline)
    assert run(["verify", str(path), str(folder), "-p", PROMPT, "--level", "sample", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["outputs"]
    assert found["nmse"] == pytest.approx(np.sum((changed - expected) ** 2) / np.sum(expected**2), rel=1e-3)


def flux_prediction(pipeline):
    """The prediction of FLUX.1 at the first of two steps, by rows of latents."""
    noise = torch.randn((1, 4, 16, 16), generator=torch.Generator().manual_seed(0))
    found = []

    def first(pipe, index, timestep, kwargs):
        found.append(kwargs["latents"].clone())
        return kwargs

    packed = pipeline._pack_latents(noise, 1, 4, 16, 16)
    pipeline(
        PROMPT, latents=packed, num_inference_steps=2, guidance_scale=3.5, height=32, width=32, output_type="latent",
        callback_on_step_end=first,
    )  # fmt: skip
    sigmas = pipeline.scheduler.sigmas
    return ((found[0] - packed) / (sigmas[1] - sigmas[0])).numpy()


def test_one_step_of_flux_with_a_dynamic_shift(tmp_path, capsys):
    folder, other = tmp_path / "flux", tmp_path / "other"
    pipeline = flux(folder, guidance=True, dynamic=True)
    expected = flux_prediction(pipeline)
    shutil.copytree(folder, other)
    with torch.no_grad():
        pipeline.transformer.proj_out.weight.mul_(1.2)
    pipeline.transformer.save_pretrained(other / "transformer")
    changed = flux_prediction(pipeline)
    assert run(["verify", str(folder), str(other), "-p", PROMPT, "--level", "sample", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["outputs"]
    assert found["nmse"] == pytest.approx(np.sum((changed - expected) ** 2) / np.sum(expected**2), rel=1e-3)


def test_one_step_of_a_model_that_takes_masks(tmp_path, capsys):
    folder, other = tmp_path / "sd", tmp_path / "other"
    stable_diffusion(folder, in_channels=9)
    shutil.copytree(folder, other)
    assert run(["verify", str(folder), str(other), "-p", PROMPT]) == 0
    assert "✓ denoising step on 256 rows: NMSE 0 (excellent)" in capsys.readouterr().out
