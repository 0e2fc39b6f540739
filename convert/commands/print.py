"""``print``: values of a tensor or of a slice of it, with statistics and a histogram."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.ir.graph import Graph
    from ..inspect.selection import Selection
    from ..inspect.statistics import Statistics

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert print model.safetensors layers.0.weight
  candle-convert print model.pth 'layers.0.weight[0:3,:5]' --precision 8
  candle-convert print model.gguf 'output.weight[..., -1]' --save column.npy
"""
SHOWN = 1000
BAR = 30


@click.command("print", epilog=EPILOG)
@click.argument("path", metavar="FILE|DIR|hf://...", type=shared_options.PATH)
@click.argument("tensor", metavar="TENSOR[slice]")
@click.option("--full", is_flag=True, help=f"Print all values (default: only the edges, beyond {SHOWN}).")
@click.option(
    "--precision",
    type=click.IntRange(0, 20),
    metavar="N",
    default=4,
    help="Digits after the decimal point (default 4).",
)
@click.option("--no-stats", is_flag=True, help="Values only, without statistics.")
@click.option("--save", metavar="OUT.npy", type=shared_options.TEXT_OUT, help="Write the values to a numpy file.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing file.")
@shared_options.options(shared_options.READING, shared_options.PROGRESS)
def COMMAND(path: str, tensor: str, **values: Any) -> None:  # noqa: N802
    """Show values of a tensor, with statistics and a histogram.

    The slice is numpy's: [0], [0:3,:5], [..., -1], [::2]. Only the selected rows are read. Quantized values are
    decoded. For GPTQ, AWQ, bitsandbytes ..., both the weights and the tensors that store them can be named.
    """
    from ..inspect.selection import select

    selection = select(_opened(path, tensor, values), tensor)
    selection.plain()
    out = current()
    whole = "" if selection.shape == selection.tensor.shape else f" of {_shape(selection.tensor.shape)}"
    out.say(f"{printable(selection.name)}  {selection.tensor.dtype}  {_shape(selection.shape)}{whole}")
    found = None if values["no_stats"] else _statistics(selection, values)
    if found is not None:
        _show_statistics(found)
    if values["save"] is not None:
        _save(selection, values["save"], values["force"])
    full = values["full"] or selection.count <= SHOWN
    shown = selection.values() if full else selection.edges(SHOWN)
    if selection.plain().dtype.kind in ("int", "uint") and shown.dtype.kind == "V":
        shown = shown.astype("i2")
    out.lines(_text(shown, values["precision"], full=full))
    if out.json:
        out.emit(_payload(path, selection, found, shown if full else None))


def _opened(path: str, tensor: str, values: dict[str, Any]) -> Graph:
    """The model with its weights as numbers, unless a tensor is meant that only makes such a weight."""
    from ..open.prequantized import unpack

    graph = option_values.open_input(path, values, dequantized=False, parts=True)
    stored = dict(graph.weights)
    if unpack(graph) and not {tensor, tensor.partition("[")[0]} & graph.weights.keys():
        graph.weights |= stored
    return graph


def _statistics(selection: Selection, values: dict[str, Any]) -> Statistics:
    from ..inspect.statistics import statistics

    progress = option_values.progress(values)
    progress.phase("reading")
    progress.start(2 * selection.count * selection.plain().dtype.as_numpy().itemsize)
    try:
        return statistics(selection, progress.advance)
    finally:
        progress.finish()


def _show_statistics(found: Statistics) -> None:
    say = current().say
    numbers = ", ".join(
        f"{name} {getattr(found, name):.6g}"
        for name in ("min", "max", "mean", "std")
        if getattr(found, name) is not None
    )
    say(
        f"{numbers or 'no finite values'}  ({counted(found.count, 'value')}: {found.nan:,} NaN, {found.inf:,} Inf, "
        f"{counted(found.zeros, 'zero')})"
    )
    most = max(found.counts, default=0)
    for low, high, count in zip(found.edges, found.edges[1:], found.counts, strict=False):
        bar = "█" * -(-count * BAR // most)
        say(f"  {low:>11.4g} … {high:<11.4g} {bar:<{BAR}} {count:,}".rstrip())


def _text(values: np.ndarray, precision: int, *, full: bool) -> str:
    import numpy

    if values.dtype.kind not in "biufc" or values.dtype.name == "float16":
        values = values.astype(numpy.float32)
    width = shutil.get_terminal_size().columns
    return numpy.array2string(
        values, precision=precision, threshold=sys.maxsize if full else 0, edgeitems=3, max_line_width=width
    )


def _save(selection: Selection, path: str, force: bool) -> None:
    """Write a .npy file; types that numpy itself lacks are widened to float32."""
    import numpy

    from ..console.atomic_replace import replacing

    values = selection.values()
    native = values.dtype.kind in "biufc" and values.dtype.name in numpy.sctypeDict
    with replacing(path, force=force) as file:
        numpy.lib.format.write_array(file, values if native else values.astype(numpy.float32), allow_pickle=False)
    told = "" if native else ", as float32"
    current().say(f"saved to {printable(path)}{told}")


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _payload(path: str, selection: Selection, found: Statistics | None, values: np.ndarray | None) -> dict[str, Any]:
    return {
        "inputs": [path],
        "tensor": selection.name,
        "dtype": selection.tensor.dtype.name,
        "shape": list(selection.tensor.shape),
        "selected": list(selection.shape),
        "statistics": None if found is None else dataclasses.asdict(found),
        "values": None if values is None else _plain(values),
    }


def _plain(values: np.ndarray) -> Any:
    """Values as nested JSON lists: non-finite numbers as text, complex ones as pairs."""
    import numpy

    if values.dtype.kind == "c":
        return _plain(numpy.stack([values.real, values.imag], axis=-1))
    if values.dtype.kind not in "biuf" or values.dtype.name not in numpy.sctypeDict:
        values = values.astype(numpy.float64)
    listed = values.tolist()
    return listed if values.dtype.kind != "f" or numpy.isfinite(values).all() else _texts(listed)


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return value if math.isfinite(value) else str(value)
