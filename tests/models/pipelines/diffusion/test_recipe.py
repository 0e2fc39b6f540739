"""Recipes in the metadata of pictures, against one that AUTOMATIC1111's web UI wrote."""

import candle_convert as cc
import pytest
from candle_convert.models.pipelines.diffusion.recipe import Recipe, read_recipe

WRITTEN = """a red fox, (snow:1.2)
golden hour
Negative prompt: blurry,
low quality
Steps: 25, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7.5, Seed: 1234, Size: 512x768, \
Model hash: 6ce0161689, Model: v1-5, Denoising strength: 0.4, Lora hashes: "a: 1, b: 2", Version: v1.9.4"""
READ = Recipe(
    "a red fox, (snow:1.2)\ngolden hour", "blurry,\nlow quality", 25, "DPM++ 2M", "Karras", 7.5, 1234, (512, 768),
    "torch", 0.4,
)  # fmt: skip


def test_recipes_of_the_web_ui():
    assert read_recipe(WRITTEN) == READ
    assert read_recipe(str(READ)) == READ
    assert READ.scheduler == "DPM++ 2M Karras"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a fox",
        "a fox\nSteps: 2, Seed: 1, Size: 1x1",
        WRITTEN.replace("512x768", "big"),
        WRITTEN.replace("1234", "9" * 400),
        "a fox\n" + "a" * 200_000,
        "a fox\n" + '"' * 200_000,
    ],
)
def test_other_texts(text):
    with pytest.raises(cc.Error, match="not a recipe"):
        read_recipe(text)
