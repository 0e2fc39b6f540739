"""Pipelines of diffusers as ONNX in Optimum's layout: diffusers draws from the files, and so do we."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.models.diffusion.flux import pack
from candle_convert.tests.builders.text_to_image import controlnet_of, flux, stable_diffusion, stable_diffusion_3
from PIL import Image

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
onnx = pytest.importorskip("onnx")
optimum_components = pytest.importorskip("candle_convert.tests.oracles.optimum_components")
PROMPT, NEGATIVE = "A red fox in snow", "blurry"
CLOSE = 1e-4
"""Of the largest latent."""
BUILDERS = {
    "sd1": stable_diffusion,
    "xl": lambda folder: stable_diffusion(folder, xl=True, scheduler="EulerDiscreteScheduler"),
    "lcm": lambda folder: stable_diffusion(folder, scheduler="LCMScheduler", time_cond_proj_dim=16),
    "sd3": stable_diffusion_3,
    "flux": lambda folder: flux(folder, guidance=True, dynamic=True),
}
CLIP = ["last_hidden_state", "pooler_output", "hidden_states.0", "hidden_states.1", "hidden_states.2"]
PROJECTED = ["text_embeds", "last_hidden_state", "hidden_states.0", "hidden_states.1", "hidden_states.2"]
AUTOENCODER = {
    "vae_encoder": ([("sample", 4)], ["latent_parameters"]),
    "vae_decoder": ([("latent_sample", 4)], ["sample"]),
}
UNET = [("sample", 4), ("timestep", 0), ("encoder_hidden_states", 3)]
TRANSFORMER = {"encoder_hidden_states": 3, "pooled_projections": 2, "timestep": 1}
IDS = [("input_ids", 2)]
SIGNATURES = {
    "sd1": {"text_encoder": (IDS, CLIP), "unet": (UNET, ["out_sample"])},
    "xl": {
        "text_encoder": (IDS, CLIP),
        "text_encoder_2": (IDS, PROJECTED),
        "unet": ([*UNET, ("text_embeds", 2), ("time_ids", 2)], ["out_sample"]),
    },
    "lcm": {"text_encoder": (IDS, CLIP), "unet": ([*UNET, ("timestep_cond", 2)], ["out_sample"])},
    "sd3": {
        "text_encoder": (IDS, PROJECTED),
        "text_encoder_2": (IDS, PROJECTED),
        "text_encoder_3": (IDS, ["last_hidden_state"]),
        "transformer": ([("hidden_states", 4), *TRANSFORMER.items()], ["out_hidden_states"]),
    },
    "flux": {
        "text_encoder": (IDS, CLIP),
        "text_encoder_2": (IDS, ["last_hidden_state"]),
        "transformer": (
            [("hidden_states", 3), *TRANSFORMER.items(), ("img_ids", 2), ("txt_ids", 2), ("guidance", 1)],
            ["out_hidden_states"],
        ),
    },
}
"""Inputs with their numbers of dimensions, and outputs in their order: those of Optimum's OnnxConfig classes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What makes a pipeline, its folder, and that of the ONNX files, once for each name."""
    known = {}

    def of(name):
        if name not in known:
            folder, out = tmp_path_factory.mktemp(name), tmp_path_factory.mktemp(f"{name}_onnx") / "out"
            pipeline = BUILDERS[name](folder)
            assert run(["convert", str(folder), str(out), "--to", "onnx"]) == 0
            known[name] = pipeline, folder, out
        return known[name]

    return of


def settings(name, steps=3):
    """Of diffusers and of `draw`."""
    negative = {} if name == "flux" else {"negative": NEGATIVE}
    theirs = {"num_inference_steps": steps, "guidance_scale": 4.0, "height": 32, "width": 48}
    ours = {"steps": steps, "guidance": 4.0, "size": (48, 32), "seed": 5, **negative}
    return theirs | ({"negative_prompt": NEGATIVE} if negative else {}), ours


def latents_of(pipeline, **given):
    return pipeline(PROMPT, generator=torch.Generator().manual_seed(5), output_type="latent", **given).images.numpy()


@pytest.mark.parametrize("name", BUILDERS)
def test_diffusers_draws_from_the_files(name, made):
    pipeline, _, out = made(name)
    theirs, _ = settings(name)
    expected = latents_of(pipeline, **theirs)
    other = type(pipeline)(**optimum_components.of_files(pipeline, out), **extra(pipeline))
    other.set_progress_bar_config(disable=True)
    found = latents_of(other, **theirs)
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()
    picture, plain = (
        each(PROMPT, generator=torch.Generator().manual_seed(5), output_type="np", **theirs).images[0]
        for each in (other, pipeline)
    )
    assert np.abs(picture - plain).max() <= 1e-3


def extra(pipeline):
    """Arguments of a pipeline besides its components."""
    if isinstance(pipeline, diffusers.StableDiffusionXLPipeline):
        return {"add_watermarker": False}
    return {"requires_safety_checker": False} if isinstance(pipeline, diffusers.StableDiffusionPipeline) else {}


@pytest.mark.parametrize("name", BUILDERS)
def test_signatures_are_those_of_optimum(name, made):
    _, _, out = made(name)
    expected = {**SIGNATURES[name], **AUTOENCODER}
    assert {path.parent.name for path in out.glob("*/*.onnx")} == set(expected)
    for folder, (inputs, outputs) in expected.items():
        graph = onnx.load(out / folder / "model.onnx").graph
        assert sorted((each.name, len(each.type.tensor_type.shape.dim)) for each in graph.input) == sorted(inputs)
        assert [each.name for each in graph.output] == outputs
        assert (out / folder / "config.json").is_file()


@pytest.mark.parametrize("name", BUILDERS)
def test_we_draw_from_the_files(name, made):
    pipeline, _, out = made(name)
    theirs, ours = settings(name)
    expected = latents_of(pipeline, **theirs)
    drawn = cc.models.load(out).draw(PROMPT, **ours)
    found = pack(drawn.latents) if name == "flux" else drawn.latents
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()


def test_a_picture_to_begin_with(made, tmp_path):
    pipeline, _, out = made("sd1")
    picture = Image.effect_noise((48, 32), 60).convert("RGB")
    components = optimum_components.of_files(pipeline, out)
    theirs = diffusers.StableDiffusionImg2ImgPipeline(**components, requires_safety_checker=False)
    theirs.set_progress_bar_config(disable=True)
    plain = diffusers.StableDiffusionImg2ImgPipeline(**pipeline.components, requires_safety_checker=False)
    plain.set_progress_bar_config(disable=True)
    given = {"image": picture, "strength": 0.6, "num_inference_steps": 5, "guidance_scale": 4.0}
    expected = latents_of(plain, **given)
    found = latents_of(theirs, **given)
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()
    drawn = cc.models.load(out).draw(PROMPT, image=picture, strength=0.6, steps=5, guidance=4.0, seed=5)
    assert np.abs(drawn.latents - expected).max() <= CLOSE * np.abs(expected).max()
    shutil.copytree(out, tmp_path / "decoder", ignore=shutil.ignore_patterns("vae_encoder"))
    alone = cc.models.load(tmp_path / "decoder")
    assert alone.draw(PROMPT, steps=1, size=(32, 32), seed=1).size == (32, 32)
    with pytest.raises(cc.Error, match="no vae_encoder"):
        alone.draw(PROMPT, image=picture, steps=2)


def test_f16_and_data_files(made, tmp_path):
    pipeline, folder, _ = made("sd1")
    assert run(["convert", str(folder), str(tmp_path / "f16"), "--to", "onnx", "--dtype", "f16"]) == 0
    given = onnx.load(tmp_path / "f16/unet/model.onnx").graph.input
    assert {each.type.tensor_type.elem_type for each in given} == {onnx.TensorProto.FLOAT16}
    theirs, ours = settings("sd1")
    expected = latents_of(pipeline, **theirs)
    drawn = cc.models.load(tmp_path / "f16").draw(PROMPT, **ours)
    assert np.abs(drawn.latents - expected).max() <= 0.05 * np.abs(expected).max()
    assert run(["convert", str(folder), str(tmp_path / "data"), "--to", "onnx", "--external-data", "always"]) == 0
    assert (tmp_path / "data/unet/model.onnx_data").stat().st_size > 200_000
    other = type(pipeline)(**optimum_components.of_files(pipeline, tmp_path / "data"), **extra(pipeline))
    other.set_progress_bar_config(disable=True)
    assert np.abs(latents_of(other, **theirs) - expected).max() <= CLOSE * np.abs(expected).max()


def test_files_of_optimum_and_of_ours_again(made, tmp_path):
    _, _, out = made("sd1")
    shutil.copytree(out, tmp_path / "saved")
    index = json.loads((tmp_path / "saved/model_index.json").read_text())
    index["_class_name"] = "ORTStableDiffusionPipeline"
    (tmp_path / "saved/model_index.json").write_text(json.dumps(index))
    assert run(["convert", str(tmp_path / "saved"), str(tmp_path / "again"), "--to", "onnx"]) == 0
    _, ours = settings("sd1", steps=1)
    first, again = (cc.models.load(each).draw(PROMPT, **ours) for each in (out, tmp_path / "again"))
    assert np.abs(first.latents - again.latents).max() <= CLOSE * np.abs(first.latents).max()


def test_refusals(made, tmp_path, capsys):
    pipeline, folder, out = made("sd1")
    shutil.copytree(folder, tmp_path / "controlled")
    controlnet_of(pipeline.unet).save_pretrained(tmp_path / "controlled/controlnet")
    index = json.loads((folder / "model_index.json").read_text())
    index |= {"_class_name": "StableDiffusionControlNetPipeline", "controlnet": ["diffusers", "ControlNetModel"]}
    (tmp_path / "controlled/model_index.json").write_text(json.dumps(index))
    assert run(["convert", str(tmp_path / "controlled"), str(tmp_path / "a"), "--to", "onnx"]) == 4
    assert "controlnet is a" in capsys.readouterr().err
    assert run(["convert", str(folder), str(tmp_path / "a"), "--to", "onnx", "--dtypes", "f32,q8"]) == 2
    assert "--dtypes does not apply to a pipeline of several models" in capsys.readouterr().err
    assert run(["convert", str(folder), str(tmp_path / "a.onnx")]) == 2
    assert not list(tmp_path.glob("a*"))
    shutil.copytree(out, tmp_path / "swapped")
    shutil.copy(out / "vae_decoder/model.onnx", tmp_path / "swapped/unet/model.onnx")
    assert run(["draw", str(tmp_path / "swapped"), "-p", "a", "-o", str(tmp_path / "b.png"), "--steps", "1"]) in (2, 3)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert not (tmp_path / "b.png").exists()


def test_folders_that_are_called_alike(made, tmp_path, capsys):
    """Copies of another type next to the component's own."""
    _, _, out = made("sd1")
    shutil.copytree(out, tmp_path / "copies")
    for name in ("vae_decoder_fp16", "vae_a"):
        shutil.copytree(out / "vae_decoder", tmp_path / "copies" / name)
    _, ours = settings("sd1", steps=1)
    expected, found = (cc.models.load(each).draw(PROMPT, **ours) for each in (out, tmp_path / "copies"))
    assert np.array_equal(np.asarray(found), np.asarray(expected))
    assert run(["inspect", str(tmp_path / "copies")]) == 0
    said = "reading vae_decoder, vae_encoder; skipped likely copies of the model: vae_a, vae_decoder_fp16"
    assert said in capsys.readouterr().err


def test_text_encoders_with_ids_of_32_bits(made, tmp_path):
    """As older releases of Optimum export CLIP."""
    pipeline, _, out = made("sd1")
    shutil.copytree(out, tmp_path / "older")
    path = tmp_path / "older/text_encoder/model.onnx"
    model = onnx.load(path)
    (ids,) = model.graph.input
    wide = f"{ids.name}_i64"
    for node in model.graph.node:
        node.input[:] = [wide if name == ids.name else name for name in node.input]
    ids.type.tensor_type.elem_type = onnx.TensorProto.INT32
    model.graph.node.insert(0, onnx.helper.make_node("Cast", [ids.name], [wide], to=onnx.TensorProto.INT64))
    onnx.save(model, path)
    theirs, ours = settings("sd1")
    expected = latents_of(pipeline, **theirs)
    loaded = cc.models.load(tmp_path / "older")
    assert np.abs(loaded.draw(PROMPT, **ours).latents - expected).max() <= CLOSE * np.abs(expected).max()
    with pytest.raises(cc.Error, match="input_ids has values that int32 cannot hold"):
        loaded.parts.loaded("text_encoder")(input_ids=[[2**32]])


def vae_encoder(path, change):
    """Change the graph of an encoder in place."""
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path)


def sampled(graph):
    """Latents that the graph draws itself, of no variance, as older releases of Optimum name them."""
    (old,) = graph.output
    for node in graph.node:
        node.output[:] = ["moments" if name == old.name else name for name in node.output]
    new = onnx.helper.make_tensor_value_info("latent_sample", onnx.TensorProto.FLOAT, ["b", 4, "h", "w"])
    split = onnx.helper.make_node("Split", ["moments"], [new.name, "variance"], axis=1, num_outputs=2)
    graph.node.append(split)
    graph.output.remove(old)
    graph.output.append(new)


def renamed(graph):
    graph.node.append(onnx.helper.make_node("Identity", [graph.output[0].name], ["latents"]))
    graph.output[0].name = "latents"


def narrowed(graph):
    sampled(graph)
    graph.node.append(onnx.helper.make_node("Identity", ["latent_sample"], ["latent_parameters"]))
    graph.output[0].name = "latent_parameters"


def narrowed_without_a_word(graph):
    narrowed(graph)
    graph.output[0].type.tensor_type.shape.dim[1].dim_param = "channels"


def test_latents_that_the_encoder_draws(made, tmp_path):
    _, _, out = made("sd1")
    shutil.copytree(out, tmp_path / "older")
    vae_encoder(tmp_path / "older/vae_encoder/model.onnx", sampled)
    session = optimum_components.onnxruntime.InferenceSession(tmp_path / "older/vae_encoder/model.onnx")
    pixels = np.random.default_rng(3).uniform(-1, 1, (1, 3, 32, 32)).astype(np.float32)
    (expected,) = session.run(None, {"sample": pixels})
    found = cc.models.load(tmp_path / "older").parts.loaded("vae").encode(pixels)
    assert np.abs(found["mean"] - expected).max() <= CLOSE * np.abs(expected).max()
    assert np.exp(found["logvar"] / 2).max() < 1e-6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed, "the graph has no output latent_parameters or latent_sample"),
        (narrowed, "latent_parameters has another shape"),
        (narrowed_without_a_word, "latent_parameters has another shape"),
    ],
)
def test_encoders_with_other_outputs(change, why, made, tmp_path, capsys):
    _, _, out = made("sd1")
    shutil.copytree(out, tmp_path / "other")
    vae_encoder(tmp_path / "other/vae_encoder/model.onnx", change)
    Image.effect_noise((32, 32), 60).convert("RGB").save(tmp_path / "a.png")
    words = [
        "draw",
        tmp_path / "other",
        "-p",
        "a",
        "--image",
        tmp_path / "a.png",
        "-o",
        tmp_path / "b.png",
        "--steps",
        "2",
    ]
    assert run(list(map(str, words))) == 3
    said = capsys.readouterr().err
    assert "✗ E-ARCH-SHAPE" in said
    assert why in said
    assert not (tmp_path / "b.png").exists()
