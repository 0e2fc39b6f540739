"""Options of commands that read images as inputs of a network, and the preparation that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ....runtime.base.errors import UsageError

if TYPE_CHECKING:
    from ...run.image_preprocess import Look

IMAGES = (
    click.option("--size", metavar="HxW", help="Images: height and width of the input (default: the model's)."),
    click.option(
        "--resize",
        type=click.IntRange(1),
        metavar="N",
        help="Images: length of the shorter side before the center crop.",
    ),
    click.option(
        "--mean",
        default="0",
        metavar="R,G,B",
        help="Images: mean, subtracted from values of 0 to 1 (0.485,0.456,0.406).",
    ),
    click.option(
        "--std", default="1", metavar="R,G,B", help="Images: standard deviation, divided by (0.229,0.224,0.225)."
    ),
    click.option("--order", default="rgb", type=click.Choice(["rgb", "bgr"]), help="Images: order of channels."),
    click.option(
        "--layout", type=click.Choice(["nchw", "nhwc"]), help="Images: order of axes (default: by the input's shape)."
    ),
)
DEFAULTS = {"size": None, "resize": None, "mean": "0", "std": "1", "order": "rgb", "layout": None}
"""Default values of `IMAGES`."""


def refuse_image_options(values: dict[str, Any]) -> None:
    """Raise UsageError for options of images without a network to calibrate."""
    given = next((name for name, default in DEFAULTS.items() if values[name] != default), None)
    if given is not None:
        why = f"--{given} is for images of --calib, and the model has no graph"
        raise UsageError("E-OPTION", None, why, hint=f"Omit --{given}")


def look(values: dict[str, Any]) -> Look:
    """How the options say that images are prepared."""
    from ...run.image_preprocess import Look

    size = None
    if values["size"] is not None:
        height, _, width = values["size"].partition("x")
        if not height.isdecimal() or not width.isdecimal() or not int(height) * int(width):
            raise UsageError("E-OPTION", None, f"--size {values['size']!r} is not of the form HxW")
        size = (int(height), int(width))
    mean, std = _numbers(values["mean"], "--mean"), _numbers(values["std"], "--std")
    return Look(size, values["resize"], mean, std, values["order"], values["layout"])


def _numbers(text: str, option: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError("E-OPTION", None, f"{option} {text!r} is not a list of numbers") from error
    if len(numbers) not in (1, 3):
        why = f"{option} needs one number, or one for each channel"
        raise UsageError("E-OPTION", None, why, expected="1 or 3", found=len(numbers))
    return numbers
