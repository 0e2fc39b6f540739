"""LoRA files of text-to-image models: pictures with them against diffusers, and files that do not fit."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.diffusion.picture_lora import merge_files
from candle_convert.convert.open.open_model import open_model
from candle_convert.tests.builders.text_to_image import stable_diffusion_3
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
save_file = pytest.importorskip("safetensors.torch").save_file
TARGETS = ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "ff.net.0.proj", "attn.add_q_proj")
STRENGTH = 0.6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd3")
    return stable_diffusion_3(folder, t5=False), folder


def factors(module, rank, seed):
    """The down and up factors of a module's weight."""
    generator = torch.Generator().manual_seed(seed)
    outputs, inputs = module.weight.shape[0], module.weight[0].numel()
    down = torch.randn((rank, inputs), generator=generator) / inputs**0.5
    return down, torch.randn((outputs, rank), generator=generator) / rank**0.5


def targets(transformer):
    return {
        name: module
        for name, module in transformer.named_modules()
        if name.endswith(TARGETS) and hasattr(module, "weight")
    }


def written(path, transformer, naming):
    """A LoRA file of the transformer, in a naming."""
    weights = {}
    for place, (name, module) in enumerate(sorted(targets(transformer).items())):
        down, up = factors(module, 4, place)
        if naming == "diffusers":
            weights |= {f"transformer.{name}.lora_A.weight": down, f"transformer.{name}.lora_B.weight": up}
        elif naming == "kohya":
            flat = f"lora_unet_{name.replace('.', '_')}"
            weights |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up}
            weights[f"{flat}.alpha"] = torch.tensor(4.0)
        else:
            weights |= {f"transformer.{name}.lora.down.weight": down, f"transformer.{name}.lora.up.weight": up}
    save_file(weights, path)
    return path


def changed(transformer, strength):
    """The transformer's weights with the updates."""
    with torch.no_grad():
        for place, (_, module) in enumerate(sorted(targets(transformer).items())):
            down, up = factors(module, 4, place)
            module.weight += strength * (up @ down)


@pytest.mark.parametrize("naming", ["diffusers", "kohya", "first"])
def test_weights(naming, model, tmp_path):
    pipeline, folder = model
    path = written(tmp_path / "style.safetensors", pipeline.transformer, naming)
    graph = open_model(folder, parts=True)
    merge_files(graph, [f"{path}:{STRENGTH}"])
    found = {name: tensor.numpy() for name, tensor in graph.parts["transformer"].weights.items()}
    plain = {name: value.clone() for name, value in pipeline.transformer.state_dict().items()}
    try:
        changed(pipeline.transformer, STRENGTH)
        for name, value in pipeline.transformer.state_dict().items():
            assert np.abs(found[name] - value.numpy()).max() <= 1e-6, name
    finally:
        pipeline.transformer.load_state_dict(plain)


def test_pictures_and_conversion(model, tmp_path, capsys):
    pipeline, folder = model
    path = written(tmp_path / "style.safetensors", pipeline.transformer, "diffusers")
    settings = {"num_inference_steps": 2, "height": 32, "width": 32, "output_type": "np"}
    pipeline.load_lora_weights(str(tmp_path), weight_name="style.safetensors", adapter_name="style")
    try:
        pipeline.set_adapters(["style"], [STRENGTH])
        expected = pipeline("a fox", generator=torch.Generator().manual_seed(1), **settings).images[0]
    finally:
        pipeline.unload_lora_weights()
    words = ["-p", "a fox", "--steps", "2", "--seed", "1", "--size", "32x32"]
    drawn, merged = tmp_path / "drawn.png", tmp_path / "merged"
    assert run(["draw", str(folder), "-o", str(drawn), *words, "--lora", f"{path}:{STRENGTH}"]) == 0
    assert "weights updated, with strength 0.6" in capsys.readouterr().err
    assert run(["convert", str(folder), f"{merged}/", "--to", "safetensors", "--lora", f"{path}:{STRENGTH}"]) == 0
    for picture in (cc.models.load(merged).draw("a fox", steps=2, seed=1, size=(32, 32)), Image.open(drawn)):
        assert np.abs(np.asarray(picture) / 255 - expected).max() <= 0.51 / 255 + 2e-3


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("lora_unet_other_block.lora_down.weight", (4, 8), "lora_unet_other_block"),
        ("transformer.transformer_blocks.0.attn.to_q.lora_A.weight", (4, 8), "only one of the two"),
        ("transformer.transformer_blocks.0.attn.to_q.hada_w1_a", (4, 8), "not a factor of a LoRA"),
    ],
)
def test_files_that_do_not_fit(name, shape, why, model, tmp_path, capsys):
    path = tmp_path / "style.safetensors"
    save_file({name: torch.ones(shape)}, path)
    out = tmp_path / "a.png"
    assert run(["draw", str(model[1]), "-p", "a fox", "-o", str(out), "--steps", "1", "--lora", str(path)]) in (2, 3, 4)
    assert why in capsys.readouterr().err
    assert not out.exists()
