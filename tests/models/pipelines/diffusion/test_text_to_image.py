"""Text-to-image models against the pipelines of diffusers: latents step by step and pictures, and refusals."""

import functools
import json
import shutil
import warnings
import weakref

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.open.diffusion.textual_inversion import add_embeddings
from candle_convert.convert.open.open_model import open_model
from candle_convert.models.diffusion.flux import pack
from candle_convert.models.pipelines.diffusion.prompt_encoder import LongPromptWarning
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.text_to_image import (
    controlnet_of,
    flux,
    stable_diffusion,
    stable_diffusion_3,
    wuerstchen,
    z_image,
)
from PIL import Image
from safetensors.torch import save_file

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
pytestmark = pytest.mark.usefixtures("frozen")
PROMPT, NEGATIVE = "A red fox in snow", "blurry, low quality"
CLOSE = 2e-5
"""Of the largest latent."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Ours and diffusers' by the number of text encoders."""
    found = {}
    for count in (2, 3):
        folder = tmp_path_factory.mktemp(f"sd3_{count}")
        found[count] = stable_diffusion_3(folder, t5=count == 3), cc.models.load(folder), folder
    return found


def theirs(pipeline, seed, **settings):
    """Latents after each step, and the picture as numbers from 0 to 1."""
    steps = []

    def keep(pipe, step, time, values):
        steps.append(values["latents"].numpy().copy())
        return values

    generator = torch.Generator().manual_seed(seed)
    picture = pipeline(generator=generator, output_type="np", callback_on_step_end=keep, **settings).images[0]
    return steps, picture


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("guidance", "seed"), [(7.0, 7), (1.0, 8)])
def test_pictures_of_diffusers(count, guidance, seed, models):
    pipeline, ours, _ = models[count]
    steps, picture = theirs(
        pipeline, seed, prompt=PROMPT, negative_prompt=NEGATIVE, guidance_scale=guidance, num_inference_steps=3,
        height=32, width=48,
    )  # fmt: skip
    seen = []
    drawn = ours.draw(
        PROMPT, negative=NEGATIVE, guidance=guidance, steps=3, seed=seed, size=(48, 32), on_preview=seen.append
    )
    for found, expected in zip([*seen, drawn.latents], steps, strict=True):
        assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()
    assert drawn.size == (48, 32)
    assert np.abs(np.asarray(drawn) / 255 - picture).max() <= 0.51 / 255 + 1e-4


@pytest.mark.sampled(4)
@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "PNDMScheduler", "EulerAncestralDiscreteScheduler"])
@pytest.mark.parametrize(
    ("xl", "negative", "guidance"),
    [(False, NEGATIVE, 7.5), (False, None, 1.0), (True, NEGATIVE, 5.0), (True, None, 5.0)],
)
def test_stable_diffusion(xl, negative, guidance, scheduler, tmp_path):
    pipeline = stable_diffusion(tmp_path, xl=xl, scheduler=scheduler)
    compare(pipeline, tmp_path, 3, negative=negative, guidance=guidance, steps=4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("guidance", [2.5, 8.0])
def test_latent_consistency(guidance, tmp_path):
    pipeline = stable_diffusion(tmp_path, scheduler="LCMScheduler", time_cond_proj_dim=16)
    compare(pipeline, tmp_path, 5, guidance=guidance, steps=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("embedded", "dynamic", "guidance"), [(True, True, 3.5), (False, False, 0.0)])
def test_flux(embedded, dynamic, guidance, tmp_path):
    compare(flux(tmp_path, guidance=embedded, dynamic=dynamic), tmp_path, 4, guidance=guidance, steps=3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layers", "dynamic", "guidance", "negative"),
    [(3, False, 4.0, NEGATIVE), (2, True, 0.5, None), (1, False, 0.0, None)],
)
def test_z_image(layers, dynamic, guidance, negative, tmp_path):
    """Prompts of different lengths; guidance compares from 0 on."""
    pipeline = z_image(tmp_path, layers=layers, dynamic=dynamic)
    compare(pipeline, tmp_path, 6, negative=negative, guidance=guidance, steps=3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("guidance", "negative"), [(4.0, None), (2.0, NEGATIVE), (1.0, None)])
def test_wuerstchen(guidance, negative, tmp_path):
    """Two stages: random numbers go on from the first to the second."""
    pipeline = wuerstchen(tmp_path)
    generator, settings = torch.Generator().manual_seed(5), {"height": 128, "width": 256}
    expected = pipeline(
        PROMPT, negative_prompt=negative, prior_guidance_scale=guidance, prior_num_inference_steps=10,
        num_inference_steps=2, generator=generator, output_type="np", **settings,
    ).images[0]  # fmt: skip
    seen = []
    drawn = cc.models.load(tmp_path).draw(
        PROMPT, negative=negative, guidance=guidance, steps=10, seed=5, size=(256, 128),
        on_progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen == [(done, 12) for done in range(1, 13)]
    assert np.abs(np.asarray(drawn) / 255 - expected).max() <= 0.51 / 255 + 1e-3
    for settings, words in (
        ({"scheduler": "euler"}, "a scheduler of its own"),
        ({"image": drawn}, "from a prompt alone, without image"),
        ({"size": (200, 128)}, "E-DRAW-SIZE"),
        ({"size": "128x128"}, "E-DRAW-SIZE"),
        ({"size": (128,)}, "E-DRAW-SIZE"),
    ):
        with pytest.raises(cc.UsageError, match=words):
            cc.models.load(tmp_path).draw(PROMPT, **settings)


def two_repositories(folder, pipeline):
    """The folders of both stages, as the authors' repositories have them, of a folder of Wuerstchen."""
    from diffusers.pipelines.deprecated.wuerstchen import WuerstchenDecoderPipeline, WuerstchenPriorPipeline

    whole = pipeline.components
    last = {name: part for name, part in whole.items() if not name.startswith("prior_")}
    first = {name.removeprefix("prior_"): part for name, part in whole.items() if name.startswith("prior_")}
    WuerstchenDecoderPipeline(**last).save_pretrained(folder / "wuerstchen")
    WuerstchenPriorPipeline(**first).save_pretrained(folder / "wuerstchen-prior")
    for name, prefix in (("wuerstchen", ""), ("wuerstchen-prior", "prior_")):
        shutil.rmtree(folder / name / "tokenizer")
        shutil.copytree(folder / "combined" / f"{prefix}tokenizer", folder / name / "tokenizer")
    return folder / "wuerstchen", folder / "wuerstchen-prior"


def test_wuerstchen_in_two_repositories(tmp_path):
    """The last stage finds the first next to it, by its name or by the model card; both draw what the whole does, and
    convert to the folder of the whole."""
    pipeline = wuerstchen(tmp_path / "combined")
    last, first = two_repositories(tmp_path, pipeline)
    expected = pipeline(
        PROMPT, prior_num_inference_steps=5, num_inference_steps=1, height=128, width=128, output_type="np",
        generator=torch.Generator().manual_seed(5),
    ).images[0]  # fmt: skip
    settings = {"steps": 5, "seed": 5, "size": (128, 128)}
    drawn = cc.models.load(last).draw(PROMPT, **settings)
    assert np.abs(np.asarray(drawn) / 255 - expected).max() <= 0.51 / 255 + 1e-3
    made = tmp_path / "whole"
    cc.convert(last, made, to="safetensors")
    index, own = (json.loads((each / "model_index.json").read_text()) for each in (made, tmp_path / "combined"))
    lists = {name for name, value in own.items() if isinstance(value, list)}
    assert index["_class_name"] == own["_class_name"]
    assert {name for name, value in index.items() if isinstance(value, list)} == lists
    assert np.array_equal(np.asarray(cc.models.load(made).draw(PROMPT, **settings)), np.asarray(drawn))
    with pytest.raises(cc.UsageError, match="holds the first stage of a pipeline alone"):
        cc.models.load(first)
    other = first.rename(tmp_path / "stage-c")
    with pytest.raises(cc.Error, match=r"without its first stage: no folder wuerstchen-prior next to it"):
        cc.models.load(last)
    (last / "README.md").write_text("---\nlicense: mit\nprior:\n- someone/stage-c\n---\nText\n")
    assert other.is_dir()
    assert np.array_equal(np.asarray(cc.models.load(last).draw(PROMPT, **settings)), np.asarray(drawn))


def compare(pipeline, folder, seed, *, guidance, steps, negative=None):
    """Draw with a model of diffusers and with ours."""
    further = {} if negative is None else {"negative_prompt": negative}
    expected, picture = theirs(
        pipeline,
        seed,
        prompt=PROMPT,
        guidance_scale=guidance,
        num_inference_steps=steps,
        height=32,
        width=48,
        **further,
    )
    drawn = cc.models.load(folder).draw(
        PROMPT, negative=negative, guidance=guidance, steps=steps, seed=seed, size=(48, 32)
    )
    last = expected[-1].reshape(-1)
    found = drawn.latents if drawn.latents.shape == expected[-1].shape else pack(drawn.latents)
    assert np.abs(found.reshape(-1) - last).max() <= 5 * CLOSE * np.abs(last).max()
    assert np.abs(np.asarray(drawn) / 255 - picture).max() <= 0.51 / 255 + 1e-3


def test_a_seed_gives_the_same_bytes(models):
    _, ours, folder = models[2]
    settings = {"steps": 2, "size": (32, 32)}
    several = ours.draw(PROMPT, seed=3, batch=3, **settings)
    assert [picture.recipe.seed for picture in several] == [3, 4, 5]
    assert several[0].tobytes() != several[1].tobytes()
    alone = cc.models.load(folder, threads=1).draw(PROMPT, seed=4, **settings)
    again = cc.models.load(folder, threads=2).draw(PROMPT, seed=4, **settings)
    assert alone.tobytes() == again.tobytes()
    assert np.abs(alone.latents - several[1].latents).max() <= CLOSE * np.abs(alone.latents).max()
    other = ours.draw(PROMPT, seed=4, noise="numpy", **settings)
    assert other.tobytes() != alone.tobytes()


def test_a_drawn_seed_is_told(models):
    _, ours, _ = models[2]
    drawn = ours.draw(PROMPT, steps=1, size=(32, 32))
    again = ours.draw(PROMPT, steps=1, size=(32, 32), seed=drawn.recipe.seed)
    assert drawn.tobytes() == again.tobytes()


def test_long_prompts_are_encoded_in_pieces(models):
    pipeline, ours, _ = models[2]
    words = "a red fox in snow by the lake " * 12
    ids = pipeline.tokenizer(words, add_special_tokens=False)["input_ids"]
    assert len(ids) > 75
    with pytest.warns(LongPromptWarning, match="in pieces of 75"):
        ((found, *_),) = ours.prompts([words])
    begin, end = pipeline.tokenizer.bos_token_id, pipeline.tokenizer.eos_token_id
    states = []
    for start in range(0, len(ids), 75):
        row = [begin, *ids[start : start + 75], end]
        row += [pipeline.tokenizer.pad_token_id] * (77 - len(row))
        with torch.no_grad():
            result = pipeline.text_encoder(torch.tensor([row]), output_hidden_states=True)
        states.append(result.hidden_states[-2])
    expected = torch.cat(states, 1).numpy()
    assert found.states.shape == expected.shape
    assert np.abs(found.states - expected).max() <= 1e-5 * np.abs(expected).max()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongPromptWarning)
        long, short = ours.prompts([words, "a fox"])
    assert long[0].states.shape == short[0].states.shape
    with pytest.raises(cc.Error, match="the prompt is too long"):
        ours.prompts(["fox " * 3000])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"size": (33, 32)}, "multiples of 4"),
        ({"size": (0, 32)}, "multiples of 4"),
        ({"size": (32, 1 << 30)}, "at most"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 10**9}, "steps must be"),
        ({"guidance": float("nan")}, "guidance"),
        ({"guidance": -1.0}, "guidance"),
        ({"batch": 0}, "batch"),
        ({"batch": 10**9}, "batch"),
        ({"seed": -1}, "seed"),
        ({"noise": "torhc"}, "torch"),
        ({"scheduler": "eular"}, "euler"),
    ],
)
def test_refusals(settings, why, models):
    with pytest.raises(cc.Error, match=why):
        models[2][1].draw(PROMPT, **{"steps": 1, "size": (32, 32), **settings})


def test_parts_are_dropped(models):
    _, ours, _ = models[3]
    ours.draw(PROMPT, steps=1, size=(32, 32))
    assert not ours.parts.held
    session = weakref.ref(ours.parts["transformer"].session)
    assert session() is not None
    ours.parts.drop("transformer")
    assert session() is None


def pictures(tmp_path, size=(48, 32)):
    """A picture and a mask in files."""
    random = np.random.default_rng(5)
    smooth = random.integers(0, 256, (8, 12, 3), np.uint8)
    picture = Image.fromarray(smooth).resize(size, Image.Resampling.BICUBIC)
    mask = Image.new("L", size)
    mask.paste(255, (8, 8, 32, 24))
    picture.save(tmp_path / "in.png")
    mask.save(tmp_path / "mask.png")
    return picture, mask


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "scheduler", ["DDIMScheduler", "PNDMScheduler", "EulerDiscreteScheduler", "UniPCMultistepScheduler"]
)
@pytest.mark.parametrize("strength", [0.5, 0.8, 1.0])
def test_pictures_of_pictures(scheduler, strength, tmp_path):
    folder = tmp_path / "sd1"
    pipeline = stable_diffusion(folder, scheduler=scheduler)
    picture, _ = pictures(tmp_path)
    theirs = diffusers.StableDiffusionImg2ImgPipeline(**pipeline.components, requires_safety_checker=False)
    theirs.set_progress_bar_config(disable=True)
    settings = {"guidance_scale": 4.0, "num_inference_steps": 6, "strength": strength, "output_type": "latent"}
    generator = torch.Generator().manual_seed(2)
    expected = theirs(PROMPT, image=picture, generator=generator, **settings).images.numpy()
    drawn = cc.models.load(folder).draw(
        PROMPT, image=tmp_path / "in.png", strength=strength, steps=6, guidance=4.0, seed=2
    )
    assert drawn.size == picture.size
    assert np.abs(drawn.latents - expected).max() <= 5 * CLOSE * np.abs(expected).max()
    assert drawn.recipe.strength == strength
    with pytest.raises(cc.Error, match="leaves no step"):
        cc.models.load(folder).draw(PROMPT, image=picture, strength=0.01, steps=6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("strength", [0.55, 1.0])
@pytest.mark.parametrize("kind", ["StableDiffusion3", "Flux", "ZImage"])
def test_pictures_of_pictures_by_flow_matching(kind, strength, masked, tmp_path):
    folder = tmp_path / "model"
    flows = kind == "Flux"
    made = {
        "StableDiffusion3": stable_diffusion_3,
        "Flux": functools.partial(flux, guidance=True, dynamic=True),
        "ZImage": z_image,
    }
    pipeline = made[kind](folder)
    picture, mask = pictures(tmp_path)
    theirs = getattr(diffusers, f"{kind}{'Inpaint' if masked else 'Img2Img'}Pipeline")(**pipeline.components)
    theirs.set_progress_bar_config(disable=True)
    expected = theirs(
        PROMPT, image=picture, strength=strength, num_inference_steps=5, guidance_scale=3.0, height=32, width=48,
        generator=torch.Generator().manual_seed(2), output_type="latent", **({"mask_image": mask} if masked else {}),
    ).images.numpy()  # fmt: skip
    drawn = cc.models.load(folder).draw(
        PROMPT, image=picture, mask=mask if masked else None, strength=strength, steps=5, guidance=3.0, seed=2
    )
    found = pack(drawn.latents) if flows else drawn.latents
    assert np.abs(found - expected).max() <= 5 * CLOSE * np.abs(expected).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("channels", [4, 9])
@pytest.mark.parametrize("strength", [0.6, 1.0])
def test_masks(channels, strength, tmp_path):
    folder = tmp_path / "sd1"
    pipeline = stable_diffusion(folder, in_channels=channels)
    picture, mask = pictures(tmp_path)
    theirs = diffusers.StableDiffusionInpaintPipeline(**pipeline.components, requires_safety_checker=False)
    theirs.set_progress_bar_config(disable=True)
    settings = {"guidance_scale": 4.0, "num_inference_steps": 5, "strength": strength, "output_type": "latent"}
    generator = torch.Generator().manual_seed(2)
    size = {"height": 32, "width": 48}
    expected = theirs(PROMPT, image=picture, mask_image=mask, generator=generator, **settings, **size).images.numpy()
    drawn = cc.models.load(folder).draw(
        PROMPT, image=picture, mask=tmp_path / "mask.png", strength=strength, steps=5, guidance=4.0, seed=2
    )
    assert np.abs(drawn.latents - expected).max() <= 5 * CLOSE * np.abs(expected).max()


def test_pictures_that_do_not_fit(models, tmp_path):
    picture, mask = pictures(tmp_path)
    ours = models[2][1]
    for settings, why in (
        ({"mask": mask}, "about a picture"),
        ({"image": picture, "strength": 0.0}, "strength is out of range"),
        ({"image": picture, "mask": mask.resize((20, 20))}, "another size"),
        ({"image": tmp_path / "none.png"}, "cannot be read"),
    ):
        with pytest.raises(cc.Error, match=why):
            ours.draw(PROMPT, steps=2, **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("xl", [False, True])
def test_controlnet(xl, tmp_path):
    folder = tmp_path / "sd"
    pipeline = stable_diffusion(folder, xl=xl)
    picture, _ = pictures(tmp_path)
    network = controlnet_of(pipeline.unet)
    network.save_pretrained(tmp_path / "control")
    kind = diffusers.StableDiffusionXLControlNetPipeline if xl else diffusers.StableDiffusionControlNetPipeline
    further = {"add_watermarker": False} if xl else {"requires_safety_checker": False}
    theirs = kind(**pipeline.components, controlnet=network, **further)
    theirs.set_progress_bar_config(disable=True)
    expected = theirs(
        PROMPT, image=picture, generator=torch.Generator().manual_seed(2), guidance_scale=4.0, num_inference_steps=4,
        controlnet_conditioning_scale=0.7, output_type="latent", negative_prompt=NEGATIVE,
    ).images.numpy()  # fmt: skip
    settings = {"steps": 4, "guidance": 4.0, "seed": 2, "negative": NEGATIVE, "size": picture.size}
    ours, control = cc.models.load(folder), cc.models.load(tmp_path / "control")
    drawn = ours.draw(PROMPT, control=tmp_path / "in.png", controlnet=control, control_strength=0.7, **settings)
    assert np.abs(drawn.latents - expected).max() <= 5 * CLOSE * np.abs(expected).max()
    plain = ours.draw(PROMPT, **settings)
    assert np.abs(drawn.latents - plain.latents).max() > 0.01 * np.abs(expected).max()
    for wrong in ({"control": picture}, {"controlnet": control}, {"control": picture, "controlnet": ours}):
        with pytest.raises(cc.Error, match="need each other"):
            ours.draw(PROMPT, **wrong, **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("xl", [False, True])
@pytest.mark.parametrize("names", ["diffusers", "web-ui"])
def test_textual_inversion(names, xl, tmp_path):
    folder = tmp_path / "sd"
    pipeline = stable_diffusion(folder, xl=xl)
    widths = {"clip_l": 16, "clip_g": 24} if xl else {"clip_l": 16}
    vectors = {
        name: torch.randn(3, width, generator=torch.Generator().manual_seed(width)) for name, width in widths.items()
    }
    path, word = tmp_path / "fox-style.safetensors", "<fox>" if names == "diffusers" and not xl else "fox-style"
    if xl:
        save_file(vectors, path)
    elif names == "diffusers":
        save_file({word: vectors["clip_l"]}, path)
    else:
        path = path.with_suffix(".pt")
        torch.save({"string_to_token": {"*": 265}, "string_to_param": {"*": vectors["clip_l"]}, "name": word}, path)
    pipeline.load_textual_inversion(vectors["clip_l"], token=word)
    if xl:
        second = {"text_encoder": pipeline.text_encoder_2, "tokenizer": pipeline.tokenizer_2}
        pipeline.load_textual_inversion(vectors["clip_g"], token=word, **second)
    prompt = f"a red {word} in snow"
    expected = pipeline(
        prompt, generator=torch.Generator().manual_seed(2), guidance_scale=4.0, num_inference_steps=2, height=32,
        width=32, output_type="latent",
    ).images.numpy()  # fmt: skip
    graph = open_model(folder, parts=True)
    add_embeddings(graph, [str(path)])
    settings = {"seed": 2, "guidance": 4.0, "steps": 2, "size": (32, 32)}
    drawn = cc.models.load(graph).draw(prompt, **settings)
    assert np.abs(drawn.latents - expected).max() <= 5 * CLOSE * np.abs(expected).max()
    plain = cc.models.load(folder).draw(prompt, **settings)
    assert np.abs(drawn.latents - plain.latents).max() > 0.01 * np.abs(expected).max()
    with pytest.raises(cc.Error, match="is in the vocabulary"):
        add_embeddings(graph, [str(path)])
    save_file({"emb_params": torch.ones(2, 17)}, tmp_path / "other.safetensors")
    with pytest.raises(cc.Error, match="fit no text encoder"):
        add_embeddings(graph, [str(tmp_path / "other.safetensors")])


def test_words_of_a_tokenizer_of_the_library(tmp_path):
    """The same words in vocab.json with merges.txt and in a tokenizer.json."""
    folder, other = tmp_path / "sd", tmp_path / "other"
    pipeline = stable_diffusion(folder)
    shutil.copytree(folder, other)
    for file in (other / "tokenizer").iterdir():
        file.unlink()
    pipeline.tokenizer.save_pretrained(str(other / "tokenizer"))
    assert (other / "tokenizer" / "tokenizer.json").exists()
    path, drawn = tmp_path / "style.safetensors", []
    save_file({"<style>": torch.ones(2, 16)}, path)
    for each in (folder, other):
        graph = open_model(each, parts=True)
        add_embeddings(graph, [str(path)])
        drawn.append(cc.models.load(graph).draw("a <style> fox", seed=2, steps=2, size=(32, 32)).latents)
    assert np.array_equal(*drawn)


def test_words_that_cannot_be_added(tmp_path):
    folder, path = tmp_path / "sd", tmp_path / "two.safetensors"
    stable_diffusion(folder)
    save_file({"one": torch.ones(1, 16), "two": torch.ones(1, 16)}, path)
    with pytest.raises(cc.Error, match="vectors of several words"):
        add_embeddings(open_model(folder, parts=True), [str(path)])
    graph, style = open_model(folder, parts=True), tmp_path / "style.safetensors"
    save_file({"<w>_1": torch.ones(2, 16)}, style)
    add_embeddings(graph, [str(style)])
    with pytest.raises(cc.Error, match="is in the vocabulary"):
        add_embeddings(graph, [f"{style}=<w>"])
    name, table = next(
        item for item in graph.parts["text_encoder"].weights.items() if item[0].endswith("token_embedding.weight")
    )
    graph.parts["text_encoder"].weights[name] = StoredTensor.of(np.pad(table.numpy(), ((0, 200), (0, 0))))
    with pytest.raises(cc.Error, match="cannot number '<v>' from"):
        add_embeddings(graph, [f"{style}=<v>"])


def test_words_of_flux(tmp_path):
    folder, path = tmp_path / "flux", tmp_path / "style.safetensors"
    flux(folder, guidance=True, dynamic=False)
    save_file({"<style>": torch.ones(2, 16)}, path)
    graph = open_model(folder, parts=True)
    rows = {part: graph.parts[part].weights for part in ("text_encoder", "text_encoder_2")}
    before = {part: sum(each.shape[0] for each in weights.values()) for part, weights in rows.items()}
    add_embeddings(graph, [str(path)])
    after = {part: sum(each.shape[0] for each in weights.values()) for part, weights in rows.items()}
    assert after == {**before, "text_encoder": before["text_encoder"] + 2}
