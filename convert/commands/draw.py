"""``draw``: draws pictures of a text with a diffusion model."""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current, notes_json
from ..console.status_line import busy

if TYPE_CHECKING:
    from ...runtime.ir.graph import Graph

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert draw sd_dir -p "a red fox in snow" -o fox.png
  candle-convert draw xl.safetensors -p "a boat" -o b.png --steps 30 --seed 7
  candle-convert draw sd3_dir -p "a hut" -o hut.png --size 768x512 --batch 4
"""
SETTINGS = (
    "negative", "steps", "guidance", "seed", "scheduler", "batch", "noise", "image", "strength", "mask", "control",
    "control_strength",
)  # fmt: skip
"""Options that are passed on as they are."""
RECIPE = ("prompt", "negative", "steps", "guidance", "seed", "size", "scheduler", "noise")
"""Options that a recipe stands for."""
SIZE = re.compile(r"(\d{1,6})[xX](\d{1,6})")


def _size(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Width and height; None if the option is not given."""
    if value is None:
        return None
    match = SIZE.fullmatch(value)
    if match is None:
        raise UsageError("E-OPTION", None, f"--size {value!r} is not a size", expected="such as 512x768")
    return int(match[1]), int(match[2])


def _of_recipe(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of the file --recipe that no option overrides."""
    if values["recipe"] is None:
        return {}
    from ..pictures.read_recipe import recipe_of

    recipe = recipe_of(values["recipe"])
    settings = {name: getattr(recipe, name) for name in RECIPE}
    settings |= {name: settings[name] or None for name in ("negative", "scheduler")}
    if values["image"] is not None:
        settings["strength"] = recipe.strength
    return {name: setting for name, setting in settings.items() if values[name] is None}


def _prepared(values: dict[str, Any], graph: Graph) -> Graph:
    """The model with the LoRA files of the options merged, and with the words of the embeddings."""
    if not values["lora"] and not values["embedding"]:
        return graph
    from ..open.diffusion.picture_lora import merge_files
    from ..open.diffusion.single_file import split
    from ..open.diffusion.textual_inversion import add_embeddings

    graph = split(graph)
    before = len(graph.notes)
    merge_files(graph, values["lora"], offline=values["offline"])
    add_embeddings(graph, values["embedding"], offline=values["offline"])
    current().warn(graph.notes[before:])
    return graph


@click.command("draw", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option("-p", "--prompt", metavar="TEXT", help="Prompt; - reads standard input.")
@click.option(
    "--recipe",
    metavar="FILE",
    type=shared_options.PATH,
    help="Take prompt and settings from a PNG with a recipe, or from its text; other options override it.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    type=shared_options.PATH,
    help="Output file: .png, .jpg or .webp; - writes PNG to standard output.",
)
@click.option("--negative", metavar="TEXT", help="Negative prompt.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Denoising steps (default: the model's).")
@click.option(
    "--guidance", type=Number(0), metavar="X", help="Classifier-free guidance scale; 1 turns it off, for Z-Image 0."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Random seed (default: random).")
@click.option("--size", metavar="WxH", callback=_size, help="Width and height in pixels (default: the model's).")
@click.option(
    "--scheduler", metavar="NAME", help="Scheduler, such as euler or 'DPM++ 2M Karras' (default: the model's)."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Number of images; their seeds count up from --seed.",
)
@click.option("--noise", type=click.Choice(["torch", "numpy"]), help="Random numbers (default: PyTorch's).")
@click.option(
    "--image", metavar="FILE", type=shared_options.PATH, help="Input image for image-to-image and inpainting."
)
@click.option(
    "--strength",
    type=Number(0, 1, min_open=True),
    metavar="P",
    help="Share of the denoising steps applied to --image (default 0.8; 1 with --mask).",
)
@click.option(
    "--mask", metavar="FILE", type=shared_options.PATH, help="Inpainting mask: white is redrawn, black is kept."
)
@click.option(
    "--control", metavar="FILE", type=shared_options.PATH, help="ControlNet input image: edges, pose or depth."
)
@click.option(
    "--controlnet",
    metavar="DIR",
    type=shared_options.PATH,
    help="ControlNet model for --control (default: the model's).",
)
@click.option("--control-strength", type=Number(0), metavar="X", help="ControlNet conditioning scale (default 1).")
@click.option(
    "--lora",
    multiple=True,
    metavar="FILE[:STRENGTH]",
    type=shared_options.PATH,
    help="LoRA file in kohya's or diffusers' names (repeatable).",
)
@click.option(
    "--embedding",
    multiple=True,
    metavar="FILE[=WORD]",
    type=shared_options.PATH,
    help="Textual inversion: vectors of a new word of the prompt (repeatable).",
)
@click.option(
    "--preview", is_flag=True, help="Show the picture while it is drawn, and keep OUT.preview.png up to date."
)
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Draw pictures of a text with a diffusion model.

    MODEL is a diffusers directory (model_index.json) or a single file of Stable Diffusion 1, 2, XL, Turbo, 3 or FLUX.1.
    The same seed gives the same picture on any number of threads, and with --noise torch the one that diffusers draws.
    The settings are stored in the picture's metadata, where other tools look for them.
    """
    from ...models.pipelines.diffusion.prompt_encoder import LongPromptWarning
    from ..console.atomic_replace import refuse_existing
    from ..console.stdio import STREAM
    from ..console.warned import warned
    from ..pictures.preview import Preview
    from ..pictures.write_picture import check_picture_suffix, numbered_paths, write_picture
    from ..run.counter import Counter

    output, force = values["output"], values["force"]
    check_picture_suffix(output)
    paths = numbered_paths(output, values["batch"])
    for path in paths:
        refuse_existing(path, force=force)
    values = {**values, **_of_recipe(values)}
    prompt = sys.stdin.read().strip() if values["prompt"] == STREAM else values["prompt"]
    if prompt is None:
        raise UsageError(
            "E-OPTION", None, "missing option -p / --prompt", hint="Pass a prompt, or --recipe PICTURE.png"
        )
    found = option_values.load_for("draw", model, values, prepare=functools.partial(_prepared, values))
    settings = {name: values[name] for name in (*SETTINGS, "size") if values[name] is not None}
    if values["controlnet"] is not None:
        settings["controlnet"] = option_values.load_model(values["controlnet"], values)
    counter = Counter(option_values.progress(values), "drawing", "steps")
    with (
        warned(LongPromptWarning, "W-DRAW-PROMPT") as notes,
        Preview(found, output, shown=values["preview"]) as preview,
    ):
        drawn = found.draw(prompt, on_progress=counter, on_preview=preview.update, **settings)
    pictures = drawn if isinstance(drawn, list) else [drawn]
    busy().stop()
    out = current()
    out.warn(notes)
    for path, picture in zip(paths, pictures, strict=True):
        write_picture(path, picture, str(picture.recipe), force=force)
        if path != STREAM:
            out.say(f"✓ {path}  {picture.width}x{picture.height} · seed {picture.recipe.seed}")
    shown = [
        {"path": path, "seed": picture.recipe.seed, "width": picture.width, "height": picture.height}
        for path, picture in zip(paths, pictures, strict=True)
    ]
    recipe = str(pictures[0].recipe)
    out.emit({"inputs": [model], "outputs": shown, "recipe": recipe, "warnings": notes_json(notes)})
