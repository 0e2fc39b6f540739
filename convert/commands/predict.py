"""``predict``: what a model finds in its inputs: labels, spans, answers, tokens, boxes, masks, depth, pitch, speech."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from ...runtime.base.errors import UsageError
from ..cli import shared_options
from ..cli.number import Number

EPILOG = """\b
Examples
  candle-convert predict squad_dir "Who sat?" --context "A cat sat there."
  candle-convert predict detector_dir photos/ 'more/*.jpg' -o boxes/ --json
  candle-convert predict sam_dir cat.jpg --points 320,200 --points 90,40,0
"""
OPTIONS = (
    "context", "top", "batch", "threshold", "iou", "classes", "points", "boxes", "stability", "grid", "min_area",
    "crop_layers",
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


@click.command("predict", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="[INPUT ...]", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", type=shared_options.PATH, help="File with one input a line; - reads standard input."
)
@click.option("--context", metavar="TEXT", help="The text that answers a question, or the second text of a pair.")
@click.option("--task", metavar="NAME", help="Task of the model, such as fill-mask (default: as the model says).")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Show the N most probable results of an input.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Inputs of one run (default: 32 texts, 1 picture).")
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    metavar="DIR",
    type=shared_options.PATH,
    help="Folder for annotated copies of pictures.",
)
@click.option("--threshold", type=Number(0, 1), metavar="P", help="Lowest score of objects.")
@click.option("--iou", type=Number(0, 1), metavar="P", help="Most that boxes may overlap (default 0.7).")
@click.option(
    "--classes",
    metavar="NAME,...",
    help="Labels of objects to look for (default: all), or of texts, judged by a model of inference.",
)
@click.option(
    "--points",
    multiple=True,
    metavar="X,Y[,0]",
    callback=_numbers,
    help="Point of the object to cut out, in pixels; with 0 a point outside of it. Repeatable.",
)
@click.option(
    "--box",
    "boxes",
    multiple=True,
    metavar="X0,Y0,X1,Y1",
    callback=_numbers,
    help="Box around an object to cut out, in pixels. Repeatable.",
)
@click.option("--stability", type=Number(0, 1), metavar="P", help="Least stability of masks (default 0.95).")
@click.option("--grid", type=click.IntRange(1, 256), metavar="N", help="N x N points find masks (default 32).")
@click.option("--min-area", type=click.IntRange(0), metavar="N", help="Remove holes and islands of fewer pixels.")
@click.option(
    "--crop-layers", type=click.IntRange(0, 4), metavar="N", help="Also search N layers of crops for small objects."
)
@shared_options.PREPROCESSOR
@click.option("--force", is_flag=True, help="Replace existing annotated pictures.")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Show what a model finds in its inputs.

    An INPUT is a text, or, for models of pictures or sounds, a file, a folder or a pattern of names; FILE has one a
    line. The task is the model's: labels of a text, a pair, a picture or a sound, labeled spans, the answer to a
    question, the tokens in place of a mask, boxes, masks, depth, pitch, segments of speech. MODEL is a Hugging Face
    directory, a GGUF file, or an ONNX file with its tokenizer in the same directory. A sound may be - for standard
    input.

    Segment Anything cuts out what --points and --box show, or without them everything that a grid of points finds;
    --json has masks as COCO run lengths (size and counts).

    A damaged picture or sound among several gets a line on standard error, and the exit code is that of its error at
    the end.
    """
    from ..inputs.input_kind import kind_of
    from ..run.text_lines import texts_of

    given = texts_of(inputs, values["file"], "INPUT")
    found = shared_options.load_for("predict", model, values, values["task"])
    options = {name: values[name] for name in OPTIONS if values[name] is not None}
    kind = kind_of(found)
    for name in ("output", "preprocessor"):
        if values[name] is not None and name not in kind.predict_options:
            raise UsageError("E-OPTION", None, f"{found.task} takes {kind.several}; --{name} is for pictures")
    return kind.predict(found, model, given, options, values)
