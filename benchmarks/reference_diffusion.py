"""Outputs of reference cases of text-to-image models: parts in diffusers' folders, schedulers, and pictures."""

import json

import candle_convert as cc
import numpy as np
from candle_convert.models import schedulers
from candle_convert.models.pipelines.diffusion.text_to_image import Request

DYNAMIC_MU = 0.8
"""What the case passes to schedulers that shift dynamically."""
TRAINED_SIZE = 128, 128
"""Height and width that the cases tell models which know the sizes of pictures."""
DENOISERS = ("transformer", "prior", "decoder")
"""Folders of diffusers that have a denoising network without a UNet."""
FOLDERS = (*DENOISERS, "unet", "vae", "vqgan")
"""Folders of diffusers with parts that are computed."""


def sampled(config, initial, model_outputs, noise, steps):
    """The trajectory of a scheduler from given model outputs and noise."""
    scheduler = schedulers.load(config)
    mu = DYNAMIC_MU if config.get("use_dynamic_shifting") else None
    run, history, samples = scheduler.trajectory(int(steps), mu=mu), (), []
    sample = initial * np.float32(run.initial_noise_sigma)
    for index in range(len(run.timesteps)):
        sample, history = run.step(model_outputs[index], index, sample, noise[index], history)
        samples.append(sample)
    found = {"timesteps": run.timesteps.astype(np.float32), "trajectory": np.stack(samples)}
    return found if run.sigmas is None else found | {"sigmas": run.sigmas}


def scheduled(case, inputs):
    """The arrays of a case of schedulers, which has a configuration for each variant and no weights."""
    names = ("initial", "model_outputs", "noise", "steps")
    configs = json.loads((case / "config.json").read_text())
    results = {
        variant: sampled(config, *(inputs[f"{variant}/{name}"] for name in names))
        for variant, config in configs.items()
    }
    return {f"{variant}/{name}": item for variant, found in results.items() for name, item in found.items()}


def conditioned(path, input_ids, threads):
    """The outputs of a text encoder of a text-to-image model."""
    found = cc.models.load(path, task="text-conditioning", threads=threads)(input_ids=input_ids)
    states = [name for name in found if name.startswith("hidden_states.")]
    return found | {"penultimate": found[states[-2]], "pooled": found.get("pooler_output")}


def drawn(path, given, threads):
    """The latents after each step of a text-to-image model, and the picture."""
    model = cc.models.load(path, threads=threads)
    rows = [[given["prompt_ids"][0].tolist()], [given["negative_ids"][0].tolist()]]
    encoded = zip(*(model.prompts.encoded(encoder, rows) for encoder in model.pipeline.encoders), strict=True)
    request = Request(*TRAINED_SIZE, *given["latents"].shape[2:], float(given["guidance"]))
    conditioning = model.conditioned(list(encoded), request)
    run = model.scheduler.trajectory(int(given["steps"]))
    latents = list(model.steps(run, given["latents"] * np.float32(run.initial_noise_sigma), conditioning))
    found = {"timesteps": run.timesteps, "image": model.decode(latents[-1])}
    return found | {f"latents.{step}": each for step, each in enumerate(latents)}


def denoised(model, inputs):
    """The prediction of a denoising transformer; cases of Z-Image have no dimension of a batch."""
    if "cap_feats" not in inputs:
        return model(**inputs)
    batched = {name: item if name == "t" else item[None] for name, item in inputs.items()}
    return {name: item[0] for name, item in model(**batched).items()}


def predicted(case, given, inputs, threads):
    """The prediction of a UNet; inputs that a variant lacks are the first rows of those of the variant ``unet``."""
    stored = {name.partition("/")[2]: item for name, item in inputs.items() if name.startswith("unet/")}
    rows = {name: item[: len(given["sample"])] for name, item in stored.items()}
    return cc.models.load(case / "unet", threads=threads)(**rows | given)


def coded(path, given, threads):
    """The outputs of an autoencoder: encoded pictures and decoded latents."""
    model = cc.models.load(path, threads=threads)
    if path.name == "vae":
        encoded = {f"encoded_{name}": item for name, item in model.encode(given["image"]).items()}
        return encoded | {"decoded": model.decode(given["latents"])["sample"]}
    encoded = {"encoded": model.encode(given["image"])["latents"]} if "image" in given else {}
    return encoded | {"decoded": model.decode(given["latents"], quantized="image" not in given)["sample"]}


def has_parts(case):
    """Whether a case has folders of diffusers."""
    return any((case / name).exists() for name in FOLDERS)


def parts(case, inputs, outputs, threads):
    """The arrays of a case with folders of diffusers: of its parts, and of the picture that they draw together."""
    results, denoiser = {}, next((case / name for name in DENOISERS if (case / name).exists()), None)
    for variant in dict.fromkeys(name.partition("/")[0] for name in outputs):
        given = {name.partition("/")[2]: item for name, item in inputs.items() if name.startswith(f"{variant}/")}
        if variant.startswith("text_encoder"):
            found = conditioned(case / variant, given["input_ids"], threads)
        elif variant.startswith("text_to_image"):
            found = drawn(case, given, threads)
        elif variant.startswith("unet"):
            found = predicted(case, given, inputs, threads)
        elif variant == "vae" or (case / "vqgan").exists():
            found = coded(case / ("vae" if variant == "vae" else "vqgan"), given, threads)
        else:
            found = denoised(cc.models.load(denoiser, threads=threads), given)
        results |= {f"{variant}/{name}": item for name, item in found.items() if f"{variant}/{name}" in outputs}
    return results
