"""``types``: the dtypes and block types, what they cost, and which format holds them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from .. import arguments
from ..output import current

if TYPE_CHECKING:
    from ...runtime.dtype import DType

EPILOG = """\b
Examples
  candle-convert types
  candle-convert types q4_k q6_k bf16
  candle-convert types --format safetensors --json
"""


@click.command("types", epilog=EPILOG)
@click.argument("names", metavar="[TYPE]...", nargs=-1, type=arguments.DTYPE)
@click.option("--format", "held_by", metavar="FMT", type=arguments.FORMAT, help="Only types that this format is written with.")
@arguments.options()
def COMMAND(names: tuple[str, ...], held_by: str | None) -> None:  # noqa: N802 (the name that the registry looks for)
    """List dtypes and quantized block types.

    Bits are per weight, exactly; a block type packs a run of weights of one row into a fixed number of bytes. SNR is what normally distributed
    numbers keep of their signal, measured; 6 dB more is half the error.
    """
    from ...ops.quants import codecs
    from ...runtime.dtype import DTYPES, dtype_named
    from .. import recognise

    writers = {format.name: format.dtypes for format in recognise.formats() if format.layout is not None}
    wanted = {recognise.by_name(held_by).name} if held_by is not None else set()
    rows = []
    for dtype in map(dtype_named, names) if names else DTYPES.values():
        holders = [name for name, dtypes in writers.items() if dtype in dtypes]
        if not wanted or wanted & set(holders):
            rows.append(_row(dtype, holders, dtype.kind != "block" or dtype in codecs()))
    columns = ("type", "bits", "SNR dB", "block", "bytes", "numpy", "torch", "safetensors", "ggml", "written by")
    out = current()
    out.table(columns, [[*_cells(row), " ".join(row["formats"])] for row in rows], right=(1, 2, 3, 4), optional=(5, 6, 7))
    out.emit({"types": rows})


def _row(dtype: DType, formats: list[str], decodes: bool) -> dict[str, Any]:
    from ..quantizing.quality import SNR_DB

    bits = Fraction(dtype.block_nbytes * 8, dtype.block)
    return {
        "name": dtype.name,
        "kind": dtype.kind,
        "bits_per_weight": float(bits),
        "snr_db": SNR_DB.get(dtype.name),
        "block": dtype.block,
        "block_bytes": dtype.block_nbytes,
        "numpy": dtype.numpy,
        "torch": dtype.torch,
        "safetensors": dtype.safetensors,
        "ggml": None if dtype.ggml is None else {"name": dtype.name.upper(), "id": dtype.ggml},
        "onnx": dtype.onnx,
        "formats": formats,
        "decodes": decodes,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    bits = f"{row['bits_per_weight']:g}"
    ggml = "" if row["ggml"] is None else f"{row['ggml']['name']} ({row['ggml']['id']})"
    quality = "" if row["snr_db"] is None else f"{row['snr_db']:.1f}"
    return [row["name"], bits, quality, row["block"], row["block_bytes"], *(row[name] or "" for name in ("numpy", "torch", "safetensors")), ggml]
