"""``predict``: runs a model on texts, images or audio and prints labels, spans, answers, boxes, masks or depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from ...runtime.base.errors import UsageError
from ..cli import shared_options
from ..cli.number import Number
from ..cluster import cluster_option

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert predict squad_dir "Who sat?" --context "A cat sat there."
  candle-convert predict detector_dir photos/ 'more/*.jpg' -o boxes/ --json
  candle-convert predict clip_dir cat.jpg --labels "a cat,a dog"
"""
OPTIONS = (
    "context", "question", "top", "batch", "threshold", "iou", "classes", "points", "boxes", "stability", "grid",
    "min_area", "crop_layers",
)  # fmt: skip
"""Options of tasks; those of a model's task are known to its pipeline."""


def _numbers(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[list[float]] | None:
    """Numbers between commas; None if the option is not given."""
    found = []
    for value in values:
        why = f"{parameter.opts[0]} {value!r} is not {parameter.metavar}"
        try:
            numbers = [float(each) for each in value.split(",")]
        except ValueError as error:
            raise UsageError("E-OPTION", None, why) from error
        if not all(map(math.isfinite, numbers)):
            raise UsageError("E-OPTION", None, why)
        found.append(numbers)
    return found or None


@click.command("predict", epilog=EPILOG, short_help="Run a model on text, images or audio.")
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="[INPUT ...]", nargs=-1)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=shared_options.PATH,
    help="File with one input per line; - reads standard input.",
)
@click.option("--context", metavar="TEXT", help="Passage that answers the question, or second text of a pair.")
@click.option("--question", metavar="TEXT", help="Question about the pictures.")
@click.option("--task", metavar="NAME", help="Task, such as fill-mask, or Florence-2's <OD> (default: the model's).")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Number of results per input, most probable first.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Batch size (default: 32 texts, 1 image).")
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    metavar="DIR",
    type=shared_options.PATH,
    help="Folder for annotated images.",
)
@click.option("--threshold", type=Number(0, 1), metavar="P", help="Minimum confidence (0-1).")
@click.option("--iou", type=Number(0, 1), metavar="P", help="NMS IoU threshold (default 0.7).")
@click.option(
    "--classes",
    "--labels",
    "classes",
    metavar="NAME,...",
    help="Labels to detect (default: all), or candidate labels for zero-shot classification.",
)
@click.option(
    "--points",
    multiple=True,
    metavar="X,Y[,0]",
    callback=_numbers,
    help="Segmentation prompt in pixels: foreground point, or background point with 0. Repeatable.",
)
@click.option(
    "--box",
    "boxes",
    multiple=True,
    metavar="X0,Y0,X1,Y1",
    callback=_numbers,
    help="Segmentation prompt in pixels: box around an object. Repeatable.",
)
@click.option("--stability", type=Number(0, 1), metavar="P", help="Minimum stability score of masks (default 0.95).")
@click.option(
    "--grid", type=click.IntRange(1, 256), metavar="N", help="Prompt with a grid of N x N points (default 32)."
)
@click.option(
    "--min-area", type=click.IntRange(0), metavar="N", help="Remove holes and islands of masks below N pixels."
)
@click.option(
    "--crop-layers", type=click.IntRange(0, 4), metavar="N", help="Layers of image crops to search for small objects."
)
@shared_options.PREPROCESSOR
@click.option("--force", is_flag=True, help="Overwrite annotated images.")
@cluster_option.running
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Run a model on text, images or audio and print its predictions.

    INPUT is text, or for image and audio models a file, folder or glob pattern (- reads audio from standard input);
    -f reads one input per line from FILE. MODEL is a Hugging Face directory, a GGUF file, or an ONNX file next to its
    tokenizer. Its task decides what is printed: class labels, named entities, answers, mask tokens, boxes, masks,
    keypoints, depth, captions, pitch or speech segments.

    Segment Anything segments the objects at --points and --box, or every object without them; --json prints masks as
    COCO RLE (size and counts).

    A damaged file is reported on standard error and skipped; the exit code is then that of its error.
    """
    from ..inputs.input_kind import kind_of
    from ..run.text_lines import texts_of

    given = texts_of(inputs, values["file"], "INPUT")
    prompt = values["task"] if (values["task"] or "").startswith("<") else None
    found = cluster_option.load_for("predict", model, values, None if prompt else values["task"])
    options = {name: values[name] for name in OPTIONS if values[name] is not None}
    options |= {"task": prompt} if prompt else {}
    kind = kind_of(found)
    for name in ("output", "preprocessor"):
        if values[name] is not None and name not in kind.predict_options:
            raise UsageError("E-OPTION", None, f"{found.task} takes {kind.several}; --{name} is for pictures")
    return kind.predict(found, model, given, options, values)
